"""Constants among parameters: integers, booleans and leaves that are not arrays are not trained.

They are part of the model state, so that optimizers see only floating-point leaves. A constant leaf is `None` in the
parameters, as with `equinox.partition`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.inner.optimizer import PyTree

__all__ = ["merged", "split_constants", "with_state"]


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["state", "arrays"], meta_fields=["structure", "other"]
)
@dataclass(frozen=True)
class _StateWithConstants:
    """Model state of a task whose parameters have constants.

    Attributes:
      state: Model state of the task itself.
      arrays: Constant arrays by their position among all leaves.
      structure: Structure of all parameters.
      other: Leaves that are not arrays, such as an activation function, with their positions.
    """

    state: PyTree
    arrays: dict[int, jax.Array]
    structure: Any  # a PyTreeDef
    other: tuple[tuple[int, Any], ...]


def split_constants(params: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
    """Returns the trained parameters, and the model state extended by the constants.

    Raises:
      ConfigError: No parameter is trained, or the elements of an array are not numbers.
    """
    structure: Any
    leaves, structure = jax.tree.flatten(params)
    is_trained = [_is_number(leaf) and jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) for leaf in leaves]
    if all(is_trained):
        return params, state
    if not any(is_trained):
        raise ConfigError(
            "the task has no parameter to train",
            got=", ".join(sorted({_leaf_description(leaf) for leaf in leaves})),
            expected="a leaf of floating-point numbers",
        )
    constants = {index: leaf for index, leaf in enumerate(leaves) if not is_trained[index]}
    new_state = _StateWithConstants(
        state=state,
        arrays={index: jnp.asarray(leaf) for index, leaf in constants.items() if _is_number(leaf)},
        structure=structure,
        other=tuple((index, leaf) for index, leaf in constants.items() if not _is_number(leaf)),
    )
    return structure.unflatten(
        [leaf if is_leaf_trained else None for leaf, is_leaf_trained in zip(leaves, is_trained, strict=True)]
    ), new_state


def merged(params: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
    """Returns the task's parameters and model state; inverse of `split_constants`."""
    if not isinstance(state, _StateWithConstants):
        return params, state
    constants = {**state.arrays, **dict(state.other)}
    trained_leaves = iter(jax.tree.leaves(params))
    leaves = [
        constants[index] if index in constants else next(trained_leaves) for index in range(state.structure.num_leaves)
    ]
    return state.structure.unflatten(leaves), state.state


def with_state(previous: PyTree, state: PyTree) -> PyTree:
    """Returns a model state with the constants of the previous one."""
    if not isinstance(previous, _StateWithConstants):
        return state
    return _StateWithConstants(state, previous.arrays, previous.structure, previous.other)


def _is_number(leaf: Any) -> bool:
    """Returns whether a leaf is an array or a Python number.

    Raises:
      ConfigError: The elements of an array are not numbers.
    """
    if isinstance(leaf, bool | int | float | complex):
        return True
    if not hasattr(leaf, "dtype"):
        return False
    if not (jnp.issubdtype(leaf.dtype, jnp.number) or leaf.dtype == jnp.bool_):
        raise ConfigError(
            "elements of a parameter of the task are not numbers",
            got=_leaf_description(leaf),
            next_step="keep it in the task",
        )
    return True


def _leaf_description(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "dtype") else type(leaf).__name__
