"""Curves of one session of a script, read while its files grow."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from lobench.api.settings import ImportSettings
from lobench.core.errors import LobenchError, UsageError
from lobench.core.wording import cause, counted
from lobench.tools.curve_import.collected_curves import CollectedCurves, CurveFile
from lobench.tools.curve_import.formats.json_files import is_object
from lobench.tools.curve_import.formats.kinds import content_sha256, detect_format, formats_by_name
from lobench.tools.curve_import.points import UNNAMED_CASE, CurveRun, Points
from lobench.tools.curve_import.spill import Curve

__all__ = ["SessionCurves", "SessionFiles"]

_NOT_TEXT = (b"\x1f\x8b", b"PAR1")  # gzip, parquet: unreadable before they are complete
_JSON_LINES = (".jsonl", ".ndjson")
_SHOWN_CHARACTERS = 60  # characters of a line


class SessionFiles:
    """Files of a session, which its script may still be writing.

    Text files are copied before they are read, without the last line if it may be incomplete. Lines of a JSON lines
    file that are not JSON, such as program output or the half line of a killed program, are left out with a note.
    Repeated headers of a csv, from a restarted program, are left out too.

    Args:
      pattern: Absolute pattern of the paths.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    @property
    def state(self) -> tuple[tuple[str, int, int], ...]:
        """Path, size and time (ns) of each file. Changes whenever something is written."""
        return tuple(_file_state(path) for folder_or_file in self._paths() for path in _files_in(folder_or_file))

    def _paths(self) -> list[Path]:
        return [Path(path) for path in sorted(glob.glob(self.pattern, recursive=True))]

    @contextlib.contextmanager
    def read(self, settings: ImportSettings, *, until: int | None = None) -> Iterator[SessionCurves]:
        """Reads the current content of the files.

        Args:
          settings: Import settings, with the session as seed.
          until: Last step to read. None: all steps.
        Raises:
          UsageError: There are no curves yet, or a file cannot be read.
        """
        with tempfile.TemporaryDirectory(prefix="lobench-curves-") as folder, contextlib.ExitStack() as stack:
            notes: list[str] = []
            try:
                sources = [
                    source
                    for number, path in enumerate(self._paths())
                    if (source := _readable_file(path, Path(folder) / str(number), notes)) is not None
                ]
                if not sources:
                    raise UsageError("it wrote no curves", where=self.pattern)
                curves = SessionCurves(sources, settings, until=until)
                stack.enter_context(curves)
            except LobenchError as error:
                raise UsageError(_with_original_paths(str(error), folder, self._paths())) from error
            curves.notes[:0] = notes
            yield curves


class SessionCurves(CollectedCurves):
    """Curves in a session's files, as runs of one method and seed, whatever names the files contain."""

    def __init__(self, sources: Sequence[CurveFile], settings: ImportSettings, *, until: int | None) -> None:
        super().__init__(sources, dataclasses.replace(settings, case=settings.case or UNNAMED_CASE))
        self._until = until
        self._first_runs_by_case: dict[str, CurveRun] = {}

    def _with_metric_names(self, points: Points, spellings: dict[str, str], source: CurveFile) -> Points:
        named_points = super()._with_metric_names(points, spellings, source)
        if self._until is None or not (named_points.step > self._until).any():
            return named_points
        return named_points.where(named_points.step <= self._until)

    def _renamed_run(self, run: CurveRun) -> CurveRun:
        renamed = super()._renamed_run(run)
        if (first_run := self._first_runs_by_case.setdefault(renamed.case, renamed)) != renamed:
            raise UsageError(
                "a session has one curve of a case",
                where=str(self.sources[0].path),
                got=f"{first_run} and {renamed}",
                next_step="have each session write its own file, below {out}",
            )
        training = f"session {self.settings.seed}"
        return CurveRun(self.settings.method, renamed.case, self.settings.seed, training)

    def primary_curves(self) -> dict[str, Curve]:
        """Returns the curve of the primary metric for each case, by the case's name."""
        curves: dict[str, Curve] = {}
        for run, metrics in self.points_by_run.curves():
            requested_names = [name for name in self.request.metrics.values() if name in metrics]
            curves[run.case] = metrics[(requested_names or list(metrics))[0]]
        return curves


def _readable_file(path: Path, copy: Path, notes: list[str]) -> CurveFile | None:
    """Returns a file, or a copy of its readable part; None if it contains nothing yet."""
    if path.is_file():
        with path.open("rb") as file:
            first_bytes = file.read(4)
        if not first_bytes.startswith(_NOT_TEXT):
            copy.mkdir()
            copy /= path.name
            _copy_lines(path, copy, notes)
            if not copy.stat().st_size:
                return None
            format_name = detect_format(copy)
            return CurveFile(
                path=path,
                format_name=format_name,
                sha256=content_sha256(copy, formats_by_name()[format_name]),
                copy=copy,
            )
    format_name = detect_format(path)
    return CurveFile(path=path, format_name=format_name, sha256=content_sha256(path, formats_by_name()[format_name]))


def _copy_lines(path: Path, copy: Path, notes: list[str]) -> None:
    """Copies the readable lines. Other lines become empty lines, so that line numbers stay the same."""
    header = b""
    left_out_lines = list[tuple[int, bytes]]()
    with path.open("rb") as file, copy.open("wb") as copied_file:
        for number, line in enumerate(file, 1):
            is_whole = line.endswith(b"\n")
            text = line.strip()
            header = header or text
            is_json = path.suffix in _JSON_LINES or header.startswith(b"{")
            if is_json and text and not is_object(text):
                left_out_lines += [(number, text)] * is_whole
                copied_file.write(b"\n" * is_whole)
            elif is_whole or (is_json and text):
                copied_file.write(b"\n" if not is_json and text == header and number > 1 else line)
    if left_out_lines:
        number, text = left_out_lines[0]
        line_text = repr(text[:_SHOWN_CHARACTERS].decode(errors="replace"))
        verb = "is not a JSON object and is" if len(left_out_lines) == 1 else "are not JSON objects and are"
        notes.append(f"{path}: {counted(len(left_out_lines), 'line')} {verb} left out; line {number} is {line_text}")


def _files_in(path: Path) -> list[Path]:
    return sorted(file_path for file_path in path.rglob("*") if file_path.is_file()) if path.is_dir() else [path]


def _file_state(path: Path) -> tuple[str, int, int]:
    try:
        status = os.stat(path)
    except OSError as error:
        return f"{path}: {cause(error)}", 0, 0
    return str(path), status.st_size, status.st_mtime_ns


def _with_original_paths(text: str, folder: str, paths: Sequence[Path]) -> str:
    """Returns an error message in which the paths of copies are replaced by the paths of the copied files."""
    for number, path in enumerate(paths):
        text = text.replace(str(Path(folder) / str(number) / path.name), str(path))
    return text
