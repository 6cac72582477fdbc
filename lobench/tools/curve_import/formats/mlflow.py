"""MLflow format: the folder of its file store, and its SQLite file.

<experiment>/<run>/meta.yaml               run_name, lifecycle_stage
<experiment>/<run>/metrics/val/loss        one point per line: TIME VALUE STEP, then possibly a data set's name
<experiment>/<run>/params/seed             one parameter per file
"""

from __future__ import annotations

import math
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from lobench.core.errors import UsageError
from lobench.core.wording import convert_errors
from lobench.engine.csv_files import open_text
from lobench.tools.curve_import.file_kind import FileKind, read_database
from lobench.tools.curve_import.formats.folders import files_below
from lobench.tools.curve_import.points import CurveRequest, CurveRun, LoggedRun, Points, named_runs

__all__ = ["is_database", "mlflow_files", "store"]

_MAGIC = b"SQLite format 3\0"


def is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def mlflow_files(store_path: Path) -> list[Path]:
    """Returns the files of all runs in or below a folder of the file store, or the database itself."""
    if store_path.is_file():
        return [store_path]
    return sorted(path for run in _run_folders(store_path) for path in run.rglob("*") if path.is_file())


def read_mlflow(store_path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the metrics of MLflow's runs. If a step is logged twice the later time counts, as in MLflow.

    Runs with the same name are seeds of one method; see `named_runs`.

    Raises:
      UsageError: A line is not `TIME VALUE STEP`, or the database is not MLflow's.
    """
    if store_path.is_file():
        yield from _database_points(store_path, request, notes)
        return
    folders = {folder.name: folder for folder in _run_folders(store_path)}
    for id, run in named_runs([_logged_run(folder) for folder in folders.values()], request, notes):
        metrics = folders[id] / "metrics"  # no files: the run was created and never logged
        for file in sorted(path for path in metrics.rglob("*") if path.is_file()):
            metric = file.relative_to(metrics).as_posix()
            if not request.metrics or metric in request.metrics:
                yield _metric_points(run, metric, _metric_lines(file))


def _run_folders(root: Path) -> list[Path]:
    """Returns the folders of runs, without deleted runs and logged models, which have metrics too."""
    files = [path for path in files_below(root) if path.name == "meta.yaml"]
    run_folders = [path.parent for path in files if (path.parent / "metrics").is_dir()]
    return [
        folder
        for folder in run_folders
        if _meta_value(folder, "lifecycle_stage") != "deleted"
        and not _meta_value(folder, "model_id")
        and ".trash" not in folder.parts
    ]


def _logged_run(folder: Path) -> LoggedRun:
    facts = {
        f"{kind}.{path.relative_to(folder / kind).as_posix()}": path.read_text("utf-8", "replace").strip()
        for kind in ("params", "tags")
        for path in sorted((folder / kind).rglob("*"))
        if path.is_file()
    }
    name = facts.pop("tags.mlflow.runName", "") or _meta_value(folder, "run_name")
    if (folder.parent / "meta.yaml").is_file() and (experiment := _meta_value(folder.parent, "name")):
        facts["experiment"] = experiment
    return LoggedRun(folder.name, name or folder.name, facts)


def _metric_lines(file: Path) -> Iterator[tuple[int, float, int]]:
    """Yields time, value and step of each line."""
    with open_text(file) as lines:
        for number, line in enumerate(lines, 1):
            fields = line.split()
            if not fields:
                continue
            try:
                yield int(fields[0]), float(fields[1]), int(fields[2]) if len(fields) > 2 else 0
            except (ValueError, IndexError) as error:
                location = f"{file}, line {number}"
                got = repr(line.strip()[:60])
                raise UsageError(
                    "not a metric of MLflow", where=location, got=got, expected="TIME VALUE STEP"
                ) from error


def _metric_points(run: CurveRun, metric: str, lines: Iterable[tuple[int, float, int]]) -> Points:
    points = list(lines)
    times, values, steps = (np.asarray([point[column] for point in points]) for column in range(3))
    order = np.lexsort((values, times, steps))
    return Points.of_curve(run, metric, steps[order], values[order], order + 1)


def _database_points(database_path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    with (
        convert_errors(sqlite3.Error, UsageError, "not a database of MLflow", where=database_path),
        read_database(database_path) as database,
    ):
        run_rows = database.execute(
            "SELECT run_uuid, runs.name, experiments.name FROM runs LEFT JOIN experiments USING (experiment_id)"
            " WHERE runs.lifecycle_stage = 'active' ORDER BY start_time, run_uuid"
        ).fetchall()
        facts: dict[str, dict[str, str]] = {id: {"experiment": experiment or ""} for id, _, experiment in run_rows}
        for kind in ("params", "tags"):
            for id, key, value in database.execute(f"SELECT run_uuid, key, value FROM {kind}"):
                facts.setdefault(id, {})[f"{kind}.{key}"] = str(value)
        runs = [LoggedRun(id, name or id, facts[id]) for id, name, _ in run_rows]
        for id, run in named_runs(runs, request, notes):
            keys = database.execute("SELECT DISTINCT key FROM metrics WHERE run_uuid = ? ORDER BY key", (id,))
            for (metric,) in keys.fetchall():
                if not request.metrics or metric in request.metrics:
                    query = "SELECT timestamp, value, is_nan, step FROM metrics WHERE run_uuid = ? AND key = ?"
                    metric_rows = database.execute(query, (id, metric))
                    yield _metric_points(
                        run,
                        metric,
                        [(timestamp, _logged_number(value, nan), step) for timestamp, value, nan, step in metric_rows],
                    )


def _logged_number(value: float, is_nan: bool) -> float:
    """Returns the logged number. MLflow's database stores infinity as the largest float."""
    if is_nan:
        return math.nan
    return math.copysign(math.inf, value) if abs(value) == sys.float_info.max else value


def _meta_value(folder: Path, key: str) -> str:
    """Returns a plain value of a run's meta.yaml; "" if it is missing."""
    for line in (folder / "meta.yaml").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip().strip("'\"")
    return ""


def store() -> FileKind:
    return FileKind(read=read_mlflow, files=mlflow_files, last_counts=True, has_facts=True)
