"""List of a store's evaluations, and details of one evaluation with the curves of its seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lobench.analysis.comparisons.viewer_index import ViewerIndex
from lobench.analysis.store.evaluation_summaries import EvaluationSummary, evaluation_summaries
from lobench.analysis.store.snapshot import Snapshot
from lobench.analysis.store.subjects import Cell
from lobench.core.metric import final_columns
from lobench.core.result import Curves
from lobench.core.wording import one_line
from lobench.drawing.curves import evenly_spaced_indices
from lobench.drawing.svg import round_rows, round_values

__all__ = ["ListedEvaluation", "evaluation_list", "evaluation_record"]


class ListedEvaluation(NamedTuple):
    """Parts of a line of the list of evaluations that depend on the evaluation alone.

    Attributes:
      summary: Summary of the evaluation.
      leading_cells: Case, outer step, generation, checkpoint, seeds and outcome.
      counts: Numbers of diverged and exploded seeds.
    """

    summary: EvaluationSummary
    leading_cells: tuple[object, ...]
    counts: tuple[int | None, int | None]

    @classmethod
    def of(cls, summary: EvaluationSummary) -> ListedEvaluation:
        row, subject = summary.row, summary.subject
        name = subject.label
        if subject.kind == "checkpoint":
            name = (subject.uri or row.key.checkpoint_sha256).rsplit("/", 1)[-1]
        outer_position = (subject.known_outer_step, subject.generation if subject.has_theta else None)
        case = f"{row.case.suite}/{row.case.name}"
        return cls(
            summary=summary,
            leading_cells=(case, *outer_position, name, row.key.seed_block.seed_range_text, str(row.outcome)),
            counts=(summary.num_diverged, summary.num_exploded) if summary.num_diverged >= 0 else (None, None),
        )


def evaluation_list(
    snapshot: Snapshot, listed_by_row: dict[int, list[ListedEvaluation]] | None = None
) -> dict[str, Any]:
    """Returns columns and rows, with one row per seed block and sighting.

    After its columns, a row has the indices of subject and case. Unknown ones are -1, for example for a changed case.

    Args:
      snapshot: Content of the store.
      listed_by_row: Evaluations of each row by its `id`, from an earlier page. They are replaced by those of this one.
    """
    listed_by_row = {} if listed_by_row is None else listed_by_row
    rows = snapshot.rows
    new_rows = [row for row in rows if id(row) not in listed_by_row]
    for summary in evaluation_summaries(new_rows, [curves for _, curves in snapshot.measured_rows(new_rows)]):
        listed_by_row.setdefault(id(summary.row), []).append(ListedEvaluation.of(summary))
    row_ids = {id(row) for row in rows}
    for removed_id in listed_by_row.keys() - row_ids:
        del listed_by_row[removed_id]
    evaluations = [evaluation for row in rows for evaluation in listed_by_row[id(row)]]
    summaries = [evaluation.summary for evaluation in evaluations]
    added_metrics = {name for summary in summaries for name in summary.plugin_metrics}
    finals = final_columns((row.case.primary_metric for row in rows), added_metrics)
    columns: list[dict[str, Any]] = [
        {"name": "case"},
        {"name": "outer step", "number": True, "missing": "-"},
        {"name": "generation", "number": True, "missing": "-"},
        {"name": "checkpoint"},
        {"name": "seeds"},
        {"name": "outcome"},
        *({"name": name, "number": True, "missing": "-", "measured": True} for name in finals.values()),
        {"name": "best", "number": True, "missing": "-", "measured": True},
        {"name": "diverged", "number": True},
        {"name": "exploded", "number": True},
        {"name": "wall s", "number": True, "measured": True},
    ]
    cases = {case.identity: index for index, case in enumerate(snapshot.cases)}
    subjects = {
        (stored_subject.subject, optimizer_hash): index
        for index, stored_subject in enumerate(snapshot.subjects)
        for optimizer_hash in stored_subject.optimizer_hashes
    }
    final_columns_values = [_final_column([summary.final_means for summary in summaries], name) for name in finals]
    number_rows = zip(
        *final_columns_values,
        round_values([summary.best_mean for summary in summaries]),
        round_values([summary.wall_seconds for summary in summaries]),
        strict=True,
    )
    lines = list[list[object]]()
    for (summary, head, counts), (*finals_of_row, best, wall_seconds) in zip(evaluations, number_rows, strict=True):
        row = summary.row
        indices = subjects.get((summary.subject, row.key.optimizer_hash), -1), cases.get(row.case.identity, -1)
        lines.append([*head, *finals_of_row, best, *counts, wall_seconds, *indices])
    if not any(line[2] for line in lines):
        columns.pop(2)
        for line in lines:
            line.pop(2)
    return {"columns": columns, "rows": lines}


def evaluation_record(
    viewer_index: ViewerIndex, subject_index: int, case_index: int, most_points: int
) -> dict[str, Any] | None:
    """Returns one subject on one case: the curve of each seed by metric, its facts, and its log.

    Args:
      viewer_index: Index of the results.
      subject_index, case_index: Indices of the subject and the case in the snapshot.
      most_points: Largest number of points per curve. Longer curves are sampled evenly, with the first and last point.
    """
    cell = viewer_index.snapshot.cell(subject_index, case_index)
    if cell is None:
        return None
    failures = [f"{outcome}: {message}".rstrip(": ") for outcome, message in cell.failures]
    log = "\n".join(filter(None, [*failures, *_problems(cell)]))
    record: dict[str, Any] = {
        "log": log,
        "facts": [],
        "seeds": [],
        "steps": [],
        "metrics": [],
        "curves": [],
        "diverged": {},
    }
    if not cell.curves_by_seed:
        return record
    steps = cell.steps
    seeds = cell.seed_names()
    point_indices = evenly_spaced_indices(len(steps), most_points)
    # Metrics that some seeds lack are not drawn, because each curve needs a row per seed.
    metric_rows = [
        (index, cell.curves_of_seeds(name))
        for index, name in enumerate(viewer_index.metrics)
        if name in cell.final_values and all(name in curves.shapes for curves, _ in cell.curves_by_seed.values())
    ]
    return record | {
        "facts": _facts([curves.complete() for curves in cell.blocks]),
        "seeds": list(seeds.values()),
        "steps": steps[point_indices].tolist(),
        "metrics": [name for name, _ in metric_rows],
        "curves": round_rows([rows[:, point_indices] for _, rows in metric_rows]),
        "diverged": {seeds[seed]: step for seed, step in cell.diverged_at.items()},
    }


def _problems(cell: Cell) -> list[str]:
    return list(dict.fromkeys(problem for curves in cell.blocks for problem in curves.problems))


def _facts(blocks: Sequence[Curves]) -> list[tuple[str, str]]:
    """Returns names and values of facts on the seed blocks. Different values of several blocks are joined."""
    texts_by_fact: dict[str, list[str]] = {}
    for curves in blocks:
        provenance = curves.provenance
        revision = provenance.git_revision + (" (with local changes)" if provenance.git_dirty else "")
        seeds = f"{curves.seeds[0]} to {curves.seeds[-1]}" if len(curves.seeds) > 1 else str(curves.seeds[0])
        facts = {
            "seeds of a block": "" if curves.items else seeds,
            "items": f"{len(curves.items):,}" if curves.items else "",
            "inner parameters": f"{curves.num_params:,}" if curves.num_params else "",
            "seconds": f"{curves.wall_seconds:.3g}"
            + (f", and {curves.compile_seconds:.3g} to compile" if curves.compile_seconds else ""),
            "went on from inner step": str(curves.resumed_at or ""),
            "device": provenance.device,
            "host": provenance.host,
            "worker": provenance.worker,
            "computed with others": provenance.together,
            "git revision": revision,
            "versions": ", ".join(f"{name} {version}" for name, version in sorted(provenance.versions.items())),
        }
        for name, text in facts.items():
            texts_by_fact.setdefault(name, []).append(one_line(text))
    return [
        (name, "; ".join(dict.fromkeys(filter(None, texts)))) for name, texts in texts_by_fact.items() if any(texts)
    ]


def _final_column(finals: Sequence[Mapping[str, float]], name: str) -> list[float | str | None]:
    """Returns the final values: None without the metric, "diverged" if the value is not finite."""
    shortened = round_values([final.get(name, math.nan) for final in finals])
    return [
        "diverged" if number is None and name in final else number
        for final, number in zip(finals, shortened, strict=True)
    ]
