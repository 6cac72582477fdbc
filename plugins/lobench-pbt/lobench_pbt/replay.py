"""How a trial came to be: its ancestors as segments of training, in an order in which they can be done again."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from lobench_pbt.trial import Trial

__all__ = ["schedule", "segments"]


def schedule(parents: Callable[[int], Sequence[int]], id: int) -> list[int]:
    """Returns a trial and its ancestors, parents before children; of several that could come, the smallest id."""
    needed: dict[int, tuple[int, ...]] = {}
    stack = [id]
    while stack:
        trial = stack.pop()
        if trial not in needed:
            needed[trial] = tuple(parents(trial))
            stack += needed[trial]
    missing = {trial: set(found) for trial, found in needed.items()}
    ready = [trial for trial, found in missing.items() if not found]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        done = heapq.heappop(ready)
        order.append(done)
        for trial, found in missing.items():
            if done in found:
                found.remove(done)
                if not found:
                    heapq.heappush(ready, trial)
    return order


def segments(
    trial: Callable[[int], Trial], id: int, *, from_step: int = 0, to_step: int | None = None
) -> list[dict[str, Any]]:
    """Returns the segments that lead to a trial, cut to outer steps [from_step, to_step)."""
    found: list[dict[str, Any]] = []
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
