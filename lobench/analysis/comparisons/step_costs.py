"""Costs of steps, and losses at equal time, of subjects on one case. Machine classes are never mixed."""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lobench.analysis.comparisons.paired_values import samples_of_values
from lobench.analysis.stats.comparison import MeanDifference, mean_difference
from lobench.analysis.store.subjects import Cell, StoredSubject
from lobench.core.step_cost import MachineClass, Overhead, StepCost, StepSeconds

__all__ = [
    "CaseCosts",
    "ClassCosts",
    "SideCost",
    "class_costs",
    "compare_costs",
    "shared_costs",
    "time_factors",
    "timed_difference",
]

_NORMAL_QUANTILE = 1.96  # normal quantile for 95% bounds of a ratio of times


@dataclass(frozen=True, slots=True, kw_only=True)
class SideCost:
    """Cost of one subject on one case, on one class of machines.

    Attributes:
      seconds: Seconds of a step of one seed.
      overhead: Time relative to a bare gradient step.
      state_bytes: Size of the optimizer's state of one seed.
      peak_bytes: Peak memory of the device. None if its backend does not report it.
      steps: Inner steps within the time budget of the class, which is the whole training of the fastest subject.
      at_equal_time: Metric after `steps` steps, by seed. NaN if the seed had diverged by then.
    """

    seconds: StepSeconds
    overhead: Overhead
    state_bytes: int
    peak_bytes: int | None
    steps: float
    at_equal_time: Mapping[int, float]

    @property
    def is_unsteady(self) -> bool:
        return self.seconds.is_unsteady


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCosts:
    """Costs of several subjects on one case, on one class of machines.

    Attributes:
      machine: Class of machines.
      metric: Name of the metric.
      budget: Seconds of a seed's whole training by the fastest subject.
      sides: Cost of each subject. None if it has no time of this class.
    """

    machine: MachineClass
    metric: str
    budget: float
    sides: tuple[SideCost | None, ...]

    @property
    def timed_sides(self) -> list[SideCost]:
        """Costs of the subjects that were timed on this class of machines."""
        return [side for side in self.sides if side is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCosts:
    """Costs of two subjects on one case.

    Attributes:
      case: Identity of the case; its name in the result of `lobench.compare`.
      metric: Name of the metric.
      shared: Costs on the class of machines that both have times of. If there are several, that with the most chunks.
        None if the sides share no class.
      classes: Classes of machines of A, and of B.
      at_equal_time: Metric of B less that of A at equal time.
      at_equal_steps: Metric of B less that of A after the last step.
    """

    case: str
    metric: str
    shared: ClassCosts | None
    classes: tuple[tuple[MachineClass, ...], tuple[MachineClass, ...]]
    at_equal_time: MeanDifference
    at_equal_steps: MeanDifference


def costs_by_class(cell: Cell | None) -> dict[MachineClass, list[StepCost]]:
    """Returns the costs of a cell's blocks that have times, by class of machines."""
    costs_of_class: dict[MachineClass, list[StepCost]] = {}
    for curves in cell.blocks if cell is not None else ():
        if curves.cost is not None and curves.cost.samples:
            costs_of_class.setdefault(curves.cost.machine_class, []).append(curves.cost)
    return costs_of_class


def class_costs(cells: Sequence[Cell | None], metric: str) -> list[ClassCosts]:
    """Returns the costs of subjects on a case, for each class of machines with times of at least one subject.

    Times of different classes are never compared. Curves are means over all seeds, also over seeds that were trained on
    other machines, because losses do not depend on the machine.

    Args:
      cells: Results of each subject on the case. None if a subject was not evaluated.
      metric: Name of the metric.
    """
    costs_of_cells = [costs_by_class(cell) for cell in cells]
    return [
        _class_costs(machine, cells, costs_of_cells, metric)
        for machine in sorted({machine_class for costs_of_cell in costs_of_cells for machine_class in costs_of_cell})
    ]


def _class_costs(
    machine: MachineClass,
    cells: Sequence[Cell | None],
    costs_by_side: Sequence[Mapping[MachineClass, Sequence[StepCost]]],
    metric: str,
) -> ClassCosts:
    costs = _pooled_costs(cells, [costs_of_side.get(machine, ()) for costs_of_side in costs_by_side])
    seconds = [StepSeconds.of(costs_of_side) for costs_of_side in costs]
    budget = min(
        timing.median * cell.steps[-1]
        for timing, cell in zip(seconds, cells, strict=True)
        if cell is not None and timing.num_samples
    )
    return ClassCosts(
        machine=machine,
        metric=metric,
        budget=float(budget),
        sides=tuple(
            _side_cost(cell, costs_of_side, timing, float(budget), metric)
            if cell is not None and costs_of_side
            else None
            for cell, costs_of_side, timing in zip(cells, costs, seconds, strict=True)
        ),
    )


def _pooled_costs(cells: Sequence[Cell | None], costs: Sequence[Sequence[StepCost]]) -> list[Sequence[StepCost]]:
    """Returns the costs of each cell, pooled over all cells that run the same program.

    Thetas of one program, or settings that are its arguments, have equal costs on one class of machines, and differ by
    timing noise only. A cell without times of the class gets an empty list.
    """
    keys = [_program_key(cell) for cell in cells]
    return [
        [
            cost
            for other_key, costs_of_other in zip(keys, costs, strict=True)
            if other_key == key
            for cost in costs_of_other
        ]
        if key and costs_of_cell
        else costs_of_cell
        for key, costs_of_cell in zip(keys, costs, strict=True)
    ]


def _program_key(cell: Cell | None) -> str:
    """Returns an identifier of the compiled program of a cell; "" if it is not known."""
    return cell.case.program_key if cell is not None and cell.case.program_hash else ""


def timed_difference(
    a: Mapping[int, float],
    values_of_b: Sequence[Mapping[int, float]],
    cells: Sequence[Cell],
    side_costs: Sequence[SideCost],
    alpha: float,
    step: float = 0.0,
) -> MeanDifference:
    """Returns the difference of values that depend on times. It has no verdict if a time is unsteady.

    Args:
      a: Values of A, by seed.
      values_of_b: Values of B as measured, and at the bounds of the times. The interval is the union of their
        intervals, and the p-value the largest.
      cells: Results of both sides.
      side_costs: Costs of both sides.
      alpha: Level of the interval.
      step: Lower bound of the step to which the values are rounded.
    """
    pairs = [samples_of_values(a, values, *cells) for values in values_of_b]
    differences = [mean_difference(dataclasses.replace(pair, step=max(pair.step, step)), 1 - alpha) for pair in pairs]
    first_difference = differences[0]
    if any(cost.is_unsteady for cost in side_costs):
        note = (
            f"{first_difference.mean:+.4g}, no verdict: unsteady times"
            if math.isfinite(first_difference.mean)
            else "unsteady times"
        )
        return dataclasses.replace(
            first_difference,
            lower=math.nan,
            upper=math.nan,
            p_value=math.nan,
            p_converged=math.nan,
            p_diverged=math.nan,
            note=note,
        )
    return dataclasses.replace(
        first_difference,
        lower=min(difference.lower for difference in differences),
        upper=max(difference.upper for difference in differences),
        p_value=max(difference.p_value for difference in differences),
        p_converged=max(difference.p_converged for difference in differences),
    )


def time_factors(cells: Sequence[Cell], sides: Sequence[SideCost]) -> tuple[float, ...]:
    """Returns factors on the ratio of two times: 1 and its two 95% bounds, or only 1 for one program."""
    error = math.hypot(*(cost.seconds.error for cost in sides))
    if (_program_key(cells[0]) and _program_key(cells[0]) == _program_key(cells[1])) or not error > 0:
        return (1.0,)
    return 1.0, math.exp(-_NORMAL_QUANTILE * error), math.exp(_NORMAL_QUANTILE * error)


def _side_cost(cell: Cell, costs: Sequence[StepCost], seconds: StepSeconds, budget: float, metric: str) -> SideCost:
    steps = min(budget / seconds.median, float(cell.steps[-1]))
    peaks = [cost.peak_bytes for cost in costs if cost.peak_bytes is not None]
    return SideCost(
        seconds=seconds,
        overhead=Overhead.of(costs),
        state_bytes=max(cost.state_bytes for cost in costs),
        peak_bytes=max(peaks, default=None),
        steps=steps,
        at_equal_time=_values_at(cell, metric, steps),
    )


def _values_at(cell: Cell, metric: str, step: float) -> dict[int, float]:
    """Returns a metric of each seed after `step` steps, interpolated linearly between evaluations.

    A seed that diverges between two evaluations has the value of the first.
    """
    values_by_seed = {}
    for seed, (curves, row) in sorted(cell.curves_by_seed.items()):
        eval_steps = curves.eval_steps
        values = np.asarray(curves.metrics.get(metric, ()))
        if values.ndim != 2 or values.shape[1] != len(eval_steps):
            continue  # one value a seed, taken at the end
        index_before = bisect.bisect_right(eval_steps, step + 1e-6) - 1
        if index_before < 0:
            continue  # imported curves that begin later
        index_after = min(index_before + 1, len(eval_steps) - 1)
        value_before = float(values[row, index_before])
        value_after = float(values[row, index_after])
        share = (
            (step - eval_steps[index_before]) / (eval_steps[index_after] - eval_steps[index_before])
            if index_after > index_before
            else 0.0
        )
        values_by_seed[seed] = (
            value_before + max(share, 0.0) * (value_after - value_before)
            if math.isfinite(value_after)
            else value_before
        )
    return values_by_seed


def compare_costs(
    a: StoredSubject, b: StoredSubject, metrics: Mapping[str, str], *, alpha: float = 0.05
) -> list[CaseCosts]:
    """Returns the step costs of two subjects, and their difference at equal time. Cases without any time are left out.

    Args:
      a, b: The subjects.
      metrics: Name of the metric, by identity of the case.
      alpha: Level of the intervals.
    """
    case_costs = []
    for case, metric in metrics.items():
        if case not in a.cells or case not in b.cells:
            continue
        cells = a.cells[case], b.cells[case]
        classes = tuple(tuple(sorted(costs_by_class(cell))) for cell in cells)
        if not any(classes):
            continue
        common_costs = shared_costs(cells, metric)
        finals = [cell.converged_finals(metric) for cell in cells]
        steps_difference = mean_difference(samples_of_values(finals[0], finals[1], *cells), 1 - alpha)
        if common_costs is not None:
            time_difference = _at_equal_time(cells, metric, common_costs.timed_sides, alpha)
        else:
            time_difference = mean_difference(samples_of_values({}, {}, *cells), 1 - alpha)
        case_costs.append(
            CaseCosts(
                case=case,
                metric=metric,
                shared=common_costs,
                classes=(classes[0], classes[1]),
                at_equal_time=time_difference,
                at_equal_steps=steps_difference,
            )
        )
    return case_costs


def _at_equal_time(cells: Sequence[Cell], metric: str, sides: Sequence[SideCost], alpha: float) -> MeanDifference:
    """Returns B less A at equal time, with the uncertainty of the ratio of both times in the slower side's steps."""
    slower_side = 0 if sides[0].steps < cells[0].steps[-1] else 1
    last_step = float(cells[slower_side].steps[-1])
    values = [
        _values_at(cells[slower_side], metric, min(sides[slower_side].steps * factor, last_step))
        for factor in time_factors(cells, sides)
    ]
    faster_values = sides[1 - slower_side].at_equal_time
    if slower_side == 1:
        return timed_difference(faster_values, values, cells, sides, alpha)
    reversed_difference = timed_difference(faster_values, values, cells[::-1], sides, alpha)
    return dataclasses.replace(
        reversed_difference,
        mean=0.0 - reversed_difference.mean,
        lower=0.0 - reversed_difference.upper,
        upper=0.0 - reversed_difference.lower,
        num_a=reversed_difference.num_b,
        num_b=reversed_difference.num_a,
        diverged_a=reversed_difference.diverged_b,
        diverged_b=reversed_difference.diverged_a,
        note=reversed_difference.note.replace(
            f"{reversed_difference.mean:+.4g}", f"{0.0 - reversed_difference.mean:+.4g}"
        ),
    )


def shared_costs(cells: Sequence[Cell], metric: str) -> ClassCosts | None:
    """Returns the costs on a class of machines on which all cells have times; None without such a class.

    Of several such classes, the class with the most timed chunks is chosen. Only the cell with the fewest timed chunks
    on a class counts.
    """
    costs_of_all_cells = [class_cost for class_cost in class_costs(cells, metric) if None not in class_cost.sides]
    return max(
        costs_of_all_cells, key=lambda costs: min(side.seconds.num_samples for side in costs.timed_sides), default=None
    )
