"""Values of extra inputs, such as curvature or losses. They are computed only if an optimizer requests them.

`optimizer_side.py` defines the requests.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Task

__all__ = [
    "NOTHING",
    "TASK_METHODS",
    "BatchLosses",
    "ExtraInputs",
    "ExtraValues",
    "Facts",
    "extra_values_at",
    "facts_of",
    "zero_extra_values",
]

ExtraInputs: TypeAlias = Mapping[str, str]  # names of inputs, each with the optimizer that requests it
Facts: TypeAlias = Mapping[str, Any]  # constants of a task: `scale_invariant`, `num_losses`
ExtraValues: TypeAlias = Mapping[str, Any]  # values of a step, by argument of `update`

NOTHING: Mapping[str, Any] = types.MappingProxyType({})
_LOSSES = "losses(params, state, key, data) -> float32[K], and num_losses = K"
TASK_METHODS = {
    "memory": "memory_loss(params, state, key) -> float32[]",
    "task_losses": _LOSSES,
    "task_gradients": _LOSSES,
    "scale_invariant": "scale_invariant(params) with an axis for some of its leaves",
}


def facts_of(extra_inputs: ExtraInputs, task: Callable[[], Task], params: PyTree) -> Facts:
    """Returns the facts that a task provides to an optimizer once.

    Args:
      extra_inputs: Requested inputs.
      task: Function that returns the task; called if anything is requested.
      params: Parameters of the task.
    Raises:
      ConfigError: The task lacks an input, or provides it in a wrong form.
    """
    if not extra_inputs:
        return NOTHING
    bound_task = task()
    facts = {}
    for input_name, name in extra_inputs.items():
        if input_name == "memory":
            is_provided = callable(getattr(bound_task, "memory_loss", None))
        elif input_name == "scale_invariant":
            facts["scale_invariant"], is_provided = _leaf_axes(bound_task, params)
        else:
            facts["num_losses"] = getattr(bound_task, "num_losses", None)
            is_provided = callable(getattr(bound_task, "losses", None)) and isinstance(facts["num_losses"], int)
        if not is_provided:
            raise ConfigError(
                f"{name} requests {input_name!r}, which {_task_name(bound_task)} does not give",
                expected=f"a task that defines {TASK_METHODS[input_name]}",
                next_step=bound_task.gives_if.get(
                    input_name, "bind another task, or an optimizer that does not request it"
                ),
            )
    return facts


def _task_name(task: Task) -> str:
    inner_task = getattr(task, "task", None) or getattr(task, "_wrapped", None)
    return type(task).__name__ if inner_task is None else f"{_task_name(inner_task)}, wrapped,"


def _leaf_axes(task: Task, params: PyTree) -> tuple[PyTree, bool]:
    """Returns `Task.scale_invariant` with non-negative axes, and whether any leaf has one."""
    given_axes = task.scale_invariant(params)
    structure: Any = jax.tree.structure(params)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    where = f"{_task_name(task)}.scale_invariant"
    expected = "a tree like params, of an axis or None for each leaf"
    try:
        axes = structure.flatten_up_to(given_axes)
    except ValueError as error:
        raise ConfigError(
            f"{where} is of another structure than params", got=repr(given_axes), expected=expected
        ) from error
    normalized_axes = []
    for path, leaf, axis in zip(paths, jax.tree.leaves(params), axes, strict=True):
        rank = jnp.ndim(leaf)
        if axis is not None and (type(axis) is not int or not -rank <= axis < rank):
            expected = f"None, or an axis from {-rank} to {rank - 1}" if rank else "None: the leaf has no axis"
            raise ConfigError(f"{where} of the leaf {path}", got=repr(axis), expected=expected)
        normalized_axes.append(None if axis is None else axis % rank)
    return structure.unflatten(normalized_axes), any(axis is not None for axis in normalized_axes)


@dataclass(frozen=True, slots=True)
class BatchLosses:
    """Losses of an inner step, as functions of parameters.

    Attributes:
      loss: Function of params that returns (float32[], (model state after it, values by name)).
      task: Function that returns the task that is trained.
      memory: Function of params that returns its `memory_loss`, float32[].
      each: Function of params that returns its `losses`, float32[K].
    """

    loss: Callable[[PyTree], tuple[jax.Array, tuple[PyTree, dict[str, jax.Array]]]]
    task: Callable[[], Task]
    memory: Callable[[PyTree], jax.Array]
    each: Callable[[PyTree], jax.Array]


def extra_values_at(extra_inputs: ExtraInputs, batch: BatchLosses, params: PyTree) -> ExtraValues:
    """Returns the requested extra inputs of a step, by argument of `update`."""
    if not extra_inputs:
        return NOTHING
    facts = facts_of(extra_inputs, batch.task, params)
    extra_values = {name: value for name, value in facts.items() if name in extra_inputs}
    if "memory" in extra_inputs:
        extra_values["memory"] = jax.grad(batch.memory)(params)
    if "num_losses" in facts:
        loss_values, vjp_function = jax.vjp(batch.each, params)
        if loss_values.shape != (facts["num_losses"],):
            name = _task_name(batch.task())
            raise ConfigError(
                f"{name}.losses",
                got=f"the shape {list(loss_values.shape)}",
                expected=f"[num_losses] = [{facts['num_losses']}]",
            )

        def weighted_gradient(weights: jax.Array) -> PyTree:
            return vjp_function(jnp.asarray(weights, loss_values.dtype))[0]

        if "task_losses" in extra_inputs:
            extra_values |= {"task_losses": loss_values, "weighted_gradient": weighted_gradient}
        if "task_gradients" in extra_inputs:
            extra_values["task_gradients"] = jax.vmap(weighted_gradient)(
                jnp.eye(*loss_values.shape, dtype=loss_values.dtype)
            )
    return extra_values


def zero_extra_values(extra_inputs: ExtraInputs, facts: Facts, params: PyTree) -> ExtraValues:
    """Returns zeros in the shapes of the extra inputs of a step, for tracing an update."""
    if not extra_inputs:
        return NOTHING
    zeros = jax.tree.map(jnp.zeros_like, params)
    num_losses = facts.get("num_losses")
    gradient_rows = jax.tree.map(lambda leaf: jnp.zeros((num_losses or 0, *leaf.shape), leaf.dtype), zeros)
    zeros_by_input = {
        "memory": zeros,
        "task_losses": jnp.zeros(num_losses or 0),
        "task_gradients": gradient_rows,
        "scale_invariant": facts.get("scale_invariant"),
    }
    values = {input_name: zeros_by_input[input_name] for input_name in extra_inputs}
    return {**values, "weighted_gradient": lambda weights: zeros} if "task_losses" in extra_inputs else values
