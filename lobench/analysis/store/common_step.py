"""Subjects cut at the last common step of their seeds, so that all final values have the same budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from lobench.analysis.store.subjects import Cell, StoredSubject
from lobench.core.errors import UsageError
from lobench.core.metric import is_of_batch
from lobench.core.result import Curves

__all__ = ["until_common_step"]


def until_common_step(subjects: Sequence[StoredSubject]) -> list[StoredSubject]:
    """Returns subjects whose curves end, case by case, at the last step that every seed of every subject has.

    Seeds that diverged or exploded do not limit the step. Metrics with one value a seed, taken at the end, are left
    out.

    Raises:
      UsageError: The seeds of a case have no step in common.
    """
    cells_of_subjects: list[dict[str, Cell]] = [dict(subject.cells) for subject in subjects]
    for identity in {identity: None for subject in subjects for identity in subject.cells}:
        cells = [subject.cells[identity] for subject in subjects if identity in subject.cells]
        grids = [
            set(curves.eval_steps)
            for cell in cells
            for seed, (curves, _) in cell.curves_by_seed.items()
            if seed not in cell.unconverged_seeds
        ]
        common_steps = set.intersection(*grids) if grids else set[int]()
        if grids and not common_steps:
            case = cells[0].case
            raise UsageError("--until-step common: the seeds have no step in common", where=f"{case.suite}/{case.name}")
        for cut_cells in cells_of_subjects if common_steps else ():
            if identity in cut_cells:
                cut_cells[identity] = _cell_until(cut_cells[identity], max(common_steps))
    return [
        dataclasses.replace(subject, cells=cells) for subject, cells in zip(subjects, cells_of_subjects, strict=True)
    ]


def _cell_until(cell: Cell, step: int) -> Cell:
    cut_curves = {id(curves): _curves_until(curves.complete(), step) for curves, _ in cell.curves_by_seed.values()}
    sources = {seed: (cut_curves[id(curves)], row) for seed, (curves, row) in cell.curves_by_seed.items()}
    final: dict[str, dict[int, float]] = {}
    for seed, (curves, row) in sources.items():
        for name, values in curves.metrics.items():
            if not is_of_batch(name):
                final.setdefault(name, {})[seed] = float(np.asarray(values)[row, -1])
    diverged_at = {
        seed: divergence_step for seed, divergence_step in cell.diverged_at.items() if divergence_step <= step
    }
    return dataclasses.replace(cell, curves_by_seed=sources, final_values=final, diverged_at=diverged_at)


def _curves_until(curves: Curves, step: int) -> Curves:
    count = max(sum(eval_step <= step for eval_step in curves.eval_steps), 1)
    arrays = {name: np.asarray(values, np.float32) for name, values in curves.metrics.items()}
    metrics: dict[str, memoryview[float]] = {
        name: memoryview(values[:, :count].copy().data)
        for name, values in arrays.items()
        if not is_of_batch(name) and values.shape[1] == len(curves.eval_steps)
    }
    diverged_at = tuple(divergence_step if divergence_step <= step else -1 for divergence_step in curves.diverged_at)
    return dataclasses.replace(curves, metrics=metrics, eval_steps=curves.eval_steps[:count], diverged_at=diverged_at)
