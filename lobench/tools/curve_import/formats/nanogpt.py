"""modded-nanogpt's log format: `step:125/3250 val_loss:4.60783 train_time:22.151s step_avg:177.2ms`.

Each `name:value` between step and time is a metric, as is each `..._loss:value` after it.
A log begins with the source of its program, and may contain several runs: a new run begins if the step does not grow.
Parts that repeat rows of the previous run, such as a reprinted tail of the log, are not runs.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from lobench.core.errors import UsageError
from lobench.core.wording import convert_errors, counted
from lobench.engine.csv_files import READ_ERRORS, open_text
from lobench.tools.curve_import.file_kind import FileKind
from lobench.tools.curve_import.formats.folders import files_below
from lobench.tools.curve_import.points import CurveRequest, CurveRun, Points, bare_name, named_run

__all__ = ["is_log", "log_files", "logs"]

_NUMBER = r"[-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf)"
_PAIR = re.compile(rf"([A-Za-z_][\w./-]*):({_NUMBER})(?=\s|$)")
_ROW = re.compile(rf"step:(\d+)(?:/\d+)?((?: [A-Za-z_][\w./-]*:{_NUMBER})+) train_time:(\S+)(.*)")
_SUFFIXES = (".txt", ".log", ".stdout", ".out")
_NUM_SNIFFED_LINES = 20_000  # lines

_Row = tuple[int, str, str, str]  # step, metrics, seconds, rest of the line


def is_log(path: Path) -> bool:
    """Returns whether one of a file's first lines is a row of the format."""
    try:
        with open_text(path) as file:
            return any(
                line.startswith("step:") and _ROW.match(line) for line in itertools.islice(file, _NUM_SNIFFED_LINES)
            )
    except (*READ_ERRORS, UsageError):
        return False


def log_files(folder: Path) -> list[Path]:
    """Returns the logs in and below a folder."""
    return [path for path in files_below(folder) if path.suffix in _SUFFIXES and is_log(path)]


def read_logs(log_path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the curves of a log, or of a folder of them.

    The logs in and below a folder are seeds of one method, which has the folder's name. If all of them are in
    subfolders, each subfolder is a method: `sgd/0.txt` and `adam/seed_0/log.txt` are runs of `sgd` and `adam`.

    Raises:
      UsageError: A file cannot be read.
    """
    files = log_files(log_path) if log_path.is_dir() else [log_path]
    base_name = request.name or (log_path.name if log_path.is_dir() else bare_name(log_path))
    are_in_subfolders = log_path.is_dir() and all(path.parent != log_path for path in files)
    logs_by_method: dict[str, set[Path]] = {}
    paths_and_rows = [(path, rows) for path in files for rows in _read_runs(path)]
    repeated_indices = _repeated_runs([rows for _, rows in paths_and_rows])
    num_runs = Counter[Path]()
    runs_by_path: dict[Path, CurveRun] = {}
    for index, (path, rows) in enumerate(paths_and_rows):
        if index in repeated_indices:
            continue
        if path not in runs_by_path:
            subfolder = path.parent.relative_to(log_path).as_posix() if are_in_subfolders else "."
            name = base_name if subfolder == "." else f"{request.prefix}{subfolder}"
            request_of_log = _request_of_log(path, log_path, name, request)
            is_seed = subfolder.partition("_")[0].partition("-")[0].startswith("seed")
            runs_by_path[path] = named_run(
                f"{base_name}/{subfolder}" if is_seed else name, request_of_log, is_file=not log_path.is_dir()
            )
        run, number = runs_by_path[path], num_runs[path]
        num_runs[path] += 1
        logs_by_method.setdefault(run.method, set()).add(path)
        inner_path = path.relative_to(log_path) if log_path.is_dir() else Path(path.name)
        label = (inner_path.parent / bare_name(inner_path)).as_posix()
        seed = f"{label} {number}" if request.method or log_path.is_dir() else str(number)
        if request.seed or request.pattern:
            seed = f"{run.seed} run {number + 1}" if number else run.seed
        yield from _run_points(CurveRun(run.method, run.case, seed, f"{path} {number}"), rows, request)
    for path, count in Counter(paths_and_rows[index][0] for index in repeated_indices).items():
        notes.append(f"{path}: left out {counted(count, 'part')} with rows of another run")
    if log_path.is_dir() and not (request.method or request.pattern or request.seed):
        for method, paths in logs_by_method.items():
            if len(paths) > 1:
                folders = len({path.parent for path in paths})
                folders_text = f" in {folders} folders" if folders > 1 else ""
                notes.append(
                    f"{log_path}: {len(paths)} logs{folders_text} are seeds of one method, {method!r}; name the files "
                    "if they are methods"
                )


def _repeated_runs(runs: Sequence[list[_Row]]) -> set[int]:
    """Returns the indices of runs whose rows, including times, are all in another run.

    The first of equal runs is kept.
    """
    row_sets = [frozenset(run) for run in runs]
    indices_by_row: dict[_Row, list[int]] = {}
    for index, rows_of_run in enumerate(row_sets):
        for row in rows_of_run:
            indices_by_row.setdefault(row, []).append(index)
    return {
        index
        for index, row in enumerate(row_sets)
        if any(
            row <= row_sets[other_index] and (row != row_sets[other_index] or other_index < index)
            for other_index in indices_by_row[runs[index][0]]
            if other_index != index
        )
    }


def _request_of_log(path: Path, folder: Path, name: str, request: CurveRequest) -> CurveRequest:
    """Returns the request for one log in a folder, with spellings of its path that `--pattern` is matched with."""
    if not request.pattern or not folder.is_dir():
        return request
    inner_path = path.relative_to(folder)
    spellings = [inner_path.as_posix(), (inner_path.parent / bare_name(inner_path)).as_posix(), bare_name(inner_path)]
    spellings += [f"{path_start}/{inner_path.as_posix()}" for path_start in request.paths] + [name]
    return replace(request, paths=spellings)


def _run_points(run: CurveRun, rows: list[_Row], request: CurveRequest) -> Iterator[Points]:
    curves: dict[str, list[tuple[int, float]]] = {}
    for step, pairs, _, remainder in rows:
        metrics = _PAIR.findall(pairs) + [pair for pair in _PAIR.findall(remainder) if pair[0].endswith("_loss")]
        for name, value in metrics:
            if not request.metrics or name in request.metrics:
                curves.setdefault(name, []).append((step, float(value)))
    return Points.of_curves(run, curves)


def _read_runs(path: Path) -> Iterator[list[_Row]]:
    """Yields the rows of each run of a log. A new run begins if the step does not grow."""
    rows: list[_Row] = []
    step_metrics = set[str]()  # metrics of the last step, since training and validation may log separate lines
    with convert_errors(READ_ERRORS, UsageError, "cannot read this log", where=path), open_text(path) as file:
        for line in file:
            if not line.startswith("step:") or (match := _ROW.match(line.rstrip())) is None:
                continue
            row = (int(match[1]), match[2], match[3], match[4].strip())
            metrics_of_row = {name for name, _ in _PAIR.findall(row[1])}
            if rows and (row[0] < rows[-1][0] or (row[0] == rows[-1][0] and metrics_of_row & step_metrics)):
                yield rows
                rows = []
                step_metrics = set()
            step_metrics = metrics_of_row | (step_metrics if rows and row[0] == rows[-1][0] else set())
            rows.append(row)
    if rows:
        yield rows


def logs() -> FileKind:
    return FileKind(read=read_logs, files=log_files, primary="val/loss", may_repeat_runs=True)
