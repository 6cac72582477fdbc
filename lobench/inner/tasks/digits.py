"""The digits of scikit-learn, split once and shared by every task of the process.

numpy arrays: building a task must not create jax's backend, whose number of threads is the worker's to choose.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lobench.core.errors import ConfigError
from lobench.inner.task import ArrayDataset, Datasets

__all__ = ["NUM_CLASSES", "NUM_PIXELS", "SIDE", "DigitsSplits", "digits_datasets", "digits_splits"]

NUM_CLASSES, NUM_PIXELS, SIDE = 10, 64, 8
_POOL, _VALID = 1437, 180


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DigitsSplits:
    """Examples by split: `image` float32[n, 64] in [0, 1], `label` int32[n]."""

    train: dict[str, np.ndarray]
    inner_valid: dict[str, np.ndarray]
    outer_valid: dict[str, np.ndarray]
    test: dict[str, np.ndarray]


@functools.cache
def digits_splits() -> DigitsSplits:
    """Loads and splits the 1,797 digits.

    They are permuted by `default_rng(12345)`. The first 1,437 are a pool, whose last 180 are `outer_valid`, the 180
    before `inner_valid`, the remaining 1,077 `train`; the 360 after the pool are `test`.

    Raises:
      ConfigError: scikit-learn is not installed.
    """
    images, labels = _load()
    order = np.random.default_rng(12345).permutation(len(labels))
    ends = {"train": _POOL - 2 * _VALID, "inner_valid": _POOL - _VALID, "outer_valid": _POOL, "test": len(labels)}
    splits, start = {}, 0
    for name, end in ends.items():
        rows = order[start:end]
        splits[name] = {"image": (images[rows] / 16).astype(np.float32), "label": labels[rows].astype(np.int32)}
        start = end
    return DigitsSplits(**splits)


def _load() -> tuple[np.ndarray, np.ndarray]:
    """Returns pixels float64[1797, 64] of 0 to 16, and labels."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ConfigError("the digits tasks need scikit-learn", next_step="pip install scikit-learn")
    # The file that `load_digits` reads: importing sklearn takes most of a second, at the start of every worker.
    file = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():
        table = np.loadtxt(file, delimiter=",")
        return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return images, labels


@functools.cache
def digits_datasets(batch_size: int) -> Datasets:
    """Returns the splits as datasets on the shared arrays: batches of `image` float32[b, 64] and `label` int32[b]."""
    splits = digits_splits()
    return Datasets(
        train=ArrayDataset(splits.train, batch_size),
        inner_valid=ArrayDataset(splits.inner_valid, batch_size),
        outer_valid=ArrayDataset(splits.outer_valid, batch_size),
        test=ArrayDataset(splits.test, batch_size),
    )
