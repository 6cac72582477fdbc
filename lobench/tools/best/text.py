"""Text output of `lobench best`."""

from __future__ import annotations

from lobench.core.wording import one_line
from lobench.report.tables.text import interval_cell, text_table
from lobench.tools.best.choice import Best

__all__ = ["best_text"]


def best_text(found: Best) -> str:
    """Returns the candidates, the best first, and what their numbers mean."""
    rows = [["checkpoint", "outer step", "score on fresh seeds", "score that chose it", "diverged", "exploded", "lost"]]
    for candidate in found.candidates:
        checkpoint, fresh = candidate.chosen.subject.checkpoint, candidate.fresh
        scores = (interval_cell(fresh.score), interval_cell(candidate.chosen.score))
        counts = map(str, (fresh.num_diverged, fresh.num_exploded, fresh.num_lost))
        rows.append([checkpoint.uri, str(checkpoint.outer_step), *scores, *counts])
    number = "none, it could not be evaluated on further seeds: see the lines above"
    if (report := found.report) is not None:
        number = f"{interval_cell(report.score)} on seeds from {found.first_further_seed} on, which chose nothing"
        number += f"; diverged {report.num_diverged}, exploded {report.num_exploded}, lost {report.num_lost}"
    return "\n".join(
        [
            text_table(rows),
            "",
            *(one_line(f"gone from its place, or overwritten: {uri}") for uri in found.gone),
            one_line(f"best in {found.metric or 'primary'}: {found.uri}"),
            f"its score to report: {number}",
            f"The table's are flattered: the last one's seeds chose the top, the fresh ones (from "
            f"{found.first_fresh_seed} on) the best of it",
            found.scale,
        ]
    )
