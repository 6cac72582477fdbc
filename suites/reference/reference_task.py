"""The reference task: an MLP on the digits, defined without a framework, which optimizers' authors can reproduce."""

from __future__ import annotations

import numpy as np

from lobench import ArrayDataset, Datasets, configurable
from lobench.inner.tasks.digits import digits_splits
from lobench.inner.tasks.image import DigitsMLP

_BATCH_SIZE = 64


@configurable
class ReferenceDigits(DigitsMLP):
    """64-32-10, ReLU, on the digits / 16: of their permutation by `default_rng(12345)` the first 1,437 train.

    Weights start normal, with variance 2 / 64 and 1 / 32; biases at zero; batches are 64 draws with replacement.
    """

    def __init__(self) -> None:
        super().__init__(hidden_sizes=(32,), batch_size=_BATCH_SIZE)
        splits = digits_splits()
        parts = (splits.train, splits.inner_valid, splits.outer_valid)
        train = {name: np.concatenate([part[name] for part in parts]) for name in ("image", "label")}
        self.datasets = Datasets(train=ArrayDataset(train, _BATCH_SIZE), test=ArrayDataset(splits.test, _BATCH_SIZE))
