"""Small tables of scikit-learn, with features standardized by the train split.

The classes of the train splits are linearly separable, so logistic regression has no positive lower bound of the loss.
"""

from __future__ import annotations

import functools

import numpy as np

from lobench.inner.task import SPLITS
from lobench.inner.tasks.splits import Splits, permuted_splits, scikit_table

__all__ = ["breast_cancer_splits", "diabetes_splits", "wine_splits"]


@functools.cache
def breast_cancer_splits() -> Splits:
    """Returns `features` float32[n, 30] and `label` int32[n], 1 is benign: 339 train, 57 and 57 valid, 116 test."""
    return _labelled_splits("breast_cancer.csv", num_valid=57, num_test=116)


@functools.cache
def wine_splits() -> Splits:
    """Returns `features` float32[n, 13] and `label` int32[n] of 3: 106 train, 18 and 18 valid, 36 test."""
    return _labelled_splits("wine_data.csv", num_valid=18, num_test=36)


@functools.cache
def diabetes_splits() -> Splits:
    """Returns standardized `features` float32[n, 10] and `target` float32[n]: 266 train, 44 and 44 valid, 88 test."""
    features = scikit_table("diabetes_data_raw.csv.gz", delimiter=None)
    target = scikit_table("diabetes_target.csv.gz", delimiter=None)
    examples = {"features": features, "target": target}
    return _standardize(permuted_splits(examples, num_valid=44, num_test=88), ("features", "target"))


def _labelled_splits(name: str, *, num_valid: int, num_test: int) -> Splits:
    features_and_labels = scikit_table(name, header=1)
    examples = {"features": features_and_labels[:, :-1], "label": features_and_labels[:, -1].astype(np.int32)}
    return _standardize(permuted_splits(examples, num_valid=num_valid, num_test=num_test), ("features",))


def _standardize(splits: Splits, names: tuple[str, ...]) -> Splits:
    scales = {name: (splits.train[name].mean(0), splits.train[name].std(0)) for name in names}

    def rescale(name: str, array: np.ndarray) -> np.ndarray:
        if name not in scales:
            return array
        mean, std = scales[name]
        return ((array - mean) / std).astype(np.float32)

    return Splits(
        **{
            split: {name: rescale(name, array_of_split) for name, array_of_split in getattr(splits, split).items()}
            for split in SPLITS
        }
    )
