"""Registry of labelled data for classifiers, by name.

Add an entry to `LABELLED` for new data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lobench.inner.tasks.data import load_arrays
from lobench.inner.tasks.digits import digits_splits
from lobench.inner.tasks.mnist1d import mnist1d_splits
from lobench.inner.tasks.splits import Splits, permuted_splits
from lobench.inner.tasks.tables import breast_cancer_splits, wine_splits

__all__ = ["LABELLED", "Labelled", "mnist_splits"]

_SIDE = 28  # height and width of MNIST's images


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labelled:
    """Examples with one of `num_classes` labels, `label` int32[n].

    Attributes:
      splits: Function that loads the splits.
      kind: Kind of the examples, and name of their array, float32[n, num_inputs]: an image row by row, a signal in
        time, or features.
      shape: Shape of one example: (side, side), (length,) or (features,).
      num_classes: Number of classes. Labels are 0 to num_classes - 1.
    """

    splits: Callable[[], Splits]
    kind: Literal["image", "signal", "features"]
    shape: tuple[int, ...]
    num_classes: int = 10

    @property
    def num_inputs(self) -> int:
        return math.prod(self.shape)


@functools.cache
def mnist_splits(side: int = _SIDE) -> Splits:
    """Returns `image` float32[n, side * side] in [0, 1] and `label` int32[n]: 3,500 train, 500 and 500 valid, 500 test.

    Images smaller than 28x28 are area averages: each pixel is the mean of the original pixels that it covers, weighted
    by the covered area.
    """
    mnist = load_arrays("mnist5k")
    # Whole numbers below 2^53, which sum exactly in any order: the same bits on every machine.
    overlaps = _pixel_overlaps(side).astype(np.float64)
    pixel_sums = overlaps @ mnist["image"].reshape(-1, _SIDE, _SIDE).astype(np.float64) @ overlaps.T
    image = (pixel_sums / (255 * _SIDE**2)).astype(np.float32).reshape(len(pixel_sums), side * side)
    examples = {"image": image, "label": mnist["label"].astype(np.int32)}
    return permuted_splits(examples, num_valid=500, num_test=500)


def _pixel_overlaps(side: int) -> np.ndarray:
    """Returns the overlap of new and original pixels, times side: int64[side, 28], rows sum to 28."""
    pixel_edges = np.arange(side + 1) * _SIDE
    pixel_starts = np.arange(_SIDE) * side
    overlap = np.minimum(pixel_edges[1:, None], pixel_starts + side) - np.maximum(pixel_edges[:-1, None], pixel_starts)
    return np.maximum(overlap, 0)


def _mnist(side: int) -> Labelled:
    return Labelled(splits=functools.partial(mnist_splits, side), kind="image", shape=(side, side))


LABELLED: Mapping[str, Labelled] = {
    "digits": Labelled(splits=digits_splits, kind="image", shape=(8, 8)),
    "mnist8": _mnist(8),
    "mnist14": _mnist(14),
    "mnist28": _mnist(28),
    "mnist1d": Labelled(splits=mnist1d_splits, kind="signal", shape=(40,)),
    "breast_cancer": Labelled(splits=breast_cancer_splits, kind="features", shape=(30,), num_classes=2),
    "wine": Labelled(splits=wine_splits, kind="features", shape=(13,), num_classes=3),
}
