"""Transitions between the phases of a training: parameters continue, and the optimizer state is kept or initialized."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lobench.core.case import Case
from lobench.core.errors import ConfigError
from lobench.core.phases import update_counts
from lobench.inner.adapters import Stepper, as_learned_optimizer, as_stepper
from lobench.inner.adapters.scheduled import ScheduledState
from lobench.inner.optimizer import PyTree, Theta
from lobench.inner.task import Index
from lobench.inner.training.parallel_sessions import num_updates

__all__ = ["Handover", "LaterPhase", "PhasePlace", "handed_over", "later_phases", "phase_stepper"]

# State of a learning rate in an optimizer's state: the count of a schedule, or nothing for a constant.
_RATES: tuple[Any, ...] = (optax.ScaleByScheduleState, optax.EmptyState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """State that a phase takes over from the previous one.

    Attributes:
      keeps_state: Whether the optimizer's state is kept. Otherwise it is initialized for the present parameters.
      num_updates: Number of updates that a kept state has seen.
      where: Name of the phase in error messages.
    """

    keeps_state: bool
    num_updates: int
    where: str = "a phase"


class PhasePlace(NamedTuple):
    """Position of a phase in a training. Fields are int32[] if one program is shared by all phases.

    Attributes:
      number: Index of the phase, from 0.
      start, stop: First inner step, and end, of the phase.
      num_evals: Number of evaluations up to the end of the phase.
    """

    number: Index
    start: Index
    stop: Index
    num_evals: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterPhase:
    """A phase after the first one.

    Attributes:
      make_stepper, usual: As in `TrainingProgram`, which has them for the first phase.
    """

    num_inner_steps: int
    make_stepper: Callable[..., Stepper]
    handover: Handover
    usual: tuple[float, ...] = ()


def phase_stepper(case: Case, index: int, theta: Theta, replacement: Any = None) -> Stepper:
    """Returns the stepper of a case's phase.

    Args:
      case: Case with its phases built and their defaults resolved.
      replacement: Optimizer or learned optimizer that replaces the phase's own.
    """
    phase = case.phases[index]
    updates_per_step = num_updates(case)
    start = update_counts(case.phases, updates_per_step=updates_per_step)[index].schedule_start
    steps = (phase.num_inner_steps or 0) * updates_per_step
    if phase.optimizer is not None:
        return as_stepper(phase.optimizer if replacement is None else replacement, steps, start)
    learned_optimizer = as_learned_optimizer(phase.learned_optimizer if replacement is None else replacement)
    return as_stepper(learned_optimizer.opt_fn(theta, steps), steps, start)


def later_phases(
    case: Case,
    make_stepper: Callable[..., Stepper],
    *,
    usual_settings: Sequence[Sequence[float]] = (),
    where: str = "the case",
) -> list[LaterPhase]:
    """Returns the phases after the first one, as `TrainingProgram` expects them.

    Args:
      case: As for `phase_stepper`.
      make_stepper: Function of (index of the phase, theta, *settings) that returns a `Stepper`.
      usual_settings: Placeholder values of the settings, by phase.
    """
    counts_by_phase = update_counts(case.phases, updates_per_step=num_updates(case))
    return [
        LaterPhase(
            num_inner_steps=case.phases[index].num_inner_steps or 0,
            make_stepper=functools.partial(make_stepper, index),
            usual=tuple(usual_settings[index]) if usual_settings else (),
            handover=Handover(
                keeps_state=case.phases[index].opt_state == "keep",
                num_updates=counts_by_phase[index].num_updates,
                where=f"{where}: phase {index + 1} of {len(case.phases)}",
            ),
        )
        for index in range(1, len(case.phases))
    ]


def handed_over(old_state: PyTree, new_state: PyTree, handover: Handover) -> PyTree:
    """Returns the initial optimizer state of a phase.

    A kept state has the bits of the previous phase, including its counts. If a rate changes from a constant to a
    schedule, or the reverse, the state of the schedule is created or dropped.

    Args:
      old_state: Optimizer state of the previous phase.
      new_state: State initialized by the phase's own optimizer for the same parameters.
      handover: Rules of the transition.
    Raises:
      ConfigError: The state should be kept but does not fit the optimizer.
    """
    if not handover.keeps_state:
        return new_state
    try:
        return _carry_over(old_state, new_state, handover.num_updates)
    except _StructureMismatch as error:
        raise ConfigError(
            "the optimizer's state cannot be kept: it is of another structure than that of the phase before",
            where=handover.where,
            got=str(error),
            next_step='bind Phase.opt_state = "reset"',
        ) from None


class _StructureMismatch(Exception):
    """Two states have different structures. The text gives the difference."""


def _carry_over(old_state: PyTree, new_state: PyTree, num_updates: int) -> PyTree:
    if isinstance(old_state, ScheduledState) or isinstance(new_state, ScheduledState):
        return _carry_over_schedules(old_state, new_state, num_updates)
    if isinstance(old_state, _RATES) and isinstance(new_state, _RATES):
        if type(old_state) is type(new_state):
            return old_state
        is_counted = isinstance(new_state, optax.ScaleByScheduleState)
        return new_state._replace(count=jnp.full_like(new_state.count, num_updates)) if is_counted else new_state
    if isinstance(new_state, tuple) and type(old_state) is type(new_state) and len(old_state) == len(new_state):
        kept_fields = [_carry_over(old, new, num_updates) for old, new in zip(old_state, new_state, strict=True)]
        return type(new_state)(*kept_fields) if hasattr(new_state, "_fields") else tuple(kept_fields)
    if type(new_state) is dict and type(old_state) is dict and old_state.keys() == new_state.keys():
        return {name: _carry_over(old_state[name], new_state[name], num_updates) for name in new_state}
    if (old := _structure_text(old_state)) != (new := _structure_text(new_state)):
        raise _StructureMismatch(f"{new} after {old}")
    return old_state


def _carry_over_schedules(old_state: Any, new_state: Any, num_updates: int) -> PyTree:
    """Keeps the loss history of schedules that exist in both states; others start with an empty history."""
    if not isinstance(new_state, ScheduledState):
        return _carry_over(old_state.opt_state, new_state, num_updates)
    is_watched = isinstance(old_state, ScheduledState)
    opt_state = _carry_over(old_state.opt_state if is_watched else old_state, new_state.opt_state, num_updates)
    states = (
        old_state.states
        if is_watched and _structure_text(old_state.states) == _structure_text(new_state.states)
        else new_state.states
    )
    count: Any = new_state[1]
    return ScheduledState(opt_state, old_state[1] if is_watched else jnp.full_like(count, num_updates), states)


def _structure_text(state: PyTree) -> str:
    """Returns a description of the structure and shapes that two states must share."""
    leaves, structure = jax.tree.flatten(state)
    shapes = ", ".join(f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}" for leaf in leaves)
    return f"{structure} with {shapes or 'nothing'}"
