"""Sections of a page and of a paper's figures: captioned charts under headings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from markupsafe import Markup

from lobench.drawing.heat_map import HeatMap
from lobench.drawing.svg import Chart

__all__ = ["Figure", "Section", "View"]

View: TypeAlias = Literal["overview", "cases", "searches", "alarms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Chart with its caption.

    >>> chart = Chart(title="Loss", description="", x_label="step", y_label="loss", series=())
    >>> Figure(chart=chart, note="No curve yet.").title
    ''
    """

    chart: Chart | HeatMap
    title: str = ""
    note: str = ""

    @property
    def svg(self) -> Markup:
        return self.chart.svg()

    @property
    def legend(self) -> list[dict[str, str]]:
        return [{"label": line.label, "style": line.style} for line in self.chart.series if line.label]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Charts under one heading.

    Attributes:
      id: Id of the section's element.
      title: Heading.
      note: Text below the heading.
      kind: CSS class for the size of the charts.
      figures: The charts.
      trained_with: Bindings of the drawn methods that are not in their names. "": none.
      has_one_legend: Whether a style means the same in all charts, so that one legend is enough.
      view: Part of the page that shows the section.
      lines: Notes shown as a list.

    >>> Section(id="spread", title="Spread", note="Of the seeds.", kind="wide", figures=()).view
    'overview'
    """

    id: str
    title: str
    note: str
    kind: str
    figures: tuple[Figure, ...]
    trained_with: str = ""
    has_one_legend: bool = False
    view: View = "overview"
    lines: tuple[str, ...] = ()

    @property
    def legend(self) -> list[dict[str, str]]:
        """Legend of all charts; [] if each chart has its own."""
        entries = [entry for figure in self.figures for entry in figure.legend] if self.has_one_legend else []
        return list({entry["style"]: entry for entry in entries}.values())
