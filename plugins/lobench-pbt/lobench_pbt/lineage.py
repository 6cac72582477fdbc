"""How a trial came to be: its ancestors as segments of training, in an order in which they can be done again."""

from __future__ import annotations

import graphlib
import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from lobench_pbt.trial import StudyTrial

__all__ = ["replay", "schedule", "segments", "warm_chain", "warm_starts"]

_State = TypeVar("_State")


def schedule(parents: Callable[[int], Sequence[int]], id: int) -> list[int]:
    """Returns a trial and its ancestors, parents before children; of several that could come, the smallest id."""
    needed: dict[int, tuple[int, ...]] = {}
    stack = [id]
    while stack:
        trial = stack.pop()
        if trial not in needed:
            needed[trial] = tuple(parents(trial))
            stack += needed[trial]
    sorter = graphlib.TopologicalSorter(needed)
    sorter.prepare()
    ready: list[int] = []
    order: list[int] = []
    while sorter.is_active():
        for trial in sorter.get_ready():
            heapq.heappush(ready, trial)
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
    return order


def segments(
    trial: Callable[[int], StudyTrial], id: int, *, from_step: int = 0, to_step: int | None = None
) -> list[dict[str, Any]]:
    """Returns the segments that lead to a trial, cut to outer steps [from_step, to_step).

    The last one is of the trial, or where that begins at `to_step` or later, of the ancestor whose weights it had then.
    """
    found: list[dict[str, Any]] = []
    while (last := trial(id)).parent_ids and (not last.n_steps or (to_step is not None and last.start_step >= to_step)):
        id = last.parent_ids[0]
    for place in schedule(lambda ancestor: trial(ancestor).parent_ids, id):
        row = trial(place)
        start = max(row.start_step, from_step)
        end = row.end_step if to_step is None else min(row.end_step, to_step)
        if start >= end:
            continue
        found.append(
            {
                "trial": row.id,
                "parents": list(row.parent_ids),
                "start_step": start,
                "n_steps": end - start,
                "params": dict(row.params),
                "seed": row.seed,
            }
        )
    return found


def warm_starts(segments: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the segments whose weights the last one goes back to, oldest first: without those that crossover only
    took a value from.
    """
    by_trial = {segment["trial"]: segment for segment in segments}
    chain: list[Mapping[str, Any]] = []
    place = segments[-1] if segments else None
    while place is not None:
        chain.append(place)
        place = by_trial.get(place["parents"][0]) if place["parents"] else None
    return chain[::-1]


def warm_chain(trials: Mapping[int, StudyTrial], id: int) -> list[StudyTrial]:
    """Returns the trials whose weights a trial's go back to, oldest first, itself last."""
    chain = [trials[id]]
    while chain[-1].parent_ids and (parent := trials.get(chain[-1].parent_ids[0])) is not None:
        chain.append(parent)
    return chain[::-1]


def replay(
    document: Mapping[str, Any],
    train: Callable[[_State | None, Mapping[str, Any]], _State],
    *,
    start: _State | None = None,
) -> _State | None:
    """Trains a trial's history again.

    Args:
      document: What `lobench pbt replay` printed, parsed.
      train: (state, segment) -> state after the segment's `n_steps` from `start_step` with its `params` and `seed`; the
        state is None for a segment from scratch.
      start: State to begin with, for a schedule that was cut at its beginning.
    Returns:
      The last segment's state; `start` where there is no segment.
    """
    state = start
    for segment in warm_starts(document["segments"]):
        state = train(state, segment)
    return state
