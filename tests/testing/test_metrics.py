"""The contract of metrics: one that is right keeps it, and each way of being wrong is noticed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from lobench.core.result import Curves
from lobench.testing.metrics import MetricContract

_calls = itertools.count()


def last(curves: Curves) -> dict[str, object]:
    return {"train/last": np.asarray(curves.metrics["train/loss"])[:, -1]}


def mean_of_all(curves: Curves) -> dict[str, object]:
    values = np.asarray(curves.metrics["train/loss"])
    return {"train/mean": np.full(len(values), values.mean())}


def sometimes(curves: Curves) -> dict[str, object]:
    values = np.asarray(curves.metrics["train/loss"])[:, -1]
    return {"train/last": values} if np.isfinite(values).all() else {"train/diverged": values}


def one_number(curves: Curves) -> dict[str, object]:
    return {"train/last": float(np.asarray(curves.metrics["train/loss"])[0, -1])}


def other_each_time(curves: Curves) -> dict[str, object]:
    return {"train/last": np.full(len(curves.seeds), next(_calls))}


def writes(curves: Curves) -> dict[str, object]:
    values = np.asarray(curves.metrics["train/loss"])
    values[0, 0] = 0.0
    return {"train/last": values[:, -1]}


class TestLast(MetricContract):
    factory = f"{__name__}:last"

    def value_of(self, name: str, row: Sequence[float]) -> float:
        return row[-1]


@pytest.mark.parametrize(
    ("metric", "test"),
    [
        ("mean_of_all", "test_what_one_seed_meets_does_not_reach_another"),
        ("sometimes", "test_its_names_are_the_same_whatever_happened"),
        ("one_number", "test_it_gives_a_value_a_seed"),
        ("other_each_time", "test_the_same_curves_give_the_same_values"),
        ("writes", "test_it_gives_a_value_a_seed"),
    ],
)
def test_a_metric_that_is_wrong_is_noticed(metric: str, test: str) -> None:
    class Wrong(MetricContract):
        factory = f"{__name__}:{metric}"

    with pytest.raises((AssertionError, ValueError)):
        getattr(Wrong(), test)()
