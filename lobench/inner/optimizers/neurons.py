"""Optimizers that treat the incoming weights of each neuron as one vector, with another optimizer for other parameters.

The task declares these weights (`Task.scale_invariant`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from lobench.core.errors import ConfigError
from lobench.inner.extra_inputs.calling import call_with_accepted
from lobench.inner.extra_inputs.optimizer_side import with_extra_inputs
from lobench.inner.optimizer import PyTree

__all__ = ["neuron_dot", "neuron_optimizer", "normalized_neurons", "safe_norm"]

# (gradient, weights, state, axis of neurons, updates before this one) -> (update, state)
Move: TypeAlias = Callable[[jax.Array, jax.Array, PyTree, int, jax.Array], tuple[PyTree, PyTree]]


class NeuronsState(NamedTuple):
    """State of an optimizer of neurons."""

    num_updates: jax.Array  # int32[], before this one
    own: tuple[PyTree, ...]  # state of each scale-invariant leaf
    rest: PyTree  # state of the optimizer of all other leaves


def neuron_optimizer(
    name: str, init_leaf: Callable[[jax.Array, int], PyTree], step_leaf: Move, rest: Any, *, starts_at_one: bool = False
) -> optax.GradientTransformationExtraArgs:
    """Returns an optimizer for the leaves that a task declares scale-invariant, and `rest` for all others.

    Args:
      name: Name in error messages.
      init_leaf: Function of (weights, axis of neurons) that returns the state of a leaf.
      step_leaf: Function that steps a leaf, in float32.
      rest: Optimizer of all other leaves.
      starts_at_one: Whether training starts at weights of norm 1.
    Raises:
      ConfigError: `rest` defines `eval_params` or `initial_params`.
    """
    for hook in ("eval_params", "initial_params"):
        if getattr(rest, hook, None) is not None:
            raise ConfigError(
                f"{name}.rest has {hook} of its own",
                expected="an optimizer that starts, and is evaluated, at its parameters",
                next_step="bind another one, such as @adam()",
            )
    rest = optax.with_extra_args_support(rest) if type(rest) is optax.GradientTransformation else rest

    def init(params: PyTree, scale_invariant: PyTree, **facts: Any) -> NeuronsState:
        states_of_neurons = tuple(
            init_leaf(leaf, axis) for leaf, axis in _leaves_with_axes(params, scale_invariant) if axis is not None
        )
        other_params = _without_invariant_leaves(params, params, scale_invariant)
        return NeuronsState(
            jnp.zeros([], jnp.int32), states_of_neurons, call_with_accepted(rest.init, other_params, **facts)
        )

    def update(
        grads: PyTree, state: NeuronsState, params: PyTree = None, *, scale_invariant: PyTree, **extra: Any
    ) -> tuple[PyTree, NeuronsState]:
        grads_and_params = [_without_invariant_leaves(tree, params, scale_invariant) for tree in (grads, params)]
        extra |= {"scale_invariant": scale_invariant} | ({"grad": grads_and_params[0]} if "grad" in extra else {})
        rest_updates, rest_state = call_with_accepted(
            rest.update, grads_and_params[0], state.rest, grads_and_params[1], **extra
        )
        structure: Any = jax.tree.structure(params)
        updates = []
        states = []
        neuron_states = iter(state.own)
        for (leaf, axis), grad, update_of_leaf in zip(
            _leaves_with_axes(params, scale_invariant),
            jax.tree.leaves(grads),
            structure.flatten_up_to(rest_updates),
            strict=True,
        ):
            if axis is not None:
                update_of_leaf, new_state = step_leaf(
                    _as_float32(grad), _as_float32(leaf), next(neuron_states), axis, state.num_updates
                )
                states.append(new_state)
            updates.append(update_of_leaf)
        return structure.unflatten(updates), NeuronsState(state.num_updates + 1, tuple(states), rest_state)

    def initial_params(params: PyTree, scale_invariant: PyTree) -> PyTree:
        leaves = [
            leaf if axis is None else normalized_neurons(_as_float32(leaf), axis).astype(leaf.dtype)
            for leaf, axis in _leaves_with_axes(params, scale_invariant)
        ]
        structure: Any = jax.tree.structure(params)
        return structure.unflatten(leaves)

    start = initial_params if starts_at_one else None
    return with_extra_inputs(init, update, ("scale_invariant",), name=name, inner=rest, initial_params=start)


def _leaves_with_axes(params: PyTree, scale_invariant: PyTree) -> list[tuple[jax.Array, int | None]]:
    structure: Any = jax.tree.structure(params)
    return list(zip(jax.tree.leaves(params), structure.flatten_up_to(scale_invariant), strict=True))


def _without_invariant_leaves(tree: PyTree, params: PyTree, scale_invariant: PyTree) -> PyTree:
    """Returns a tree like params without the scale-invariant weights."""
    structure: Any = jax.tree.structure(params)
    axes = structure.flatten_up_to(scale_invariant)
    leaves = structure.flatten_up_to(tree)
    return structure.unflatten(
        [leaf if axis is None else optax.MaskedNode() for leaf, axis in zip(leaves, axes, strict=True)]
    )


def _as_float32(leaf: jax.Array) -> jax.Array:
    return leaf.astype(jnp.float32)


def neuron_dot(left: jax.Array, right: jax.Array, axis: int) -> jax.Array:
    """Returns the inner product for each neuron, with all other axes of size 1."""
    other_axes = tuple(tensor_axis for tensor_axis in range(left.ndim) if tensor_axis != axis)
    return jnp.sum(left * right, axis=other_axes, keepdims=True)


def safe_norm(weights: jax.Array, axis: int) -> jax.Array:
    """Returns the norm of each neuron's weights; 1 if they are all 0, so that it can be a divisor."""
    norm = jnp.sqrt(neuron_dot(weights, weights, axis))
    return jnp.where(norm > 0, norm, 1.0)


def normalized_neurons(weights: jax.Array, axis: int) -> jax.Array:
    """Returns each neuron's weights divided by their norm."""
    return weights / safe_norm(weights, axis)
