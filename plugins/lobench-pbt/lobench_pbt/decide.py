"""Decisions of the controller, as pure functions of the trial table without I/O, clock or random state.

Decisions keep no state between calls, so the controller may be killed between any two requests. The child of a trial
depends on the study's seed and on the initiator's generation and slot, not on which worker asks or on the order of
rows. In budget mode, the opponents are fixed as well, so that the seed determines the study.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lobench.extend import Member, PluginError, Pool, Space, Value, fold
from lobench.hookspecs import SelectionStrategy
from lobench_pbt.lineage import SEED_MASK, replay_seed
from lobench_pbt.study import Opponents, Study
from lobench_pbt.trial import Outline, State, StudyTrial

__all__ = ["Suggestion", "Table", "TrialDecision", "reproduce", "suggest"]


class Table(Protocol):
    """Trial table as decisions read it. Reads do not take longer with a longer history."""

    def trial(self, id: int) -> StudyTrial | None: ...

    def active_trial_of(self, worker: str) -> StudyTrial | None:
        """Returns the ACTIVE trial of a worker."""

    def oldest_requested(self) -> StudyTrial | None: ...

    def next_id(self) -> int: ...

    def num_trials(self, generation: int, *, terminal: bool = False) -> int: ...

    def childless_trials(self, end_generation: int) -> Iterable[Outline]:
        """Yields terminal trials of generation < below without a child, by (generation, completed_seq)."""

    def trials_of_generations(self, generations: Sequence[int]) -> Sequence[Outline]: ...

    def has_unfinished(self, end_generation: int) -> bool:
        """Returns whether a trial is ACTIVE or STOPPING, or is not terminal and of a generation < `end_generation`."""


class TrialDecision(enum.StrEnum):
    TRIAL = "trial"
    WAIT = "wait"
    HELD = "held"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Answer to a worker's request.

    Attributes:
      answer: Decision.
      trial: Row to write. If the answer is HELD: the worker's trial, which another process has.
      lease_seconds: Time that the worker may be silent.
      holder: Process that has the trial.
    """

    answer: TrialDecision
    trial: StudyTrial | None = None
    lease_seconds: float = 0.0
    holder: str = ""


def suggest(
    study: Study, strategy: SelectionStrategy, table: Table, *, worker: str, stopped: bool, now: float
) -> Suggestion:
    """Returns the trial that a worker should train next, or WAIT or DONE. The caller has handled expired leases."""
    if stopped:
        return Suggestion(answer=TrialDecision.DONE)
    next_trial = table.active_trial_of(worker) or table.oldest_requested() or _next_initial_trial(study, table)
    if next_trial is None:
        next_trial = _next_child(study, strategy, table)
    if next_trial is not None:
        lease_deadline = now + study.lease_seconds
        trial = dataclasses.replace(next_trial, state=State.ACTIVE, worker_id=worker, lease_deadline=lease_deadline)
        return Suggestion(answer=TrialDecision.TRIAL, trial=trial, lease_seconds=study.lease_seconds)
    return Suggestion(answer=TrialDecision.WAIT if table.has_unfinished(study.generations) else TrialDecision.DONE)


def _next_initial_trial(study: Study, table: Table) -> StudyTrial | None:
    """Returns the next trial of generation 0 if there are fewer than N."""
    slot = table.num_trials(0)
    if slot >= study.population:
        return None
    return _trial_from_prior(study, table.next_id(), generation=0, slot=slot, seed=fold(study.seed, "first", slot))


def _trial_from_prior(
    study: Study, trial_id: int, *, generation: int, slot: int, seed: int, initiator: int | None = None
) -> StudyTrial:
    """Returns a trial from scratch, with parameters drawn from the prior or given by the schedule."""
    trial = StudyTrial(
        id=trial_id,
        generation=generation,
        slot=slot,
        initiator_id=initiator,
        params=Space(study.parameters).sample(seed),
        n_steps=study.n_steps,
        seed=seed & SEED_MASK,
    )
    return _with_schedule(study, trial)


def _with_schedule(study: Study, trial: StudyTrial) -> StudyTrial:
    if not study.schedule:
        return trial
    segment = study.schedule[trial.generation]
    seed = replay_seed(segment.seed, slot=trial.slot, study_seed=study.seed)
    return dataclasses.replace(trial, params=dict(segment.params), n_steps=segment.n_steps, seed=seed)


def _next_child(study: Study, strategy: SelectionStrategy, table: Table) -> StudyTrial | None:
    """Returns the child of the first trial that may reproduce now; None if there is none."""
    unready_generations: set[int] = set()  # generations that are not complete, to check each generation once
    for initiator in table.childless_trials(study.generations):
        if initiator.generation in unready_generations:
            continue
        if study.schedule and initiator.state is State.INFEASIBLE:
            continue  # a child could not continue from it, and a schedule cannot skip a segment
        if not _is_ready(study, strategy, table, initiator.generation):
            unready_generations.add(initiator.generation)
            continue
        child = reproduce(study, strategy, table, initiator)
        if child is not None:
            return child
    return None


def _is_ready(study: Study, strategy: SelectionStrategy, table: Table, generation: int) -> bool:
    """Returns whether a generation may reproduce.

    In budget mode, if members meet, all of its N trials must have ended.
    """
    meets_others = strategy.pool not in (Pool.NONE, Pool.OWN)
    return not (study.budget and meets_others) or table.num_trials(generation, terminal=True) >= study.population


def reproduce(study: Study, strategy: SelectionStrategy, table: Table, initiator: Outline) -> StudyTrial | None:
    """Returns the child of a terminal trial; None while the trial waits for others. Each trial initiates one child."""
    generation = initiator.generation
    if not _is_ready(study, strategy, table, generation):
        return None
    pool = _possible_opponents(study, strategy.pool, table, initiator)
    opponents = [trial for trial in pool if trial.state is State.SUCCEEDED]
    if not opponents and any(not trial.is_terminal for trial in pool):
        return None
    if strategy.pool is Pool.NEWEST:
        opponents = _newest_of_slots(opponents)
    trials_by_number = {_member_number(trial): trial for trial in (initiator, *opponents)}
    population = [Member(id=slot, fitness=trial.fitness) for slot, trial in trials_by_number.items()]
    selection = strategy.select(
        population, _member_number(initiator), fold(study.seed, "select", generation, initiator.slot)
    )
    if not {selection.parent, selection.other} <= {None, *trials_by_number}:
        members_text = f"parent {selection.parent!r}, other {selection.other!r}"
        where = f"study {study.name!r}, strategy {study.strategy!r}"
        raise PluginError("select() returned no member of the population", where=where, got=members_text)
    seed = fold(study.seed, "child", generation, initiator.slot)
    if selection.parent is not None:
        parent = trials_by_number[selection.parent]
        other_parent = trials_by_number[selection.other] if selection.other is not None else None
        return _make_child(study, table, initiator, parent, other_parent, seed=seed, explore=selection.explore)
    return _trial_from_prior(
        study, table.next_id(), generation=generation + 1, slot=initiator.slot, seed=seed, initiator=initiator.id
    )


def _member_number(trial: Outline) -> int:
    """Returns the number of a trial in random draws, which depends on its generation and slot and not on its id."""
    return (trial.generation << 32) + trial.slot


def _possible_opponents(study: Study, pool: Pool, table: Table, initiator: Outline) -> list[Outline]:
    """Returns the possible opponents of an initiator, from its generation and the previous one, in any state."""
    if pool is Pool.NONE:
        return []
    generations = [initiator.generation]
    if study.opponents is Opponents.LAST_TWO and initiator.generation > 0:
        generations.append(initiator.generation - 1)
    other_trials = [trial for trial in table.trials_of_generations(generations) if trial.id != initiator.id]
    if pool is Pool.OWN:
        return [trial for trial in other_trials if trial.slot == initiator.slot]
    if pool is Pool.NEWEST:
        return [trial for trial in other_trials if trial.slot != initiator.slot]
    return other_trials


def _newest_of_slots(trials: Iterable[Outline]) -> list[Outline]:
    newest_by_slot: dict[int, Outline] = {}
    for trial in trials:
        if trial.slot not in newest_by_slot or newest_by_slot[trial.slot].generation < trial.generation:
            newest_by_slot[trial.slot] = trial
    return list(newest_by_slot.values())


def _make_child(
    study: Study, table: Table, initiator: Outline, winner: Outline, loser: Outline | None, *, seed: int, explore: bool
) -> StudyTrial:
    parent = table.trial(winner.id)
    other_parent = table.trial(loser.id) if loser is not None else None
    assert parent is not None
    params: dict[str, Value] = dict(parent.params)
    parent_ids: tuple[int, ...] = (parent.id,)
    if explore:
        space = Space(study.parameters)
        if other_parent is not None and other_parent.state is State.SUCCEEDED:
            params, is_crossed = space.cross(params, other_parent.params, seed, study.p_crossover)
            parent_ids += (other_parent.id,) if is_crossed else ()
        params = space.mutate(params, seed, p_resample=study.p_resample, p_switch=study.p_switch)
    opponent_ids = (trial.id for trial in (winner, loser) if trial is not None and trial.id != initiator.id)
    trial = StudyTrial(
        id=table.next_id(),
        generation=initiator.generation + 1,
        slot=initiator.slot,
        initiator_id=initiator.id,
        opponent_id=next(opponent_ids, None),
        parent_ids=parent_ids,
        params=params,
        start_step=parent.end_step,
        n_steps=study.n_steps,
        warm_checkpoint=parent.checkpoint,
        warm_state=parent.train_state,
        seed=seed & SEED_MASK,
    )
    return _with_schedule(study, trial)
