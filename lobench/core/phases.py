"""Phases of a training, and hashes of the prefix that trainings share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lobench.core.configurables import record_calls

__all__ = ["Clock", "Phase", "prefix_sha256s", "state_prefix", "task_sequence", "update_counts"]


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Phase:
    """A part of a training, as bound by gin (`Case.phases = [@warm/Phase(), @cool/Phase()]`).

    Bindings in a phase's scope (`cool/adam.learning_rate = 0.01`) apply to its optimizer and override those of the
    case. Evaluations and logs count the steps of the whole training.

    Attributes:
      num_inner_steps: Number of steps, at least 1; required. Also the horizon of the phase's schedules.
      opt_state: "keep": continue with the optimizer state of the previous phase. "reset": create a new state for the
        current parameters. None: "reset" if the optimizer is a different one, else "keep".
      schedule: "new": schedules start at step 0 of this phase. "continue": they continue from the previous phase.
      optimizer: Optimizer of the phase. None: that of the case. In Python gin text: `"adam(learning_rate=0.1)"`.
      learned_optimizer: Learned optimizer of the phase, with the same theta. None: that of the case.

    >>> lobench.Phase(num_inner_steps=100, opt_state="reset").schedule
    'new'
    """

    num_inner_steps: int | None = None
    opt_state: str | None = None
    schedule: str = "new"
    optimizer: Any = None
    learned_optimizer: Any = None


record_calls(Phase)


def task_sequence(*, num_tasks: int, num_inner_steps: int | None = None) -> tuple[Phase, ...]:
    """Returns the phases of a stream of tasks, one per task (`Case.phases = @task_sequence()`).

    Parameters are kept from task to task, and the optimizer starts each task with a new state.

    Args:
      num_tasks: Number of tasks of the stream.
      num_inner_steps: Number of updates on each task. None (in gin only): an equal share of the case's.
    """
    return (Phase(num_inner_steps=num_inner_steps, opt_state="reset"),) * num_tasks


class Clock(NamedTuple):
    """Update counts of a phase's optimizer at its first update.

    Attributes:
      num_updates: Number of updates that its state has made; 0 for a new state.
      schedule_start: Update count of the state at which its schedules are at update 0. Negative if schedules continue
        although the state is new.
    """

    num_updates: int
    schedule_start: int


def update_counts(phases: Sequence[Phase], *, updates_per_step: int = 1) -> list[Clock]:
    """Returns the update counts of each phase's optimizer at its first update.

    Args:
      phases: Phases in order, with `opt_state` and `schedule` set.
      updates_per_step: Number of updates per inner step.

    Example: of two phases with 10 steps, the second keeps the state and has new schedules. At its first update the
    state has made 10 updates, and the schedules start at 10.
    """
    phase_clocks = []
    num_updates = num_scheduled = 0
    for phase in phases:
        num_updates = num_updates if phase.opt_state == "keep" else 0
        num_scheduled = num_scheduled if phase.schedule == "continue" else 0
        phase_clocks.append(Clock(num_updates, num_updates - num_scheduled))
        num_phase_updates = (phase.num_inner_steps or 0) * updates_per_step
        num_updates, num_scheduled = num_updates + num_phase_updates, num_scheduled + num_phase_updates
    return phase_clocks


def prefix_sha256s(common_lines: Iterable[str], phases: Sequence[Iterable[str]]) -> tuple[str, ...]:
    """Returns a hash per phase of the training up to its end. Equal hashes mean equal trainings up to there.

    Args:
      common_lines: Lines that describe what all phases share.
      phases: Lines that describe each phase.
    """
    prefix_hashes = []
    prefix_hash = _sha256(common_lines)
    for lines in phases:
        prefix_hash = _sha256((prefix_hash, *lines))
        prefix_hashes.append(prefix_hash)
    return tuple(prefix_hashes)


def state_prefix(prefix: str, theta_sha256: str, program: str) -> str:
    """Returns the key of the saved states up to the end of a phase.

    Args:
      prefix: Hash of the training up to there, as returned by `prefix_sha256s`.
      theta_sha256: Hash of theta; "" without theta.
      program: Key of the program.
    """
    return _sha256((prefix, theta_sha256, program))


def _sha256(lines: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(lines).encode()).hexdigest()
