"""Forgetting metrics of the accuracy R[i, j] on task j after training on task i."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lobench.inner.task import SPLITS

__all__ = ["DIRECTIONS", "of_task", "over_tasks"]

DIRECTIONS = {"forgetting": "min", "backward_transfer": "max"}


def of_task(index: int) -> str:
    """Returns the name of the accuracy on a task."""
    return f"accuracy_task_{index}"


def over_tasks(metrics: Mapping[str, np.ndarray], steps: Sequence[int], ends: Sequence[int]) -> dict[str, np.ndarray]:
    """Returns forgetting and backward transfer of each split, and the index of the current task (`train/task`).

    R[l, j] is the accuracy on task j at the end of task l. At an evaluation during task i, forgetting is the mean over
    tasks j < i of the highest R[l, j] with j <= l < i, minus the present accuracy on j. Backward transfer is the mean
    of the present accuracy on j minus R[j, j]. Both are 0 in the first task. Accuracy on a task before training on it
    does not count.

    Args:
      metrics: float32[num_seeds, num_evals] by name.
      steps: Inner steps of the evaluations.
      ends: Inner steps at which the tasks end. They are among `steps`.
    Source: Chaudhry et al. 2018 (forgetting); Lopez-Paz and Ranzato 2017 (backward transfer).
    """
    tasks = np.searchsorted(ends, steps)  # task that is trained before each evaluation
    columns = [steps.index(end) for end in ends if end in steps]
    found: dict[str, np.ndarray] = {}
    for split in SPLITS:
        if f"{split}/{of_task(0)}" not in metrics:
            continue
        now = np.stack([metrics[f"{split}/{of_task(task)}"] for task in range(len(ends))])  # [task, seed, evaluation]
        after = now[:, :, columns]  # R[i, j] is after[j, :, i]
        forgetting, transfer = np.zeros_like(now[0]), np.zeros_like(now[0])
        for place, task in enumerate(tasks):
            if task:
                best = np.stack([after[j, :, j:task].max(axis=1) for j in range(task)])
                forgetting[:, place] = (best - now[:task, :, place]).mean(axis=0)
                own = np.stack([after[j, :, j] for j in range(task)])
                transfer[:, place] = (now[:task, :, place] - own).mean(axis=0)
        found |= {f"{split}/forgetting": forgetting, f"{split}/backward_transfer": transfer}
    if found:
        found["train/task"] = np.broadcast_to(tasks.astype(np.float32), now[0].shape)
    return found
