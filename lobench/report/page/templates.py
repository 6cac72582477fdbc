"""Page templates in the folder `templates`, and their parts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from lobench.drawing.palette import style_variables
from lobench.report.charts.sections import Figure
from lobench.report.tables.text import escape_controls

if TYPE_CHECKING:
    import jinja2

__all__ = ["TableCell", "charts_html", "page_part", "plain_page", "render_template", "table_html"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """Cell of a table on a page.

    Attributes:
      text: Content.
      value: Sort key.
      kind: Classes of the style sheet.
      link: Address.
      help: Explanation of a heading, shown on hovering.
      is_bold: Whether it is printed in bold.
    """

    text: str
    value: str = ""
    kind: str = ""
    link: str = ""
    help: str = ""
    is_bold: bool = False


_TEMPLATES = Path(__file__).parents[1] / "templates"
_PARTS = {
    "page.css": ["uplot/uplot.css", "page.css"],
    "page.js": ["uplot/uplot.js", "chart.js", "table.js", "explorer.js", "app.js"],
    "live.js": ["live.js"],
}


def page_part(name: str) -> str:
    """Returns the style or a script of pages. Served pages request it as a separate file."""
    colours = style_variables() if name == "page.css" else ""
    return colours + "".join((_TEMPLATES / file).read_text(encoding="utf-8") for file in _PARTS[name])


def render_template(
    template: str, *, title: str, served: bool = False, script: str = "", folder: Path = _TEMPLATES, **context: Any
) -> str:
    """Returns a page as HTML.

    Args:
      template: Name of the template.
      title: Title of the page.
      served: Whether the page requests its style and scripts. Otherwise it contains them.
      script: Part with the script. "": no script, and scripts are forbidden.
      folder: Folder of the template. The template may extend one of lobench's templates.
      context: Variables of the template.
    """
    parts = {"css": Markup(page_part("page.css")), "script": Markup(page_part(script)) if script else ""}
    page = _template(folder, template)
    return escape_controls(page.render(title=title, served=served, **parts, **context))


def _template(folder: Path, name: str) -> jinja2.Template:
    return _environment(folder).get_template(name)


@functools.cache
def _environment(folder: Path) -> jinja2.Environment:
    """Returns an environment, which keeps the templates that it has compiled."""
    import jinja2

    loader = jinja2.FileSystemLoader([folder, _TEMPLATES])
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)


def charts_html(figures: Sequence[Figure], kind: str = "wide") -> Markup:
    """Returns charts with their titles, notes and legends, for a page in the common style.

    Args:
      figures: The charts.
      kind: Their size: "wide" or "small".

    >>> chart = Chart(title="Loss", description="", x_label="step", y_label="loss", series=())
    >>> "<figure>" in charts_html([Figure(chart=chart)])
    True
    """
    return Markup(_template(_TEMPLATES, "parts.html").module.charts(kind, figures))  # type: ignore[attr-defined]


def table_html(label: str, rows: Sequence[Sequence[str]]) -> Markup:
    """Returns a table for a page in the common style.

    Args:
      label: Description for screen readers.
      rows: Rows of cells. The first one is the header.

    >>> "<td" in table_html("Losses", [["method", "loss"], ["adam", "0.1"]])
    True
    """
    header, *body_rows = rows
    html = _template(_TEMPLATES, "parts.html").module.table(label, header, body_rows, len(header))  # type: ignore[attr-defined]
    return Markup(html)


def plain_page(title: str, body: Markup) -> str:
    """Returns a page without scripts, in the common style. `body` must be escaped.

    >>> "<h1>" in plain_page("Results", markupsafe.Markup("<p>None yet.</p>"))
    True
    """
    return render_template("plain.html", title=title, body=body)
