"""Pareto front of a study's trials, and the time when each other trial was dominated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lobench.extend import Member, better, front
from lobench_pbt.study import Study
from lobench_pbt.trial import StudyTrial

__all__ = ["Dominated", "Front", "front_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dominated:
    """Record of a trial that left the front.

    Attributes:
      by: First trial that beat it.
      at: Number of trials that had ended then, including both.
      was_of_front: Whether it was on the front when it ended.
    """

    by: int
    at: int
    was_of_front: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Best trials of a study.

    Attributes:
      ids: Ids of trials that no other beats: the first of the best for one objective, the Pareto front for several.
      has_several_objectives: Whether there are several objectives, so that no single trial is the best.
      dominated: For several objectives, trials that were beaten, in the order in which they ended.
    """

    ids: tuple[int, ...]
    has_several_objectives: bool
    dominated: Mapping[int, Dominated]

    @property
    def best(self) -> int | None:
        return self.ids[0] if self.ids and not self.has_several_objectives else None


def front_of(study: Study, trials: Iterable[StudyTrial]) -> Front:
    """Returns the front of the successful trials. A trial with a NaN is excluded if there are trials without."""
    ended_trials = sorted((trial for trial in trials if trial.fitness), key=lambda trial: trial.completed_seq or 0)
    members = {trial.id: Member(id=trial.id, fitness=trial.fitness) for trial in ended_trials}
    if study.weighted or len(study.objectives) == 1:
        return Front(
            ids=tuple(member.id for member in front(members.values())[:1]), has_several_objectives=False, dominated={}
        )
    finite_trials = [trial for trial in ended_trials if -math.inf not in (trial.fitness or ())] or ended_trials
    front_trials: list[StudyTrial] = []
    dominated: dict[int, Dominated] = {}
    for trial in finite_trials:
        seq = trial.completed_seq or 0
        better_id = next(
            (better_trial.id for better_trial in front_trials if better(members[better_trial.id], members[trial.id])),
            None,
        )
        if better_id is not None:
            dominated[trial.id] = Dominated(by=better_id, at=seq, was_of_front=False)
            continue
        dominated_trials = [
            beaten_trial for beaten_trial in front_trials if better(members[trial.id], members[beaten_trial.id])
        ]
        dominated |= {
            beaten_trial.id: Dominated(by=trial.id, at=seq, was_of_front=True) for beaten_trial in dominated_trials
        }
        front_trials = [remaining for remaining in front_trials if remaining not in dominated_trials] + [trial]
    sorted_dominated = {trial.id: dominated[trial.id] for trial in finite_trials if trial.id in dominated}
    return Front(
        ids=tuple(sorted(trial.id for trial in front_trials)), has_several_objectives=True, dominated=sorted_dominated
    )
