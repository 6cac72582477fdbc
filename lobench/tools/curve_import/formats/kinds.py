"""Formats that are declared, and the detection of a file's format by its content or name."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lobench.core.case import CaseInfo
from lobench.core.containment import contain_plugins
from lobench.core.errors import LobenchError, PluginFailure, UsageError, suggestion
from lobench.core.metric import Direction
from lobench.core.wording import convert_errors, describe_value, headline
from lobench.plugins import GuardedPlugin, Registered, load_plugins
from lobench.tools.curve_import.file_kind import FileKind
from lobench.tools.curve_import.formats import (
    builtin,
    foreign,
    mlflow,
    nanogpt,
    tables,
    tensorboard,
    trackio,
    wandb,
    wandb_log,
)
from lobench.tools.curve_import.formats.folders import files_below
from lobench.tools.curve_import.formats.item_files import item_kind
from lobench.tools.curve_import.formats.json_files import is_json, is_records
from lobench.tools.curve_import.points import CurveRequest, CurveRun, NotCurves, Points, recording_request

__all__ = ["content_sha256", "detect_format", "formats_by_name", "table_files", "unknown_format_error"]

_HOOK = "lobench_import_formats"
_RUN_OPTIONS = ("method", "case", "seed", "pattern")  # options that a format should not ignore silently
_TABLE_NAME = re.compile(r"\.(?:csv|tsv|jsonl|ndjson|json|parquet|eval)(?:\.gz)?$", re.IGNORECASE)


@functools.cache
def formats_by_name() -> dict[str, FileKind]:
    """Returns all formats by name, those of plugins first.

    If a plugin declares the name of a shipped format, the plugin's is left out, and named on standard error.
    """
    builtin_registrations = {
        declaration.name: Registered(declaration=declaration, plugin=builtin.__name__, module=builtin)
        for declaration in builtin.lobench_import_formats()
    }
    manager = load_plugins()
    declarations = manager.usable_declarations(_HOOK)
    for broken_plugin in manager.broken:
        if broken_plugin.distribution == _HOOK:
            print(f"lobench: {broken_plugin.cause}; going on", file=sys.stderr)
    plugin_formats = {
        name: _guarded_format(name, registration)
        for name, registration in declarations.items()
        if name not in builtin_registrations
    }
    builtin_formats = {
        name: dataclasses.replace(registration.make(where="lobench import"), about=registration.declaration.summary)
        for name, registration in builtin_registrations.items()
    }
    return plugin_formats | builtin_formats


def _guarded_format(name: str, registration: Registered) -> FileKind:
    """Returns the format of a plugin, with guarded calls. A format that cannot be made recognises nothing."""
    where = f"plugin {registration.plugin!r}, hook {_HOOK}, {name!r}"

    def plugin_failure(problem: str, got: str) -> PluginFailure:
        return PluginFailure(problem, where=where, got=got)

    try:
        kind = registration.make(where="lobench import")
        if not isinstance(kind, FileKind):
            raise plugin_failure("the factory returned something else", describe_value(kind))
    except LobenchError as error:
        format_error = error
        print(f"lobench: {format_error}; going on", file=sys.stderr)

        def refuse(path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
            raise format_error

        return FileKind(about=f"cannot be used: {format_error}", read=refuse)
    summary = kind.about or registration.declaration.summary
    plugin_format = dataclasses.replace(kind, about=summary if isinstance(summary, str) else describe_value(summary))

    def read(path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
        used_options: set[str] = set()
        try:
            plugin_notes: list[str] = []
            for points in _read_contained(
                plugin_format.read, path, recording_request(request, used_options), plugin_notes
            ):
                if not isinstance(points, Points):
                    raise plugin_failure("read() yielded something else", describe_value(points))
                _check_points(points)
                yield points
            notes += map(str, plugin_notes)
        except (LobenchError, OSError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            raise plugin_failure("read() failed", headline(error)) from error
        ignored_options = [option for option in _RUN_OPTIONS if getattr(request, option) and option not in used_options]
        for option in ignored_options:
            note = f"the format {name!r} ignores --{option}, as far as it was read: {path}"
            if note not in notes:
                notes.append(note)

    result_checks: dict[str, Callable[[Any], bool]] = {
        "recognises": lambda result: True,
        "cases": lambda result: _is_mapping(result, CaseInfo),
        "directions": lambda result: _is_mapping(result, Direction),
        "files": _are_paths,
    }
    guarded_plugin = GuardedPlugin(
        plugin_format, where, result_checks, {"recognises": False}, PluginFailure, (OSError,)
    )
    return dataclasses.replace(
        plugin_format,
        recognises=guarded_plugin.recognises,
        read=read,
        cases=guarded_plugin.cases,
        directions=guarded_plugin.directions,
        files=None if plugin_format.files is None else guarded_plugin.files,
    )


def _read_contained(read_points: Callable[..., Iterator[Points]], *arguments: Any) -> Iterator[Points]:
    """Yields the points of a plugin's reader. Attempts of the reader to exit the process become errors."""

    def call_contained(call: Callable[[], Any]) -> Any:
        try:
            with contain_plugins():
                return call()
        except GeneratorExit as error:
            raise RuntimeError("it raised GeneratorExit") from error

    points = call_contained(lambda: iter(read_points(*arguments)))
    end_marker = object()
    while (points_or_end := call_contained(lambda: next(points, end_marker))) is not end_marker:
        yield points_or_end


def _check_points(points: Points) -> None:
    """Raises TypeError or ValueError if a part of points has another type or length."""
    is_named = all(isinstance(metric, str) for metric in points.metrics)
    if not is_named or not all(isinstance(run, CurveRun) for run in points.runs):
        raise TypeError("runs are CurveRun, and metrics are texts")
    columns = {name: np.asarray(getattr(points, name)) for name in ("run", "metric", "step", "value", "line")}
    if len({column.shape for column in columns.values()}) > 1 or columns["step"].ndim != 1:
        raise ValueError(f"columns of points have shapes {', '.join(str(column.shape) for column in columns.values())}")
    if not all(column.dtype.kind in "iu" for name, column in columns.items() if name != "value"):
        raise TypeError("run, metric, step and line are whole numbers")
    if columns["value"].dtype.kind != "f":
        raise TypeError("values are floats")
    for name, size in (("run", len(points.runs)), ("metric", len(points.metrics))):
        if columns[name].size and not 0 <= columns[name].min() <= columns[name].max() < size:
            raise ValueError(f"{name} has numbers outside of 0 to {size - 1}")


def _is_mapping(value: object, kind: type) -> bool:
    return isinstance(value, Mapping) and all(isinstance(entry, kind) for entry in value.values())


def _are_paths(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(path, Path) for path in value)


def detect_format(path: Path, format_name: str = "") -> str:
    """Returns the name of a file's or folder's format; "" for a folder whose files are read one by one.

    Raises:
      UsageError: The file does not exist, its format is unknown, or `format_name` is not a format.
    """
    formats = formats_by_name()
    if format_name and format_name not in formats:
        next_step = "tables in csv are 'tidy'" if format_name == "csv" else suggestion(format_name, formats)
        raise UsageError("--kind", got=repr(format_name), expected=", ".join(formats), next_step=next_step)
    if not path.exists():
        raise UsageError("no such file", where=str(path))
    if not path.is_file() and not path.is_dir():  # it would have to be read twice, and may never end
        raise UsageError("this is neither a file nor a folder", where=str(path), next_step="write a pipe to a file")
    if format_name:
        return "" if path.is_dir() and formats[format_name].files is None else format_name
    with convert_errors(OSError, UsageError, "cannot read this file", where=path):
        detected_name = next((name for name, kind in formats.items() if kind.recognises(path)), "")
        detected_name = detected_name or (_folder_format(path) if path.is_dir() else _file_format(path))
    return detected_name


def table_files(folder: Path) -> list[Path]:
    """Returns the files in and below a folder that may be tables, judged by their names."""
    return [path for path in files_below(folder) if _TABLE_NAME.search(path.name)]


def unknown_format_error(path: Path) -> NotCurves:
    """Returns the error for a file or folder of unknown format."""
    all_kinds = formats_by_name()
    other_formats = ", ".join(name for name in all_kinds if name != "tidy")
    return NotCurves(
        "nothing reads this",
        where=str(path),
        expected=f"a table ({all_kinds['tidy'].about}), or a format of another program ({other_formats})",
        next_step="name its format with --kind",
    )


def _folder_format(path: Path) -> str:
    if tensorboard.event_files(path):
        return "tensorboard"
    if mlflow.mlflow_files(path):
        return "mlflow"
    if wandb.run_files(path):
        return "wandb-run"
    return "nanogpt" if nanogpt.log_files(path) else ""


def _file_format(path: Path) -> str:
    with path.open("rb") as file:
        first_bytes = file.read(16)
    if not first_bytes:
        raise NotCurves("the file is empty", where=str(path))
    if "tfevents" in path.name:
        raise UsageError(
            "this is one event file", where=str(path), next_step="name its folder, whose name is the run's"
        )
    if first_bytes.startswith(b"PAR1"):
        return "wandb-history" if wandb.is_history(tables.column_names(path)) else "tidy"
    if wandb_log.is_log(path):
        return "wandb-run"
    if mlflow.is_database(path):
        foreign.refuse_database(path)
        return "trackio" if trackio.is_trackio(path) else "mlflow"
    if kind := item_kind(path):
        return kind
    foreign.refuse_pickle(path, first_bytes)
    foreign.refuse_arrays(path, first_bytes)
    if is_json(path):
        foreign.refuse_journal(path)
        return "lobench" if is_records(path) else _table_format(path)
    if not _TABLE_NAME.search(path.name) and nanogpt.is_log(path):
        return "nanogpt"
    if tables.is_monitor(path):
        return "sb3-monitor"
    return _table_format(path)


def _table_format(path: Path) -> str:
    names = tables.column_names(path)
    if wandb.is_runs_table(names):
        wandb.refuse_runs_table(path)
    if wandb.is_chart(names):
        return "wandb-chart"
    if names[:3] == ["Wall time", "Step", "Value"]:
        return "tensorboard-csv"
    if wandb.is_history(names):
        return "wandb-history"
    if {"submission", "workload", "study", "trial", "val_metric"} <= set(names):
        return "algoperf"
    return "tidy"


def content_sha256(path: Path, kind: FileKind) -> str:
    """Returns the hash of a file's content, or of the names and contents of the files read in a folder."""
    digest = hashlib.sha256()
    is_folder = path.is_dir() and kind.files is not None
    for file in kind.files(path) if is_folder and kind.files is not None else [path]:
        if is_folder:
            digest.update(f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as content:
            hashlib.file_digest(content, lambda: digest)
    return digest.hexdigest()
