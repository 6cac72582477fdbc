"""Examples in four splits, loaded once and shared by all tasks of the process.

They are numpy arrays, because building a task must not create jax's backend before the worker sets its threads.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from lobench.core.errors import ConfigError
from lobench.inner.optimizer import PyTree
from lobench.inner.task import SPLITS, ArrayDataset, Datasets

__all__ = ["Splits", "make_datasets", "permuted_splits", "row_datasets", "scikit_table"]

_SEED = 12345


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Splits:
    """Examples by split: arrays by name, leading axis [num_examples]."""

    train: dict[str, np.ndarray]
    inner_valid: dict[str, np.ndarray]
    outer_valid: dict[str, np.ndarray]
    test: dict[str, np.ndarray]


def permuted_splits(examples: dict[str, np.ndarray], *, num_valid: int, num_test: int) -> Splits:
    """Cuts permuted examples (`default_rng(12345)`) into splits: train, both valid splits, test."""
    num_examples = len(next(iter(examples.values())))
    order = np.random.default_rng(_SEED).permutation(num_examples)
    num_remaining = num_examples - num_test
    bounds = (0, num_remaining - 2 * num_valid, num_remaining - num_valid, num_remaining, num_examples)
    splits = [
        {name: array[order[start:stop]] for name, array in examples.items()}
        for start, stop in itertools.pairwise(bounds)
    ]
    return Splits(**dict(zip(SPLITS, splits, strict=True)))


@functools.cache
def make_datasets(load_splits: Callable[[], Splits], batch_size: int) -> Datasets:
    """Returns the splits of `load_splits` as datasets."""
    splits = load_splits()
    return Datasets(**{split: ArrayDataset(getattr(splits, split), batch_size) for split in SPLITS})


def row_datasets(arrays: PyTree, sizes: dict[str, int], batch_size: int) -> Datasets:
    """Cuts arrays into splits of consecutive rows.

    Args:
      arrays: numpy arrays with leading axis [num_rows]. They stay numpy arrays, because only the worker may create
        jax's backend.
      sizes: Number of rows by split, in order. Their sum is at most the number of rows.
      batch_size: Examples per batch.
    """
    splits, start = {}, 0
    for split, size in sizes.items():
        splits[split] = ArrayDataset(jax.tree.map(operator.itemgetter(slice(start, start + size)), arrays), batch_size)
        start += size
    return Datasets(**splits)


def scikit_table(name: str, *, delimiter: str | None = ",", header: int = 0) -> np.ndarray:
    """Returns a table of numbers that is part of scikit-learn, float64[rows, columns].

    Args:
      name: Name of a file in scikit-learn's folder datasets/data.
      delimiter: Separator of columns. None: white space.
      header: Number of lines to skip.
    Raises:
      ConfigError: scikit-learn is not installed, or has no such file.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ConfigError("the task needs data of scikit-learn", next_step="pip install scikit-learn")
    # Read as a file: importing sklearn takes most of a second, at the start of every worker.
    file = Path(spec.origin).parent / "datasets" / "data" / name
    if not file.is_file():
        raise ConfigError("this scikit-learn comes without the task's data", where=str(file))
    return np.loadtxt(file, delimiter=delimiter, skiprows=header)
