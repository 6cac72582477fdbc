"""Contract of metrics: a plugin's test module subclasses `MetricContract`.

class TestRatio(MetricContract):
    factory = "mypackage.metrics:ratio"

    def value_of(self, name, row):
        return row[-1] / row[0]
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from lobench.core.lazy import loaded
from lobench.core.metric import directions_by_metric
from lobench.core.result import Curves
from lobench.plugins import load_plugins
from lobench.testing.watches import NAME, watch_with, write_run

__all__ = ["MetricContract", "sample_curves"]

_FIRST_SEED = 5
_ROWS = ((9.0, 8.0, 3.0), (7.0, 7.5, 7.0), (5.0, math.nan, math.nan), (0.0, 0.0, 0.0))
# Curves with more than ten seeds and evaluations, for known values.
_KNOWN_ROWS: list[list[float]] = np.random.default_rng(0).lognormal(0.0, 2.0, (13, 12)).astype(np.float32).tolist()
_KNOWN_ROWS[3][7:] = [math.nan] * 5


def sample_curves(rows: Sequence[Sequence[float]], *, first_seed: int = 0, eval_every: int = 10) -> Curves:
    """Returns the curves of a block of seeds.

    >>> sample_curves([(9.0, 3.0)]).final("train/loss")
    [3.0]

    Args:
      rows: Values of `train/loss`, [num_seeds, num_evals]. NaN if the seed diverged. `test/loss` is larger by 1.
      first_seed: First seed of the block.
      eval_every: Inner steps between evaluations.
    """
    train: np.ndarray[Any, Any] = np.asarray(rows, np.float32)
    steps = tuple(range(0, eval_every * train.shape[1], eval_every))
    return Curves(
        seeds=tuple(range(first_seed, first_seed + len(train))),
        metrics={"train/loss": memoryview(train.data), "test/loss": memoryview((train + np.float32(1)).data)},
        eval_steps=steps,
        diverged_at=tuple(-1 if np.isfinite(row).all() else 3 for row in train),
        wall_seconds=0.5,
        num_params=7,
    )


class MetricContract:
    """Tests that every metric must pass.

    Attributes:
      factory: "module:attribute", as in the metric's declaration.
      directions: `metric_directions`, as in the metric's declaration.
    """

    factory: ClassVar[str]
    directions: ClassVar[Mapping[str, str]] = {}

    def curves(self, rows: Sequence[Sequence[float]]) -> Curves:
        """Returns the curves from which the metric is computed.

        Override it for a metric that needs other curves than losses.
        """
        return sample_curves(rows, first_seed=_FIRST_SEED)

    def value_of(self, name: str, row: Sequence[float]) -> float:
        """Returns the expected value of one seed, computed independently of the metric.

        Args:
          name: One of the names that the metric returns.
          row: Training losses of the seed, `train/loss` of `curves([row])`; NaN from the first diverged step on.
        """
        raise NotImplementedError("define value_of(): the right value for a seed with these training losses")

    def compute(self, rows: Sequence[Sequence[float]]) -> dict[str, np.ndarray[Any, Any]]:
        """Returns the metric of read-only curves."""
        return self.compute_from(self.curves(rows))

    def compute_from(self, curves: Curves) -> dict[str, np.ndarray[Any, Any]]:
        copied_curves = Curves.from_payload(curves.to_payload())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # such as 0 / 0
            columns = loaded(self.factory)(copied_curves)
        return {name: np.asarray(values, np.float32) for name, values in columns.items()}

    def test_it_gives_a_value_a_seed(self) -> None:
        for rows in (_ROWS, _ROWS[:1]):
            columns = self.compute(rows)
            assert columns, "no metric at all"
            for name, values in columns.items():
                assert values.shape == (len(rows),), (
                    f"{name!r} has shape {values.shape}, and there are {len(rows)} seeds"
                )

    def test_known_values_are_found(self) -> None:
        for name, values in self.compute(_KNOWN_ROWS).items():
            expected = [self.value_of(name, row) for row in _KNOWN_ROWS]
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-30, err_msg=name)

    def test_numbers_of_seeds_do_not_matter(self) -> None:
        """A seed is a row of the curves. Blocks may begin at any seed."""
        curves = self.curves(_ROWS)
        values = self.compute_from(curves)
        for first_seed in (0, 70):
            moved_curves = dataclasses.replace(curves, seeds=tuple(range(first_seed, first_seed + len(_ROWS))))
            for name, moved_values in self.compute_from(moved_curves).items():
                np.testing.assert_array_equal(moved_values, values[name], err_msg=name)

    def test_its_directions_name_its_metrics(self) -> None:
        names = self.compute(_ROWS)
        directions_by_metric(self.directions, names, where=self.factory)
        for declared_name in self.directions:
            assert any(declared_name in (name, name.rpartition("/")[2]) for name in names), (
                f"no metric is {declared_name!r}"
            )

    def test_a_watch_stores_it(self, tmp_path: Path) -> None:
        curves = self.curves(_ROWS)
        losses = dataclasses.replace(curves, metrics={"train/loss": curves.metrics["train/loss"]})
        try:
            names = {name if "/" in name else f"{NAME}/{name}" for name in self.compute_from(losses)}
        except KeyError:
            pytest.skip("the metric is computed from more than training losses")
        run = write_run(tmp_path)
        watched_store = watch_with(tmp_path, "lobench_metrics", self.factory, run, directions=self.directions)
        (stored_curves,) = watched_store.curves
        installed_metrics = load_plugins().usable_declarations("lobench_metrics").values()
        # An installed metric is computed twice in this test, which is a problem of its own.
        if all(registered_metric.declaration.factory != self.factory for registered_metric in installed_metrics):
            assert not stored_curves.problems, stored_curves.problems
        assert names <= set(stored_curves.metrics), f"not stored: {names - set(stored_curves.metrics)}"
        rows = np.asarray(stored_curves.metrics["train/loss"]).tolist()
        for name in names:
            expected = [self.value_of(name.removeprefix(f"{NAME}/"), row) for row in rows]
            np.testing.assert_allclose(stored_curves.final(name), expected, rtol=1e-5, err_msg=name)

    def test_its_names_are_the_same_whatever_happened(self) -> None:
        """A metric that is missing for some seeds would have no column and no direction in tables."""
        assert {frozenset(self.compute([row])) for row in _ROWS} == {frozenset(self.compute(_ROWS))}

    def test_the_same_curves_give_the_same_values(self) -> None:
        first_values = self.compute(_ROWS)
        second_values = self.compute(_ROWS)
        for name, values in first_values.items():
            np.testing.assert_array_equal(values, second_values[name], err_msg=name)

    def test_what_one_seed_meets_does_not_reach_another(self) -> None:
        values_together = self.compute(_ROWS)
        for index, row in enumerate(_ROWS):
            values_alone = self.compute([row])
            for name, values in values_together.items():
                np.testing.assert_allclose(values[index : index + 1], values_alone[name], rtol=1e-6, err_msg=name)
