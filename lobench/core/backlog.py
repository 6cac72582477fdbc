"""Which checkpoints there are, which wait, and what became of the others."""

from __future__ import annotations

import bisect
from typing import NamedTuple

from lobench.core.checkpoint import Checkpoint
from lobench.core.schedule.events import Admit, History, Policy, Skip

__all__ = ["Backlog", "Replan"]


class Replan(NamedTuple):
    """A checkpoint of an earlier start on which the policy has had its word.

    Attributes:
      is_chosen: Whether the policy would run it today; otherwise it is only looked through for what is tried again.
    """

    position: int
    is_chosen: bool


class Backlog:
    """Checkpoints by position, from their sighting to the policy's word.

    What an earlier start finished or skipped waits for the policy like the rest: what it chooses is planned anew.

    Args:
      policy: Which waiting checkpoints are admitted.
      history: What the ledger knows.
    """

    def __init__(self, policy: Policy, history: History) -> None:
        self._policy = policy
        self._admissions = dict(history.admissions)
        self._finished = set(history.finished)
        self._checkpoints: dict[int, Checkpoint] = {}
        self._waiting: list[int] = []
        self._fresh: set[int] = set()  # of those that wait: the policy was never asked
        self._replans: list[Replan] = []
        self._newest = -1
        self.has_ended = False

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting or self._replans)

    @property
    def has_fresh(self) -> bool:
        """Whether a checkpoint waits that no earlier start decided on."""
        return bool(self._fresh)

    def waiting(self) -> set[str]:
        """Returns the thetas that wait for the policy's word."""
        return {self.sha256(position) for position in self._waiting}

    @property
    def num_seen(self) -> int:
        return len(self._checkpoints)

    def sha256(self, position: int) -> str:
        return self._checkpoints[position].sha256

    def see(self, position: int, checkpoint: Checkpoint) -> bool:
        """Takes note of a checkpoint; says whether it goes on at once, having been admitted before a restart."""
        if position in self._checkpoints:
            return False
        self._checkpoints[position] = checkpoint
        self._newest = max(self._newest, position)
        admission = self._admissions.get(position)
        if admission == "admitted" and position not in self._finished:
            return True
        bisect.insort(self._waiting, position)
        if admission is None:
            self._fresh.add(position)
        return False

    def decide(self, *, idle: bool) -> list[Admit | Skip]:
        """Asks the policy. Whatever it says, the newest is not skipped, and is run where it is the last of all."""
        if not self._waiting:
            return []
        run, skip = self._policy.admit(tuple(self._waiting), idle=idle, last=self.has_ended)
        if self._newest in skip:
            skip = [position for position in skip if position != self._newest]
            run = [*run, self._newest] if self.has_ended else run
        decided = {*skip, *run}
        if not decided:
            return []
        self._waiting = [position for position in self._waiting if position not in decided]
        known = [Replan(position, False) for position in skip if position in self._finished]
        known += [Replan(position, True) for position in run if position not in self._fresh]
        self._replans += sorted(known)
        skipped, admitted = ([position for position in part if position in self._fresh] for part in (skip, run))
        self._fresh -= decided
        self._admissions.update(dict.fromkeys(skipped, "skipped"))
        self._admissions.update(dict.fromkeys(admitted, "admitted"))
        return [*map(Skip, skipped), *map(Admit, admitted)]

    def take_replans(self) -> list[Replan]:
        """Returns what is to be planned anew, or looked through, each once."""
        found, self._replans = self._replans, []
        return found

    def reopen(self, position: int) -> None:
        self._admissions[position] = "admitted"
        self._finished.discard(position)

    def finish(self, position: int) -> None:
        self._finished.add(position)
