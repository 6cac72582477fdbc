"""Tables and records that compare two subjects by the cost of a step, and by a metric at equal time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, TypedDict

from lobench.analysis.comparisons.step_costs import CaseCosts, SideCost
from lobench.analysis.stats.comparison import MeanDifference
from lobench.core.json_numbers import record_from
from lobench.core.result import mean_of
from lobench.core.step_cost import UNSTEADY_NOTE
from lobench.report.tables.text import factor_mark, interval_cell, overhead_cell, p_cell, step_cell

__all__ = ["CostRecord", "cost_notes", "cost_records", "cost_tables"]


class CostOfSide(TypedDict):
    step_seconds: float
    unsteady: bool
    gradient_seconds: Annotated[float | None, "Seconds of a plain gradient step. null without `Case.time_gradient`."]
    overhead: Annotated[float | None, "Time of a step over the time of a plain gradient step."]
    state_bytes: int
    peak_bytes: int | None
    steps: Annotated[float, "Number of inner steps that fit into `seconds`."]
    at_equal_time: Annotated[dict[str, float], "Value by seed after `steps` inner steps."]


class SharedCosts(TypedDict):
    machine: str
    num_together: int
    seconds: Annotated[float, "Seconds of the whole training on the faster side, used as the time budget of both."]
    a: CostOfSide
    b: CostOfSide


class CostRecord(TypedDict):
    metric: str
    shared: Annotated[SharedCosts | None, "null: no class of machines timed both."]
    machines_a: list[str]
    machines_b: list[str]
    at_equal_steps: Annotated[MeanDifference, "Difference of the metric, B - A, after the last step."]
    at_equal_time: MeanDifference


def cost_tables(case_costs: Sequence[CaseCosts], labels: tuple[str, str]) -> list[list[list[str]]]:
    """Returns two tables, their headers first: costs of a step, and the metric at equal time and at equal steps.

    Args:
      case_costs: Costs by case.
      labels: Labels of A and of B.
    """
    a, b = labels
    shared_costs = [(costs, costs.shared.budget, _sides(costs)) for costs in case_costs if costs.shared is not None]
    has_gradient = any(not math.isnan(side.overhead.ratio) for *_, side_costs in shared_costs for side in side_costs)
    steps = list[list[str]]()
    times = list[list[str]]()
    for costs, budget, side_costs in shared_costs:
        ratio = factor_mark(side_costs[1].seconds.median / side_costs[0].seconds.median)
        overheads = [overhead_cell(side.overhead) for side in side_costs] if has_gradient else []
        seconds = [step_cell(side.seconds) for side in side_costs]
        steps.append([costs.case, *seconds, ratio, *overheads, *(f"{side.state_bytes:,}" for side in side_costs)])
        differences = [
            text
            for difference in (costs.at_equal_time, costs.at_equal_steps)
            for text in (difference.note or interval_cell(difference, "+.4g"), p_cell(difference.p_value))
        ]
        times.append([f"{costs.case}, {costs.metric}", f"{budget:.3g}", *map(_reached_cell, side_costs), *differences])
    if not shared_costs:
        return []
    header = ["seconds of a step", a, b, "B / A", *([f"{a}, over a gradient", f"{b}, over it"] if has_gradient else [])]
    at_time = ["at equal time", "seconds", f"{a} (steps)", f"{b} (steps)", "B - A", "p", "B - A at equal steps", "p"]
    return [[[*header, f"{a}, state B", f"{b}, state B"], *sorted(steps)], [at_time, *sorted(times)]]


def _sides(case_costs: CaseCosts) -> list[SideCost]:
    """Returns the costs of A and of B; [] if they share no class of machines."""
    return case_costs.shared.timed_sides if case_costs.shared is not None else []


def _reached_cell(side: SideCost) -> str:
    values = list(side.at_equal_time.values())
    mean = mean_of(values) if values else math.nan
    return f"{'diverged' if math.isnan(mean) else f'{mean:.4g}'} ({side.steps:,.0f})"


def cost_notes(case_costs: Sequence[CaseCosts]) -> list[str]:
    """Returns notes on the machines of the times, on unsteady times, and on cases without common machines."""
    machines = sorted({str(costs.shared.machine) for costs in case_costs if costs.shared is not None})
    notes = [f"times are of {', and '.join(machines)} (x: threads, or devices)"] if machines else []
    side_costs = [side for costs in case_costs for side in _sides(costs)]
    notes += [UNSTEADY_NOTE] if any(side.is_unsteady or side.overhead.is_unsteady for side in side_costs) else []
    without_common_machines = [costs for costs in case_costs if costs.shared is None]
    classes_by_side = [
        [", ".join(map(str, classes or ("none",))) for classes in costs.classes] for costs in without_common_machines
    ]
    pairs = {" against ".join(machines_of_sides) for machines_of_sides in classes_by_side}
    if without_common_machines:
        cases = ", ".join(sorted(costs.case for costs in without_common_machines))
        notes.append(f"no time of one class of machines, and none compared: {cases} ({'; '.join(sorted(pairs))})")
    return notes


def cost_records(costs: Sequence[CaseCosts]) -> dict[str, CostRecord]:
    """Returns the records of the costs by case."""
    records = {}
    for cost in costs:
        machines_a, machines_b = ([str(machine) for machine in classes] for classes in cost.classes)
        records[cost.case] = record_from(
            CostRecord, cost, shared=_shared_record(cost), machines_a=machines_a, machines_b=machines_b
        )
    return records


def _shared_record(costs: CaseCosts) -> SharedCosts | None:
    if costs.shared is None:
        return None
    a, b = map(_side_record, _sides(costs))
    machine = costs.shared.machine
    return record_from(SharedCosts, machine, seconds=costs.shared.budget, a=a, b=b)


def _side_record(side: SideCost) -> CostOfSide:
    gradient = side.overhead.gradient.median
    has_gradient = not math.isnan(gradient)
    gradient_seconds = gradient if has_gradient else None
    return record_from(
        CostOfSide,
        side,
        step_seconds=side.seconds.median,
        unsteady=side.is_unsteady,
        gradient_seconds=gradient_seconds,
        overhead=side.overhead.ratio if has_gradient else None,
        at_equal_time={str(seed): value for seed, value in side.at_equal_time.items()},
    )
