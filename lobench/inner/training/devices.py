"""Device sharding: vmapped replicas or thetas split over the devices of this process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lobench.core.case import Case

__all__ = ["Axes", "jitted", "num_parts", "place", "shard"]

Axes = Any  # a prefix of a structure: position of the axis of replicas or thetas in its leaves; None: no such axis
_PARTS_AXIS = "parts"


def num_parts(case: Case, width: int) -> int:
    """Returns the number of a case's devices for `width` replicas or thetas: the most that get equal numbers."""
    # The number depends on the case, not on this machine's devices, because the width of a part affects the bits.
    num_devices = case.num_cpus if jax.default_backend() == "cpu" else int(case.num_gpus)
    max_parts = max(1, min(num_devices, width, len(jax.devices())))
    return next(count for count in range(max_parts, 0, -1) if width % count == 0)


def shard(function: Callable[..., Any], parts: int, argument_axes: Axes, result_axes: Axes) -> Callable[..., Any]:
    """Returns `function` computed in parts, one per device. Values without an axis are passed to each part whole.

    Args:
      function: Function whose parts do not depend on each other.
      parts: Number of parts.
      argument_axes: Axes of its arguments.
      result_axes: Axes of its results. All parts must return equal values for results without an axis.
    """
    if parts == 1:
        return function
    specs_of = functools.partial(jax.tree.map, _partition_spec, is_leaf=_is_none)
    return jax.shard_map(
        function, mesh=_mesh(parts), in_specs=specs_of(argument_axes), out_specs=specs_of(result_axes), check_vma=False
    )


def jitted(function: Callable[..., Any], parts: int, axes: tuple[Axes, ...], *, placed: int, donated: int) -> Any:
    """Returns `jax.jit` of a function returned by `shard`.

    Args:
      function: Function to compile.
      parts: Number of parts.
      axes: Axes of all arguments.
      placed: Number of leading arguments that `place` places on devices. Their sharding is given explicitly, because
        XLA would choose one for arguments that nothing reads.
      donated: Index of the argument whose buffers may be reused.
    """
    if parts == 1:
        return jax.jit(function, donate_argnums=donated)
    shardings = (*_shardings(parts, axes[:placed]), *[None] * (len(axes) - placed))
    return jax.jit(function, donate_argnums=donated, in_shardings=shardings)


def place(values: Any, parts: int, axes: Axes) -> Any:
    """Moves values to the devices that use them, so that calls need not send them again."""
    return values if parts == 1 else jax.device_put(values, _shardings(parts, axes))


def _shardings(parts: int, axes: Axes) -> Any:
    mesh = _mesh(parts)
    return jax.tree.map(lambda axis: NamedSharding(mesh, _partition_spec(axis)), axes, is_leaf=_is_none)


def _mesh(parts: int) -> Mesh:
    return Mesh(np.asarray(jax.devices()[:parts]), (_PARTS_AXIS,))


def _partition_spec(axis: int | None) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(*(None,) * axis, _PARTS_AXIS)  # type: ignore[no-untyped-call]


def _is_none(axis: int | None) -> bool:
    return axis is None
