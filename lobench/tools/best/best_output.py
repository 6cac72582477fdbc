"""Text output of `lobench best`."""

from __future__ import annotations

from lobench.core.wording import counted, one_line
from lobench.report.tables.text import interval_cell, text_table
from lobench.tools.best.choice import Best

__all__ = ["best_text"]


def best_text(found: Best) -> str:
    """Returns the best checkpoint with the score to report, then the candidates, the best first."""
    rows = [["checkpoint", "outer step", "score on fresh seeds", "score that chose it", "diverged", "exploded", "lost"]]
    for candidate in found.candidates:
        checkpoint, fresh = candidate.chosen.subject.checkpoint, candidate.fresh
        scores = (interval_cell(fresh.score), interval_cell(candidate.chosen.score))
        counts = map(str, (fresh.num_diverged, fresh.num_exploded, fresh.num_lost))
        rows.append([checkpoint.uri, str(checkpoint.outer_step), *scores, *counts])
    return "\n".join(
        [
            *map(one_line, _answer(found)),
            *(one_line(f"gone from its place, or overwritten: {uri}") for uri in found.gone),
            "",
            text_table(rows),
            "",
            found.scale,
        ]
    )


def _answer(found: Best) -> list[str]:
    best = f"best checkpoint by {found.metric or 'the primary metric'}: {found.uri}"
    optimistic = "the scores in the table are optimistic, their seeds were used to choose"
    report = found.report
    if report is None:
        return [f"{best}; no score to report: it could not be evaluated on further seeds", optimistic]
    lost, every, most = report.lost_seeds()
    share = f"; {lost} of {counted(every, 'seed')} diverged or exploded, at most {100 * most:.0f}%"
    missing = f"; without a result: {counted(report.num_lost, 'seed')}" if report.num_lost else ""
    score = f"score {interval_cell(report.score)} (95%) on seeds from {found.first_further_seed} on"
    return [
        f"{best}; {score}{share}{missing}",
        f"report this score and the share: {optimistic}",
    ]
