"""Writes results as TensorBoard scalars, each (tag, outer step) exactly once, even if the process is killed.

When the sink opens a run, it reads its own files back and writes the missing scalars, so that repeated deliveries after
a crash are ignored. Written values are never changed: if two thetas have the same outer step, the first one is kept,
and the numbers of evaluations and diverged seeds are those written when a checkpoint was first complete. TensorBoard
uses the last layout in the files, so a layout is written whenever a checkpoint has a new chart.

Values of a tag are written in the order of their steps, because TensorBoard drops later steps when an earlier one
follows. If a value arrives late, because its checkpoint took long or was evaluated afterwards, the files with later
steps are merged with it into one new file, and then emptied.
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
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import google_crc32c
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_SCALAR, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_FLOAT, DT_STRING
from tensorboard.plugins.custom_scalar import metadata as custom_scalars
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

from lobench.extend import Number, PluginError, RunSink, kept_id, open_to_group, sync
from lobench.hookspecs import CheckpointFinished, Delivery, EvaluationFinished, SinkContext
from lobench_tensorboard.scalars import TagChart, charts_in, charts_of, layout_of, scalars_of

__all__ = ["EventFile", "TensorBoardSink", "written_scalars"]

_TAGS_VERSION = "-3"  # version, incremented if tags or runs change
_GENERATION = re.compile(r"generation_\d+")  # folders of generations; runs must not have such names
_MAX_LENGTH = 200
_MAX_RECORDS = 512  # small, so that a late value rewrites few records
_EMPTY_SECONDS = 60.0  # time for readers to leave an emptied file
_FILE_NUMBERS = itertools.count()  # numbers of this process's files
_METADATA = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"), data_class=DATA_CLASS_SCALAR)


def written_scalars(folder: Path) -> Iterator[tuple[str, int]]:
    """Yields (tag, step) of every scalar and layout in a run's event files."""
    for file in sorted(_event_files(folder)):
        for event in _events(file):
            for value in event.summary.value:
                yield value.tag, event.step


def _events(file: Path) -> Iterator[Event]:
    """Yields the events of a file. A record that a crash cut off ends the file."""
    # Imported here, because a new folder has no files and then needs neither TensorFlow nor TensorBoard's stub of it.
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    yield from EventFileLoader(str(file)).Load()


def _event_files(folder: Path) -> set[Path]:
    return {file for file in folder.glob("events.out.tfevents.*") if file.name.split(".")[3].isdecimal()}


def _checksum(data: bytes) -> bytes:
    """Returns the masked CRC-32C that follows a record's length and its data."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


class EventFile:
    """A new event file of a folder. Existing files are not appended to, because nothing after a cut-off record is read.

    TensorBoard's own writer writes in a thread, which dies on a full disk with a traceback that cannot be caught. Its
    writer of records takes a tenth of a second to import.
    """

    def __init__(self, folder: Path) -> None:
        # TensorBoard reads files by name and never goes back, so the name must come after all existing ones.
        last_number = max((int(file.name.split(".")[3]) for file in _event_files(folder)), default=-1)
        seconds = max(int(time.time()), last_number + 1)
        name = f"{seconds:010d}.{socket.gethostname()}.{os.getpid()}.{next(_FILE_NUMBERS)}"
        self.path = folder / f"events.out.tfevents.{name}"
        self._file = self.path.open("xb")
        open_to_group(self.path)
        self._is_kept = False
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(self.close)
            self._add_event(Event(wall_time=time.time(), file_version="brain.Event:2"))
            sync(folder)
            cleanup.pop_all()

    def add(self, values: Sequence[Summary.Value], step: int, wall_time: float | None = None) -> None:
        """Adds values of one step as one record, which is written completely or not at all.

        Args:
          values: Values of the step.
          step: Outer step.
          wall_time: Time when they were first written, in seconds since 1970. None: now.
        """
        self._add_event(Event(wall_time=wall_time or time.time(), step=step, summary=Summary(value=values)))

    def add_restart(self, step: int) -> None:
        """Adds a restart event, for which TensorBoard discards all values of this and later steps that it has read."""
        for _ in range(2):  # TensorBoard takes the first mark for the beginning of the run
            self._add_event(Event(wall_time=time.time(), step=step, session_log=SessionLog(status=SessionLog.START)))

    def _add_event(self, event: Event) -> None:
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        self._file.write(length + _checksum(length) + data + _checksum(data))

    def flush(self) -> None:
        """Waits until everything is on the disk, not only in the operating system's buffers.

        Raises:
          OSError: The file could not be written, for example because its folder was removed.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self.path.stat()
        self._is_kept = True

    def close(self) -> None:
        """Closes the file. Deletes it if `flush` never succeeded."""
        try:
            self._file.close()
        finally:
            if not self._is_kept:
                self.path.unlink(missing_ok=True)


def _scalar_value(tag: str, value: float) -> Summary.Value:
    tensor = TensorProto(dtype=DT_FLOAT, tensor_shape=TensorShapeProto(), float_val=[value])
    return Summary.Value(tag=tag, tensor=tensor, metadata=_METADATA)


def _layout_value(charts: set[TagChart]) -> Summary.Value:
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
    """Run directory: reads the values that its event files contain, and adds the missing ones in a new event file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._written_keys: set[tuple[str, int]] = set()
        self._written_charts: set[TagChart] = set()
        self._file: EventFile | None = None
        self._new_values: list[tuple[int, list[Summary.Value]]] = []
        self._last_step_by_tag: dict[str, int] = {}  # step of the last value of a tag
        self._last_step_of_files: dict[Path, int] = {}  # highest step in each file
        self._num_records = 0  # records in the open file
        self._first_late_step: int | None = None  # lowest step of a value that follows a later one
        for file in sorted(_event_files(folder)):
            self._read_file(file)

    def _read_file(self, file: Path) -> None:
        self._last_step_of_files[file] = -1
        for event in _events(file):
            if event.session_log.status == SessionLog.START:
                # A kill prevented that the files with the same content were emptied.
                for replaced_file in [
                    older_file
                    for older_file, last_step in self._last_step_of_files.items()
                    if older_file != file and last_step >= event.step
                ]:
                    self._empty_file(replaced_file)
            for value in event.summary.value:
                self._written_keys.add((value.tag, event.step))
                self._record_value(file, value, event.step)
                if value.tag == custom_scalars.CONFIG_SUMMARY_TAG:
                    self._written_charts = charts_in(Layout.FromString(value.tensor.string_val[0]))

    def _record_value(self, file: Path, value: Summary.Value, step: int) -> None:
        self._last_step_of_files[file] = max(step, self._last_step_of_files.get(file, -1))
        if value.tag == custom_scalars.CONFIG_SUMMARY_TAG:
            return
        if step < self._last_step_by_tag.get(value.tag, -1):
            self._first_late_step = step if self._first_late_step is None else min(step, self._first_late_step)
        self._last_step_by_tag[value.tag] = step

    def add(self, numbers: Sequence[Number], step: int, *, is_whole: bool) -> None:
        """Adds the missing scalars of an event. `flush` writes them.

        Args:
          numbers: Numbers of the event.
          step: Outer step.
          is_whole: Whether these are all numbers of the checkpoint. Otherwise no layout is written.
        """
        scalars: dict[str, float] = {}
        for tag, value in scalars_of(numbers):
            if (tag, step) not in self._written_keys:
                scalars.setdefault(tag, value)
        values = [_scalar_value(tag, value) for tag, value in scalars.items()]
        if is_whole and not (charts := charts_of(numbers)) <= self._written_charts:
            self._written_charts |= charts
            values.append(_layout_value(self._written_charts))
        if values:
            self._new_values.append((step, values))
            self._written_keys.update((value.tag, step) for value in values)

    def flush(self) -> None:
        """Writes the added values, and waits until they are on the disk."""
        if not self._new_values:
            return
        new_values = sorted(self._new_values, key=lambda step_and_values: step_and_values[0])
        self._new_values = []
        late_steps = [
            step for step, values in new_values for value in values if step < self._last_step_by_tag.get(value.tag, -1)
        ]
        late_steps += [self._first_late_step] if self._first_late_step is not None else []
        if late_steps:
            self._rewrite(min(late_steps), new_values)
            return
        self._file = self._file or EventFile(self._folder)
        for step, values in new_values:
            self._file.add(values, step)
            for value in values:
                self._record_value(self._file.path, value, step)
        self._file.flush()
        if len(new_values) + self._num_records > _MAX_RECORDS:
            self._end_file()
        else:
            self._num_records += len(new_values)

    def _rewrite(self, first_step: int, new_values: Sequence[tuple[int, list[Summary.Value]]]) -> None:
        """Writes the values from a step on to a new file, in order and with new ones, and empties the old files."""
        self._end_file()
        old_files = [
            file
            for file, last_step in self._last_step_of_files.items()
            if last_step >= first_step and _has_no_writer(file)
        ]
        records = [
            (event.step, event.wall_time, [*event.summary.value]) for file in old_files for event in _events(file)
        ]
        records += [(step, time.time(), values) for step, values in new_values]
        layouts = [value for _, _, values in records for value in values if _is_layout(value)]
        records.sort(key=lambda record: record[0])
        new_file = EventFile(self._folder)
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(new_file.close)
            is_begun = False
            for step, wall_time, values in records:
                if step >= first_step and not is_begun:
                    new_file.add_restart(first_step)
                    is_begun = True
                if scalars := [value for value in values if not _is_layout(value)]:
                    new_file.add(scalars, step, wall_time)
            if layouts:
                new_file.add(layouts[-1:], records[-1][0])
            new_file.flush()
            cleanup.pop_all()
        for file in old_files:
            self._empty_file(file)
        self._remove_empty_files()
        self._file, self._num_records = new_file, len(records)
        for step, _, values in records:
            for value in values:
                self._record_value(new_file.path, value, step)
        self._first_late_step = None  # they are in order now

    def _empty_file(self, file: Path) -> None:
        """Empties a file whose content is in a later one. A reader that has it open continues with the next file."""
        os.truncate(file, 0)
        self._last_step_of_files.pop(file, None)

    def _remove_empty_files(self) -> None:
        """Removes files that were emptied some time ago."""
        for file in _event_files(self._folder) - {self._file.path if self._file else None}:
            with contextlib.suppress(OSError):
                status = file.stat()
                if status.st_size == 0 and time.time() - status.st_mtime > _EMPTY_SECONDS and _has_no_writer(file):
                    file.unlink()

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file, self._num_records = None, 0

    def close(self) -> None:
        self._end_file()


def _is_layout(value: Summary.Value) -> bool:
    return bool(value.tag == custom_scalars.CONFIG_SUMMARY_TAG)


def _has_no_writer(file: Path) -> bool:
    """Whether no other process writes to a file. For example `lobench alarm` writes to its own files during a watch."""
    host, process = file.name.removeprefix("events.out.tfevents.").split(".", 1)[1].rsplit(".", 2)[:2]
    if host != socket.gethostname() or not process.isdecimal() or int(process) == os.getpid():
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it is another user's
    return False


class TensorBoardSink(RunSink[_Run]):
    """Sink of TensorBoard. `lobench_tensorboard.scalars` defines the tags.

    There is one run directory per run and generation, so that the curves of methods and lineages do not mix: the folder
    itself, below it the run's name if the delivery has one, and `generation_<g>` if g > 0.

    Raises:
      PluginError: The folder is on a remote file system, where event files cannot be read back and appended to.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        if "://" in context.argument:
            raise PluginError(
                "the folder must be a local one",
                where="sink 'tensorboard'",
                got=context.argument,
                next_step="write to a local folder and copy it, or let TensorBoard read it from there",
            )
        self._folder = Path(context.argument).expanduser() if context.argument else context.store / "tensorboard"

    @property
    def destination(self) -> str:
        """Id stored in a file of the folder. If the folder was removed, the id is new, and everything is written again.

        The id includes the version of the tags, so that a folder of an earlier version receives the missing ones.
        """
        return kept_id(self._folder / "lobench.id") + _TAGS_VERSION

    def arranged(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return _without_repeated(deliveries)

    def run_key(self, delivery: Delivery) -> Path:
        return self._folder_of(delivery)

    def open_run(self, delivery: Delivery, key: Hashable) -> _Run:
        return _Run(self._folder_of(delivery))

    def _folder_of(self, delivery: Delivery) -> Path:
        folder = self._folder / _folder_name(delivery.run) if delivery.run else self._folder
        generation = delivery.event.checkpoint.generation
        return folder / f"generation_{generation}" if generation else folder


def _without_repeated(deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Removes evaluations that a completed checkpoint in the same deliveries repeats.

    Their scalars are then computed once. An evaluation stays if another delivery has the same tags with other values,
    such as another subject at the same outer step. Of two values the first one is written.
    """
    evaluations_by_tags: dict[tuple[object, ...], list[EvaluationFinished]] = {}
    completed_tags: set[tuple[object, ...]] = set()
    for delivery in deliveries:
        if isinstance(event := delivery.event, CheckpointFinished):
            for evaluation in event.evaluations:
                evaluations_by_tags.setdefault(tags := _tags_of(delivery.run, evaluation), []).append(evaluation)
                completed_tags.add(tags)
        elif isinstance(event, EvaluationFinished):
            evaluations_by_tags.setdefault(_tags_of(delivery.run, event), []).append(event)
    repeated_tags = {
        tags
        for tags in completed_tags
        if all(evaluation == evaluations_by_tags[tags][0] for evaluation in evaluations_by_tags[tags])
    }
    return [
        delivery
        for delivery in deliveries
        if not isinstance(delivery.event, EvaluationFinished)
        or _tags_of(delivery.run, delivery.event) not in repeated_tags
    ]


def _tags_of(run: str, event: EvaluationFinished) -> tuple[object, ...]:
    return run, event.subject.generation, event.subject.outer_step, event.case.suite, event.case.name


def _folder_name(run: str) -> str:
    """Returns a valid file name for a run. Different runs have different names."""
    name = quote(run, safe=" ")
    if name.startswith(".") or name != name.rstrip(" .") or _GENERATION.fullmatch(name) or len(name) > _MAX_LENGTH:
        name = f"{name.lstrip('.')[:_MAX_LENGTH].rstrip(' .')}-{hashlib.sha256(run.encode()).hexdigest()[:8]}"
    return name
