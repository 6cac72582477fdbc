"""Splits of arrays that are made or loaded once."""

from __future__ import annotations

import operator

import jax

from lobench.inner.optimizer import PyTree
from lobench.inner.task import ArrayDataset, Datasets

__all__ = ["row_datasets"]


def row_datasets(arrays: PyTree, sizes: dict[str, int], batch_size: int) -> Datasets:
    """Returns splits that are consecutive rows.

    Args:
      arrays: Of numpy, leading axis [num_rows]; it makes none of jax's, as a backend is the worker's to make.
      sizes: Rows by split, in order; their sum is at most the number of rows.
    """
    splits, start = {}, 0
    for split, size in sizes.items():
        splits[split] = ArrayDataset(jax.tree.map(operator.itemgetter(slice(start, start + size)), arrays), batch_size)
        start += size
    return Datasets(**splits)
