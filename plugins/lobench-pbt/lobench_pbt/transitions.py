"""Transitions of one trial: pure functions from a row and an event to the new row, or a refusal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from lobench import LobenchError
from lobench.extend import oriented, weighted
from lobench_pbt.study import FitnessFrom, Study
from lobench_pbt.trial import Artifact, Outline, Refusal, Refused, State, StudyTrial

__all__ = [
    "Completion",
    "Score",
    "check_lease",
    "complete_trial",
    "expire_trial",
    "is_repeated_completion",
    "score_trial",
    "stop_trial",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Report of a worker at the end of a trial.

    Attributes:
      checkpoint: Checkpoint; None for an infeasible trial.
      metrics: Metrics of the trainer; the fitness if the study takes it from trainers.
      n_steps: Number of outer steps done; fewer than requested if the trial was stopped.
      reason: Reason why the trial is infeasible; "" if it is feasible.
    """

    attempt: int
    checkpoint: Artifact | None = None
    train_state: Artifact | None = None
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    n_steps: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Result of a watch for a checkpoint: its metrics, or the reason why they are missing."""

    metrics: Mapping[str, float] | None
    reason: str = ""


def check_lease(trial: Outline, attempt: int) -> None:
    """Checks that a trial still belongs to the worker that reports on it.

    Raises:
      Refused: The lease was lost, or the trial is over.
    """
    _check_attempt(trial, attempt)
    if trial.state not in (State.ACTIVE, State.STOPPING):
        raise Refused(Refusal.STALE, "the trial is over", where=f"trial {trial.id}", got=trial.state)


def expire_trial(study: Study, trial: StudyTrial, *, next_seq: int) -> StudyTrial:
    """Returns a trial after the deadline of its lease or of its fitness has passed."""
    if trial.state is State.AWAITING_FITNESS:
        return _make_infeasible(trial, "no fitness came before the deadline", next_seq)
    attempt = trial.attempt + 1
    trial_without_worker = dataclasses.replace(trial, attempt=attempt, worker_id="", lease_deadline=None)
    if trial.state is State.STOPPING:
        return _make_infeasible(trial_without_worker, "the study was stopped", next_seq)
    if attempt >= study.max_attempts:
        return _make_infeasible(trial_without_worker, f"its worker was lost {attempt} times", next_seq)
    return dataclasses.replace(trial_without_worker, state=State.REQUESTED)


def stop_trial(trial: StudyTrial, *, next_seq: int) -> StudyTrial:
    """Returns a trial after its study was stopped: active trials may end early, requested ones do not start."""
    if trial.state is State.ACTIVE:
        return dataclasses.replace(trial, state=State.STOPPING)
    if trial.state is State.REQUESTED:
        return _make_infeasible(trial, "the study was stopped", next_seq)
    return trial


def is_repeated_completion(study: Study, trial: StudyTrial, completion: Completion) -> bool:
    """Returns whether a completed trial is completed again with the same report.

    Raises:
      Refused: The report differs, or its attempt is stale.
    """
    _check_attempt(trial, completion.attempt)
    if trial.state in (State.ACTIVE, State.STOPPING):
        return False
    if trial.state is State.REQUESTED:
        raise Refused(Refusal.STALE, "the lease was lost", where=f"trial {trial.id}")
    is_same = _digest(trial.checkpoint) == _digest(completion.checkpoint)
    is_same &= _digest(trial.train_state) == _digest(completion.train_state)
    if completion.checkpoint is None:
        is_same &= trial.reason == completion.reason
    else:
        is_same &= trial.n_steps == completion.n_steps
    if study.fitness_from is FitnessFrom.TRAINER and not completion.reason:
        is_same &= repr(sorted((trial.metrics or {}).items())) == repr(sorted(completion.metrics.items()))
    if not is_same:
        raise Refused(Refusal.CONFLICT, "it was completed before, in another way", where=f"trial {trial.id}")
    return True


def complete_trial(study: Study, trial: StudyTrial, completion: Completion, *, now: float, next_seq: int) -> StudyTrial:
    """Returns a trial after its training has ended.

    Raises:
      Refused: The checkpoint or a metric is missing, or the number of steps does not fit.
    """
    where = f"trial {trial.id}"
    if completion.reason:
        return _make_infeasible(dataclasses.replace(trial, lease_deadline=None), completion.reason, next_seq)
    if completion.checkpoint is None:
        raise Refused(Refusal.INVALID, "a completion needs a checkpoint, or a reason why it has none", where=where)
    min_steps = 0 if trial.state is State.STOPPING else trial.n_steps
    if not min_steps <= completion.n_steps <= trial.n_steps:
        raise Refused(
            Refusal.INVALID, "steps done", where=where, got=str(completion.n_steps), expected=str(trial.n_steps)
        )
    ended_trial = dataclasses.replace(
        trial,
        checkpoint=completion.checkpoint,
        train_state=completion.train_state,
        n_steps=completion.n_steps,
        metrics=dict(completion.metrics) or None,
        lease_deadline=None,
        is_kept=True,
    )
    if study.fitness_from is FitnessFrom.WATCH:
        deadline = now + study.fitness_seconds
        return dataclasses.replace(ended_trial, state=State.AWAITING_FITNESS, fitness_deadline=deadline)
    try:
        return _make_succeeded(study, ended_trial, completion.metrics, next_seq)
    except LobenchError as error:
        raise Refused(Refusal.INVALID, error.what, where=where, got=error.got, expected=error.expected) from error


def score_trial(study: Study, trial: StudyTrial, score: Score, *, next_seq: int) -> StudyTrial:
    """Returns a waiting trial after its fitness has arrived, or has turned out to be missing."""
    if score.metrics is None:
        return _make_infeasible(trial, score.reason or "it was not evaluated", next_seq)
    try:
        return _make_succeeded(study, trial, score.metrics, next_seq)
    except LobenchError as error:
        return _make_infeasible(trial, str(error), next_seq)


def _make_succeeded(study: Study, trial: StudyTrial, metrics: Mapping[str, float], next_seq: int) -> StudyTrial:
    fitness = oriented(metrics, study.objectives)
    if study.weighted:
        fitness = weighted(fitness, study.objectives)
    return dataclasses.replace(
        trial,
        state=State.SUCCEEDED,
        metrics=dict(metrics),
        fitness=fitness,
        fitness_deadline=None,
        completed_seq=next_seq,
    )


def _make_infeasible(trial: StudyTrial, reason: str, next_seq: int) -> StudyTrial:
    return dataclasses.replace(
        trial, state=State.INFEASIBLE, reason=reason, fitness=None, fitness_deadline=None, completed_seq=next_seq
    )


def _check_attempt(trial: Outline, attempt: int) -> None:
    if attempt != trial.attempt:
        raise Refused(
            Refusal.STALE,
            "the lease was lost: another attempt has begun",
            where=f"trial {trial.id}",
            got=f"attempt {attempt}",
            expected=f"attempt {trial.attempt}",
        )


def _digest(artifact: Artifact | None) -> str:
    return artifact.sha256 if artifact is not None else ""
