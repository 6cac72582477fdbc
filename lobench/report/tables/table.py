"""Table of `lobench results`: train and test losses next to each other, and each loss as a sparkline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lobench.analysis.store.evaluation_summaries import EvaluationSummary
from lobench.analysis.store.snapshot import case_names
from lobench.core.metric import final_columns, how_to_declare
from lobench.core.step_cost import UNSTEADY_NOTE, Overhead, StepCost, StepSeconds
from lobench.core.subject import Subject
from lobench.core.wording import counted, one_line
from lobench.drawing.curves import sparkline
from lobench.report.tables.text import (
    has_outer_step,
    overhead_cell,
    step_cell,
    subject_name,
    subjects_in_words,
    text_table,
)

__all__ = ["COLUMNS", "results_table"]

_CostColumns = tuple[list[str], Callable[[StepCost], list[str]]]
_COST_COLUMNS: _CostColumns = (
    ["step s", "state B"],
    lambda cost: [step_cell(StepSeconds.of([cost])), str(cost.state_bytes)],
)
_OVERHEAD_COLUMNS: _CostColumns = (["over gradient"], lambda cost: [overhead_cell(Overhead.of([cost]))])

_SortKey = Callable[[EvaluationSummary], Any]


def _metric_key(metric: str) -> _SortKey:
    return lambda line: _last_if_nan(line.final_means.get(metric, math.nan))


def _last_if_nan(value: float) -> tuple[bool, float]:
    return math.isnan(value), value


# Sort keys for `--sort`. Ties are in order of case, outer step and seeds.
COLUMNS: dict[str, _SortKey] = {
    "case": lambda line: (),
    "step": lambda line: (line.subject.generation, line.subject.outer_step),
    "train": _metric_key("train/loss"),
    "test": _metric_key("test/loss"),
    "best": lambda line: _last_if_nan(line.best_mean),
    "diverged": lambda line: -line.num_diverged,
    "wall": lambda line: _last_if_nan(line.wall_seconds),
}


def results_table(summaries: Sequence[EvaluationSummary], *, sort: str = "case", metrics: Sequence[str] = ()) -> str:
    """Returns the table, a line of counts, and notes.

    Args:
      summaries: Evaluations.
      sort: Name of the order of rows.
      metrics: Further metrics with a column.
    """
    if not summaries:
        return "the store holds no evaluation yet"
    sort_key = COLUMNS[sort]
    sorted_summaries = sorted(summaries, key=lambda summary: (sort_key(summary), _order_key(summary)))
    added_metrics = {name for summary in summaries for name in summary.plugin_metrics}
    finals = final_columns((summary.row.case.primary_metric for summary in summaries), added_metrics)
    if any("test/accuracy" in summary.final_means for summary in summaries):
        finals["test/accuracy"] = "test acc"
    has_failed_alone = not any(summary.final_means for summary in summaries)
    finals = {
        name: title
        for name, title in finals.items()
        if has_failed_alone or any(name in candidate.final_means for candidate in summaries)
    }
    finals |= {name: name for name in metrics if name not in finals}
    subjects = dict.fromkeys(summary.subject for summary in summaries)
    have_steps = all(subject.has_theta and not subject.has_given_label for subject in subjects)
    subject_heading, subject_text = ("outer step", _step_name) if have_steps else ("subject", subject_name)
    header = ["case", subject_heading, "seeds", "outcome", *finals.values()]
    cost_columns = [_COST_COLUMNS] if any(summary.step_cost is not None for summary in summaries) else []
    cost_columns += (
        [_OVERHEAD_COLUMNS]
        if any(summary.step_cost is not None and summary.step_cost.gradient is not None for summary in summaries)
        else []
    )
    header += ["best", "diverged", "exploded", "wall s", *(title for cost in cost_columns for title in cost[0]), "loss"]
    names = _distinct_names({subject: subject_text(subject) for subject in subjects})
    cases = case_names([summary.row.case for summary in summaries])
    rows = [
        header,
        *(
            _row(summary, cases[summary.row.case.identity], names[summary.subject], finals, cost_columns)
            for summary in sorted_summaries
        ),
    ]
    table = text_table(rows, left={0, 1, 3, len(header) - 1}, keys=2)
    summaries_with_curves = [summary for summary in summaries if summary.num_diverged >= 0]
    undirected_metrics = sorted(
        {summary.row.case.primary_metric for summary in summaries_with_curves if summary.direction is None}
    )
    notes = [f"no best of {name}: {how_to_declare(name)}" for name in undirected_metrics]
    if any(name.endswith(f" ({identity[:8]})") for identity, name in cases.items()):
        why = "cases of one name with a hash differ in their bindings"
        notes.append(f"{why}: tables of methods take the form of their experiment, or else the last")
    step_costs = [summary.step_cost for summary in summaries if summary.step_cost is not None]
    is_unsteady = any(StepSeconds.of([cost]).is_unsteady or Overhead.of([cost]).is_unsteady for cost in step_costs)
    notes += [UNSTEADY_NOTE] if is_unsteady else []
    machines = sorted({str(cost.machine_class) for cost in step_costs if cost.samples})
    machines_note = "step s are of several machines or numbers of trainings at once, and not to be compared"
    notes += [f"{machines_note}: {'; '.join(machines)}"] * (len(machines) > 1)
    return "\n".join([table, "", _summary_text(summaries), *map(one_line, notes)])


def _order_key(line: EvaluationSummary) -> tuple[Any, ...]:
    case, subject = line.row.case, line.subject
    return case.suite, case.name, case.identity, subject.generation, subject.outer_step, line.row.key.seed_block.start


def _row(
    summary: EvaluationSummary, case: str, subject: str, finals: Iterable[str], cost_columns: Sequence[_CostColumns]
) -> list[str]:
    row, seed_block = summary.row, summary.row.key.seed_block
    cells = [
        case,
        subject,
        "items" if row.case.has_items else seed_block.seed_range_text,
        str(row.outcome),
        *(f"{summary.final_means[name]:.4g}" if name in summary.final_means else "-" for name in finals),
    ]
    if summary.num_diverged < 0:
        return [*cells, "-", "", "", "", *("" for titles, _ in cost_columns for _ in titles), row.message[:60]]
    return [
        *cells,
        "-" if math.isnan(summary.best_mean) else f"{summary.best_mean:.4g}",
        str(summary.num_diverged),
        str(summary.num_exploded),
        f"{summary.wall_seconds:.2f}",
        *(
            cell
            for titles, cells_of_cost in cost_columns
            for cell in (cells_of_cost(summary.step_cost) if summary.step_cost is not None else ["-"] * len(titles))
        ),
        sparkline(summary.mean_curve),
    ]


def _step_name(subject: Subject) -> str:
    if not has_outer_step(subject):
        return subject_name(subject)
    step = f"{subject.generation}:{subject.outer_step}" if subject.generation else str(subject.outer_step)
    return f"{subject.run} {step}" if subject.run else step


def _distinct_names(names: Mapping[Subject, str]) -> dict[Subject, str]:
    """Returns distinct names of subjects: equal ones, as for two checkpoints of one outer step, get a part of the path.

    Equal thetas at two paths get two names too.
    """
    distinct_names = dict(names)
    for name in [name for name, count in Counter(names.values()).items() if count > 1]:
        namesakes = [subject for subject, subject_label in names.items() if subject_label == name]
        paths = [subject.uri.rstrip("/").split("/") for subject in namesakes]
        path_endings = (["/".join(path[-depth:]) for path in paths] for depth in range(1, max(map(len, paths)) + 1))
        hashes = [subject.sha256[:8] for subject in namesakes]
        endings = next((end for end in path_endings if len({*end}) == len(end)), hashes)
        distinct_names |= {subject: f"{name} ({ending})" for subject, ending in zip(namesakes, endings, strict=True)}
    return distinct_names


def _summary_text(summaries: Sequence[EvaluationSummary]) -> str:
    outcomes = Counter(str(summary.row.outcome) for summary in summaries)
    subjects = {summary.subject for summary in summaries}
    summaries_with_curves = [summary for summary in summaries if summary.num_diverged >= 0]
    has_items = any(summary.row.case.has_items for summary in summaries_with_curves)
    num_seeds = sum(
        summary.row.key.seed_block.size for summary in summaries_with_curves if not summary.row.case.has_items
    )
    num_diverged, num_exploded = (
        sum(getattr(summary, name) for summary in summaries_with_curves) for name in ("num_diverged", "num_exploded")
    )
    num_diverged_items = sum(summary.num_diverged for summary in summaries_with_curves if summary.row.case.has_items)
    diverged_texts = (
        [f"{num_diverged - num_diverged_items} of {counted(num_seeds, 'seed')}"] if num_seeds or not has_items else []
    )
    diverged_texts += [counted(num_diverged_items, "item")] if has_items else []
    outcomes_text = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    return (
        f"{counted(len(summaries), 'evaluation')} of {subjects_in_words(subjects)}: {outcomes_text}; "
        f"{' and '.join(diverged_texts)} diverged, {num_exploded} exploded; "
        "'loss' draws the primary metric from the first step to the last, each row on its own scale; "
        "diverged: not finite; exploded: finite, and above twice the first value; best: the best value of any step; "
        "state B: bytes of the optimizer's state; step s: seconds of one inner step"
    )
