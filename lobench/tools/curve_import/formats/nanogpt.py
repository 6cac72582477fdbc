"""modded-nanogpt's log format: `step:125/3250 val_loss:4.60783 train_time:22.151s step_avg:177.2ms`.

A log begins with the source of its program, and may hold several runs: a new one begins where the step does not grow.
What repeats rows of the run before, as the tail of a log that was printed again, is no run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lobench.core.errors import UsageError
from lobench.core.wording import counted, one_line_of
from lobench.engine.csv_files import UNREADABLE, opened
from lobench.tools.curve_import.points import CurveRequest, CurveRun, Points, named_run

__all__ = ["is_log", "log_files", "read_logs"]

_NUMBER = r"[-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf)"
_ROW = re.compile(rf"step:(\d+)/\d+ val_loss:({_NUMBER}) train_time:(\S+) step_avg:\S+(.*)")
_FURTHER = re.compile(rf"(\w+_loss):({_NUMBER})(?:\s|$)")
_SUFFIXES = (".txt", ".log", ".stdout", ".out")
_SNIFFED = 20_000  # lines

_Row = tuple[int, str, str, str]  # step, loss, seconds, what else is there


def is_log(path: Path) -> bool:
    """Says whether one of a file's first lines is a row."""
    try:
        with opened(path) as file:
            return any(_ROW.match(line) for _, line in zip(range(_SNIFFED), file, strict=False))
    except (*UNREADABLE, UsageError):
        return False


def log_files(place: Path) -> list[Path]:
    """Returns the logs of a folder."""
    return [path for path in sorted(place.iterdir()) if path.suffix in _SUFFIXES and path.is_file() and is_log(path)]


def read_logs(place: Path, asked: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the curves of a log, or of a folder of them: seeds of one method, by default called as the file or folder.

    Raises:
      UsageError: a file cannot be read.
    """
    files = log_files(place) if place.is_dir() else [place]
    if len(files) > 1 and not (asked.method or asked.pattern or asked.seed):
        notes.append(
            f"{place}: {len(files)} logs are seeds of one method, {place.name!r}; name the files where they are methods"
        )
    for path in files:
        before, repeats, number = set[_Row](), 0, 0
        for rows in _runs(path):
            if before.issuperset(rows):
                repeats += 1
                continue
            before = set(rows)
            run = named_run(place.name if place.is_dir() else place.stem, asked)
            seed = f"{path.stem} {number}" if asked.method or place.is_dir() else str(number)
            run = run if asked.seed or asked.pattern else CurveRun(run.method, run.case, seed)
            run = replace(run, training=f"{path} {number}")
            yield Points.of_curve(run, "val_loss", [row[0] for row in rows], [float(row[1]) for row in rows])
            yield from _further(run, rows)
            number += 1
        if repeats:
            notes.append(f"{path}: {counted(repeats, 'part')} repeat rows of the run before, and are no runs")


def _further(run: CurveRun, rows: list[_Row]) -> Iterator[Points]:
    found: dict[str, list[tuple[int, float]]] = {}
    for step, _, _, rest in rows:
        for name, value in _FURTHER.findall(rest):
            found.setdefault(name, []).append((step, float(value)))
    return Points.of_curves(run, found)


def _runs(path: Path) -> Iterator[list[_Row]]:
    rows: list[_Row] = []
    with one_line_of(UNREADABLE, UsageError, "cannot read this log", where=path), opened(path) as file:
        for line in file:
            if (found := _ROW.match(line)) is None:
                continue
            row = (int(found[1]), found[2], found[3], found[4].strip())
            if rows and row[0] <= rows[-1][0]:
                yield rows
                rows = []
            rows.append(row)
    if rows:
        yield rows
