"""Accuracy matrix of a stream of tasks: the accuracy on each task after training on each."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.store.subjects import Cell
from lobench.core.metric import EVALUATED_SPLITS

__all__ = ["accuracy_matrix"]

_SPLITS = (*reversed(EVALUATED_SPLITS), "train")  # test, if there is one


def accuracy_matrix(cell: Cell) -> tuple[str, NDArray[np.float64]] | None:
    """Returns the split and R[i, j], the mean accuracy over seeds on task j at the end of task i.

    Returns:
      Split and float64[num_tasks, num_tasks], NaN if a seed diverged. None if the case is not a stream of tasks.
    """
    if "train/task" not in cell.metric_names:
        return None
    tasks = cell.mean_curve("train/task")
    end_indices = [int(np.flatnonzero(tasks == task)[-1]) for task in np.unique(tasks)]
    for split in _SPLITS:
        names = (f"{split}/accuracy_task_{task}" for task in itertools.count())
        columns = [
            cell.mean_curve(name)[end_indices] for name in itertools.takewhile(cell.metric_names.__contains__, names)
        ]
        if columns:
            return split, np.stack(columns, axis=1)
    return None
