"""Checkpoint backlog: known, waiting, admitted and skipped checkpoints."""

from __future__ import annotations

import bisect
from collections.abc import Container, Set
from typing import NamedTuple

from lobench.core.admission import AdmissionPolicy
from lobench.core.planner.events import Admit, History, Skip
from lobench.core.subject import SubjectKey

__all__ = ["Backlog", "Replan"]


class Replan(NamedTuple):
    """A checkpoint that an earlier run already passed to the admission policy.

    Attributes:
      position: Position of the checkpoint.
      is_chosen: Whether the policy would run it now. Otherwise only its evaluations to retry are planned.
    """

    position: int
    is_chosen: bool


class Backlog:
    """Checkpoints by position, from their sighting to the decision of the admission policy.

    Checkpoints that an earlier run finished or skipped are passed to the policy again. Those that it chooses are
    planned again.

    Args:
      policy: Admission policy.
      history: Evaluations and decisions of earlier runs.
    """

    def __init__(self, policy: AdmissionPolicy, history: History) -> None:
        self._policy = policy
        self._admissions = dict(history.admissions)
        self._finished_positions = set(history.finished)
        self._subjects: dict[int, SubjectKey] = {}
        self._variants: set[str] = set()
        self._waiting_positions: list[int] = []
        self._fresh_positions: set[int] = set()  # waiting positions that were never passed to the policy
        self._replans: list[Replan] = []
        self._newest_position = -1
        self.has_ended = False

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting_positions or self._replans)

    @property
    def has_fresh(self) -> bool:
        """Whether a waiting checkpoint has no decision from an earlier run."""
        return bool(self._fresh_positions)

    @property
    def num_fresh(self) -> int:
        """Number of waiting checkpoints without a decision from an earlier run."""
        return len(self._fresh_positions)

    def waiting(self) -> set[SubjectKey]:
        """Returns the subjects that wait for a decision of the policy."""
        return {self._subjects[position] for position in self._waiting_positions}

    def variants(self) -> Set[str]:
        """Returns the variants of all subjects seen."""
        return self._variants

    def subject(self, position: int) -> SubjectKey:
        return self._subjects[position]

    def add(self, position: int, subject: SubjectKey) -> bool:
        """Adds a checkpoint. Returns whether it continues at once because it was admitted before a restart."""
        if position in self._subjects:
            return False
        self._subjects[position] = subject
        self._variants.add(subject.variant)
        self._newest_position = max(self._newest_position, position)
        admission = self._admissions.get(position)
        if admission == "admitted" and position not in self._finished_positions:
            return True
        bisect.insort(self._waiting_positions, position)
        if admission is None:
            self._fresh_positions.add(position)
        return False

    def decide(self, *, idle: bool) -> list[Admit | Skip]:
        """Returns the policy's decisions.

        The newest checkpoint is never skipped, and is admitted once the run has ended.
        """
        if not self._waiting_positions:
            return []
        to_run, to_skip = self._policy.admit(tuple(self._waiting_positions), idle=idle, last=self.has_ended)
        if self._newest_position in to_skip:
            to_skip = [position for position in to_skip if position != self._newest_position]
            to_run = [*to_run, self._newest_position] if self.has_ended else to_run
        all_decided = {*to_skip, *to_run}
        if not all_decided:
            return []
        self._waiting_positions = [position for position in self._waiting_positions if position not in all_decided]
        replans = [Replan(position, False) for position in to_skip if position in self._finished_positions]
        replans += [Replan(position, True) for position in to_run if position not in self._fresh_positions]
        self._replans += sorted(replans)
        newly_skipped, newly_admitted = (
            [position for position in decided_positions if position in self._fresh_positions]
            for decided_positions in (to_skip, to_run)
        )
        self._fresh_positions -= all_decided
        self._admissions.update(dict.fromkeys(newly_skipped, "skipped"))
        self._admissions.update(dict.fromkeys(newly_admitted, "admitted"))
        return [*map(Skip, newly_skipped), *map(Admit, newly_admitted)]

    def take_replans(self, variants: Container[str]) -> list[Replan]:
        """Returns checkpoints of earlier runs to plan again, each once.

        Args:
          variants: Variants with known cases. Checkpoints of other variants stay waiting.
        """
        replans = [replan for replan in self._replans if self._subjects[replan.position].variant in variants]
        self._replans = [replan for replan in self._replans if replan not in replans] if replans else self._replans
        return replans

    def reopen(self, position: int) -> None:
        self._admissions[position] = "admitted"
        self._finished_positions.discard(position)

    def finish(self, position: int) -> None:
        self._finished_positions.add(position)
