r"""`lobench report --format latex`: a table for a paper, `\usepackage{booktabs}` and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from lobench.analysis.bold import Column, bold_columns, bold_means
from lobench.analysis.findings import Findings
from lobench.analysis.intervals import stratified_t_mean
from lobench.analysis.subjects import Cell
from lobench.core.case import CaseInfo
from lobench.core.errors import StoreError
from lobench.core.headline import cause
from lobench.core.metric import Direction, how_to_declare
from lobench.report.lines import one_line

__all__ = ["latex_table", "write_latex"]

_MAX_COLUMNS = 6
_ALPHA = 0.05
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def write_latex(findings: Findings, output: Path, *, precision: int) -> None:
    """Writes the table.

    Raises:
      StoreError: nothing to show, or the file cannot be written.
    """
    text = latex_table(findings, precision=precision)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError("cannot write the table", where=str(output), got=cause(error)) from error


def latex_table(findings: Findings, *, precision: int = 3) -> str:
    """Returns a table: cases in groups by suite and metric, a column for each checkpoint and for the tuned baseline.

    A cell is the seed mean with the half-width of its 95% interval. Bold is the best of the row by the metric's
    direction, and whatever a paired t test does not tell apart from it at the 5% level. Of more than six checkpoints
    the first and the last are shown.

    Args:
      precision: Significant digits of the means.
    Raises:
      StoreError: the store holds no evaluation.
    """
    reading = findings.reading
    if not reading.rows:
        raise StoreError("the store holds no evaluation yet", where=str(reading.store))
    places = list(range(len(reading.subjects)))
    if len(places) > _MAX_COLUMNS:
        places = [findings.first, findings.shown]
    has_baseline = bool(findings.baseline_label)
    labels = [reading.labels[place] for place in places]
    labels += [findings.baseline_label] if has_baseline else []
    undeclared = findings.scales.undeclared()
    lines = [
        *(f"% no bold of {one_line(name)}: {one_line(how_to_declare(name))}" for name in undeclared),
        "% lobench report; \\usepackage{booktabs}. Seed mean and half-width of its 95% interval; bold: the best, and "
        "what a paired t test does not tell apart from it.",
        f"\\begin{{tabular}}{{l{'r' * len(labels)}}}",
        "\\toprule",
        " & ".join(["", *(escape(label) for label in labels)]) + r" \\",
    ]
    for suite in sorted({case.suite for case in reading.cases}):
        for metric in findings.metrics:
            lines += _group(findings, suite, metric, places, has_baseline, precision)
    lines += _mean_rows(findings, places, has_baseline)
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _group(
    findings: Findings, suite: str, metric: str, places: Sequence[int], has_baseline: bool, precision: int
) -> list[str]:
    lines = []
    for index, case in enumerate(findings.reading.cases):
        name = findings.metric_of(index, metric)
        columns = [_column(findings.reading.cell(place, index), name) for place in places]
        if case.suite != suite or not any(columns):
            continue
        if has_baseline:
            baseline = findings.baseline(index)
            known = baseline is not None and name in baseline.tuned
            columns.append(dict(zip(baseline.seeds, baseline.tuned[name], strict=True)) if baseline and known else {})
        bold = _bold(findings, case, name, columns)
        row = findings.reading.name(index).removeprefix(f"{suite}/")
        cells = [_cell(column, bold=i in bold, precision=precision) for i, column in enumerate(columns)]
        lines.append(" & ".join([f"\\quad {escape(row)}", *cells]) + r" \\")
    if not lines:
        return []
    title = escape(f"{suite}, {findings.metric_label(metric)}")
    return ["\\midrule", f"\\multicolumn{{{1 + len(places) + has_baseline}}}{{l}}{{\\emph{{{title}}}}} \\\\", *lines]


def _bold(findings: Findings, case: CaseInfo, metric: str, columns: Sequence[Column]) -> set[int]:
    """Returns the columns of the best score, where the case has a scale; one that lost a seed shows no number."""
    if not findings.scales.scale(case, metric).is_usable:
        return bold_columns(columns, findings.scales.direction(case, metric))
    scored = [
        dict.fromkeys(column, math.nan)
        if any(map(math.isnan, column.values()))
        else findings.scales.seed_scores(case, metric, column)
        for column in columns
    ]
    return bold_columns(scored, Direction.MAX)


def _column(cell: Cell | None, metric: str) -> Column:
    finals = cell.final.get(metric, {}) if cell is not None else {}
    return {seed: math.nan if cell and seed in cell.diverged_at else value for seed, value in sorted(finals.items())}


def _cell(column: Column, *, bold: bool, precision: int) -> str:
    if not column:
        return "--"
    values = list(column.values())
    lost = sum(math.isnan(value) for value in values)
    if lost:
        return f"diverged ({lost}/{len(values)})"
    found = stratified_t_mean([values])
    text = _number(found.mean, precision)
    text = f"\\mathbf{{{text}}}" if bold else text
    half = found.upper - found.mean
    return f"${text}$" if math.isnan(half) else f"${text} \\pm {_number(half, max(1, precision - 1))}$"


def _mean_rows(findings: Findings, places: Sequence[int], has_baseline: bool) -> list[str]:
    lines = []
    for metric in findings.metrics:
        found = [findings.mean_score(place, metric).interval for place in places]
        if all(math.isnan(one.mean) for one in found):
            continue
        bold = bold_means(findings, places, metric)
        cells = []
        for i, one in enumerate(found):
            text = f"\\mathbf{{{one.mean:.3f}}}" if i in bold else f"{one.mean:.3f}"
            half = one.upper - one.mean
            cells.append(
                "--" if math.isnan(one.mean) else f"${text}$" if math.isnan(half) else f"${text} \\pm {half:.3f}$"
            )
        cells += ["$1$"] if has_baseline else []
        lines.append(" & ".join([f"mean score, {escape(findings.metric_label(metric))}", *cells]) + r" \\")
    return ["\\midrule", *lines] if lines else []


def _number(value: float, precision: int) -> str:
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return "\\mathrm{nan}" if math.isnan(value) else "\\infty" if value > 0 else "-\\infty"
    exponent = math.floor(math.log10(abs(value)))
    if -4 <= exponent < 6:
        return f"{value:.{max(0, precision - 1 - exponent)}f}"
    mantissa, _, power = f"{value:.{precision - 1}e}".partition("e")
    return f"{mantissa} \\times 10^{{{int(power)}}}"


def escape(text: str) -> str:
    """Returns text as LaTeX shows it, on one line."""
    return "".join(_ESCAPES.get(character, character) for character in one_line(text))
