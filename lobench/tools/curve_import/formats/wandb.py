"""W&B formats: the csv of a chart, `run.history()`, and its own files.

"Step","adam-1 - val/loss","adam-1 - val/loss__MIN","adam-1 - val/loss__MAX"      a chart: a column for each run
,_step,_runtime,_timestamp,val/loss                                               the API: one run, or a run_id
wandb/offline-run-20261122_183036-abc123/run-abc123.wandb                         W&B's own file of a run
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from lobench.core.errors import UsageError
from lobench.core.wording import counted, shortened_list
from lobench.tools.curve_import.file_kind import FileKind
from lobench.tools.curve_import.formats.folders import files_below
from lobench.tools.curve_import.formats.tables import column_names, read_chunks
from lobench.tools.curve_import.formats.wandb_log import WandbEnd, wandb_rows, wandb_run
from lobench.tools.curve_import.points import (
    CurveRequest,
    CurveRun,
    LoggedRun,
    NotCurves,
    Points,
    bare_name,
    named_run,
    named_runs,
    step_numbers,
)

__all__ = ["chart", "history", "is_chart", "is_history", "is_runs_table", "refuse_runs_table", "run", "run_files"]

_CHUNK_POINTS = 100_000  # points
_MOST_SHOWN = 4  # names of a note
_BOUND_SUFFIXES = ("__MIN", "__MAX")
_RUN_COLUMNS = ("run_id", "run_name", "run", "name")


def is_chart(names: Sequence[str]) -> bool:
    return len(names) > 1 and all(" - " in name for name in names[1:])


def is_history(names: Sequence[str]) -> bool:
    return "_step" in names


def is_runs_table(names: Sequence[str]) -> bool:
    return len({"Name", "State", "Created", "Runtime", "User"} & set(names)) >= 4


def refuse_runs_table(path: Path) -> None:
    """Raises NotCurves, because the table has a row for each run and no curves."""
    raise NotCurves(
        "this is W&B's table of runs, which has a row for each run and no history",
        where=str(path),
        expected="the csv of a chart (its menu, Export, CSV), or `run.history(samples=10**9).to_csv()`",
    )


def read_chart(path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the points of a chart's csv.

    Raises:
      UsageError: The axis of the chart is not a step, or a value is not a number.
    """
    axis, *other_columns = column_names(path)
    if "time" in axis.lower():
        raise UsageError(
            "the chart's axis is time",
            where=str(path),
            got=repr(axis),
            next_step="export it over Step, with no grouping by time",
        )
    columns = [
        name for name in other_columns if not name.endswith(_BOUND_SUFFIXES) and name.rpartition(" - ")[2] != "_step"
    ]
    title_and_metric = {name: name.rpartition(" - ")[::2] for name in columns}
    requested_columns = {
        name for name in columns if not request.metrics or title_and_metric[name][1] in request.metrics
    }
    is_bucketed = False
    for chunk in read_chunks(path, [axis, *other_columns]):
        steps = chunk.steps(axis)
        for name in sorted(requested_columns, key=columns.index):
            title, metric = title_and_metric[name]
            run = named_run(f"{request.prefix}{title.removeprefix('Group: ')}", request)
            values = chunk.values(name)
            has_value = chunk.has_value(name)
            low, high = (chunk.frame.get(name + bound) for bound in _BOUND_SUFFIXES)
            is_bucketed |= low is not None and high is not None and bool((low < high).any())
            yield Points.of_curve(run, metric, steps[has_value], values[has_value], chunk.lines[has_value])
    if is_bucketed:
        notes.append(
            f"{path}: the chart has means of several points or runs (its MIN and MAX differ), not the logged values"
        )


def read_history(path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the points of `run.history()` or `Api().runs(...).histories()`, saved as csv or parquet.

    Raises:
      UsageError: The run has none of the requested metrics, or a value is not a number.
    """
    names = [name for name in column_names(path) if name]
    run_column = next((name for name in (request.columns.get("method", ""), *_RUN_COLUMNS) if name in names), "")
    axis = request.columns.get("step", "_step")
    metric_columns = [name for name in names if not name.startswith("_") and name not in (run_column, axis)]
    columns = [name for name in metric_columns if not request.metrics or name in request.metrics]
    if not columns:
        expected = (
            f"one of {', '.join(request.metrics)}" if request.metrics else "a column for each metric beside _step"
        )
        raise NotCurves("the history has no such metric", where=str(path), got=", ".join(names), expected=expected)
    text_columns = [run_column] if run_column else []
    base_name = request.name or bare_name(path)
    for chunk in read_chunks(path, [*text_columns, axis, *columns], texts=text_columns):
        steps = chunk.steps(axis)
        groups = chunk.frame[run_column].astype(str) if run_column else None
        for name in columns:
            values = chunk.values(name)
            has_value = chunk.has_value(name)
            for title in [""] if groups is None else groups.unique():
                is_of_run = has_value if groups is None else has_value & (groups == title).to_numpy(bool)
                run = named_run(f"{request.prefix}{title}" if title else base_name, request, is_file=not title)
                yield Points.of_curve(run, name, steps[is_of_run], values[is_of_run], chunk.lines[is_of_run])


def run_files(root: Path) -> list[Path]:
    """Returns W&B's own files of runs in or below a folder, in the order of writing; or the file itself."""
    if root.is_file():
        return [root]
    wandb_files = [path for path in files_below(root) if path.suffix == ".wandb"]
    return sorted(wandb_files, key=lambda path: (path.parent.name, path))


def read_runs(root: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the points of W&B's own files. Several files of a resumed run are joined.

    In a folder, files that are not W&B's, or end before the name of their run, are left out.

    Raises:
      UsageError: wandb is not installed, no file can be read, or a step is not a whole number.
    """
    axis = request.columns.get("step", "_step")
    files: dict[Path, LoggedRun] = {}
    errors: list[UsageError] = []
    for file in run_files(root):
        try:
            files[file] = wandb_run(file)
        except UsageError as error:
            errors.append(error)
    if errors and not files:
        raise errors[0]
    if errors:
        left_out_text = shortened_list(list(map(str, errors)), _MOST_SHOWN)
        notes.append(f"{counted(len(errors), 'file')} of {len(errors) + len(files):,} left out: {left_out_text}")
    runs = dict(named_runs(list({file.id: file for file in files.values()}.values()), request, notes))
    runs_without_values = list[str]()
    cut_files = list[str]()
    for file, logged_run in files.items():
        if logged_run.id not in runs:
            continue
        values_by_metric: dict[str, list[tuple[float, float]]] = {}
        num_points, num_rows, has_values = 0, 0, False
        file_end = WandbEnd()
        for row, _ in wandb_rows(file, end=file_end):
            num_rows += 1
            for name in (name for name in row if name not in (axis, "") and not name.startswith("_")):
                if axis in row and (not request.metrics or name in request.metrics):
                    values_by_metric.setdefault(name, []).append((row[axis], row[name]))
                    num_points += 1
            if num_points >= _CHUNK_POINTS:
                yield from _row_points(runs[logged_run.id], values_by_metric, file, axis)
                values_by_metric, num_points, has_values = {}, 0, True
        if not values_by_metric and not has_values:
            runs_without_values.append(f"{logged_run.name!r} ({logged_run.id})")
        if not file_end.is_whole:
            cut_files.append(f"{file}: {counted(num_rows, 'row')}")
        yield from _row_points(runs[logged_run.id], values_by_metric, file, axis)
    if runs_without_values and len(runs_without_values) < len(files):
        notes.append(
            f"{counted(len(runs_without_values), 'run')} without values left out: "
            f"{shortened_list(runs_without_values, _MOST_SHOWN)}"
        )
    if cut_files:
        verb = "ends" if len(cut_files) == 1 else "end"
        notes.append(
            f"{counted(len(cut_files), 'file')} {verb} before the run did (it was killed or still runs, or the file is "
            f"cut off or damaged), and only the rows before are taken: {shortened_list(cut_files, _MOST_SHOWN)}"
        )


def _row_points(
    run: CurveRun, rows: Mapping[str, list[tuple[float, float]]], file: Path, axis: str
) -> Iterator[Points]:
    for name, points in rows.items():
        row_steps, values = (np.asarray(column, np.float64) for column in zip(*points, strict=True))
        yield Points.of_curve(
            run, name, step_numbers(row_steps, np.zeros(len(row_steps), np.int64), str(file), axis), values
        )


def chart() -> FileKind:
    return FileKind(read=read_chart, last_counts=True)


def history() -> FileKind:
    return FileKind(read=read_history, last_counts=True, columns=("method", "step"))


def run() -> FileKind:
    return FileKind(read=read_runs, files=run_files, last_counts=True, columns=("step",), has_facts=True)
