"""Badge of a report: its headline as a small SVG, for a README."""

from __future__ import annotations

import re

from markupsafe import escape

from lobench.analysis.comparisons.summary import Summary
from lobench.core.wording import one_line
from lobench.report.tables.verdict import cards

__all__ = ["badge_svg"]

_LETTER = 6.6  # width of a digit in the badge's font, of 11 pixels
_COLOURS = {"good": "#2b7a3d", "bad": "#a3312a", "": "#33597a"}  # each has a contrast of 4.5:1 to white

_SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="20" role="img" aria-label="{message}">
<title>{message}</title>
<rect width="{width:g}" height="20" rx="3" fill="#444"/>
<path d="M{left:g} 0h{rest:g}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{rest:g}z" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="6" y="14" textLength="{label_width:g}">{label}</text>
<text x="{value_left:g}" y="14" textLength="{value_width:g}">{value}</text>
</g>
</svg>
"""


def badge_svg(summary: Summary) -> str:
    """Returns a badge with the first number of the report and its interval, coloured by the comparison if there is one.

    Raises:
      StoreError: The store has no evaluations.
    """
    summary.snapshot.require_rows()
    comparison = summary.headline_comparison()
    summary_cards = cards(summary, comparison)
    bounds = re.search(r"\[[^\]]*\]", summary_cards[0].note)
    value = f"score {summary_cards[0].value} {bounds[0] if bounds else ''}".strip()
    kind = next((card.kind for card in summary_cards if card.kind), "")
    label_width = _LETTER * len("lobench")
    value_width = _LETTER * len(value)
    message_left = label_width + 12
    return _SVG.format(
        message=escape(one_line(f"lobench: {summary_cards[0].label}: {value}")),
        width=message_left + value_width + 12,
        left=message_left,
        rest=value_width + 9,
        colour=_COLOURS.get(kind, _COLOURS[""]),
        label="lobench",
        label_width=label_width,
        value=escape(value),
        value_left=message_left + 6,
        value_width=value_width,
    )
