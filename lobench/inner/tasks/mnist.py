"""5,000 images of MNIST, 500 of each digit, at resolutions up to 28x28."""

from __future__ import annotations

import functools

import numpy as np

from lobench.inner.tasks.data import load
from lobench.inner.tasks.splits import Splits, permuted_splits

__all__ = ["mnist_splits"]

_SIDE = 28


@functools.cache
def mnist_splits(side: int = _SIDE) -> Splits:
    """Returns `image` float32[n, side * side] in [0, 1] and `label` int32[n]: 3,500 train, 500 and 500 valid, 500 test.

    Images smaller than 28x28 are area averages: each pixel is the mean of the original pixels that it covers, weighted
    by the covered area.
    """
    mnist = load("mnist5k")
    # Whole numbers below 2^53, which sum exactly in any order: the same bits on every machine.
    cover = _cover(side).astype(np.float64)
    sums = cover @ mnist["image"].reshape(-1, _SIDE, _SIDE).astype(np.float64) @ cover.T
    image = (sums / (255 * _SIDE**2)).astype(np.float32).reshape(len(sums), side * side)
    examples = {"image": image, "label": mnist["label"].astype(np.int32)}
    return permuted_splits(examples, num_valid=500, num_test=500)


def _cover(side: int) -> np.ndarray:
    """Returns the overlap of new and original pixels, times side: int64[side, 28], rows sum to 28."""
    edges = np.arange(side + 1) * _SIDE
    old = np.arange(_SIDE) * side
    overlap = np.minimum(edges[1:, None], old + side) - np.maximum(edges[:-1, None], old)
    return np.maximum(overlap, 0)
