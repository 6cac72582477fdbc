"""Curves of metrics that commands and ordinary tests measured, instead of lobench's trainings. Imports no jax."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lobench.core.case import PASSED, TEST, SeedBlock
from lobench.core.metric import Direction, directions_by_metric
from lobench.core.result import Curves
from lobench.engine.config.bound import BoundCase
from lobench.engine.item_values import ItemValues
from lobench.engine.store.provenance import provenance
from lobench.engine.workers.devices import cpu_class

__all__ = ["CurvesMaker", "MetricCurves"]

MetricCurves: TypeAlias = Mapping[str, tuple[np.ndarray, np.ndarray]]  # steps and values, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvesMaker:
    """Makes curves of the metrics that an evaluator measured.

    Attributes:
      bound_case: The case.
      seconds: Seconds that the evaluation took.
      identified_by: `FileIdentity.hash_origin` of the checkpoint.
      where: Name of the case in error messages.
    """

    bound_case: BoundCase
    seconds: float
    identified_by: str
    where: str

    def of_seed(self, block: SeedBlock, metrics: MetricCurves) -> Curves:
        """Returns curves at the steps of the primary metric. A metric at other steps is named in the problems."""
        primary_metric = self.bound_case.case.primary_metric
        steps, primary_values = metrics[primary_metric]
        values_by_metric: dict[str, np.ndarray] = {}
        problems = list[str]()
        for name, (metric_steps, values) in metrics.items():
            indices = np.searchsorted(metric_steps, steps)
            if indices[-1] < len(metric_steps) and bool((metric_steps[indices] == steps).all()):
                values_by_metric[name] = values[indices].reshape(1, -1)
            else:
                problems.append(f"{name} is left out: it has other steps than {primary_metric}")
        is_nonfinite = ~np.isfinite(primary_values)
        diverged_at = int(steps[is_nonfinite.argmax()]) if is_nonfinite.any() else -1
        return self._curves((block.start,), values_by_metric, tuple(steps.tolist()), (diverged_at,), problems)

    def of_items(self, items: ItemValues) -> Curves:
        """Returns curves of one point, with a row for each item."""
        return dataclasses.replace(self.of_final_values(items.seeds, items.metrics, items.problems), items=items.items)

    def of_final_values(
        self, seeds: tuple[int, ...], metrics: Mapping[str, np.ndarray], problems: Iterable[str]
    ) -> Curves:
        """Returns curves of one point.

        Args:
          seeds: Seed of each row.
          metrics: Values by metric, [num_seeds].
          problems: Lines on metrics that were left out.
        """
        values_by_metric = {name: values[:, None] for name, values in metrics.items()}
        is_finite = np.isfinite(metrics[self.bound_case.case.primary_metric])
        diverged_at = tuple(np.where(is_finite, -1, 0).tolist())
        return self._curves(seeds, values_by_metric, (0,), diverged_at, problems)

    def _curves(
        self,
        seeds: tuple[int, ...],
        metrics: Mapping[str, np.ndarray],
        steps: tuple[int, ...],
        diverged_at: tuple[int, ...],
        problems: Iterable[str],
    ) -> Curves:
        bound_case = self.bound_case
        evaluator = bound_case.info.evaluator
        origin = provenance(
            bindings=bound_case.bindings, device=f"cpu: {cpu_class()}", folder=Path(bound_case.spec.path).parent
        )
        # Packages of lobench's trainings did not affect the result.
        versions = {name: version for name, version in origin.versions.items() if name == "lobench"}
        with np.errstate(over="ignore"):
            value_views: dict[str, Any] = {
                name: memoryview(values.astype("<f4").data) for name, values in metrics.items()
            }
        directions = directions_by_metric(bound_case.case.metric_directions, metrics, where=self.where)
        if evaluator == TEST and PASSED in metrics:
            directions = {PASSED: Direction.MAX, **directions}
        return Curves(
            seeds=seeds,
            metrics=value_views,
            eval_steps=steps,
            diverged_at=diverged_at,
            wall_seconds=self.seconds,
            provenance=dataclasses.replace(
                origin, versions=versions, evaluator=evaluator, identified_by=self.identified_by
            ),
            problems=(*bound_case.problems, *problems),
            directions=directions,
        )
