"""trackio's format: a SQLite database for each project, `PROJECT.db`, with a row for each call of `log`.

metrics   run_id, run_name, step, metrics (JSON: {"val/loss": 0.5, "grad": "NaN"})
configs   run_id, config (JSON)
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lobench.core.errors import UsageError
from lobench.core.number_checks import is_number
from lobench.core.wording import convert_errors
from lobench.tools.curve_import.file_kind import FileKind, read_database
from lobench.tools.curve_import.points import CurveRequest, LoggedRun, Points, named_runs

__all__ = ["database", "is_trackio"]

_SPECIAL = {"NaN", "Infinity", "-Infinity"}


def is_trackio(path: Path) -> bool:
    """Returns whether a SQLite file is a database of trackio."""
    with contextlib.suppress(sqlite3.Error), read_database(path) as database:
        columns = {name for (name,) in database.execute("SELECT name FROM pragma_table_info('metrics')")}
        return {"run_id", "run_name", "step", "metrics"} <= columns
    return False


def read_trackio(path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the metrics of trackio's runs. If a step is logged twice the later row counts.

    Runs with the same name are seeds of one method; see `named_runs`.

    Raises:
      UsageError: The database is not trackio's.
    """
    with (
        convert_errors((sqlite3.Error, ValueError), UsageError, "not a database of trackio", where=path),
        read_database(path) as database,
    ):
        configs = dict(database.execute("SELECT run_id, config FROM configs"))
        run_rows = database.execute("SELECT run_id, MAX(run_name) FROM metrics GROUP BY run_id ORDER BY MIN(id)")
        runs = [LoggedRun(id, name, _config_facts(configs.get(id, "{}"))) for id, name in run_rows]
        for id, run in named_runs(runs, request, notes):
            curves: dict[str, list[tuple[int, float, int]]] = {}
            rows = database.execute("SELECT id, step, metrics FROM metrics WHERE run_id = ? ORDER BY step, id", (id,))
            for number, step, text in rows:
                for metric, value in json.loads(text).items():
                    if (not request.metrics or metric in request.metrics) and _is_number(value):
                        curves.setdefault(metric, []).append((step, float(value), number))
            for metric in sorted(curves):
                steps, values, row_ids = (np.asarray(column) for column in zip(*curves[metric], strict=True))
                yield Points.of_curve(run, metric, steps, values, row_ids)


def _is_number(value: object) -> bool:
    return value in _SPECIAL if isinstance(value, str) else is_number(value)


def _config_facts(text: str | bytes) -> dict[str, str]:
    """Returns the values of a configuration as `config.NAME`, without the values that trackio adds."""
    config = json.loads(text)
    return {f"config.{name}": _text(value) for name, value in config.items() if not name.startswith("_")}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def database() -> FileKind:
    return FileKind(read=read_trackio, last_counts=True, has_facts=True)
