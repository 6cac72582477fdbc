"""TensorBoard formats: folders of event files, and the csv of its page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from lobench.core.errors import UsageError
from lobench.core.wording import one_line_of
from lobench.tools.curve_import.formats.tables import parts_of
from lobench.tools.curve_import.points import CurveRequest, Points, named_run

__all__ = ["event_files", "read_events", "read_tensorboard_csv"]

_CHUNK = 100_000  # events
_CSV_NAME = re.compile(r"run-(?P<run>.+)-tag-(?P<tag>.+)")


def event_files(place: Path) -> list[Path]:
    """Returns TensorBoard's event files in or below a folder, in the order of their writing."""
    return sorted(path for path in place.rglob("*tfevents*") if path.is_file())


def read_events(place: Path, asked: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the scalars of TensorBoard's event files, whose folders are runs. Of a step logged twice the later counts.

    Raises:
      UsageError: tensorboard is not installed; a file is no event file.
    """
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError as error:
        advice = "pip install tensorboard"
        raise UsageError("event files need tensorboard", where=str(place), next_step=advice) from error
    for file in event_files(place):
        folder = file.parent.relative_to(place).as_posix()
        run = replace(named_run(place.name if folder == "." else folder, asked), training=str(file.parent))
        found: dict[str, list[tuple[int, float]]] = {}
        num_found = 0
        with one_line_of((OSError, ValueError), UsageError, "this is no event file of TensorBoard", where=file):
            for event in EventFileLoader(str(file)).Load():
                for value in event.summary.value:
                    number = _scalar(value)
                    if number is not None and (not asked.metrics or value.tag in asked.metrics):
                        found.setdefault(value.tag, []).append((event.step, number))
                        num_found += 1
                if num_found >= _CHUNK:
                    yield from Points.of_curves(run, found)
                    found, num_found = {}, 0
        yield from Points.of_curves(run, found)


def _scalar(value: Any) -> float | None:
    """Returns the number of a summary's value; None of a picture, a histogram or a text."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or value.tensor.tensor_shape.dim or value.tensor.string_val:
        return None
    from tensorboard.util.tensor_util import make_ndarray

    found = make_ndarray(value.tensor)
    return float(found) if found.size == 1 and found.dtype.kind in "fiu" else None


def read_tensorboard_csv(path: Path, asked: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the points of a csv that TensorBoard's page gives: `Wall time,Step,Value`, run and tag in its name.

    Raises:
      UsageError: the name says neither, and nobody else does.
    """
    found = _CSV_NAME.fullmatch(path.stem)
    metric = next(iter(asked.metrics), "") or (found["tag"] if found else "")
    if not metric or not (found or asked.method):
        raise UsageError(
            "a csv of TensorBoard's page says run and tag in its name alone",
            where=str(path),
            expected="run-RUN-tag-TAG.csv, or --method and --metric",
        )
    run = named_run(found["run"] if found else asked.method, asked)
    for part in parts_of(path, ["Step", "Value"]):
        yield Points.of_curve(run, metric, part.steps("Step"), part.values("Value"), part.lines)
