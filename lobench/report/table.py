"""The table of `lobench results`: train and test side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["results_table"]


def results_table(found: Sequence[dict[str, Any]]) -> None:
    """Prints evaluations by case, then outer step."""
    from rich.console import Console
    from rich.table import Table

    # Where nobody looks at a terminal, no column is cut to fit one.
    console = Console(width=None if sys.stdout.isatty() else 200)
    if not found:
        console.print("the store holds no evaluation yet")
        return
    table = Table(box=None, header_style="bold")
    for name, justify in (
        ("case", "left"),
        ("outer step", "right"),
        ("seeds", "right"),
        ("outcome", "left"),
        ("train final", "right"),
        ("test final", "right"),
        ("best", "right"),
        ("diverged", "right"),
        ("wall s", "right"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # a literal of rich's
    order = sorted(
        found,
        key=lambda r: (r["case"]["suite"], r["case"]["name"], r["checkpoint"]["outer_step"] or 0, r["seeds"]),
    )
    unread = [record for record in order if not record["seeds"]]
    for record in order[len(unread) :]:
        metrics = record["metrics"]
        table.add_row(
            f"{record['case']['suite']}/{record['case']['name']}",
            str(record["checkpoint"]["outer_step"]),
            f"{record['seeds'][0]}-{record['seeds'][-1]}",
            record["outcome"],
            _number(metrics, "train/loss", "final"),
            _number(metrics, "test/loss", "final"),
            _number(metrics, record["primary_metric"], "best"),
            "" if record["diverged"] is None else str(record["diverged"]),
            "" if record["wall_seconds"] is None else f"{record['wall_seconds']:.2f}",
        )
    if table.row_count:
        console.print(table)
    for record in unread:
        console.print(f"{record['outcome']}: {record['message']}", markup=False, highlight=False)


def _number(metrics: dict[str, Any], name: str, kind: str) -> str:
    if name not in metrics:
        return "-"
    value = metrics[name][kind]
    return "nan" if value is None else f"{value:.4g}"
