"""Writes results as TensorBoard scalars, each (tag, outer step) once, whenever and wherever the process is killed.

Event files are only ever appended to. So the sink reads its own files back when it opens a run, and writes what is
missing: a delivery that comes again after a crash finds its scalars there. What was written stays: of two thetas at one
outer step the first, and what was counted when a checkpoint was first complete. Of the layouts, which have one tag too,
TensorBoard takes the last: one is written when a checkpoint brings a chart that none before it had.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import socket
import struct
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import google_crc32c
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_SCALAR, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_FLOAT, DT_STRING
from tensorboard.plugins.custom_scalar import metadata as custom_scalars
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

from lobench.extend import Number, PluginError, numbers_of, sync, write_whole
from lobench.hookspecs import CheckpointFinished, Delivery, EvaluationFinished, SinkContext
from lobench_tensorboard.scalars import Chart, charts_in, charts_of, layout_of, scalars_of

__all__ = ["EventFile", "TensorBoardSink", "written_scalars"]

_TAGS = "-3"  # counts up when other tags or runs are written
_GENERATION = re.compile(r"generation_\d+")  # a folder of ours: no run makes one
_MAX_LENGTH = 200
_NUMBERS = itertools.count()  # of this process's files
_METADATA = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"), data_class=DATA_CLASS_SCALAR)


def written_scalars(folder: Path) -> Iterator[tuple[str, int]]:
    """Yields (tag, step) of every scalar and layout in a run's event files."""
    for value, step in _written(folder):
        yield value.tag, step


def _written(folder: Path) -> Iterator[tuple[Summary.Value, int]]:
    """Yields every value in a run's event files, and its step; a record cut off by a crash ends its file, no more."""
    files = sorted(_event_files(folder))
    if files:  # a new folder has none, and needs no TensorFlow, nor TensorBoard's stub of it
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    for file in files:
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                yield value, event.step


def _event_files(folder: Path) -> set[Path]:
    return {file for file in folder.glob("events.out.tfevents.*") if file.name.split(".")[3].isdecimal()}


def _checksum(data: bytes) -> bytes:
    """Returns what stands behind a record's length and its data: their CRC-32C, masked."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


class EventFile:
    """A new event file of a folder: after a record that was cut off nothing could be read.

    TensorBoard's own writer writes in a thread, whose death on a full disk is a traceback that nobody can catch. Its
    writer of records takes a tenth of a second to import.
    """

    def __init__(self, folder: Path) -> None:
        # TensorBoard reads by name, and never goes back: this file comes after all that are there.
        last = max((int(file.name.split(".")[3]) for file in _event_files(folder)), default=-1)
        seconds = max(int(time.time()), last + 1)
        name = f"{seconds:010d}.{socket.gethostname()}.{os.getpid()}.{next(_NUMBERS)}"
        self._path = folder / f"events.out.tfevents.{name}"
        self._file = self._path.open("xb")
        self._is_kept = False
        with contextlib.ExitStack() as unless_all_is_well:
            unless_all_is_well.callback(self.close)
            self._add(Event(wall_time=time.time(), file_version="brain.Event:2"))
            sync(folder)
            unless_all_is_well.pop_all()

    def add(self, values: Sequence[Summary.Value], step: int) -> None:
        """Adds values of one step as one record, which is there as a whole or not at all."""
        self._add(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _add(self, event: Event) -> None:
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        self._file.write(length + _checksum(length) + data + _checksum(data))

    def flush(self) -> None:
        """Returns when everything is on the disk, not only with the operating system.

        Raises:
          OSError: it is not; the folder was removed, say.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self._path.stat()
        self._is_kept = True

    def close(self) -> None:
        """Closes the file; one in which nothing is known to be whole leaves nothing behind."""
        try:
            self._file.close()
        finally:
            if not self._is_kept:
                self._path.unlink(missing_ok=True)


def _scalar(tag: str, value: float) -> Summary.Value:
    tensor = TensorProto(dtype=DT_FLOAT, tensor_shape=TensorShapeProto(), float_val=[value])
    return Summary.Value(tag=tag, tensor=tensor, metadata=_METADATA)


def _layout(charts: set[Chart]) -> Summary.Value:
    return Summary.Value(
        tag=custom_scalars.CONFIG_SUMMARY_TAG,
        tensor=TensorProto(
            dtype=DT_STRING,
            tensor_shape=TensorShapeProto(),
            string_val=[layout_of(charts).SerializeToString()],
        ),
        metadata=custom_scalars.create_summary_metadata(),
    )


class _Run:
    """One run directory: what is in it, and a file from the first missing scalar on."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._written: set[tuple[str, int]] = set()
        self._charts: set[Chart] = set()
        self._file: EventFile | None = None
        for value, step in _written(folder):
            self._written.add((value.tag, step))
            if value.tag == custom_scalars.CONFIG_SUMMARY_TAG:
                self._charts = charts_in(Layout.FromString(value.tensor.string_val[0]))

    def add(self, numbers: Sequence[Number], step: int, *, is_whole: bool) -> None:
        """Adds what is missing of an event's numbers.

        Args:
          is_whole: Whether these are all numbers of the checkpoint: a layout is made of no fewer.
        """
        found: dict[str, float] = {}
        for tag, value in scalars_of(numbers):
            if (tag, step) not in self._written:
                found.setdefault(tag, value)
        values = [_scalar(tag, value) for tag, value in found.items()]
        if is_whole and not (charts := charts_of(numbers)) <= self._charts:
            self._charts |= charts
            values.append(_layout(self._charts))
        if values:
            self._file = self._file or EventFile(self._folder)
            self._file.add(values, step)
            self._written.update((value.tag, step) for value in values)

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class TensorBoardSink:
    """Takes deliveries; `lobench_tensorboard.scalars` has the tags.

    A run directory for each run and generation, so that the curves of methods and lineages do not mix: the folder
    itself, below it the run's name where the delivery has one, and `generation_<g>` where g > 0.

    Raises:
      PluginError: the folder is on a remote file system, where event files cannot be read back and appended to.
    """

    keeps_first = True

    def __init__(self, context: SinkContext) -> None:
        if "://" in context.argument:
            raise PluginError(
                "the folder must be a local one",
                where="sink 'tensorboard'",
                got=context.argument,
                next_step="write to a local folder and copy it, or let TensorBoard read it from there",
            )
        self._folder = Path(context.argument).expanduser() if context.argument else context.store / "tensorboard"
        self._suites = context.suites
        self._runs: dict[Path, _Run] = {}

    @property
    def destination(self) -> str:
        """An id in a file of the folder: a folder that was removed is filled again.

        It names the tags too: a folder of an earlier version gets what it lacks, from the ledger's beginning.
        """
        file = self._folder / "lobench.id"
        if not file.exists():
            write_whole(file, uuid.uuid4().hex)
        return file.read_text(encoding="ascii") + _TAGS

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        try:
            touched: dict[Path, _Run] = {}
            for delivery in _without_repeated(deliveries):
                event = delivery.event
                if numbers := numbers_of(event, self._suites):
                    folder = self._folder_of(delivery)
                    touched[folder] = self._run(folder)
                    is_whole = isinstance(event, CheckpointFinished)
                    touched[folder].add(numbers, event.checkpoint.outer_step, is_whole=is_whole)
            for run in touched.values():
                run.flush()
        except BaseException:
            # Which of the scalars reached the disk is not known: the next attempt reads them back.
            with contextlib.suppress(Exception):
                self.close()
            self._runs.clear()
            raise

    def close(self) -> None:
        with contextlib.ExitStack() as runs:
            for run in self._runs.values():
                runs.callback(run.close)

    def _run(self, folder: Path) -> _Run:
        if folder not in self._runs:
            self._runs[folder] = _Run(folder)
        return self._runs[folder]

    def _folder_of(self, delivery: Delivery) -> Path:
        folder = self._folder / _folder_name(delivery.run) if delivery.run else self._folder
        generation = delivery.event.checkpoint.generation
        return folder / f"generation_{generation}" if generation else folder


def _without_repeated(deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Leaves out the evaluations of which a completion among them has all numbers, so that these are made once.

    One stays where anything else among them has the same tags, another subject at the same outer step, say: of two
    values the first one is written.
    """
    by_tags: dict[tuple[object, ...], list[EvaluationFinished]] = {}
    completed: set[tuple[object, ...]] = set()
    for delivery in deliveries:
        if isinstance(event := delivery.event, CheckpointFinished):
            for one in event.evaluations:
                by_tags.setdefault(tags := _tags_of(delivery.run, one), []).append(one)
                completed.add(tags)
        elif isinstance(event, EvaluationFinished):
            by_tags.setdefault(_tags_of(delivery.run, event), []).append(event)
    repeated = {tags for tags in completed if all(one == by_tags[tags][0] for one in by_tags[tags])}
    return [
        delivery
        for delivery in deliveries
        if not isinstance(delivery.event, EvaluationFinished) or _tags_of(delivery.run, delivery.event) not in repeated
    ]


def _tags_of(run: str, event: EvaluationFinished) -> tuple[object, ...]:
    return run, event.subject.generation, event.subject.outer_step, event.case.suite, event.case.name


def _folder_name(run: str) -> str:
    """Returns a name for a file system: two runs that differ have two, whatever they are called."""
    name = quote(run, safe=" ")
    if name.startswith(".") or name != name.rstrip(" .") or _GENERATION.fullmatch(name) or len(name) > _MAX_LENGTH:
        name = f"{name.lstrip('.')[:_MAX_LENGTH].rstrip(' .')}-{hashlib.sha256(run.encode()).hexdigest()[:8]}"
    return name
