"""First step at which two sides' curves differ, over the seeds that both trained from one start on the same batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from lobench.analysis.store.subjects import LOBENCH_SEEDS, Cell, StoredSubject

__all__ = ["FirstDifferences", "first_differences"]

FirstDifferences: TypeAlias = Mapping[str, float]  # by identity of the case; infinite if all bits are equal

_LOSSES = ("train/loss", "test/loss")


def first_differences(a: StoredSubject, b: StoredSubject) -> FirstDifferences:
    """Returns, for each common case, the first evaluated step at which a loss or the primary metric has different bits.

    Cases without common seeds drawn by lobench are left out, because nothing is equal at their start.
    """
    common = {key: (cell, b.cells[key]) for key, cell in a.cells.items() if key in b.cells}
    found = {key: _first(*sides) for key, sides in common.items()}
    return {key: step for key, step in found.items() if step is not None}


def _first(a: Cell, b: Cell) -> float | None:
    if not a.draws == b.draws == LOBENCH_SEEDS:
        return None
    steps = [
        _first_of(a, b, metric, seed)
        for metric in dict.fromkeys((a.case.primary_metric, *_LOSSES))
        for seed in a.sources.keys() & b.sources.keys()
        if all(metric in cell.sources[seed][0].shapes for cell in (a, b))
    ]
    return min(steps, default=None)


def _first_of(a: Cell, b: Cell, metric: str, seed: int) -> float:
    sides = [
        dict(zip(curves.eval_steps, np.asarray(curves.metrics[metric])[row], strict=False))
        for curves, row in (a.sources[seed], b.sources[seed])
    ]
    common = sorted(sides[0].keys() & sides[1].keys())
    values = [np.asarray([side[step] for step in common]) for side in sides]
    apart = np.flatnonzero(~((values[0] == values[1]) | (np.isnan(values[0]) & np.isnan(values[1]))))
    return float(common[apart[0]]) if len(apart) else math.inf
