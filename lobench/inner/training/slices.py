"""Slices: trainings computed a few at a time, one slice after another, in one program.

Seeds or checkpoints that are mapped together share the overhead of each operation, which helps small trainings. If the
arrays of a step of a single training nearly fill the nearest cache, several do not fit, and each takes longer than
alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from lobench.inner.training.devices import Axes

__all__ = ["in_slices", "num_at_once", "widest"]

# Size of the largest array in a step of a slice. It is the same on every machine, because the width of a slice affects
# the bits. On a core with 1 MiB of second-level cache, none of 28 pairs of optimizer and task below this size was
# slower together than alone; MLPLOpt on digits, with an array of 301 KiB per seed, took 1.2 times as long with two
# seeds or more.
_MAX_BYTES = 1 << 19


def num_at_once(program: Any, num_together: int) -> int:
    """Returns how many of the trainings mapped together are computed at a time.

    Args:
      program: jaxpr of `Traced.advance`, for trainings mapped together.
      num_together: Number of these trainings on each device.
    """
    if num_together == 1 or jax.default_backend() != "cpu":
        return num_together
    largest_bytes = max(map(_largest_array_bytes, _loop_over_steps(program).eqns), default=0)
    return num_together if largest_bytes <= _MAX_BYTES else max(1, num_together * _MAX_BYTES // largest_bytes)


def widest(size: int, max_width: int) -> int:
    """Returns the largest divisor of a size that is at most `max_width`."""
    return next(width for width in range(max(1, min(size, max_width)), 0, -1) if size % width == 0)


def _loop_over_steps(program: Any) -> Any:
    """Returns the body of the innermost of the three loops of `Traced.advance`: over stretches, segments, steps."""
    for equation in program.eqns:
        if equation.primitive.name == "shard_map":
            program = equation.params["jaxpr"]
    for _ in range(3):
        loops = [equation for equation in program.eqns if equation.primitive.name == "while"]
        program = loops[-1].params["body_jaxpr"].jaxpr
    return program


def _largest_array_bytes(equation: Any) -> int:
    """Returns the size in bytes of the largest array that an equation, or an equation inside of it, computes."""
    output_bytes = max(
        (math.prod(variable.aval.shape) * _bytes_of(variable.aval.dtype) for variable in equation.outvars), default=0
    )
    return max(
        (output_bytes, *(max(map(_largest_array_bytes, inner.eqns), default=0) for inner in _inner_programs(equation)))
    )


def _bytes_of(dtype: Any) -> int:
    return int(getattr(dtype, "itemsize", 0))


def _inner_programs(equation: Any) -> Iterator[Any]:
    """Yields the programs inside an equation: calls, branches and loop bodies."""
    for parameter in equation.params.values():
        for value in parameter if isinstance(parameter, tuple | list) else (parameter,):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield inner


def in_slices(
    function: Callable[..., Any], size: int, width: int, argument_axes: Axes, result_axes: Axes
) -> Callable[..., Any]:
    """Returns a function that computes `function` for `width` of `size` replicas or thetas at a time.

    Args:
      function: Function of slices. Leaves of slices of one have no leading axis.
      size: Number of replicas or thetas.
      width: Number per slice, a divisor of `size`.
      argument_axes: Axes of its arguments.
      result_axes: Axes of its results. All slices must return equal values for results without an axis.
    """
    if width == size:
        return function

    def sliced(*values: Any) -> Any:
        axes = _axes_of_leaves(argument_axes, values)
        leaves, structure = jax.tree.flatten(values)
        sliced_leaves = [
            _cut_into_slices(leaf, axis, width) for leaf, axis in zip(leaves, axes, strict=True) if axis is not None
        ]

        def compute_slice(_: None, slices: list[jax.Array]) -> tuple[None, Any]:
            slice_leaves = iter(slices)
            argument_axes = [
                leaf if axis is None else next(slice_leaves) for leaf, axis in zip(leaves, axes, strict=True)
            ]
            return None, function(*jax.tree.unflatten(structure, argument_axes))

        _, outputs = jax.lax.scan(compute_slice, None, sliced_leaves)
        output_leaves, output_structure = jax.tree.flatten(outputs)
        joined_leaves = [
            _join_slices(leaf, axis, width)
            for leaf, axis in zip(output_leaves, _axes_of_leaves(result_axes, outputs), strict=True)
        ]
        return jax.tree.unflatten(output_structure, joined_leaves)

    return sliced


def _axes_of_leaves(axes: Axes, tree: Any) -> list[int | None]:
    """Returns the axis of each leaf."""
    axes_by_subtree = jax.tree.map(
        lambda axis, subtree: [axis] * len(jax.tree.leaves(subtree)), axes, tree, is_leaf=lambda axis: axis is None
    )
    return jax.tree.leaves(axes_by_subtree, is_leaf=lambda axis: axis is None)


def _cut_into_slices(leaf: Any, axis: int, width: int) -> jax.Array:
    """Cuts an array along an axis into slices of `width` trainings.

    Returns:
      [num_slices, ...]. Each slice keeps the axis, with size `width`, unless `width` is 1.
    """
    leaf = jnp.asarray(leaf)
    if width == 1:
        return jnp.moveaxis(leaf, axis, 0)
    shape_before = leaf.shape[:axis]
    size = leaf.shape[axis]
    shape_behind = leaf.shape[axis + 1 :]
    return jnp.moveaxis(leaf.reshape(*shape_before, size // width, width, *shape_behind), axis, 0)


def _join_slices(leaf: jax.Array, axis: int | None, width: int) -> jax.Array:
    if axis is None:
        return leaf[0]
    leaf = jnp.moveaxis(leaf, 0, axis)
    if width == 1:
        return leaf
    return leaf.reshape(*leaf.shape[:axis], leaf.shape[axis] * width, *leaf.shape[axis + 2 :])
