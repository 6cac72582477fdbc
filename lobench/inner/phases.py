"""How one phase of a training hands over to the next: parameters go on, an optimizer's state is kept or made anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lobench.core.case import Case
from lobench.core.errors import ConfigError
from lobench.core.phases import Clock, Phase, clocks
from lobench.inner.adapters import Stepper, as_learned_optimizer, as_stepper
from lobench.inner.adapters.scheduled import Watched
from lobench.inner.optimizer import PyTree, Theta
from lobench.inner.parallel_sessions import num_updates

__all__ = ["Handover", "LaterPhase", "handed_over", "steppers_of"]

# What a rate leaves in an optimizer's state: a schedule its count, a constant nothing.
_RATES: tuple[Any, ...] = (optax.ScaleByScheduleState, optax.EmptyState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What a phase takes over from the one before.

    Attributes:
      keeps_state: Whether the optimizer's state goes on; if not, it is made anew for the parameters as they are.
      num_updates: That a kept state has seen.
      where: How errors name the phase.
    """

    keeps_state: bool
    num_updates: int
    where: str = "a phase"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterPhase:
    """A phase after the first one.

    Attributes:
      make_stepper: theta -> Stepper, made for `num_inner_steps`; theta may be traced.
    """

    num_inner_steps: int
    make_stepper: Callable[[Theta], Stepper]
    handover: Handover


def steppers_of(case: Case, where: str) -> tuple[Callable[[Theta], Stepper], list[LaterPhase]]:
    """Returns what makes the steppers of a case's first phase, and its later phases.

    Args:
      case: With its phases built, their defaults chosen.
    """
    per_step = num_updates(case)
    stand = clocks(case.phases, updates_per_step=per_step)
    first, *rest = (_stepper_of(phase, per_step, clock) for phase, clock in zip(case.phases, stand, strict=True))
    found = zip(case.phases[1:], stand[1:], rest, strict=True)
    later = []
    for index, (phase, clock, make_stepper) in enumerate(found, 2):
        handover = Handover(
            keeps_state=phase.opt_state == "keep",
            num_updates=clock.num_updates,
            where=f"{where}: phase {index} of {len(case.phases)}",
        )
        later.append(
            LaterPhase(num_inner_steps=phase.num_inner_steps or 0, make_stepper=make_stepper, handover=handover)
        )
    return first, later


def _stepper_of(phase: Phase, updates_per_step: int, clock: Clock) -> Callable[[Theta], Stepper]:
    steps = (phase.num_inner_steps or 0) * updates_per_step
    if phase.optimizer is not None:
        stepper = as_stepper(phase.optimizer, steps, clock.schedule_start)
        return lambda theta: stepper
    learned = as_learned_optimizer(phase.learned_optimizer)
    return lambda theta: as_stepper(learned.opt_fn(theta, steps), steps, clock.schedule_start)


def handed_over(before: PyTree, fresh: PyTree, handover: Handover) -> PyTree:
    """Returns the state that a phase's optimizer starts from.

    A kept state is that of the phase before to the last bit, its counts among it. Where a rate was a constant and is a
    schedule now, or the reverse, what the schedule counts is made or dropped.

    Args:
      before: State of the optimizer of the phase before.
      fresh: State that the phase's own optimizer makes for the same parameters.
    Raises:
      ConfigError: the state is to be kept, and does not fit the optimizer.
    """
    if not handover.keeps_state:
        return fresh
    try:
        return _kept(before, fresh, handover.num_updates)
    except _OtherStructure as error:
        raise ConfigError(
            "the optimizer's state cannot be kept: it is of another structure than that of the phase before",
            where=handover.where,
            got=str(error),
            next_step='bind Phase.opt_state = "reset"',
        ) from None


class _OtherStructure(Exception):
    """Two states do not fit; its text says where."""


def _kept(before: PyTree, fresh: PyTree, num_updates: int) -> PyTree:
    if isinstance(before, Watched) or isinstance(fresh, Watched):
        return _kept_watched(before, fresh, num_updates)
    if isinstance(before, _RATES) and isinstance(fresh, _RATES):
        if type(before) is type(fresh):
            return before
        is_counted = isinstance(fresh, optax.ScaleByScheduleState)
        return fresh._replace(count=jnp.full_like(fresh.count, num_updates)) if is_counted else fresh
    if isinstance(fresh, tuple) and type(before) is type(fresh) and len(before) == len(fresh):
        parts = [_kept(old, new, num_updates) for old, new in zip(before, fresh, strict=True)]
        return type(fresh)(*parts) if hasattr(fresh, "_fields") else tuple(parts)
    if type(fresh) is dict and type(before) is dict and before.keys() == fresh.keys():
        return {name: _kept(before[name], fresh[name], num_updates) for name in fresh}
    if (old := _form(before)) != (new := _form(fresh)):
        raise _OtherStructure(f"{new} after {old}")
    return before


def _kept_watched(before: Any, fresh: Any, num_updates: int) -> PyTree:
    """What schedules have seen of the losses stays where they look at the same, and is new where they do not."""
    if not isinstance(fresh, Watched):
        return _kept(before.opt_state, fresh, num_updates)
    is_watched = isinstance(before, Watched)
    opt_state = _kept(before.opt_state if is_watched else before, fresh.opt_state, num_updates)
    states = before.states if is_watched and _form(before.states) == _form(fresh.states) else fresh.states
    count: Any = fresh[1]
    return Watched(opt_state, before[1] if is_watched else jnp.full_like(count, num_updates), states)


def _form(state: PyTree) -> str:
    """Returns what two states must have in common."""
    leaves, structure = jax.tree.flatten(state)
    shapes = ", ".join(f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}" for leaf in leaves)
    return f"{structure} with {shapes or 'nothing'}"
