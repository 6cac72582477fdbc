"""Steps to a target value, censored for seeds that never reach it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lobench.analysis.comparisons.paired_values import samples_of_values
from lobench.analysis.comparisons.step_costs import SideCost, shared_costs, time_factors, timed_difference
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.comparison import MeanDifference, mean_difference
from lobench.analysis.stats.intervals import Interval, stratified_t_mean
from lobench.analysis.store.subjects import Cell, StoredSubject
from lobench.core.errors import UsageError, suggestion
from lobench.core.metric import Direction, UnknownDirection, stored_spelling
from lobench.core.step_cost import MachineClass

__all__ = [
    "CaseSteps",
    "StepsToTarget",
    "Target",
    "TimeToTarget",
    "compare_steps",
    "parse_target",
    "steps_to_target",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Target value of a metric. The metric "" is the primary metric of each case."""

    metric: str = ""
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsToTarget:
    """First evaluated step of each seed at which a metric reaches the target, or the time until then.

    Attributes:
      steps: Steps (or seconds) by seed. Infinite if the target was never reached.
      mean: Mean with Student's interval over the seeds. NaN if a seed did not reach the target.
      median: Median with distribution-free bounds. An infinite bound is beyond `horizon`. Bounds are NaN if there are
        too few seeds: 95% needs six.
      horizon: Last step (or time) that any seed was trained to.
      gap: Resolution of the steps (or time): the largest distance between the evaluation that reached the target and
        the previous evaluation.
    """

    steps: dict[int, float]
    mean: Interval
    median: Interval
    horizon: float
    gap: float = 0.0

    @property
    def num_reached(self) -> int:
        return sum(map(math.isfinite, self.steps.values()))

    def timed(self, cost: SideCost) -> StepsToTarget:
        """Returns these numbers in seconds of training in place of steps, without compilation and evaluations."""
        seconds = cost.seconds.median
        mean, median = (
            dataclasses.replace(
                interval, mean=interval.mean * seconds, lower=interval.lower * seconds, upper=interval.upper * seconds
            )
            for interval in (self.mean, self.median)
        )
        steps = {seed: step * seconds for seed, step in self.steps.items()}
        return StepsToTarget(
            steps=steps, mean=mean, median=median, horizon=self.horizon * seconds, gap=self.gap * seconds
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeToTarget:
    """Times of both sides to the target, on a class of machines on which both sides were timed."""

    machine: MachineClass
    is_unsteady: bool
    a: StepsToTarget
    b: StepsToTarget
    difference: MeanDifference


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSteps:
    """Steps of both sides to the target on one case.

    Attributes:
      case: Identity of the case; its name in the result of `lobench.compare`.
      target: The target.
      a, b: Steps of each side.
      difference: Steps of B less those of A, tested as pairs or by Welch's test, as for values. If a seed of either
        side did not reach the target, it has only a note.
      time: Times of both sides on the same class of machines. None if they share no class.
    """

    case: str
    target: Target
    a: StepsToTarget
    b: StepsToTarget
    difference: MeanDifference
    time: TimeToTarget | None = None


def parse_target(text: str) -> Target:
    """Parses a target, such as `3.28` or `val/loss=3.28`.

    Raises:
      UsageError: The text is neither a finite number nor METRIC=VALUE.
    """
    metric, _, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError("--target", got=repr(text), expected="a value, or METRIC=VALUE: val/loss=3.28")
    return Target(metric=metric.strip(), value=number)


def steps_to_target(cell: Cell, metric: str, target: float, direction: Direction, alpha: float = 0.05) -> StepsToTarget:
    """Returns the number of steps after which the seeds of a cell reach a target."""
    steps_by_seed: dict[int, float] = {}
    horizon, gap = 0, 0
    for seed, (curves, row) in sorted(cell.curves_by_seed.items()):
        if metric not in curves.shapes:
            continue
        values = np.asarray(curves.metrics[metric])[row]
        # Stored values are float32: 3.28 is stored as 3.2799999.
        target_value = np.float32(target)
        has_reached = values <= target_value if direction is Direction.MIN else values >= target_value
        steps_by_seed[seed] = math.inf
        if has_reached.any():
            index = int(has_reached.argmax())
            steps_by_seed[seed] = float(curves.eval_steps[index])
            gap = max(gap, curves.eval_steps[index] - curves.eval_steps[index - 1] if index else 0)
        horizon = max(horizon, curves.eval_steps[-1])
    step_counts = list(steps_by_seed.values())
    have_all_reached = bool(step_counts) and all(map(math.isfinite, step_counts))
    least_variance = gap**2 / 12 if len(set(step_counts)) == 1 else 0.0
    return StepsToTarget(
        steps=steps_by_seed,
        mean=stratified_t_mean([step_counts], 1 - alpha, least=[least_variance]) if have_all_reached else Interval(),
        median=_median(step_counts, alpha),
        horizon=horizon,
        gap=gap,
    )


def _median(values: Sequence[float], alpha: float) -> Interval:
    """Returns the median with an interval between two order statistics, by binomial probabilities.

    Source: Conover 1999, section 3.2.
    """
    count = len(values)
    sorted_values = sorted(values)
    if not count:
        return Interval()
    median = sorted_values[count // 2] if count % 2 else (sorted_values[count // 2 - 1] + sorted_values[count // 2]) / 2
    tail_probability, rank = 0.0, 0
    while rank <= count // 2:  # probability that the median is below the rank-th value
        tail_probability += math.comb(count, rank) / 2**count
        if tail_probability > alpha / 2:
            break
        rank += 1
    if rank == 0:
        return Interval(mean=median)
    return Interval(mean=median, lower=sorted_values[rank - 1], upper=sorted_values[count - rank], method="sign")


def compare_steps(
    a: StoredSubject, b: StoredSubject, target: Target, scales: Scales, *, alpha: float = 0.05
) -> list[CaseSteps]:
    """Returns the steps of two subjects to a target, on each case that both were evaluated on.

    Raises:
      UsageError: No common case has the metric.
      UnknownDirection: The direction of the metric is not declared.
    """
    case_steps = []
    for identity in a.cells.keys() & b.cells.keys():
        cells = (a.cells[identity], b.cells[identity])
        metric = (
            stored_spelling(target.metric, cells[0].final_values) if target.metric else cells[0].case.primary_metric
        )
        if any(metric not in cell.final_values for cell in cells):
            continue
        direction = scales.direction(cells[0].case, metric)
        if direction is None:
            raise UnknownDirection(metric)
        steps_of_a, steps_of_b = (steps_to_target(cell, metric, target.value, direction, alpha) for cell in cells)
        difference = _difference(steps_of_a, steps_of_b, cells, alpha)
        case_target = Target(metric=metric, value=target.value)
        time = None
        if (common_costs := shared_costs(cells, metric)) is not None:
            costs = common_costs.timed_sides
            times_of_sides = [steps.timed(cost) for steps, cost in zip((steps_of_a, steps_of_b), costs, strict=True)]
            time = TimeToTarget(
                machine=common_costs.machine,
                is_unsteady=any(cost.is_unsteady for cost in costs),
                a=times_of_sides[0],
                b=times_of_sides[1],
                difference=_time_difference(times_of_sides, cells, costs, alpha),
            )
        case_steps.append(
            CaseSteps(case=identity, target=case_target, a=steps_of_a, b=steps_of_b, difference=difference, time=time)
        )
    if not case_steps:
        common_metrics = a.metrics() & b.metrics()
        raise UsageError(
            "no case on which both were evaluated has the target's metric",
            got=target.metric or "the primary metric",
            expected=", ".join(sorted(common_metrics)),
            next_step=suggestion(target.metric or "", common_metrics),
        )
    return sorted(
        case_steps,
        key=lambda case_steps: (
            scales.cases[case_steps.case].suite,
            scales.cases[case_steps.case].name,
            case_steps.case,
        ),
    )


def _time_difference(
    times_of_sides: Sequence[StepsToTarget], cells: tuple[Cell, Cell], costs: Sequence[SideCost], alpha: float
) -> MeanDifference:
    """Returns the difference of times. Its interval includes the uncertainty of the ratio of both step times."""
    if any(times.num_reached < len(times.steps) for times in times_of_sides):
        return _difference(times_of_sides[0], times_of_sides[1], cells, alpha)
    scaled_times = [
        {seed: time * factor for seed, time in times_of_sides[1].steps.items()} for factor in time_factors(cells, costs)
    ]
    return timed_difference(
        times_of_sides[0].steps, scaled_times, cells, costs, alpha, step=_agreed_gap(*times_of_sides)
    )


def _agreed_gap(*steps_of_sides: StepsToTarget) -> float:
    """Returns the largest gap, if the seeds of each side agree, so that their values have no variance; else 0."""
    all_agree = all(len(set(steps.steps.values())) == 1 for steps in steps_of_sides)
    return max(steps.gap for steps in steps_of_sides) if all_agree else 0.0


def _difference(a: StepsToTarget, b: StepsToTarget, cells: tuple[Cell, Cell], alpha: float) -> MeanDifference:
    samples = samples_of_values(a.steps, b.steps, *cells)
    samples = dataclasses.replace(samples, step=max(samples.step, _agreed_gap(a, b)))
    difference = mean_difference(samples, 1 - alpha)
    if all(steps.num_reached == len(steps.steps) for steps in (a, b)):
        return difference
    return MeanDifference(num_seeds=difference.num_seeds, method=difference.method, note="a seed did not get there")
