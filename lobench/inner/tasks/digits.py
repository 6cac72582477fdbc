"""The 1,797 digits of scikit-learn, 8x8 pixels."""

from __future__ import annotations

import functools

import numpy as np

from lobench.inner.tasks.splits import Splits, permuted_splits, scikit_table

__all__ = ["NUM_CLASSES", "NUM_PIXELS", "digits_splits"]

NUM_CLASSES, NUM_PIXELS = 10, 64


@functools.cache
def digits_splits() -> Splits:
    """Returns `image` float32[n, 64] in [0, 1] and `label` int32[n]: 1,077 train, 180 and 180 valid, 360 test."""
    pixels_and_labels = scikit_table("digits.csv.gz")
    examples = {
        "image": (pixels_and_labels[:, :-1] / 16).astype(np.float32),
        "label": pixels_and_labels[:, -1].astype(np.int32),
    }
    return permuted_splits(examples, num_valid=180, num_test=360)
