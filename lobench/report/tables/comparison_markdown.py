"""Markdown of `lobench compare` for a comment on a pull request: verdict, table, and curves in a foldable section."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lobench.analysis.comparisons.gates import Verdict
from lobench.analysis.comparisons.method_comparison import MethodComparison
from lobench.analysis.comparisons.steps_to_target import CaseSteps
from lobench.analysis.store.subjects import Cell
from lobench.core.wording import counted
from lobench.drawing.curves import evenly_spaced_indices, sparkline
from lobench.report.tables.comparison import (
    case_rows,
    comparison_head,
    comparison_limits,
    comparison_notes,
    comparison_sentence,
    overall_cells,
    steps_text,
)
from lobench.report.tables.text import code_block, markdown_line, markdown_table, text_table

__all__ = ["MOST_LETTERS", "comparison_markdown"]

MOST_LETTERS = 65_536  # characters of a comment on GitHub

_MARKS = {Verdict.PASS: "✅", Verdict.REGRESSED: "❌"}  # other verdicts have a question mark
_MOST_CASES = 60  # most rows of a table
_MOST_BARS = 32


def comparison_markdown(
    comparisons: Sequence[MethodComparison], *, scale: str, steps: Sequence[Sequence[CaseSteps]] = ()
) -> str:
    """Returns a comment that fits GitHub's limit. Curves, and then cases, are left out if there are too many.

    Args:
      comparisons: The pairs.
      scale, steps: As for `comparison_text`.
    """
    verdicts = {pair.verdict for pair in comparisons}
    worst = next(
        (verdict for verdict in (Verdict.REGRESSED, Verdict.INCONCLUSIVE) if verdict in verdicts), Verdict.PASS
    )
    for most_cases, most_curves in ((_MOST_CASES, _MOST_CASES), (_MOST_CASES, 0), (10, 0), (0, 0)):
        parts = [f"### {_MARKS.get(worst, '❓')} lobench: {worst}"]
        for pair, steps_of_pair in zip(comparisons, steps or [()] * len(comparisons), strict=True):
            parts += _pair_sections(pair, steps_of_pair, most_cases, most_curves)
        parts.append("".join(f"<sub>{markdown_line(line)}</sub>\n" for line in scale.splitlines()))
        text = "\n\n".join(filter(None, parts)).rstrip() + "\n"
        if len(text.encode("utf-16-le")) // 2 <= MOST_LETTERS:
            return text
    return parts[0] + "\n\nIt is too long for a comment: `--format table` has it all.\n"


def _pair_sections(
    comparison: MethodComparison, steps: Sequence[CaseSteps], most_cases: int, most_curves: int
) -> Iterator[str]:
    title, counts = comparison_head(comparison)
    yield f"**{markdown_line(title)}**: {markdown_line(comparison_sentence(comparison))}"
    header, *rows = case_rows(comparison, comparison.primary)
    if not rows:
        return
    overall = (
        dict.fromkeys(header, "")
        | {header[0]: "**mean over cases**"}
        | overall_cells(comparison.primary, comparison.replicate)
    )
    yield markdown_table([header, [overall[name] for name in header], *rows[:most_cases]])
    if len(rows) > most_cases:
        yield f"{counted(len(rows) - most_cases, 'more case')} in `--format table`."
    yield "; ".join(
        markdown_line(line) for line in (counts, *comparison_limits(comparison), *comparison_notes(comparison))
    )
    folded = [steps_text(comparison, steps)] if steps else []
    if most_curves:
        folded.append(_curves_table(comparison, most_curves))
    if folded:
        inner = code_block("\n\n".join(folded))
        metric = markdown_line(comparison.primary.metric)
        yield f"<details><summary>Curves of {metric}</summary>\n\n{inner}\n\n</details>"


def _curves_table(comparison: MethodComparison, max_cases: int) -> str:
    rows = [["case", comparison.a.label, comparison.b.label]]
    for case_difference in comparison.primary.comparison.cases[:max_cases]:
        case = comparison.cases[case_difference.case]
        metric = case.primary_metric if comparison.primary.metric == "primary" else comparison.primary.metric
        cells = [subject.cells.get(case.identity) for subject in (comparison.a, comparison.b)]
        rows.append([case_difference.case, *(_curve_bars(cell, metric) for cell in cells)])
    return text_table(rows, width=0)


def _curve_bars(cell: Cell | None, metric: str) -> str:
    """Returns the mean curve over the seeds as bars, with its first and last values."""
    if cell is None:
        return "-"
    grids: dict[tuple[int, ...], list[np.ndarray]] = {}
    for curves, row in cell.curves_by_seed.values():
        if metric in curves.shapes:
            grids.setdefault(curves.eval_steps, []).append(np.asarray(curves.metrics[metric], np.float64)[row])
    if not grids:
        return "-"
    curve = np.mean(max(grids.values(), key=len), axis=0)
    return f"{sparkline(curve[evenly_spaced_indices(len(curve), _MOST_BARS)])} {curve[0]:.4g} to {curve[-1]:.4g}"
