"""How many steps two subjects take to a target, in words and for programs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from lobench.analysis.compared import Compared
from lobench.analysis.steps_to_target import CaseSteps, StepsToTarget
from lobench.core.finite import finite_or_none
from lobench.core.headline import counted
from lobench.report.lines import interval_cell, text_table

__all__ = ["steps_record", "steps_text"]


def steps_text(pair: Compared, found: Sequence[CaseSteps]) -> str:
    """Returns a table: mean steps of either where all its seeds got there, else the median, and the difference."""
    header = ["steps to the target", pair.a.label, pair.b.label, "B - A", "p", "note"]
    rows = []
    for one in found:
        difference = one.difference
        p_value = "-" if math.isnan(difference.p_value) else f"{difference.p_value:.3f}"
        name = f"{pair.name(one.case)}, {one.target.metric} {one.target.value:g}"
        note = difference.note or ("no common seeds: Welch's interval" if difference.method == "welch" else "")
        rows.append([name, _side(one.a), _side(one.b), interval_cell(difference, "+,.4g"), p_value, note])
    return text_table([header, *rows])


def _side(found: StepsToTarget) -> str:
    all_there = found.num_reached == len(found.steps)
    shown = found.mean if all_there else found.median
    text = _steps(shown.mean, found.horizon)
    if not math.isnan(shown.lower):
        text += f" [{_steps(shown.lower, found.horizon)}, {_steps(shown.upper, found.horizon)}]"
    return text if all_there else f"median {text}, {found.num_reached} of {counted(len(found.steps), 'seed')}"


def _steps(value: float, horizon: int) -> str:
    return f"> {horizon:,}" if math.isinf(value) else f"{value:,.5g}"


def steps_record(pair: Compared, found: Sequence[CaseSteps]) -> dict[str, Any]:
    """Returns the same by case; a seed that never got there is null."""
    record: dict[str, Any] = finite_or_none(
        {
            pair.name(one.case): {
                "metric": one.target.metric,
                "target": one.target.value,
                "difference": dataclasses.asdict(one.difference),
            }
            | {name: _record(side) for name, side in (("a", one.a), ("b", one.b))}
            for one in found
        }
    )
    return record


def _record(found: StepsToTarget) -> dict[str, Any]:
    return {
        "num_reached": found.num_reached,
        "num_seeds": len(found.steps),
        "horizon": found.horizon,
        "mean": dataclasses.asdict(found.mean),
        "median": dataclasses.asdict(found.median),
        "per_seed": {str(seed): step for seed, step in found.steps.items()},
    }
