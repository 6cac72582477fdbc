"""Which checkpoints there are, which wait, and what became of the others."""

from __future__ import annotations

import bisect

from lobench.core.checkpoint import Checkpoint
from lobench.core.schedule_events import Admit, History, Policy, Skip

__all__ = ["Backlog"]


class Backlog:
    """Checkpoints by position, from their sighting to the policy's word.

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
        self._newest = -1
        self.has_ended = False

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

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
        if position in self._finished or self._admissions.get(position) == "skipped":
            return False
        if self._admissions.get(position) == "admitted":
            return True
        bisect.insort(self._waiting, position)
        return False

    def decide(self, *, idle: bool) -> list[Admit | Skip]:
        """Asks the policy. Whatever it says, the newest is not skipped, and is run where it is the last of all."""
        run, skip = self._policy.admit(tuple(self._waiting), idle=idle, last=self.has_ended)
        if self._newest in skip:
            skip = [position for position in skip if position != self._newest]
            run = [*run, self._newest] if self.has_ended else run
        for position in (*skip, *run):
            self._waiting.remove(position)
        self._admissions.update(dict.fromkeys(skip, "skipped"))
        self._admissions.update(dict.fromkeys(run, "admitted"))
        return [*map(Skip, skip), *map(Admit, run)]

    def finish(self, position: int) -> None:
        self._finished.add(position)
