"""What `lobench best` found, as text."""

from __future__ import annotations

from typing import Any

from lobench.report.lines import one_line, text_table

__all__ = ["best_text"]


def best_text(record: dict[str, Any]) -> str:
    """Returns the candidates, the best first, and what their numbers mean."""
    rows = [["checkpoint", "outer step", "score on fresh seeds", "score that chose it", "diverged", "exploded", "lost"]]
    for candidate in record["candidates"]:
        row = [
            candidate["uri"],
            str(candidate["outer_step"]),
            _text(candidate["fresh"]),
            _text(candidate["chosen_by"]),
            str(candidate["diverged"]),
            str(candidate["exploded"]),
            str(candidate["lost"]),
        ]
        rows.append(row)
    notes = [one_line(f"gone from its place: {uri}") for uri in record["gone"]]
    report = record["report"]
    number = "none, it could not be evaluated on further seeds: see the lines above"
    if report is not None:
        number = f"{_text(report['score'])} on seeds from {record['first_further_seed']} on, which chose nothing"
        number += f"; diverged {report['diverged']}, exploded {report['exploded']}, lost {report['lost']}"
    return "\n".join(
        [
            text_table(rows),
            "",
            *notes,
            one_line(f"best in {record['metric']}: {record['best']}"),
            f"its score to report: {number}",
            f"The table's are flattered: the last one's seeds chose the top, the fresh ones (from "
            f"{record['first_fresh_seed']} on) the best of it",
            record["scale"],
        ]
    )


def _text(found: dict[str, float | None]) -> str:
    if found["mean"] is None:
        return "-"
    bounds = f" [{found['lower']:.3f}, {found['upper']:.3f}]" if found["lower"] is not None else ""
    return f"{found['mean']:.3f}{bounds}"
