"""Alarms of a watched run, on the page of its store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lobench.hookspecs import Declaration, hookimpl

if TYPE_CHECKING:
    from lobench.analysis.comparisons.summary import Summary
    from lobench.report.charts.sections import Section

__all__ = ["alarm_sections", "lobench_report_sections"]


@hookimpl
def lobench_report_sections() -> Iterable[Declaration]:
    return [
        Declaration(name="alarms", factory=f"{__name__}:alarm_sections", summary="alarms that `lobench alarm` raised")
    ]


def alarm_sections(summary: Summary) -> list[Section]:
    """Returns the section of reported alarms, in order; [] without alarms.

    Raises:
      StoreError: The record of alarms cannot be read.
    """
    from lobench.report.charts.sections import Section
    from lobench.tools.alarm.raised import alarm_lines

    lines = tuple(alarm_lines(summary.snapshot.store))
    note = "Each was confirmed on fresh seeds before it was reported."
    return (
        [Section(id="alarms", title="Alarms", note=note, kind="small", figures=(), view="alarms", lines=lines)]
        if lines
        else []
    )
