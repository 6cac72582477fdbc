"""Conversion of imported runs to evaluations: case, seed and curves."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lobench.core.case import ITEMS, CaseInfo
from lobench.core.errors import LobenchError, UsageError
from lobench.core.metric import Direction
from lobench.core.result import Curves, Provenance
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.engine.item_values import ItemValues
from lobench.engine.store.current import place_of_case
from lobench.tools.curve_import.points import CurveRun
from lobench.tools.curve_import.spill import Curve

__all__ = ["SUITE", "ItemTable", "TrainedCases", "make_curves", "new_case", "number_seeds"]

SUITE = "imported"  # suite name of imported cases
_SEED_LIMIT = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedCases:
    """Cases that lobench trains, according to a store or an experiment. Outdated definitions are ignored.

    Attributes:
      cases: The cases in order of recording.
    """

    cases: Sequence[CaseInfo]

    def find(self, name: str) -> CaseInfo | None:
        """Returns the case with a name such as `relu32` or `digits/relu32`, or None.

        Raises:
          UsageError: Several suites have a case of this name.
        """
        current_cases = {place_of_case(case): case for case in self.cases}.values()
        cases = {case.identity: case for case in current_cases if name in (case.name, f"{case.suite}/{case.name}")}
        if len(cases) > 1:
            names = ", ".join(sorted(f"{case.suite}/{case.name} ({case.node_id})" for case in cases.values()))
            raise UsageError(f"several cases are called {name!r}", got=names, next_step=f"--rename {name}=SUITE/CASE")
        return next(iter(cases.values()), None)


def new_case(name: str, primary_metric: str, *, has_items: bool = False) -> CaseInfo:
    """Returns a case that lobench does not train: `wikitext` becomes `imported/wikitext`.

    Raises:
      UsageError: The name is empty.
    """
    suite, _, bare = name.rpartition("/")
    suite = suite or SUITE
    if not bare:
        raise UsageError("not a name of a case", got=repr(name), expected="NAME or SUITE/NAME")
    replicates = ITEMS if has_items else "seeds"
    return CaseInfo(
        identity=hashlib.sha256(f"imported\0{suite}/{bare}".encode()).hexdigest(),
        optimizer_hash="",
        suite=suite,
        name=bare,
        node_id="",
        num_inner_steps=0,
        num_seeds=1,
        seed_block=None,
        primary_metric=primary_metric,
        fixed_seeds=has_items,
        replicates=replicates,
    )


def number_seeds(
    runs: Sequence[CurveRun],
    *,
    are_draws: bool,
    known_seeds_of: Callable[[CurveRun], Mapping[str, int]] = lambda run: {},
) -> dict[CurveRun, int]:
    """Returns a seed number for each run.

    If all seeds of a method and case are whole numbers, these are used. Otherwise runs are numbered 0, 1, ...

    Args:
      runs: The runs.
      are_draws: Whether equal seed numbers mean equal draws, so that seeds must be numbers.
      known_seeds_of: Returns the seed numbers in the store by seed name, for a run's method and case. A run keeps its
        number, whatever its position in a later file.
    Raises:
      UsageError: `are_draws` is set, and a seed is not a number.
    """
    groups: dict[tuple[str, str], list[CurveRun]] = {}
    for run in runs:
        groups.setdefault((run.method, run.case), []).append(run)
    seeds: dict[CurveRun, int] = {}
    for group in groups.values():
        limit = _SEED_LIMIT if are_draws else FIRST_REPORT_SEED  # higher seeds are the fresh seeds of searches
        unusable_run = next((run for run in group if not _is_seed(run.seed, limit)), None)
        if unusable_run is not None and are_draws:
            raise UsageError(
                "a seed of curves with equal draws is not a number",
                got=f"{unusable_run.seed!r} of {unusable_run.method!r}",
                expected=f"whole numbers below {limit:,}",
                next_step="without --paired-seeds, seeds are labels",
            )
        seed_numbers = [int(run.seed) for run in group] if unusable_run is None else []
        if len(set(seed_numbers)) == len(group):  # 1 and 01 are the same number
            seeds.update(zip(group, seed_numbers, strict=True))
            continue
        known_seeds = known_seeds_of(group[0])
        free_seeds = itertools.filterfalse(set(known_seeds.values()).__contains__, itertools.count())
        seeds.update({run: known_seeds[run.seed] if run.seed in known_seeds else next(free_seeds) for run in group})
    return seeds


def _is_seed(text: str, limit: int) -> bool:
    return re.fullmatch(r"\d{1,9}", text) is not None and int(text) < limit


def make_curves(
    run: CurveRun,
    metrics: Mapping[str, Curve],
    case: CaseInfo,
    *,
    seed: int,
    until: int | None,
    provenance: Provenance,
    directions: Mapping[str, Direction],
    until_option: str,
) -> tuple[Curves, Collection[str]]:
    """Returns a run's curves at the steps of its primary metric, and the metrics that lack some of these steps.

    Args:
      run: The run.
      metrics: Curves of the run by metric.
      case: Case of the run.
      seed: Seed number of the run.
      until: Step at which the curves end. None: the run's last step.
      provenance: Origin of the curves; only `imported` is set.
      directions: Directions of metrics.
      until_option: Spelling of the option that sets `until`, for messages.
    Raises:
      UsageError: The run lacks the primary metric, or has no value at step `until`.
    """
    primary_curve = metrics.get(case.primary_metric)
    if primary_curve is None:
        raise UsageError(
            f"a run lacks the primary metric {case.primary_metric} of {case.suite}/{case.name}",
            where=provenance.imported["file"],
            got=f"{run}: {', '.join(metrics)}",
            next_step=f"--metric NAME={case.primary_metric} selects one",
        )
    steps = primary_curve.steps
    if until is not None:
        if until not in steps:
            nearest_steps = steps[np.argsort(np.abs(steps - until), kind="stable")[:3]]
            raise UsageError(
                f"a run has no value at step {until}",
                where=provenance.imported["file"],
                got=f"{run}: steps {', '.join(map(str, sorted(nearest_steps.tolist())))}",
                expected=f"its course up to there, or {until_option} for the step where curves end",
            )
        steps = steps[steps <= until]
    values_by_metric, left_out_metrics = {}, []
    for name, curve in metrics.items():
        if curve.steps is steps:  # the metric was logged at the steps of the primary metric
            values_by_metric[name] = _to_float32(curve.values)
            continue
        indices = np.searchsorted(curve.steps, steps)
        has_all_steps = indices.size and indices[-1] < len(curve.steps) and bool((curve.steps[indices] == steps).all())
        if has_all_steps:
            values_by_metric[name] = _to_float32(curve.values[indices])
        else:
            left_out_metrics.append(name)
    is_not_finite = ~np.isfinite(values_by_metric[case.primary_metric])
    training = {"training": run.training} if run.training else {}
    curves = Curves(
        seeds=(seed,),
        metrics={name: memoryview(values.reshape(1, -1).data) for name, values in values_by_metric.items()},
        eval_steps=tuple(steps.tolist()),
        diverged_at=(int(steps[is_not_finite.argmax()]) if is_not_finite.any() else -1,),
        provenance=Provenance(imported={**provenance.imported, "run": run.seed, **training}),
        directions={name: directions[name] for name in values_by_metric if name in directions},
    )
    return curves, left_out_metrics


class ItemTable:
    """Imported values of items, which are one evaluation for each method and case."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], dict[str, dict[str, float]]] = {}

    def add(self, method: str, run: CurveRun, metrics: Mapping[str, Curve]) -> None:
        """Adds the values of an item."""
        values = self._values.setdefault((method, run.case), {})
        for name, curve in metrics.items():
            values.setdefault(name, {})[run.seed] = float(curve.values[-1])

    def curves(
        self,
        cases: Mapping[str, CaseInfo],
        make_provenance: Callable[[str, str], Provenance],
        directions: Mapping[str, Direction],
    ) -> Iterator[tuple[str, CaseInfo, Curves, tuple[str, ...]]]:
        """Yields the method, the case and the curves of each evaluation, with a line for each metric that was left out.

        Raises:
          UsageError: An item has no value of the primary metric.
        """
        for (method, name), values in self._values.items():
            case = cases[name]
            provenance = make_provenance(method, name)
            try:
                items = ItemValues.of(values, case.primary_metric, where=provenance.imported["file"])
            except UsageError:
                raise
            except LobenchError as error:
                raise UsageError(error.what, where=error.where, got=error.got, expected=error.expected) from error
            is_finite = np.isfinite(items.metrics[case.primary_metric])
            curves = Curves(
                seeds=items.seeds,
                items=items.items,
                metrics={metric: memoryview(_to_float32(row[:, None]).data) for metric, row in items.metrics.items()},
                eval_steps=(0,),
                diverged_at=tuple(np.where(is_finite, -1, 0).tolist()),
                provenance=provenance,
                directions={metric: directions[metric] for metric in items.metrics if metric in directions},
            )
            yield method, case, curves, items.problems


def _to_float32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return values.astype("<f4")
