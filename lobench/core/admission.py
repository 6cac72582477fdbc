"""Admission policies: which waiting checkpoints are evaluated if there is not enough time for all.

Each `admit(waiting, idle, last)` splits the waiting positions into those to run and those to skip; the others keep
waiting. It is called for each run separately (`PerRun`). Every policy runs the last checkpoint of a run. A policy with
`only_newest = True` runs only the last of checkpoints that are found at once; the others are not even read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lobench.core.errors import UsageError

__all__ = [
    "AdmissionPolicy",
    "EveryCheckpoint",
    "EveryNth",
    "Latest",
    "PerRun",
    "every_checkpoint",
    "every_nth",
    "latest",
]


class AdmissionPolicy(Protocol):
    """Picks which waiting checkpoints are evaluated. Factory: `factory(argument: str) -> AdmissionPolicy`. Pure.

    `admit` is called for each run separately, and must admit the last checkpoint of a run. By default all checkpoints
    are copied and read before `admit` is called. If the policy has the attribute `only_newest = True`, only the newest
    of several checkpoints that are found at once is read, and the others are skipped.

    >>> "latest" in load_plugins().declarations("lobench_admission_policies")
    True
    """

    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[Sequence[int], Sequence[int]]:
        """Splits the waiting checkpoints (positions in order of sighting) into those to run and those to skip.

        Checkpoints in neither list keep waiting.

        Args:
          waiting: Positions of one run, increasing; the position is the count of checkpoints seen before it.
          idle: Whether a worker would otherwise have nothing to do.
          last: Whether the run has ended, so that the highest position is its last checkpoint.
        """


@dataclass(frozen=True, slots=True)
class EveryCheckpoint:
    """Runs all checkpoints in order."""

    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[Sequence[int], Sequence[int]]:
        return tuple(waiting), ()


@dataclass(frozen=True, slots=True)
class Latest:
    """Runs the newest checkpoint once a worker is free, and skips older ones."""

    only_newest = True

    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[Sequence[int], Sequence[int]]:
        if not idle or not waiting:
            return (), ()
        return waiting[-1:], waiting[:-1]


@dataclass(frozen=True, slots=True)
class EveryNth:
    """Runs positions 0, N, 2N, ... The newest of the others waits, because it may be the last checkpoint of the run."""

    n: int

    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[Sequence[int], Sequence[int]]:
        admitted = [position for position in waiting if position % self.n == 0]
        unselected = [position for position in waiting if position % self.n != 0]
        newest = waiting[-1] if waiting else -1
        if last and unselected and unselected[-1] == newest:
            return (*admitted, newest), unselected[:-1]
        return admitted, [position for position in unselected if position != newest]


@dataclass(frozen=True, slots=True)
class PerRun:
    """Applies a policy to each run separately.

    A policy may run only the newest checkpoint when a worker is idle. It is then applied to one run at a time, the one
    that has waited longest, because the other runs may have newer checkpoints at the next call.

    Attributes:
      policy: The policy for one run.
      run_of: Returns the run of a position.
    """

    policy: AdmissionPolicy
    run_of: Callable[[int], Hashable]

    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[Sequence[int], Sequence[int]]:
        runs: dict[Hashable, list[int]] = {}
        for position in waiting:
            runs.setdefault(self.run_of(position), []).append(position)
        admitted_positions = list[int]()
        skipped_positions = list[int]()
        for positions in runs.values():
            admitted_of_run, skipped_of_run = self.policy.admit(tuple(positions), idle=idle, last=last)
            admitted_positions += admitted_of_run
            skipped_positions += skipped_of_run
            if admitted_positions and not last and getattr(self.policy, "only_newest", False):
                break
        return sorted(admitted_positions), sorted(skipped_positions)


def _require_no_argument(argument: str, policy_name: str) -> None:
    if argument:
        raise UsageError(f"--checkpoints {policy_name} takes no argument", got=repr(argument))


def latest(argument: str) -> Latest:
    _require_no_argument(argument, "latest")
    return Latest()


def every_checkpoint(argument: str) -> EveryCheckpoint:
    _require_no_argument(argument, "all")
    return EveryCheckpoint()


def every_nth(argument: str) -> EveryNth:
    if not argument.isdecimal() or int(argument) < 1:
        raise UsageError("--checkpoints every", got=repr(argument), expected="every:N with N >= 1, such as every:10")
    return EveryNth(int(argument))
