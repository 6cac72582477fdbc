"""Grouping of points by run on disk, with memory for the longest run only."""

from __future__ import annotations

import itertools
import operator
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from lobench.core.errors import UsageError
from lobench.tools.curve_import.points import CurveRun, Points

__all__ = ["Curve", "PointsByRun"]

_BUCKETS = 64
_ROW = np.dtype(
    [("run", "<i4"), ("metric", "<i4"), ("step", "<i8"), ("value", "<f8"), ("line", "<i8"), ("source", "<i4")]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One metric of one run, by step."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]

    @property
    def ends_diverged(self) -> bool:
        """Whether the last value is not finite, which suggests that the training stopped there."""
        return not np.isfinite(self.values[-1])


class PointsByRun:
    """Groups points by run, in any order of input. `close` deletes its files.

    Args:
      where_of: Returns the names of the files with a run's points.
      sources: Names of the sources by number.
      last_counts: For each source, whether the last value counts if a run has a step twice. Otherwise that is an error.
      always_last: Whether the last value counts also if a step occurs in several sources.
    Attributes:
      replaced: Number of points that another value replaced, by source name and run. Filled in by `curves`.
    """

    def __init__(
        self,
        where_of: Callable[[CurveRun], str],
        *,
        sources: Sequence[str],
        last_counts: Sequence[bool],
        always_last: bool = False,
    ) -> None:
        self._file_names_of, self._sources = where_of, sources
        self._last_counts = np.asarray(last_counts, bool)
        self._always_last = always_last
        self.replaced = Counter[tuple[str, CurveRun]]()
        self._folder = tempfile.TemporaryDirectory(prefix="lobench-import-")
        self._files: dict[int, IO[bytes]] = {}
        self._runs: dict[CurveRun, int] = {}
        self._metrics: dict[str, int] = {}
        self._metrics_of_runs: dict[int, set[int]] = {}
        self._last_steps = np.zeros(0, np.int64)
        self.num_points = 0

    def close(self) -> None:
        """Removes the files."""
        for file in self._files.values():
            file.close()
        self._folder.cleanup()

    @property
    def runs(self) -> tuple[CurveRun, ...]:
        """Runs so far, in the order of their first points."""
        return tuple(self._runs)

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(self._metrics)

    def metrics_of(self, case: str) -> tuple[str, ...]:
        """Returns the names of all metrics that any run of a case has."""
        names = self.metrics
        metrics_of_runs = (
            self._metrics_of_runs.get(number, set()) for run, number in self._runs.items() if run.case == case
        )
        return tuple(names[metric_index] for metric_index in sorted(set[int]().union(*metrics_of_runs)))

    def last_step(self, case: str) -> int:
        """Returns the last step of any run of a case."""
        return max(int(self._last_steps[number]) for run, number in self._runs.items() if run.case == case)

    def add(self, points: Points, source: int) -> None:
        """Adds points of a source, given by its number."""
        runs = np.asarray([self._runs.setdefault(run, len(self._runs)) for run in points.runs], np.int32)
        metrics = np.asarray([self._metrics.setdefault(name, len(self._metrics)) for name in points.metrics], np.int32)
        rows = np.empty(len(points.step), _ROW)
        if not len(rows):
            return
        if (points.step < 0).any():
            row_index = int((points.step < 0).argmax())
            run = points.runs[points.run[row_index]]
            got = f"{run}, metric {points.metrics[points.metric[row_index]]!r}: {points.step[row_index]}"
            raise UsageError("a step is below 0", where=self._file_names_of(run), got=got, expected="0 or more")
        rows["run"], rows["metric"] = runs[points.run], metrics[points.metric]
        rows["step"], rows["value"], rows["line"] = points.step, points.value, points.line
        rows["source"] = source
        self.num_points += len(rows)
        for run_and_metric in np.unique(rows["run"].astype(np.int64) << 32 | rows["metric"]).tolist():
            self._metrics_of_runs.setdefault(run_and_metric >> 32, set()).add(run_and_metric & 0xFFFFFFFF)
        self._last_steps = np.append(self._last_steps, np.zeros(len(self._runs) - len(self._last_steps), np.int64))
        np.maximum.at(self._last_steps, rows["run"], rows["step"])
        buckets = rows["run"] % _BUCKETS
        for bucket_number in np.unique(buckets).tolist():
            self._bucket_file(bucket_number).write(rows[buckets == bucket_number].tobytes())

    def _bucket_file(self, bucket_number: int) -> IO[bytes]:
        if bucket_number not in self._files:
            self._files[bucket_number] = (Path(self._folder.name) / str(bucket_number)).open("w+b")
        return self._files[bucket_number]

    def curves(self) -> Iterator[tuple[CurveRun, Mapping[str, Curve]]]:
        """Yields each run with its metrics.

        Raises:
          UsageError: A run has a step twice.
        """
        runs, metrics = self.runs, self.metrics
        for file in self._files.values():
            file.seek(0)
            unsorted_rows = np.frombuffer(file.read(), _ROW)
            rows = unsorted_rows
            rows = rows[np.lexsort((rows["step"], rows["metric"], rows["run"]))]  # stable sort
            if not len(rows):
                continue
            is_curve_end = (np.diff(rows["run"]) != 0) | (np.diff(rows["metric"]) != 0)
            is_last = np.append(is_curve_end | (np.diff(rows["step"]) != 0), True)
            if not is_last.all():
                self._check_duplicates(rows, is_last, unsorted_rows)
                is_last_point = is_last[:-1]
                rows, is_curve_end = rows[is_last], is_curve_end[is_last_point]
            steps = rows["step"].copy()
            values = rows["value"].copy()
            curve_ends = [*(np.flatnonzero(is_curve_end) + 1).tolist(), len(rows)]
            starts = [0, *curve_ends[:-1]]
            curve_bounds = zip(
                rows["run"][starts].tolist(), rows["metric"][starts].tolist(), starts, curve_ends, strict=True
            )
            for run, curves_of_run in itertools.groupby(curve_bounds, key=operator.itemgetter(0)):
                yield (
                    runs[run],
                    {
                        metrics[metric_number]: Curve(steps=steps[start:end], values=values[start:end])
                        for _, metric_number, start, end in curves_of_run
                    },
                )

    def _check_duplicates(
        self, rows: NDArray[np.void], is_last: NDArray[np.bool_], unsorted_rows: NDArray[np.void]
    ) -> None:
        """Counts the points that a later point with another value replaces.

        Raises:
          UsageError: A run has a step twice, and the last value does not count.
        """
        earlier_points = rows[:-1][~is_last[:-1]]
        later_points = rows[1:][~is_last[:-1]]
        is_within = earlier_points["source"] == later_points["source"]
        is_equal = (earlier_points["value"] == later_points["value"]) | (
            np.isnan(earlier_points["value"]) & np.isnan(later_points["value"])
        )
        is_allowed = self._always_last | np.where(is_within, self._last_counts[later_points["source"]], is_equal)
        if not is_allowed.all():
            position = int(np.argmin(is_allowed))
            raise self._duplicate_error(earlier_points[position], later_points[position], unsorted_rows)
        for run, source in later_points[["run", "source"]][~is_equal].tolist():
            self.replaced[self._sources[source], self.runs[run]] += 1

    def _duplicate_error(
        self, first_point: np.void, second_point: np.void, unsorted_rows: NDArray[np.void]
    ) -> UsageError:
        run = self.runs[first_point["run"]]
        metric = self.metrics[first_point["metric"]]
        points = unsorted_rows[
            (unsorted_rows["run"] == first_point["run"]) & (unsorted_rows["metric"] == first_point["metric"])
        ]
        steps = points["step"]
        restart_rows = np.flatnonzero(steps[1:] <= steps[:-1]) + 1  # rows whose step is not larger than the one before
        num_restarts = int((steps[restart_rows] == steps[0]).sum())
        is_resumed = not num_restarts and len(restart_rows) == 1 and steps[-1] >= steps[: restart_rows[0]].max()
        are_in_files = first_point["source"] != second_point["source"]
        where = self._file_names_of(run)
        if are_in_files:
            where = f"{self._sources[first_point['source']]} and {self._sources[second_point['source']]}"
        elif first_point["line"]:
            where = f"{self._sources[first_point['source']]}, lines {first_point['line']} and {second_point['line']}"
        last_counts = "--last-counts (Method.last_counts) takes the last value, for example after a resumed training"
        column_advice = (
            "if a column distinguishes them, --column seed=COLUMN (repetitions) or --column method=COLUMN (settings)"
        )
        if are_in_files:
            advice = (
                "these are two runs: name their common folder, or take method and seed from the paths with --pattern"
            )
            advice += f"; {last_counts}" if is_resumed else ""
        elif is_resumed:
            advice = f"{last_counts}; {column_advice}"
        elif num_restarts:
            advice = (
                f"the file has {num_restarts + 1} runs that begin at step {steps[0]}: {column_advice}; "
                "a file for each run"
            )
        else:
            advice = column_advice
        return UsageError(
            "a point is there twice",
            where=where,
            got=f"{run}, metric {metric!r}, step {first_point['step']}: {first_point['value']:g} "
            f"and {second_point['value']:g}",
            next_step=advice,
        )
