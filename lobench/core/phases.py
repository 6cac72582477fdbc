"""Phases of a training, and the shared prefix of trainings that begin alike."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Clock", "Phase", "clocks", "prefix_sha256s", "state_prefix", "task_sequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a training, as gin binds it (`Case.phases = [@warm/Phase(), @cool/Phase()]`).

    What is bound in a phase's scope (`cool/adam.learning_rate = 0.01`) holds for its optimizer, over what the case
    binds. Evaluations and the log go on over all phases, in the training's count of steps.

    Attributes:
      num_inner_steps: Its length, >= 1; there is no default. It is the horizon of its schedules.
      opt_state: "keep": the state of the optimizer of the phase before goes on; "reset": a new one is made for the
        parameters as they are. None: "reset" where the optimizer is another one, else "keep".
      schedule: "new": schedules begin at step 0 of this phase; "continue": they count on.
      optimizer: In place of the case's.
      learned_optimizer: In place of the case's, for the same theta.
    """

    num_inner_steps: int | None = None
    opt_state: str | None = None
    schedule: str = "new"
    optimizer: Any = None
    learned_optimizer: Any = None


def task_sequence(*, num_tasks: int, num_inner_steps: int | None = None) -> tuple[Phase, ...]:
    """Returns the phases of a stream of tasks, one a task (`Case.phases = @task_sequence()`).

    From task to task the parameters go on, and the optimizer begins with a new state.

    Args:
      num_tasks: As many as the stream has.
      num_inner_steps: Updates on each task; None, in gin: an equal share of the case's.
    """
    return (Phase(num_inner_steps=num_inner_steps, opt_state="reset"),) * num_tasks


class Clock(NamedTuple):
    """Where a phase's optimizer stands at its first update.

    Attributes:
      num_updates: That its state has seen: 0 where it is a new one.
      schedule_start: The count of the state at which its schedules have their update 0; before the state's own
        beginning (negative), where they count on over a new state.
    """

    num_updates: int
    schedule_start: int


def clocks(phases: Sequence[Phase], *, updates_per_step: int = 1) -> list[Clock]:
    """Returns where the optimizer of each phase stands at its first update.

    Example: of two phases of 10 steps the second keeps the state, and its schedules are new: it has seen 10 updates,
    and they start at 10.
    """
    found = []
    seen = scheduled = 0
    for phase in phases:
        seen = seen if phase.opt_state == "keep" else 0
        scheduled = scheduled if phase.schedule == "continue" else 0
        found.append(Clock(seen, seen - scheduled))
        length = (phase.num_inner_steps or 0) * updates_per_step
        seen, scheduled = seen + length, scheduled + length
    return found


def prefix_sha256s(common: Iterable[str], phases: Sequence[Iterable[str]]) -> tuple[str, ...]:
    """Returns for each phase what names the training up to its end: two that begin alike have the same there.

    Args:
      common: Lines on what is the same in all phases.
      phases: Lines on each phase.
    """
    found = []
    so_far = _sha256(common)
    for lines in phases:
        so_far = _sha256((so_far, *lines))
        found.append(so_far)
    return tuple(found)


def state_prefix(prefix: str, theta_sha256: str, program: str) -> str:
    """Returns what names the states up to the end of a phase, of one theta ("": of none) and one program's key."""
    return _sha256((prefix, theta_sha256, program))


def _sha256(lines: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(lines).encode()).hexdigest()
