"""One inner step: an update of one replica, or of several replicas that share parameters.

The processes of Hogwild write shared parameters without locks, so that results depend on timing. Here the
`Case.num_lanes` replicas take turns in a fixed order, so that the bits are always the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from lobench.core.case import Case
from lobench.inner.adapters.stepper import Stepper
from lobench.inner.extra_inputs.task_side import NOTHING, BatchLosses, Facts, extra_values_at
from lobench.inner.optimizer import PyTree
from lobench.inner.training.streams import OPTIMIZER, Replica, stream

__all__ = ["inner_step", "members", "num_replicas", "num_updates", "with_copies"]

TrainingState: TypeAlias = tuple[PyTree, PyTree, PyTree]  # opt_state, params, model_state
Values: TypeAlias = dict[str, jax.Array]  # float32[] by name, of a training batch before its update
LossesOf: TypeAlias = Callable[[Replica, PyTree, PyTree], BatchLosses]  # (replica, its batch, model_state)


class _SyncedState(NamedTuple):
    opt_state: PyTree
    copies: PyTree  # the parameters that each replica has had since its last turn, leaves [num_replicas, ...]


def num_replicas(case: Case) -> int:
    """Returns the number of replicas that share parameters."""
    return (case.num_lanes or 1) if case.sessions != "apart" else 1


def num_updates(case: Case) -> int:
    """Returns the number of updates of an inner step. Steps of schedules are updates."""
    return num_replicas(case) if case.sessions in ("shared", "synced") else 1


def members(replica: Replica, replica_count: int) -> Replica:
    """Returns the replicas of a round along a new last axis: `replica`, then replicas of the following seeds."""
    if replica_count == 1:
        return replica
    seeds = jnp.asarray(replica.seed)[..., None] + jnp.arange(replica_count, dtype=jnp.uint32)
    return Replica(seeds, jnp.broadcast_to(jnp.asarray(replica.task)[..., None], seeds.shape))


def with_copies(stepper: Stepper, case: Case) -> Stepper:
    """Returns the stepper, extended by the replicas' own copies of the parameters if `Case.sessions` is "synced"."""
    replica_count = num_replicas(case)
    if case.sessions != "synced" or replica_count == 1:
        return stepper

    def init(params: PyTree, model_state: PyTree, key: jax.Array, facts: Facts = NOTHING) -> _SyncedState:
        copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (replica_count, *jnp.shape(leaf))), params)
        return _SyncedState(stepper.init(params, model_state, key, facts), copies)

    def eval_params(opt_state: _SyncedState, params: PyTree) -> PyTree:
        return stepper.eval_params(opt_state.opt_state, params)

    return dataclasses.replace(
        stepper, init=init, eval_params=eval_params, metrics=lambda opt_state: stepper.metrics(opt_state.opt_state)
    )


def inner_step(
    case: Case,
    stepper: Stepper,
    make_losses: LossesOf,
    replica: Replica,
    batch_source: PyTree,
    index: jax.Array,
    state: TrainingState,
) -> tuple[PyTree, PyTree, PyTree, Values]:
    """Computes one inner step.

    Args:
      case: Case of the training.
      stepper: Stepper returned by `with_copies`.
      make_losses: Function that computes losses of a batch.
      replica: Replica that trains, or the first one of a round.
      batch_source: Random draws for the batch; with a leading axis [num_replicas] for a round.
      index: Number of the step.
      state: Optimizer state, parameters and model state.
    Returns:
      The new state, and the values of the batch, averaged over the replicas of a round.
    """
    replica_count = num_replicas(case)
    if replica_count == 1:
        state, values, _ = _take_turn(stepper, make_losses, replica, batch_source, index, state, state[1])
        return *state, values
    replicas = members(replica, replica_count)
    if case.sessions == "mean":
        state, values = _mean_step(stepper, make_losses, replicas, batch_source, index, state)
    elif case.sessions == "shared":
        state, values = _shared_round(stepper, make_losses, replicas, batch_source, index, state)
    else:
        state, values = _synced_round(stepper, make_losses, replicas, batch_source, index, state)
    return *state, {name: value.mean(axis=0) for name, value in values.items()}


def _shared_round(
    stepper: Stepper,
    make_losses: LossesOf,
    replicas: Replica,
    batch_source: PyTree,
    index: jax.Array,
    state: TrainingState,
) -> tuple[TrainingState, Values]:
    """Computes a round in which each turn uses the parameters left by the previous one."""

    def turn(state: TrainingState, replica_and_draws: tuple[Replica, PyTree]) -> tuple[TrainingState, Values]:
        state, values, _ = _take_turn(stepper, make_losses, *replica_and_draws, index, state, state[1])
        return state, values

    return jax.lax.scan(turn, state, (replicas, batch_source))


def _synced_round(
    stepper: Stepper,
    make_losses: LossesOf,
    replicas: Replica,
    batch_source: PyTree,
    index: jax.Array,
    state: TrainingState,
) -> tuple[TrainingState, Values]:
    """Computes a round in which each replica takes its gradient at its own copy, made after its previous turn."""
    synced: _SyncedState = state[0]

    def turn(
        state: TrainingState, inputs_of_turn: tuple[Replica, PyTree, PyTree]
    ) -> tuple[TrainingState, tuple[Values, PyTree]]:
        replica, batch_source, copy = inputs_of_turn
        state, values, params = _take_turn(stepper, make_losses, replica, batch_source, index, state, copy)
        return state, (values, params)

    state, (values, copies) = jax.lax.scan(
        turn, (synced.opt_state, *state[1:]), (replicas, batch_source, synced.copies)
    )
    return (_SyncedState(state[0], copies), *state[1:]), values


def _take_turn(
    stepper: Stepper,
    make_losses: LossesOf,
    replica: Replica,
    batch_source: PyTree,
    index: jax.Array,
    state: TrainingState,
    gradient_params: PyTree,
) -> tuple[TrainingState, Values, PyTree]:
    """Updates the parameters by the gradient that a replica's batch has at `gradient_params`.

    Returns state, values and the new parameters.
    """
    opt_state, params, model_state = state
    batch = make_losses(replica, batch_source, model_state)
    (loss, (new_state, aux)), grads = jax.value_and_grad(batch.loss, has_aux=True)(gradient_params)
    key = jax.random.fold_in(stream(replica, OPTIMIZER), index + 1)
    extra_values = extra_values_at(stepper.extra_inputs(gradient_params), batch, gradient_params)
    opt_state, params, new_state = stepper.step(
        opt_state,
        params,
        new_state,
        grads,
        loss,
        key,
        lambda gradient_params: batch.loss(gradient_params)[0],
        extra_values,
    )
    return (opt_state, params, new_state), {**aux, "loss": jnp.asarray(loss, jnp.float32)}, params


def _mean_step(
    stepper: Stepper,
    make_losses: LossesOf,
    replicas: Replica,
    batch_source: PyTree,
    index: jax.Array,
    state: TrainingState,
) -> tuple[TrainingState, Values]:
    """Updates the parameters once, by the mean of the replicas' gradients. Returns the values of each replica."""
    opt_state, params, model_state = state

    def map_replicas(function: Callable[[BatchLosses], Any]) -> Any:
        return jax.vmap(lambda replica, batch_source: function(make_losses(replica, batch_source, model_state)))(
            replicas, batch_source
        )

    def mean_loss(point: PyTree) -> tuple[jax.Array, tuple[PyTree, Values]]:
        replica_losses, (states, aux) = map_replicas(lambda batch: batch.loss(point))
        return replica_losses.mean(), (states, {**aux, "loss": jnp.asarray(replica_losses, jnp.float32)})

    (loss, (states, values)), grads = jax.value_and_grad(mean_loss, has_aux=True)(params)
    first_replica = jax.tree.map(lambda leaf: leaf[0], replicas)
    batch_losses = BatchLosses(
        loss=mean_loss,
        task=lambda: make_losses(first_replica, jax.tree.map(lambda leaf: leaf[0], batch_source), model_state).task(),
        memory=lambda point: map_replicas(lambda batch: batch.memory(point)).mean(),
        each=lambda point: map_replicas(lambda batch: batch.each(point)).mean(axis=0),
    )
    extra_values = extra_values_at(stepper.extra_inputs(params), batch_losses, params)
    new_state = jax.tree.map(_average_states, states)
    key = jax.random.fold_in(stream(first_replica, OPTIMIZER), index + 1)
    state = stepper.step(
        opt_state, params, new_state, grads, loss, key, lambda point: mean_loss(point)[0], extra_values
    )
    return state, values


def _average_states(leaf: jax.Array) -> jax.Array:
    """Averages a leaf over the replicas' model states. Integers (a count) are taken from the first replica."""
    return leaf.mean(axis=0) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf[0]
