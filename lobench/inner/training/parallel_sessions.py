"""One inner step: an update of a replica, or of replicas that train one set of parameters.

Hogwild's processes write one set of parameters without locks, and what comes of it depends on who was faster. Here
each of `Case.num_lanes` lanes takes one turn in a round, in order, and the same bits come of it every time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from lobench.core.case import Case
from lobench.inner.adapters.stepper import Stepper
from lobench.inner.extra_inputs.task_side import NOTHING, BatchLosses, Facts, wanted_at
from lobench.inner.optimizer import PyTree
from lobench.inner.training.streams import OPTIMIZER, Lane, stream

__all__ = ["inner_step", "members", "num_lanes", "num_updates", "with_copies"]

State: TypeAlias = tuple[PyTree, PyTree, PyTree]  # opt_state, params, model_state
Values: TypeAlias = dict[str, jax.Array]  # float32[] by name, of a training batch before its update
LossesOf: TypeAlias = Callable[[Lane, PyTree, PyTree], BatchLosses]  # (lane, what was drawn for it, model_state)


class _Synced(NamedTuple):
    opt_state: PyTree
    copies: PyTree  # the parameters that each lane has had since its last turn, leaves [num_lanes, ...]


def num_lanes(case: Case) -> int:
    """Returns how many lanes train one set of parameters."""
    return (case.num_lanes or 1) if case.sessions != "apart" else 1


def num_updates(case: Case) -> int:
    """Returns how many updates an inner step makes; a schedule's steps are updates."""
    return num_lanes(case) if case.sessions in ("shared", "synced") else 1


def members(lane: Lane, count: int) -> Lane:
    """Returns the lanes of a round along a new last axis; `lane` is the first of them, and the others' seeds follow."""
    if count == 1:
        return lane
    seeds = jnp.asarray(lane.seed)[..., None] + jnp.arange(count, dtype=jnp.uint32)
    return Lane(seeds, jnp.broadcast_to(jnp.asarray(lane.task)[..., None], seeds.shape))


def with_copies(stepper: Stepper, case: Case) -> Stepper:
    """Returns the stepper that keeps the lanes' own copies of the parameters, where they have such."""
    count = num_lanes(case)
    if case.sessions != "synced" or count == 1:
        return stepper

    def init(params: PyTree, model_state: PyTree, key: jax.Array, facts: Facts = NOTHING) -> _Synced:
        copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), params)
        return _Synced(stepper.init(params, model_state, key, facts), copies)

    def eval_params(opt_state: _Synced, params: PyTree) -> PyTree:
        return stepper.eval_params(opt_state.opt_state, params)

    return dataclasses.replace(
        stepper, init=init, eval_params=eval_params, metrics=lambda opt_state: stepper.metrics(opt_state.opt_state)
    )


def inner_step(
    case: Case, stepper: Stepper, losses_of: LossesOf, lane: Lane, drawn: PyTree, index: jax.Array, state: State
) -> tuple[PyTree, PyTree, PyTree, Values]:
    """Makes one inner step.

    Args:
      stepper: As `with_copies` gives it.
      lane: The one that trains, or the first of those that do.
      drawn: What its batch is made of; for a round with a leading axis [num_lanes].
      index: Of the step.
    Returns:
      The new state, and the batches' values, in a round their means.
    """
    count = num_lanes(case)
    if count == 1:
        state, values, _ = _turn(stepper, losses_of, lane, drawn, index, state, state[1])
        return *state, values
    lanes = members(lane, count)
    if case.sessions == "mean":
        state, values = _mean(stepper, losses_of, lanes, drawn, index, state)
    elif case.sessions == "shared":
        state, values = _shared(stepper, losses_of, lanes, drawn, index, state)
    else:
        state, values = _synced(stepper, losses_of, lanes, drawn, index, state)
    return *state, {name: value.mean(axis=0) for name, value in values.items()}


def _shared(
    stepper: Stepper, losses_of: LossesOf, lanes: Lane, drawn: PyTree, index: jax.Array, state: State
) -> tuple[State, Values]:
    """Each turn uses the parameters as the turn before has left them."""

    def turn(state: State, each: tuple[Lane, PyTree]) -> tuple[State, Values]:
        state, values, _ = _turn(stepper, losses_of, *each, index, state, state[1])
        return state, values

    return jax.lax.scan(turn, state, (lanes, drawn))


def _synced(
    stepper: Stepper, losses_of: LossesOf, lanes: Lane, drawn: PyTree, index: jax.Array, state: State
) -> tuple[State, Values]:
    """Each turn's gradient is that of the lane's own copy, which the lane took after its last turn."""
    kept: _Synced = state[0]

    def turn(state: State, each: tuple[Lane, PyTree, PyTree]) -> tuple[State, tuple[Values, PyTree]]:
        lane, drawn, copy = each
        state, values, params = _turn(stepper, losses_of, lane, drawn, index, state, copy)
        return state, (values, params)

    state, (values, copies) = jax.lax.scan(turn, (kept.opt_state, *state[1:]), (lanes, drawn, kept.copies))
    return (_Synced(state[0], copies), *state[1:]), values


def _turn(
    stepper: Stepper, losses_of: LossesOf, lane: Lane, drawn: PyTree, index: jax.Array, state: State, at: PyTree
) -> tuple[State, Values, PyTree]:
    """Updates the parameters by the gradient of a lane's batch at `at`; returns the new ones a second time."""
    opt_state, params, model_state = state
    batch = losses_of(lane, drawn, model_state)
    (loss, (new_state, named)), grads = jax.value_and_grad(batch.loss, has_aux=True)(at)
    key = jax.random.fold_in(stream(lane, OPTIMIZER), index + 1)
    wanted = wanted_at(stepper.wants(at), batch, at)
    opt_state, params, new_state = stepper.step(
        opt_state, params, new_state, grads, loss, key, lambda at: batch.loss(at)[0], wanted
    )
    return (opt_state, params, new_state), {**named, "loss": jnp.asarray(loss, jnp.float32)}, params


def _mean(
    stepper: Stepper, losses_of: LossesOf, lanes: Lane, drawn: PyTree, index: jax.Array, state: State
) -> tuple[State, Values]:
    """Updates the parameters once, by the mean of the lanes' gradients; the values are each lane's."""
    opt_state, params, model_state = state

    def of_lanes(function: Callable[[BatchLosses], Any]) -> Any:
        return jax.vmap(lambda lane, drawn: function(losses_of(lane, drawn, model_state)))(lanes, drawn)

    def losses(at: PyTree) -> tuple[jax.Array, tuple[PyTree, Values]]:
        found, (states, named) = of_lanes(lambda batch: batch.loss(at))
        return found.mean(), (states, {**named, "loss": jnp.asarray(found, jnp.float32)})

    (loss, (states, values)), grads = jax.value_and_grad(losses, has_aux=True)(params)
    first = jax.tree.map(lambda leaf: leaf[0], lanes)
    mean = BatchLosses(
        loss=losses,
        task=lambda: losses_of(first, jax.tree.map(lambda leaf: leaf[0], drawn), model_state).task(),
        memory=lambda at: of_lanes(lambda batch: batch.memory(at)).mean(),
        each=lambda at: of_lanes(lambda batch: batch.each(at)).mean(axis=0),
    )
    wanted = wanted_at(stepper.wants(params), mean, params)
    new_state = jax.tree.map(_common, states)
    key = jax.random.fold_in(stream(first, OPTIMIZER), index + 1)
    state = stepper.step(opt_state, params, new_state, grads, loss, key, lambda at: losses(at)[0], wanted)
    return state, values


def _common(leaf: jax.Array) -> jax.Array:
    """Averages a leaf of the lanes' model states; what has no mean (a count) is the first lane's."""
    return leaf.mean(axis=0) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf[0]
