"""Dry run: the cost of one checkpoint before anything is evaluated."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lobench.core.case import CaseInfo
from lobench.core.cost import CaseCost, checkpoint_cost
from lobench.core.errors import LobenchError, SuiteError
from lobench.core.subject import Variant
from lobench.engine.store.ledger import Ledger
from lobench.engine.workers.pool import InlineExecutor, LocalPool, WorkerConfig
from lobench.engine.workers.protocol import FROM_WORKER, Describe, Described, Failed, Ready
from lobench.hookspecs import WorkerExited, WorkerMessage

__all__ = ["Costs", "collect_cases", "costs_of", "joined_error"]

_COLLECT_SECONDS = 600.0  # time to wait for an answer of the worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Expected cost of evaluating one checkpoint, per case.

    Attributes:
      max_cores: Number of cores that all workers may use together.
    """

    cases: tuple[CaseCost, ...]
    max_cores: int

    @property
    def num_evaluations(self) -> int:
        return sum(cost.num_evaluations for cost in self.cases)

    @property
    def core_seconds(self) -> float:
        return sum(cost.core_seconds for cost in self.cases)

    @property
    def device_seconds(self) -> float:
        return sum(cost.device_seconds for cost in self.cases)

    @property
    def wall_seconds(self) -> float:
        """Lower bound of the wall time, without compilation."""
        return max(self.core_seconds / self.max_cores, max(cost.seconds for cost in self.cases))


def costs_of(config: WorkerConfig, store: Path, *, max_cores: int, widest: float, is_inline: bool = False) -> Costs:
    """Returns the expected cost of one checkpoint, after collecting the suites in a worker. Writes nothing.

    Args:
      store: Store whose recorded durations are used, if it exists.
      max_cores: Number of cores that all workers may use together.
      widest: Largest number of cores that one case can have.
      is_inline: See `collected`.
    Raises:
      SuiteError: The suites cannot be collected.
    """
    cases = collect_cases(config, {Variant(): ""}, is_inline=is_inline)[""]
    durations = {}
    if (store / "ledger.sqlite").is_file():
        with Ledger.open(store, read_only=True) as ledger:
            durations = dict(ledger.history(()).durations)
    return Costs(cases=tuple(checkpoint_cost(cases, durations, widest=widest)), max_cores=max_cores)


def joined_error(problems: Mapping[str, str]) -> SuiteError:
    """Returns one error for several problems.

    Args:
      problems: Messages by the label of the subject; "" if a problem concerns no subject.
    """
    labels: dict[str, list[str]] = {}
    for label, problem in problems.items():
        labels.setdefault(problem, []).append(repr(label) if label else "")
    if len(labels) == 1:
        (problem, labels_of_problem), *_ = labels.items()
        return SuiteError(problem, where=", ".join(filter(None, labels_of_problem)))
    return SuiteError("; ".join(f"{', '.join(label)}: {problem}" for problem, label in labels.items()))


def collect_cases(
    config: WorkerConfig,
    labels: Mapping[Variant, str],
    *,
    traced_variants: Collection[Variant] = (),
    names: Sequence[str] = (),
    is_inline: bool = False,
) -> dict[str, Sequence[CaseInfo]]:
    """Returns the cases of the suites, by the key of each variant, after collecting them in a worker of this machine.

    Args:
      labels: Variants, each with the label used in error messages.
      traced_variants: Variants whose training programs are traced too; see `Describe`.
      names: Names of the cases to trace.
      is_inline: Whether the worker is a thread of this process, as with `--executor inline`.
    Raises:
      SuiteError: The suites cannot be collected, or a case cannot be bound or traced.
    """
    deadline = time.monotonic() + _COLLECT_SECONDS
    cases_by_variant: dict[str, Sequence[CaseInfo]] = {}
    labels_by_key = {variant.key: label for variant, label in labels.items()}
    problems: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        executor: type[InlineExecutor | LocalPool] = InlineExecutor if is_inline else LocalPool
        pool = executor(replace(config, log_folder=Path(folder), compilation_cache=Path(folder)))
        try:
            pool.start(0, 1)
            while time.monotonic() < deadline:
                for event in pool.wait(1.0):
                    if isinstance(event, WorkerExited):
                        raise LobenchError(f"the worker that collects the suites {event.message}")
                    num_found = len(cases_by_variant)
                    match FROM_WORKER.from_bytes(event.message) if isinstance(event, WorkerMessage) else None:
                        case Ready():
                            for variant in labels:
                                request = Describe(
                                    variant=variant, is_traced=variant in traced_variants, names=tuple(names)
                                )
                                pool.send(0, request.to_bytes())
                        case Described(variant_key=key, cases=cases):
                            cases_by_variant[key] = cases
                        case Failed(messages=messages, variant_key=failed_key):
                            if failed_key is None:
                                raise SuiteError("; ".join(messages))
                            problems[labels_by_key.get(failed_key, "")] = "; ".join(messages)
                            cases_by_variant[failed_key] = ()
                    if len(cases_by_variant) > num_found:
                        deadline = time.monotonic() + _COLLECT_SECONDS
                if len(cases_by_variant) == len(labels):
                    if problems:
                        raise joined_error(problems)
                    return cases_by_variant
        finally:
            pool.close()
    late_label = next((label for variant, label in labels.items() if variant.key not in cases_by_variant), "")
    raise SuiteError(
        f"{late_label!r} was not bound" if late_label and cases_by_variant else "the suites were not collected",
        got=f"nothing after {_COLLECT_SECONDS:g} s",
    )
