"""A gate inside a pytest item: how much worse each seed is than the reference, and more seeds while undecided."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from lobench.analysis.baseline_file import BaselineCase
from lobench.analysis.gate_looks import is_settled, look_sizes, usable, with_margin
from lobench.analysis.gates import GateRules
from lobench.analysis.scales import seed_scores, tuned_scale
from lobench.analysis.spending import Looks
from lobench.core.case import CaseInfo, CaseSpec, SeedBlock
from lobench.core.errors import LobenchError, UsageError
from lobench.core.metric import Direction, UnknownDirection
from lobench.core.result import Curves, Outcome
from lobench.engine.job import Finished
from lobench.pytest_plugin import case_of
from lobench.pytest_plugin.options import option
from lobench.pytest_plugin.references import Finals, Reference, Train, find_reference, scale_of

__all__ = ["Gate", "Measured", "gate_of", "rules_of"]

_GATE: pytest.StashKey[Gate] = pytest.StashKey()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one item found, as it is attached to its report.

    Attributes:
      name: Suite and case.
      differences: score(B) - score(A) on the primary metric of each common seed that counts, in order.
      test_harm: Mean of score(A) - score(B) on `test/loss`; NaN without one. It stands beside the verdict, no more.
      margin: Of this case.
      looks: The session's planned looks; empty without adaptive seeds.
      note: Why fewer seeds count than the case has.
      reference: Records of what was trained for the reference.
    """

    name: str
    node_id: str
    differences: list[float]
    test_harm: float
    margin: float
    looks: list[int]
    note: str
    reference: list[dict[str, Any]]

    def to_record(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class Gate:
    """The gate of a session, in the process that trains.

    Args:
      cases: Every case of the session: Holm divides alpha among them, and the looks are planned for all.
    """

    def __init__(self, config: pytest.Config, reference: Reference, cases: Sequence[CaseInfo]) -> None:
        self.reference = reference
        self._against = option(config, "against")
        self._maximum = adaptive_maximum(config)
        self._num_cases = len(cases)
        sizes = {size for info in cases for size in self._sizes(info)} if self._maximum else set()
        self._looks = tuple(sorted(sizes))
        self.rules = rules_of(config, self._looks)

    def scale(self, spec: CaseSpec, info: CaseInfo) -> BaselineCase:
        """Returns the scale of a case; to be asked before it is trained, since it may be stale."""
        return scale_of(spec, info, self._against)

    def measure(
        self,
        spec: CaseSpec,
        info: CaseInfo,
        margin: float | None,
        own: Sequence[tuple[SeedBlock, Curves]],
        train: Train,
        more: Iterator[tuple[SeedBlock, Curves]],
    ) -> Measured:
        """Returns the differences to the reference, drawing blocks from `more` while the case is undecided.

        Args:
          margin: The case's own; None: the session's.
        """
        baseline, blocks = self.scale(spec, info), list(own)
        margin = self.rules.margin if margin is None else margin
        trained: list[tuple[SeedBlock, Curves]] = []
        for size in self._sizes(info):
            while sum(block.size for block, _ in blocks) < size:
                blocks.append(next(more))
            reference = self.reference.finals(spec, info, [block for block, _ in blocks], train)
            trained += reference.trained
            direction = blocks[0][1].direction(info.primary_metric)
            if direction is None and info.primary_metric in blocks[0][1].metrics:
                raise UnknownDirection(info.primary_metric, where=f"{info.suite}/{info.name}")
            found = _differences(Finals.of(blocks), reference, baseline, info.primary_metric, direction)
            count = usable(len(found), self.rules)
            if count < size or is_settled(with_margin(found[:count], margin, self.rules), self.rules, self._num_cases):
                break
        test = _differences(Finals.of(blocks), reference, baseline, "test/loss", Direction.MIN)
        seeds = sum(block.size for block, _ in blocks)
        return Measured(
            name=f"{info.suite}/{info.name}",
            node_id=info.node_id,
            differences=found[:count],
            test_harm=-float(np.mean(test)) if test else float("nan"),
            margin=margin,
            looks=list(self._looks),
            note="" if count == seeds else f"{count} of {seeds} seeds count: the reference has {len(found)} of them",
            reference=[_record(info, block, curves) for block, curves in trained],
        )

    def _sizes(self, info: CaseInfo) -> tuple[int, ...]:
        return look_sizes(info.num_seeds, info.seed_block or info.num_seeds, self._maximum)


def gate_of(item: pytest.Item) -> Gate:
    """Returns the session's gate, made once a process.

    Raises:
      LobenchError: see `find_reference`.
    """
    config = item.config
    if _GATE not in config.stash:
        config.stash[_GATE] = Gate(config, find_reference(config), _cases(item.session))
    return config.stash[_GATE]


def _cases(session: pytest.Session) -> list[CaseInfo]:
    from lobench.pytest_plugin.evaluate import case_info

    found = []
    for item in session.items:
        if case_of(item) is not None:
            try:
                found.append(case_info(item))
            except LobenchError:
                continue  # its own report says what is wrong with it
    return found


def adaptive_maximum(config: pytest.Config) -> int:
    """Returns the seeds that a case may get at most; 0 where none are added."""
    return int(_number(config, "adaptive_seeds", 0, lowest=0, highest=10_000))


def rules_of(config: pytest.Config, looks: Sequence[int]) -> GateRules:
    """Returns how the gate decides.

    Raises:
      UsageError: a margin or alpha that is no number, or out of range.
    """
    return GateRules(
        margin=_number(config, "margin", 0.02, lowest=0, highest=3),
        alpha=_number(config, "alpha", 0.05, lowest=1e-6, highest=0.5),
        looks=Looks(sizes=tuple(looks)) if len(looks) > 1 else None,
    )


def _number(config: pytest.Config, name: str, default: float, *, lowest: float, highest: float) -> float:
    text = option(config, name)
    try:
        value = float(text) if text else default
    except ValueError:
        value = float("nan")
    if not lowest <= value <= highest:
        dashed = name.replace("_", "-")
        raise UsageError(f"--lobench-{dashed}", got=text, expected=f"a number from {lowest:g} to {highest:g}")
    return value


def _differences(
    new: Finals, old: Finals, baseline: BaselineCase, metric: str, direction: Direction | None
) -> list[float]:
    after, before = new.metrics.get(metric, {}), old.metrics.get(metric, {})
    seeds = sorted(after.keys() & before.keys())
    if not seeds or metric not in baseline.tuned:
        return []
    scale, starts = tuned_scale(baseline, metric, direction), new.starts.get(metric, {})
    # A diverged seed is NaN on either side.
    theirs, ours = (seed_scores({s: side[s] for s in seeds}, starts, (), scale) for side in (before, after))
    return [ours[seed] - theirs[seed] for seed in seeds]


def _record(info: CaseInfo, block: SeedBlock, curves: Curves) -> dict[str, Any]:
    return Finished(
        case=info, seed_block=block, outcome=Outcome.PASSED, message="", payload=curves.to_payload()
    ).to_record()
