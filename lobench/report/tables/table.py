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
_COST: _CostColumns = (
    ["step s", "state B"],
    lambda cost: [step_cell(StepSeconds.of([cost])), str(cost.state_bytes)],
)
_OVERHEAD: _CostColumns = (["over gradient"], lambda cost: [overhead_cell(Overhead.of([cost]))])

_Key = Callable[[EvaluationSummary], Any]


def _value(metric: str) -> _Key:
    return lambda line: _last_if_nan(line.final.get(metric, math.nan))


def _last_if_nan(value: float) -> tuple[bool, float]:
    return math.isnan(value), value


# Sort keys for `--sort`. Ties are in order of case, outer step and seeds.
COLUMNS: dict[str, _Key] = {
    "case": lambda line: (),
    "step": lambda line: (line.subject.generation, line.subject.outer_step),
    "train": _value("train/loss"),
    "test": _value("test/loss"),
    "best": lambda line: _last_if_nan(line.best),
    "diverged": lambda line: -line.diverged,
    "wall": lambda line: _last_if_nan(line.wall_seconds),
}


def results_table(lines: Sequence[EvaluationSummary], *, sort: str = "case", metrics: Sequence[str] = ()) -> str:
    """Returns the table, a line of counts, and notes.

    Args:
      lines: Evaluations.
      sort: Name of the order of rows.
      metrics: Further metrics with a column.
    """
    if not lines:
        return "the store holds no evaluation yet"
    key = COLUMNS[sort]
    ordered = sorted(lines, key=lambda line: (key(line), _order(line)))
    added = {name for line in lines for name in line.added}
    finals = final_columns((line.row.case.primary_metric for line in lines), added)
    if any("test/accuracy" in line.final for line in lines):
        finals["test/accuracy"] = "test acc"
    has_failed_alone = not any(line.final for line in lines)
    finals = {name: title for name, title in finals.items() if has_failed_alone or any(name in x.final for x in lines)}
    finals |= {name: name for name in metrics if name not in finals}
    have_steps = all(line.subject.has_theta for line in lines)
    subject_heading, name_of = ("outer step", _step_name) if have_steps else ("subject", subject_name)
    header = ["case", subject_heading, "seeds", "outcome", *finals.values()]
    costs = [_COST] if any(line.cost is not None for line in lines) else []
    costs += [_OVERHEAD] if any(line.cost is not None and line.cost.gradient is not None for line in lines) else []
    header += ["best", "diverged", "exploded", "wall s", *(title for cost in costs for title in cost[0]), "loss"]
    names = _distinct_names({line.subject: name_of(line.subject) for line in lines})
    cases = case_names([line.row.case for line in lines])
    rows = [
        header,
        *(_row(line, cases[line.row.case.identity], names[line.subject], finals, costs) for line in ordered),
    ]
    table = text_table(rows, left={0, 1, 3, len(header) - 1}, keys=2)
    measured = [line for line in lines if line.diverged >= 0]
    unknown = sorted({line.row.case.primary_metric for line in measured if line.direction is None})
    notes = [f"no best of {name}: {how_to_declare(name)}" for name in unknown]
    if any(name.endswith(f" ({identity[:8]})") for identity, name in cases.items()):
        why = "cases of one name with a hash differ in their bindings"
        notes.append(f"{why}: tables of methods take the form of their experiment, or else the last")
    timed = [line.cost for line in lines if line.cost is not None]
    is_unsteady = any(StepSeconds.of([cost]).is_unsteady or Overhead.of([cost]).is_unsteady for cost in timed)
    notes += [UNSTEADY_NOTE] if is_unsteady else []
    machines = sorted({str(cost.machine_class) for cost in timed if cost.samples})
    classes = "step s are of several machines or numbers of trainings together, and not to be compared"
    notes += [f"{classes}: {'; '.join(machines)}"] * (len(machines) > 1)
    return "\n".join([table, "", _summary(lines), *map(one_line, notes)])


def _order(line: EvaluationSummary) -> tuple[Any, ...]:
    case, subject = line.row.case, line.subject
    return case.suite, case.name, case.identity, subject.generation, subject.outer_step, line.row.key.seed_block.start


def _row(
    line: EvaluationSummary, case: str, subject: str, finals: Iterable[str], costs: Sequence[_CostColumns]
) -> list[str]:
    row, block = line.row, line.row.key.seed_block
    cells = [
        case,
        subject,
        "items" if row.case.has_items else block.span,
        str(row.outcome),
        *(f"{line.final[name]:.4g}" if name in line.final else "-" for name in finals),
    ]
    if line.diverged < 0:
        return [*cells, "-", "", "", "", *("" for titles, _ in costs for _ in titles), row.message[:60]]
    return [
        *cells,
        "-" if math.isnan(line.best) else f"{line.best:.4g}",
        str(line.diverged),
        str(line.exploded),
        f"{line.wall_seconds:.2f}",
        *(cell for titles, of in costs for cell in (of(line.cost) if line.cost is not None else ["-"] * len(titles))),
        sparkline(line.curve),
    ]


def _step_name(subject: Subject) -> str:
    if not has_outer_step(subject.checkpoint):
        return subject_name(subject)
    step = f"{subject.generation}:{subject.outer_step}" if subject.generation else str(subject.outer_step)
    return f"{subject.run} {step}" if subject.run else step


def _distinct_names(names: Mapping[Subject, str]) -> dict[Subject, str]:
    """Returns names of subjects. Equal names, as for two checkpoints of one outer step, get the end of their path.

    Equal thetas at two paths are two lines too.
    """
    distinct_names = dict(names)
    for name in [name for name, count in Counter(names.values()).items() if count > 1]:
        alike = [subject for subject, subject_label in names.items() if subject_label == name]
        paths = [subject.uri.rstrip("/").split("/") for subject in alike]
        ends = (["/".join(path[-depth:]) for path in paths] for depth in range(1, max(map(len, paths)) + 1))
        hashes = [subject.sha256[:8] for subject in alike]
        endings = next((end for end in ends if len({*end}) == len(end)), hashes)
        distinct_names |= {subject: f"{name} ({ending})" for subject, ending in zip(alike, endings, strict=True)}
    return distinct_names


def _summary(lines: Sequence[EvaluationSummary]) -> str:
    outcomes = Counter(str(line.row.outcome) for line in lines)
    subjects = {line.subject for line in lines}
    measured = [line for line in lines if line.diverged >= 0]
    has_items = any(line.row.case.has_items for line in measured)
    seeds = sum(line.row.key.seed_block.size for line in measured if not line.row.case.has_items)
    diverged, exploded = (sum(getattr(line, name) for line in measured) for name in ("diverged", "exploded"))
    of_items = sum(line.diverged for line in measured if line.row.case.has_items)
    lost = [f"{diverged - of_items} of {counted(seeds, 'seed')}"] if seeds or not has_items else []
    lost += [counted(of_items, "item")] if has_items else []
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    return (
        f"{counted(len(lines), 'evaluation')} of {subjects_in_words(subjects)}: {counts}; "
        f"{' and '.join(lost)} diverged, {exploded} exploded; "
        "'loss' draws the primary metric from the first step to the last, each row on its own scale; "
        "diverged: not finite; exploded: finite, and above twice the first value; best: the best value of any step; "
        "state B: bytes of the optimizer's state; step s: seconds of one inner step"
    )
