"""Registry of labelled data for classifiers, by name.

Add an entry to `LABELLED` for new data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from lobench.inner.tasks.digits import digits_splits
from lobench.inner.tasks.mnist import mnist_splits
from lobench.inner.tasks.mnist1d import mnist1d_splits
from lobench.inner.tasks.splits import Splits
from lobench.inner.tasks.tables import breast_cancer_splits, wine_splits

__all__ = ["LABELLED", "Labelled"]


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
