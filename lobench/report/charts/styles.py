"""Styles of methods, the same in all charts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lobench.drawing.svg import all_line_styles

if TYPE_CHECKING:
    from lobench.analysis.comparisons.summary import Summary

__all__ = ["method_styles"]


def method_styles(summary: Summary, next_indices: Sequence[int] = ()) -> list[str]:
    """Returns the style of each subject by index, as classes of the style sheet.

    Subjects in charts get the first styles, so that their styles differ. With more than 21 subjects some share a style.

    Args:
      summary: Summary of the store.
      next_indices: Indices of further subjects in charts, such as the best checkpoints of runs.
    """
    indices = range(len(summary.snapshot.subjects))
    order = dict.fromkeys([*summary.snapshot.groups.chart_indices(summary.headline_index), *next_indices, *indices])
    style_by_index = dict(zip(order, itertools.cycle(all_line_styles()), strict=False))
    return [style_by_index[index] for index in indices]
