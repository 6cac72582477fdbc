"""Lineage of a trial: its ancestors as segments of training, in an order in which they can be repeated."""

from __future__ import annotations

import graphlib
import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from lobench.extend import fold
from lobench_pbt.trial import StudyTrial

__all__ = ["SEED_MASK", "ancestors_in_order", "inheritance_chain", "replay", "replay_seed", "segments", "warm_starts"]

SEED_MASK = 0x7FFFFFFF  # a trainer's seed fits 31 bits
_State = TypeVar("_State")


def ancestors_in_order(parents: Callable[[int], Sequence[int]], id: int) -> list[int]:
    """Returns a trial and its ancestors, parents before children, otherwise by id."""
    parents_by_id: dict[int, tuple[int, ...]] = {}
    pending_ids = [id]
    while pending_ids:
        trial_id = pending_ids.pop()
        if trial_id not in parents_by_id:
            parents_by_id[trial_id] = tuple(parents(trial_id))
            pending_ids += parents_by_id[trial_id]
    sorter = graphlib.TopologicalSorter(parents_by_id)
    sorter.prepare()
    ready_ids: list[int] = []
    ordered_ids: list[int] = []
    while sorter.is_active():
        for trial_id in sorter.get_ready():
            heapq.heappush(ready_ids, trial_id)
        ordered_ids.append(heapq.heappop(ready_ids))
        sorter.done(ordered_ids[-1])
    return ordered_ids


def segments(
    trial: Callable[[int], StudyTrial], id: int, *, from_step: int = 0, to_step: int | None = None
) -> list[dict[str, Any]]:
    """Returns the segments that lead to a trial, cut to outer steps [from_step, to_step).

    The last segment belongs to the trial. If the trial begins at `to_step` or later, it belongs to the ancestor whose
    weights the trial had at that step.
    """
    segment_records: list[dict[str, Any]] = []
    while (last_trial := trial(id)).parent_ids and (
        not last_trial.n_steps or (to_step is not None and last_trial.start_step >= to_step)
    ):
        id = last_trial.parent_ids[0]
    for ancestor_id in ancestors_in_order(lambda ancestor: trial(ancestor).parent_ids, id):
        ancestor_trial = trial(ancestor_id)
        start = max(ancestor_trial.start_step, from_step)
        end = ancestor_trial.end_step if to_step is None else min(ancestor_trial.end_step, to_step)
        if start >= end:
            continue
        segment_records.append(
            {
                "trial": ancestor_trial.id,
                "parents": list(ancestor_trial.parent_ids),
                "start_step": start,
                "n_steps": end - start,
                "params": dict(ancestor_trial.params),
                "seed": ancestor_trial.seed,
            }
        )
    return segment_records


def warm_starts(segments: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the segments from which the last segment inherits its weights, oldest first.

    Segments that only gave hyperparameters to a crossover are left out.
    """
    segments_by_trial = {segment["trial"]: segment for segment in segments}
    chain: list[Mapping[str, Any]] = []
    ancestor_segment = segments[-1] if segments else None
    while ancestor_segment is not None:
        chain.append(ancestor_segment)
        ancestor_segment = (
            segments_by_trial.get(ancestor_segment["parents"][0]) if ancestor_segment["parents"] else None
        )
    return chain[::-1]


def inheritance_chain(trials: Mapping[int, StudyTrial], id: int) -> list[StudyTrial]:
    """Returns a trial and the ancestors whose weights it inherits, oldest first."""
    chain = [trials[id]]
    while chain[-1].parent_ids and (parent := trials.get(chain[-1].parent_ids[0])) is not None:
        chain.append(parent)
    return chain[::-1]


def replay_seed(seed: int, *, slot: int, study_seed: int) -> int:
    """Returns the seed (31 bits) that a segment has in one slot of an ensemble of replays.

    Slot 0 has the segment's own seed.

    >>> replay_seed(7, slot=0, study_seed=3)
    7
    """
    return fold(study_seed, "replay", slot, seed) & SEED_MASK if slot else seed


def replay(
    document: Mapping[str, Any],
    train: Callable[[_State | None, Mapping[str, Any]], _State],
    *,
    start: _State | None = None,
    slot: int = 0,
    study_seed: int = 0,
) -> _State | None:
    """Repeats the training of a trial's lineage, or of an ensemble member that follows the same schedule.

    Args:
      document: Parsed output of `lobench pbt replay`.
      train: Function of (state, segment) that returns the state after the segment's `n_steps` from `start_step`, with
        its `params` and `seed`. The state is None for a segment from scratch.
      start: Initial state, for a schedule whose beginning was cut off.
      slot: Member of the ensemble, as in a study with the strategy `fixed_schedule`. 0 has the schedule's own seeds.
      study_seed: `Study.seed` of that study.
    Returns:
      The state after the last segment; `start` without segments.
    """
    state = start
    for segment in warm_starts(document["segments"]):
        seed = replay_seed(segment["seed"], slot=slot, study_seed=study_seed)
        state = train(state, {**segment, "seed": seed})
    return state
