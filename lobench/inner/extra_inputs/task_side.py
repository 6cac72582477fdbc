"""Extra inputs, the task's side: curvature, losses and the like, computed only where an optimizer asks for them.

`optimizer_side.py` has the optimizers' side.
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

__all__ = ["GIVEN_BY", "NOTHING", "BatchLosses", "Facts", "Wanted", "Wants", "blank", "facts_of", "wanted_at"]

Wants: TypeAlias = Mapping[str, str]  # what is wanted, and the name of the optimizer that wants it
Facts: TypeAlias = Mapping[str, Any]  # what a task says once: `scale_invariant`, `num_losses`
Wanted: TypeAlias = Mapping[str, Any]  # what a step computes, by the names that `update` takes

NOTHING: Mapping[str, Any] = types.MappingProxyType({})
_LOSSES = "losses(params, state, key, data) -> float32[K], and num_losses = K"
GIVEN_BY = {
    "memory": "memory_loss(params, state, key) -> float32[]",
    "task_losses": _LOSSES,
    "task_gradients": _LOSSES,
    "scale_invariant": "scale_invariant(params) with an axis for some of its leaves",
}


def facts_of(wants: Wants, task: Callable[[], Task], params: PyTree) -> Facts:
    """Returns what a task says once to an optimizer.

    Args:
      task: Called where anything is wanted.
    Raises:
      ConfigError: the task lacks what is wanted, or says it in a wrong form.
    """
    if not wants:
        return NOTHING
    given, facts = task(), {}
    for want, name in wants.items():
        if want == "memory":
            has_it = callable(getattr(given, "memory_loss", None))
        elif want == "scale_invariant":
            facts["scale_invariant"], has_it = _axes(given, params)
        else:
            facts["num_losses"] = getattr(given, "num_losses", None)
            has_it = callable(getattr(given, "losses", None)) and isinstance(facts["num_losses"], int)
        if not has_it:
            raise ConfigError(
                f"{name} wants {want!r}, which {_task_name(given)} does not give",
                expected=f"a task that defines {GIVEN_BY[want]}",
                next_step=given.gives_if.get(want, "bind another task, or an optimizer that does not want it"),
            )
    return facts


def _task_name(task: Task) -> str:
    inside = getattr(task, "task", None) or getattr(task, "_wrapped", None)
    return type(task).__name__ if inside is None else f"{_task_name(inside)}, wrapped,"


def _axes(task: Task, params: PyTree) -> tuple[PyTree, bool]:
    """Returns `Task.scale_invariant` with axes from 0 up, and whether there is any."""
    said = task.scale_invariant(params)
    structure: Any = jax.tree.structure(params)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    where, expected = f"{_task_name(task)}.scale_invariant", "a tree like params, of an axis or None for each leaf"
    try:
        axes = structure.flatten_up_to(said)
    except ValueError as error:
        raise ConfigError(f"{where} is of another structure than params", got=repr(said), expected=expected) from error
    found = []
    for path, leaf, axis in zip(paths, jax.tree.leaves(params), axes, strict=True):
        rank = jnp.ndim(leaf)
        if axis is not None and (type(axis) is not int or not -rank <= axis < rank):
            expected = f"None, or an axis from {-rank} to {rank - 1}" if rank else "None: the leaf has no axis"
            raise ConfigError(f"{where} of the leaf {path}", got=repr(axis), expected=expected)
        found.append(None if axis is None else axis % rank)
    return structure.unflatten(found), any(axis is not None for axis in found)


@dataclass(frozen=True, slots=True)
class BatchLosses:
    """What an inner step computes on, as functions of parameters.

    Attributes:
      loss: params -> (float32[], (model state after it, values by name)).
      task: () -> the task that is trained.
      memory: params -> float32[], its `memory_loss`.
      each: params -> float32[K], its `losses`.
    """

    loss: Callable[[PyTree], tuple[jax.Array, tuple[PyTree, dict[str, jax.Array]]]]
    task: Callable[[], Task]
    memory: Callable[[PyTree], jax.Array]
    each: Callable[[PyTree], jax.Array]


def wanted_at(wants: Wants, batch: BatchLosses, params: PyTree) -> Wanted:
    """Returns what is wanted of a step, by the names that `update` takes; nothing else is computed."""
    if not wants:
        return NOTHING
    facts = facts_of(wants, batch.task, params)
    found = {name: value for name, value in facts.items() if name in wants}
    if "memory" in wants:
        found["memory"] = jax.grad(batch.memory)(params)
    if "num_losses" in facts:
        values, pull = jax.vjp(batch.each, params)
        if values.shape != (facts["num_losses"],):
            name = _task_name(batch.task())
            raise ConfigError(
                f"{name}.losses",
                got=f"the shape {list(values.shape)}",
                expected=f"[num_losses] = [{facts['num_losses']}]",
            )

        def weighted_gradient(weights: jax.Array) -> PyTree:
            return pull(jnp.asarray(weights, values.dtype))[0]

        if "task_losses" in wants:
            found |= {"task_losses": values, "weighted_gradient": weighted_gradient}
        if "task_gradients" in wants:
            found["task_gradients"] = jax.vmap(weighted_gradient)(jnp.eye(*values.shape, dtype=values.dtype))
    return found


def blank(wants: Wants, facts: Facts, params: PyTree) -> Wanted:
    """Returns what is wanted of a step in its shapes, without values: for tracing an update of nothing."""
    if not wants:
        return NOTHING
    zeros, count = jax.tree.map(jnp.zeros_like, params), facts.get("num_losses")
    rows = jax.tree.map(lambda leaf: jnp.zeros((count or 0, *leaf.shape), leaf.dtype), zeros)
    every = {
        "memory": zeros,
        "task_losses": jnp.zeros(count or 0),
        "task_gradients": rows,
        "scale_invariant": facts.get("scale_invariant"),
    }
    found = {want: every[want] for want in wants}
    return {**found, "weighted_gradient": lambda weights: zeros} if "task_losses" in wants else found
