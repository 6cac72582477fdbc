"""Contract of metrics: a plugin's test module subclasses `MetricContract`.

class TestRatio(MetricContract):
    factory = "mypackage.metrics:ratio"
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from lobench.core.lazy import loaded
from lobench.core.result import Curves

__all__ = ["MetricContract", "sample_curves"]

_ROWS = ((9.0, 8.0, 3.0), (7.0, 7.5, 7.0), (5.0, math.nan, math.nan), (0.0, 0.0, 0.0))


def sample_curves(rows: Sequence[Sequence[float]], *, first_seed: int = 0, eval_every: int = 10) -> Curves:
    """Returns the curves of a block of seeds: `train/loss` as given, `test/loss` above it by 1; NaN: it diverged."""
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
    """

    factory: ClassVar[str]

    def curves(self, rows: Sequence[Sequence[float]]) -> Curves:
        """Returns what the metric is computed from; override it for a metric of other curves than losses."""
        return sample_curves(rows)

    def computed(self, rows: Sequence[Sequence[float]]) -> dict[str, np.ndarray[Any, Any]]:
        """Returns what the metric says of curves that cannot be written to."""
        shown = Curves.from_payload(self.curves(rows).to_payload())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of 0 / 0, say
            found = loaded(self.factory)(shown)
        return {name: np.asarray(values, np.float32) for name, values in found.items()}

    def test_it_gives_a_value_a_seed(self) -> None:
        for rows in (_ROWS, _ROWS[:1]):
            found = self.computed(rows)
            assert found, "no metric at all"
            for name, values in found.items():
                assert values.shape == (len(rows),), (
                    f"{name!r} has shape {values.shape}, and there are {len(rows)} seeds"
                )

    def test_its_names_are_the_same_whatever_happened(self) -> None:
        """A column that comes and goes is in no table, and has no direction."""
        assert {frozenset(self.computed([row])) for row in _ROWS} == {frozenset(self.computed(_ROWS))}

    def test_the_same_curves_give_the_same_values(self) -> None:
        first, second = self.computed(_ROWS), self.computed(_ROWS)
        for name, values in first.items():
            np.testing.assert_array_equal(values, second[name], err_msg=name)

    def test_what_one_seed_meets_does_not_reach_another(self) -> None:
        together = self.computed(_ROWS)
        for place, row in enumerate(_ROWS):
            alone = self.computed([row])
            for name, values in together.items():
                np.testing.assert_allclose(values[place : place + 1], alone[name], rtol=1e-6, err_msg=name)
