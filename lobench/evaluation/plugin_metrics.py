"""Metrics declared by plugins, computed where the evaluation ran.

A metric gives one value per seed, stored as a curve of one point. A metric that fails, or returns something else, is
named in the `problems` of the evaluation; all other results are unaffected.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from lobench.core.containment import contain_plugins
from lobench.core.errors import LobenchError
from lobench.core.metric import directions_by_metric
from lobench.core.result import Curves
from lobench.core.wording import headline
from lobench.plugins import Registered

__all__ = ["with_metrics"]


def with_metrics(curves: Curves, registered_metrics: Mapping[str, Registered]) -> Curves:
    """Returns curves extended by declared metrics.

    Args:
      curves: Curves of one seed block.
      registered_metrics: Metrics by name, from `PluginManager.declarations("lobench_metrics")`.
    """
    if not registered_metrics:
        return curves
    # A metric receives a read-only copy, so that it cannot change the result.
    read_only_curves = Curves.from_payload(curves.to_payload())
    metrics = dict(curves.metrics)
    problems = list(curves.problems)
    directions = dict(curves.directions)
    for name, registered_metric in registered_metrics.items():
        try:
            computed_metrics = _compute_metric(registered_metric, read_only_curves)
            for metric in computed_metrics:
                if metric in metrics:
                    raise LobenchError(f"there is a metric {metric!r} already")
            where = f"plugin {registered_metric.plugin!r}"
            declared_directions = directions_by_metric(
                registered_metric.declaration.metric_directions, computed_metrics, where=where
            )
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  (a plugin boundary: named, and the rest goes on)
            problems.append(f"metric {name!r} of plugin {registered_metric.plugin!r}: {headline(error)}")
        else:
            metrics |= computed_metrics
            directions |= declared_directions
    return dataclasses.replace(
        curves,
        metrics=metrics,
        problems=tuple(problems),
        directions=directions,
        added=tuple(name for name in metrics if name not in curves.metrics),
    )


def _compute_metric(registered_metric: Registered, curves: Curves) -> dict[str, memoryview[float]]:
    """Calls a metric and checks the values that it returns."""
    metric = registered_metric.load()
    with contain_plugins():
        returned_values: Any = metric(curves)
    if not isinstance(returned_values, Mapping):
        raise LobenchError(
            "it returned no metrics",
            got=type(returned_values).__name__,
            expected="a mapping from names to a value a seed",
        )
    curves_by_metric: dict[str, memoryview[float]] = {}
    for returned_name, values in returned_values.items():
        column = np.asarray(values, np.float32)
        if not isinstance(returned_name, str) or column.shape != (len(curves.seeds),):
            raise LobenchError(
                f"it returned something else for {returned_name!r}",
                got=f"shape {list(column.shape)}",
                expected=f"[{len(curves.seeds)}], a value a seed",
            )
        # Names of the task's metrics are `<split>/<metric>`. A name without "/" is put below the declaration's name.
        name = returned_name if "/" in returned_name else f"{registered_metric.declaration.name}/{returned_name}"
        curve_values: Any = np.ascontiguousarray(column.reshape(-1, 1), "<f4").data
        curves_by_metric[name] = curve_values
    return curves_by_metric
