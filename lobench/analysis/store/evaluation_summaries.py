"""Overview of many evaluations: a few numbers of each, for 10,000 evaluations in a fraction of a second."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lobench.core.case import CaseInfo
from lobench.core.curve_summary import NUM_SPARKS, CurveSummary
from lobench.core.metric import Direction
from lobench.core.result import Curves
from lobench.core.step_cost import StepCost
from lobench.core.subject import Subject
from lobench.engine.store.ledger import EvaluationRow

__all__ = ["NUM_SPARKS", "EvaluationSummary", "evaluation_summaries"]
FloatArray = NDArray[np.float64]
_SummaryFields = dict[str, Any]  # fields of an `EvaluationSummary`


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSummary:
    """One line of a table: an evaluation of a subject, or a sighting of it.

    Attributes:
      row: The evaluation.
      subject: The subject.
      direction: Direction of the primary metric. None if it is not known, or without curves.
      final_means: Seed mean of each metric after the last step. NaN if a seed diverged.
      best_mean: Seed mean of the best value of the primary metric. NaN if it or its direction is unknown.
      mean_curve: Seed mean of the primary metric at evenly spaced evaluations, float64[NUM_SPARKS]. NaN if unknown.
      num_diverged: Number of seeds that met a non-finite loss; -1 without curves.
      num_exploded: Number of other seeds that ended above twice their start.
      wall_seconds: Duration of the evaluation; NaN without curves.
      step_cost: Cost of the steps. None if it was not measured.
      plugin_metrics: Metrics that plugins computed from the others.
    """

    row: EvaluationRow
    subject: Subject
    direction: Direction | None = None
    final_means: dict[str, float] = field(default_factory=dict)
    best_mean: float = math.nan
    mean_curve: FloatArray = field(default_factory=lambda: np.full(NUM_SPARKS, np.nan))
    num_diverged: int = -1
    num_exploded: int = 0
    wall_seconds: float = math.nan
    step_cost: StepCost | None = None
    plugin_metrics: tuple[str, ...] = ()


def evaluation_summaries(
    rows: Sequence[EvaluationRow], curves_of_rows: Iterable[Curves | CurveSummary | None] | None = None
) -> list[EvaluationSummary]:
    """Returns a summary for each evaluation and sighting, in the order of the rows.

    Args:
      rows: Evaluations.
      curves_of_rows: Curves of each row, or their summary, if they are already read. None: they are read here.
    """
    numbers_by_row: list[_SummaryFields] = [{}] * len(rows)
    plugin_metrics: list[Sequence[str]] = [()] * len(rows)
    groups: dict[Hashable, list[_Member]] = {}
    for index, (row, curves) in enumerate(
        zip(rows, curves_of_rows or (row.curves_or_summary for row in rows), strict=True)
    ):
        if curves is not None:
            primary = row.case.primary_metric
            summary = curves if isinstance(curves, CurveSummary) else CurveSummary.of(curves, primary)
            shapes = tuple(summary.shapes.items())
            groups.setdefault((shapes, primary, tuple(summary.directions.items())), []).append(_Member(index, summary))
            if len(summary.eval_steps) > 1:  # a plugin's metric has one value a seed
                plugin_metrics[index] = [name for name in summary.summarized_metrics if summary.shapes[name][-1] == 1]
    for members in groups.values():
        _fill_fields(members, [rows[member.row_index].case for member in members], numbers_by_row)
    return [
        EvaluationSummary(row=row, subject=subject, plugin_metrics=tuple(names), **numbers)
        for row, numbers, names in zip(rows, numbers_by_row, plugin_metrics, strict=True)
        for subject in row.sightings
    ]


class _Member(NamedTuple):
    row_index: int
    summary: CurveSummary


def _fill_fields(members: Sequence[_Member], cases: Sequence[CaseInfo], fields_by_row: list[_SummaryFields]) -> None:
    """Fills in the numbers of evaluations whose metrics have the same names and shapes."""
    first_summary, primary = members[0].summary, cases[0].primary_metric
    finals = {
        name: _mean([member.summary.final(name) for member in members]) for name in first_summary.summarized_metrics
    }
    direction = first_summary.direction(primary)
    is_known = primary in first_summary.summarized_metrics
    unknown_values = [math.nan] * len(members)
    best = (
        _mean([member.summary.best(primary) for member in members])
        if is_known and direction is not None
        else unknown_values
    )
    names = list(finals)
    columns = zip(members, cases, zip(*finals.values(), strict=True), best, strict=True)
    for (index, summary), case, final_values, best_value in columns:
        num_diverged = summary.num_diverged
        final = dict.fromkeys(names, math.nan) if num_diverged else dict(zip(names, final_values, strict=True))
        fields_by_row[index] = {
            "direction": direction,
            "final_means": final,
            "best_mean": best_value,
            "mean_curve": np.asarray(summary.sparks() or [math.nan] * NUM_SPARKS),
            "num_diverged": num_diverged,
            "num_exploded": summary.num_exploded(case),
            "wall_seconds": summary.wall_seconds,
            "step_cost": summary.cost,
        }


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    """Returns the mean of each row."""
    means: list[float] = np.asarray(rows, np.float64).mean(axis=1).tolist()
    return means
