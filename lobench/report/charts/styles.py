"""Styles of methods: one a method, through all charts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lobench.report.charts.svg import STYLES

if TYPE_CHECKING:
    from lobench.analysis.comparisons.summary import Summary

__all__ = ["method_styles"]

_DASHES = ("", " dashed", " dotted")


def method_styles(summary: Summary, also: Sequence[int] = ()) -> list[str]:
    """Returns the style of each subject, by place: classes of the style sheet.

    Those that charts show have the first ones, so that they differ; of more than 21 subjects some are alike.

    Args:
      also: Whom charts show besides, such as the best checkpoints of runs.
    """
    places = range(len(summary.snapshot.subjects))
    order = dict.fromkeys([*summary.snapshot.groups.beside(summary.shown), *also, *places])
    every = itertools.cycle(f"{style}{dash}" for dash in _DASHES for style in STYLES)
    found = dict(zip(order, every, strict=False))
    return [found[place] for place in places]
