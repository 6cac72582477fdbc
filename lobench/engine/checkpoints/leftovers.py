"""Leftovers: checkpoints that are still there from before a trainer was started again in their folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from lobench.core.checkpoint import SeenCheckpoint
from lobench.engine.store.series import names_of_series

__all__ = ["find_leftovers"]


def find_leftovers(
    checkpoints: Iterable[SeenCheckpoint], shows_new_run: Callable[[SeenCheckpoint], bool]
) -> dict[str, SeenCheckpoint]:
    """Returns the leftovers among the checkpoints of a folder by path, each with the checkpoint that shows it.

    A trainer that begins again writes its checkpoints in the order of their numbers. A file that has a higher number
    than the first one of the new run, but was written before it, is of the former run. Later files of the new run show
    nothing: a trainer may write slots in turn, or finish an earlier step later. Files without a number or a time are
    not judged.

    Args:
      checkpoints: Checkpoints that a source found.
      shows_new_run: Returns whether a known file is the first one that was read of the new run, or has other content
        than a former run wrote. It may read the checkpoint: it is only called for files that are newer than one with a
        higher number, and for those that may be leftovers.

    >>> old, new = (SeenCheckpoint(uri=f"theta_{n}.npz", reader="npz", index=n, written_at=-n) for n in (9, 3))
    >>> find_leftovers([old, new], lambda checkpoint: checkpoint is new).keys()
    dict_keys(['theta_9.npz'])
    """
    dated_checkpoints: dict[tuple[str, str], list[tuple[int, float, SeenCheckpoint]]] = {}
    for checkpoint in checkpoints:
        if checkpoint.index is not None and checkpoint.written_at is not None:
            series = dated_checkpoints.setdefault((checkpoint.run, names_of_series(checkpoint.uri)), [])
            series.append((checkpoint.index, checkpoint.written_at, checkpoint))
    leftovers: dict[str, SeenCheckpoint] = {}
    for series in dated_checkpoints.values():
        series.sort(key=lambda entry: entry[0])
        newer_ones = []  # newer than a checkpoint with a higher number
        oldest_time = math.inf
        for index, written_at, checkpoint in reversed(series):
            if written_at > oldest_time:
                newer_ones.append((index, written_at, checkpoint))
            oldest_time = min(oldest_time, written_at)
        for first_index, began_at, first_checkpoint in reversed(newer_ones):
            if shows_new_run(first_checkpoint):
                leftovers |= {
                    checkpoint.uri: first_checkpoint
                    for index, written_at, checkpoint in series
                    if index > first_index and written_at < began_at and not shows_new_run(checkpoint)
                }
                break
    return leftovers
