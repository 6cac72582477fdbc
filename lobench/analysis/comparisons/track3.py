"""Results under Track 3's acceptance rule: each against the target, and B, C, ... against A."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lobench.analysis.comparisons.steps_to_target import Target
from lobench.analysis.stats.known_sigma import NEEDED, TARGET, Deviation, ZTest, below_target, better_than
from lobench.analysis.store.subjects import Cell, StoredSubject
from lobench.core.errors import UsageError
from lobench.core.metric import Direction

__all__ = ["JudgedResult", "Pair", "Track3", "judge_results"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedResult:
    """Result of one subject under the rule.

    Attributes:
      label: Label of the subject.
      metric: Name of the metric.
      step: Last step, common to all its runs.
      losses: Loss of each run at that step, as it was logged. NaN if the run diverged or has no result.
      mean: Mean of the losses.
      test: Test against the target.
      deviation: Noise of the runs.
      earliest: First step at which all runs have a loss and the rule is met. None if this never happens.
      runs_needed: Number of runs that would pass with this mean. None if no number would.
    """

    label: str
    metric: str
    step: int
    losses: tuple[float, ...]
    mean: float
    test: ZTest
    deviation: Deviation
    earliest: int | None
    runs_needed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Test of whether `new` beats `old`, by loss and steps together."""

    old: str
    new: str
    steps_saved: int
    test: ZTest


@dataclass(frozen=True, slots=True, kw_only=True)
class Track3:
    """Tests of every result against the target, and of all results against the first one."""

    target: float
    results: tuple[JudgedResult, ...]
    pairs: tuple[Pair, ...]


def judge_results(subjects: Sequence[StoredSubject], target: Target | None = None) -> Track3:
    """Tests results by Track 3's rule.

    Args:
      subjects: The results.
      target: Target of the losses. None: 3.28 of the primary metric.

    Raises:
      UsageError: A subject has several cases, lacks the metric, or has one for which higher is better; or its runs end
        at different steps.
    """
    wanted_target = target or Target(value=TARGET)
    results = tuple(_judge_subject(subject, wanted_target) for subject in subjects)
    first_result = results[0]
    pairs = [
        Pair(
            old=first_result.label,
            new=later_result.label,
            steps_saved=first_result.step - later_result.step,
            test=better_than(first_result.losses, later_result.losses, first_result.step - later_result.step),
        )
        for later_result in results[1:]
    ]
    return Track3(target=wanted_target.value, results=results, pairs=tuple(pairs))


def _judge_subject(subject: StoredSubject, target: Target) -> JudgedResult:
    cells = list(subject.cells.values())
    if len(cells) != 1:
        got = ", ".join(cell.case.name for cell in cells) or "none"
        raise UsageError("--rule track3 judges one case", where=subject.label, got=got)
    (cell,) = cells
    metric = target.metric or cell.case.primary_metric
    if metric not in cell.final_values:
        expected = f"one of {', '.join(sorted(cell.final_values))}"
        raise UsageError("no such metric", where=subject.label, got=metric, expected=expected)
    if cell.directions.get(metric) is Direction.MAX:
        raise UsageError("--rule track3 needs a loss", where=subject.label, got=f"{metric}, for which higher is better")
    last_steps = {curves.eval_steps[-1] for curves, _ in cell.curves_by_seed.values()}
    if len(last_steps) != 1:
        raise UsageError(
            "the runs end at different steps, and the rule wants one for all",
            where=subject.label,
            got=", ".join(map(str, sorted(last_steps))),
            next_step="import them with --until-step",
        )
    losses = (
        *map(_shortest_float32, cell.final_values[metric].values()),
        *[math.nan] * sum(cell.num_lost_by_outcome.values()),
    )
    test = below_target(losses, target.value)
    is_below_target = test.difference > 0
    return JudgedResult(
        label=subject.label,
        metric=metric,
        step=int(last_steps.pop()),
        losses=losses,
        mean=float(np.mean(losses)),
        test=test,
        deviation=Deviation.of(losses, target.value),
        earliest=_earliest_step(cell, metric, target.value, len(losses)),
        runs_needed=max(1, math.ceil((NEEDED / test.difference) ** 2 - 1e-6)) if is_below_target else None,
    )


def _earliest_step(cell: Cell, metric: str, target: float, num_runs: int) -> int | None:
    losses_by_run = [
        dict(zip(curves.eval_steps, np.asarray(curves.metrics[metric])[row], strict=True))
        for curves, row in cell.curves_by_seed.values()
        if metric in curves.metrics
    ]
    if len(losses_by_run) < num_runs:
        return None
    for step in sorted(set.intersection(*map(set, losses_by_run))):
        if below_target([_shortest_float32(losses[step]) for losses in losses_by_run], target).is_passed:
            return int(step)
    return None


def _shortest_float32(value: float) -> float:
    """Returns the shortest number that float32 rounds to this value: 3.278 is stored as 3.2780001."""
    return float(str(np.float32(value)))
