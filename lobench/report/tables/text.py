"""Text lines and tables, safe for names with any characters."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from lobench.core.wording import counted, one_line

if TYPE_CHECKING:
    from lobench.analysis.stats.comparison import MeanDifference
    from lobench.analysis.stats.intervals import Interval
    from lobench.core.step_cost import Overhead, StepSeconds
    from lobench.core.subject import Subject

__all__ = [
    "fenced",
    "interval_cell",
    "markdown_line",
    "markdown_table",
    "overhead_cell",
    "p_cell",
    "step_cell",
    "subject_name",
    "subjects_in_words",
    "text_table",
    "without_controls",
]

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def without_controls(page: str) -> str:
    """Returns a page whose lines stay, with every other character that is not shown but steers as an escape."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], page)


def subjects_in_words(subjects: Iterable[Subject]) -> str:
    """Returns how many checkpoints, optimizers and imported methods there are."""
    names = {"checkpoint": "checkpoint", "optimizer": "optimizer", "imported": "imported method"}
    counts = Counter(names[subject.kind] for subject in subjects)
    return " and ".join(counted(counts[name], name) for name in names.values() if counts[name]) or "no subjects"


def interval_cell(found: Interval | MeanDifference | None, form: str = "z.3f", *, mark: str = "") -> str:
    """Returns `0.52 [0.44, 0.60]`; the mean alone where there are no bounds, and `-` where there is no mean.

    Args:
      form: With `z` for values that may be rounded to 0, which has no sign.
      mark: What stands before a mean, `x` of a ratio.
    """
    if found is None or math.isnan(found.mean):
        return "-"
    bounds = "" if math.isnan(found.lower) else f" [{found.lower:{form}}, {found.upper:{form}}]"
    return f"{mark}{found.mean:{form}}{bounds}"


def p_cell(value: float) -> str:
    """Returns a p-value with four decimals, `<0.0001` below them, and `-` where there is none."""
    return "-" if math.isnan(value) else f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def step_cell(found: StepSeconds) -> str:
    """Returns the seconds of a step, `~` before those that are unsteady, and `-` where nobody measured any."""
    mark = "~" if found.is_unsteady else ""
    return "-" if math.isnan(found.median) else f"{mark}{found.median:.3g}"


def markdown_line(text: str) -> str:
    """Returns text that Markdown shows as it is, on one line: nobody is mentioned, and no issue is linked."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", one_line(text)).replace("@", "&#64;")


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows as a table of Markdown, the first one as its header; a cell in `**` stays bold."""

    def cell(text: str) -> str:
        bold = text.startswith("**")
        return f"**{markdown_line(text.strip('*'))}**" if bold else markdown_line(text)

    header, *rest = [[cell(one) for one in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *rest])


def fenced(text: str, language: str = "text") -> str:
    """Returns text as a block of Markdown, whatever fences it has itself."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def overhead_cell(found: Overhead) -> str:
    """Returns `x1.25`, `~` before what is unsteady, and `-` where no gradient was timed."""
    mark = "~" if found.is_unsteady else ""
    return "-" if math.isnan(found.ratio) else f"{mark}x{found.ratio:.3g}"


def text_table(rows: Sequence[Sequence[str]], *, left: Collection[int] | None = None) -> str:
    """Returns rows as lines, each column as wide as its widest cell; a cell stays in its line (`one_line`).

    Text, made at once: ten thousand rows take a terminal library many seconds.

    Args:
      rows: The first one is the header.
      left: The columns that begin at their left edge; numbers end at the right one. None: all.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = ["<" if left is None or column in left else ">" for column in range(len(widths))]
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return "\n".join(form.format(*row).rstrip() for row in cells)


def subject_name(subject: Subject) -> str:
    """Returns how a line names a subject; bindings of its own tell it from others at its outer step."""
    if not subject.has_theta or subject.variant.bindings:
        return subject.label
    lineage = f"generation {subject.generation}, " if subject.generation else f"{subject.run}, " if subject.run else ""
    return f"{lineage}outer step {subject.outer_step}"
