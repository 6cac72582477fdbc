"""Index for a viewer: the subjects, cases and metrics to choose from, and the contents of each cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.stats.bands import bands
from lobench.core.metric import direction_of
from lobench.drawing.curves import evenly_spaced_indices

__all__ = ["BandCurve", "CurveKey", "ViewerIndex", "band_curves_of", "coarse_to_fine"]

CurveKey: TypeAlias = tuple[int, int, str]  # indices of subject and case, and name of the metric
BandCurve: TypeAlias = tuple[tuple[int, ...], NDArray[np.float64]]  # inner steps; BAND at each: float64[6, num_steps]


class ViewerIndex:
    """Content of a snapshot by cells and metrics.

    Args:
      summary: Summary of the snapshot.
      earlier: Index of an earlier snapshot, whose bounds are reused for subjects that are the same objects.

    Attributes:
      metrics: Primary metrics of the cases, then other metrics by name. Metrics of single batches are left out.
      finals: Mean, lower and upper bound over the seeds after the last step, by metric:
        float64[num_subjects, num_cases, 3]. NaN without results.
      directions: Direction of each metric. None if it is not declared.
      runs: Indices of the checkpoints of each run, in order.
      best_indices: For each run, the index of the checkpoint with the highest mean score among the checkpoints with the
        most cases. None without scores.
    """

    def __init__(self, summary: Summary, earlier: ViewerIndex | None = None) -> None:
        self.summary, self.snapshot = summary, summary.snapshot
        names_with_values = {name for subject in self.snapshot.subjects for name in subject.metrics()}
        primary_metrics = dict.fromkeys(case.primary_metric for case in self.snapshot.cases)
        self.metrics = tuple(
            dict.fromkeys(
                [*(name for name in primary_metrics if name in names_with_values), *sorted(names_with_values)]
            )
        )
        cells = [cell for subject in self.snapshot.subjects for cell in subject.cells.values()]
        declared_directions = {name: way for cell in cells for name, way in cell.directions.items()}
        self.directions = {name: direction_of(name, declared_directions) for name in self.metrics}
        self.finals = {name: self._final_bounds(name, earlier) for name in self.metrics}
        self.runs = self.snapshot.groups.runs
        self.best_indices = tuple(_best_checkpoint(summary, run) for run in self.runs)

    def _final_bounds(self, metric: str, earlier: ViewerIndex | None) -> NDArray[np.float64]:
        snapshot = self.snapshot
        direction = self.directions[metric]
        identities = [case.identity for case in snapshot.cases]
        finals = np.full((len(snapshot.subjects), len(identities), 3), np.nan)
        rows_before = dict[int, int]()
        if (
            earlier is not None
            and earlier.directions.get(metric, direction) is direction
            and metric in earlier.finals
            and [case.identity for case in earlier.snapshot.cases] == identities
        ):
            rows_before = {id(subject): row for row, subject in enumerate(earlier.snapshot.subjects)}
            kept_indices = [index for index, subject in enumerate(snapshot.subjects) if id(subject) in rows_before]
            finals[kept_indices] = earlier.finals[metric][
                [rows_before[id(snapshot.subjects[index])] for index in kept_indices]
            ]
        groups: dict[int, list[tuple[int, int, list[float]]]] = {}
        for index, subject in enumerate(snapshot.subjects):
            for case, identity in enumerate(identities) if id(subject) not in rows_before else ():
                cell = subject.cells.get(identity)
                if cell is not None and (values := list(cell.finals(metric).values())):
                    groups.setdefault(len(values), []).append((index, case, values))
        for cells in groups.values():
            rows = np.asarray([values for *_, values in cells], np.float64)[:, :, None]
            subject_indices, cases = (np.asarray([cell[axis] for cell in cells]) for axis in (0, 1))
            finals[subject_indices, cases] = bands(rows, metric, direction)[:, :3, 0]
        return finals

    def keys_of(self, subject_index: int) -> list[CurveKey]:
        """Returns the curves that a subject may have."""
        cells = ((case, self.snapshot.cell(subject_index, case)) for case in range(len(self.snapshot.cases)))
        return [
            (subject_index, case, metric)
            for case, cell in cells
            if cell is not None and cell.curves_by_seed
            for metric in self.metrics
            if metric in cell.final_values
        ]

    def indices_by_interest(self) -> list[int]:
        """Returns subject indices by importance: shown, first, last and best of each run, then ever finer ones."""
        subjects = [self.summary.headline_index, self.summary.reference_index]
        important_checkpoints = (
            (run[-1], best, run[0]) for run, best in zip(self.runs, self.best_indices, strict=True)
        )
        subjects += [index for indices in important_checkpoints for index in indices if index is not None]
        subjects += coarse_to_fine(len(self.snapshot.subjects))
        return list(dict.fromkeys(subjects))


def _best_checkpoint(summary: Summary, run: Sequence[int]) -> int | None:
    means = {index: summary.mean_score(index, "primary") for index in run}
    known_scores = {index: score for index, score in means.items() if not math.isnan(score.interval.mean)}
    max_cases = max((score.num_cases for score in known_scores.values()), default=0)
    complete_means = {
        index: score.interval.mean for index, score in known_scores.items() if score.num_cases == max_cases
    }
    return max(complete_means, key=lambda index: complete_means[index]) if complete_means else None


def coarse_to_fine(count: int) -> Iterator[int]:
    """Yields 0 .. count-1: the first, then the middle, then the quarters, and so on."""
    width = 1 << max(count - 1, 0).bit_length()
    while width >= 1:
        yield from range(0, count, width)
        width //= 2


def band_curves_of(viewer_index: ViewerIndex, keys: Iterable[CurveKey], most_points: int) -> dict[CurveKey, BandCurve]:
    """Returns the mean curve and its bounds over the seeds, for the keys that have curves.

    Args:
      viewer_index: Index of the snapshot.
      keys: Subjects, cases and metrics.
      most_points: Largest number of points of a curve. Of longer curves, evenly spaced points are kept, including the
        first and the last.
    """
    snapshot = viewer_index.snapshot
    curves_by_key = dict[CurveKey, BandCurve]()
    groups: dict[tuple[str, tuple[int, ...], int], list[tuple[CurveKey, NDArray[np.float64]]]] = {}
    for key in keys:
        subject, case, metric = key
        cell = snapshot.cell(subject, case)
        if cell is None or not any(metric in curves.shapes for curves, _ in cell.curves_by_seed.values()):
            continue
        steps = cell.steps
        rows = cell.curves_of_seeds(metric)
        columns = evenly_spaced_indices(len(steps), most_points)
        shape = (metric, tuple(steps[columns].tolist()), len(rows))
        groups.setdefault(shape, []).append((key, rows[:, columns]))
    for (metric, grid, _), members in groups.items():
        values = bands(np.stack([rows for _, rows in members]), metric, viewer_index.directions[metric])
        curves_by_key |= {key: (grid, band) for (key, _), band in zip(members, values, strict=True)}
    return curves_by_key
