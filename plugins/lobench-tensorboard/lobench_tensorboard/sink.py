"""Writes results as TensorBoard scalars, each (tag, outer step) once, whenever and wherever the process is killed.

Event files are only ever appended to. So the sink reads its own files back when it opens a run, and writes what is
missing: a delivery that comes again after a crash finds its scalars there. What was written stays: of two thetas at one
outer step the first, and what was counted when a checkpoint was first complete.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.summary import Writer

from lobench import Checkpoint, PluginError
from lobench.hookspecs import Delivery, SinkContext
from lobench_tensorboard.scalars import Scalar, scalars_of

__all__ = ["TensorBoardSink", "written_scalars"]


def written_scalars(folder: Path) -> Iterator[tuple[str, int]]:
    """Yields (tag, step) of every scalar in a run's event files; a record cut off by a crash ends its file, no more."""
    for file in sorted(_event_files(folder)):
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                yield value.tag, event.step


def _event_files(folder: Path) -> set[Path]:
    return set(folder.glob("events.out.tfevents.*"))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Run:
    """One run directory: what is in it, and a writer from the first missing scalar on."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._written = set(written_scalars(folder))
        self._writer: Writer | None = None
        self._files: set[Path] = set()

    def add(self, scalars: Sequence[Scalar], step: int) -> None:
        for tag, value in scalars:
            if (tag, step) not in self._written:
                self._open().add_scalar(tag, np.float32(value), step)
                self._written.add((tag, step))

    def _open(self) -> Writer:
        """A file of its own for each process: after a record that was cut off nothing could be read."""
        if self._writer is None:
            before = _event_files(self._folder)
            self._writer = Writer(str(self._folder))
            self._files = _event_files(self._folder) - before
            _sync(self._folder)
        return self._writer

    def flush(self) -> None:
        """Returns when everything is on the disk, not only with the operating system."""
        if self._writer is not None:
            self._writer.flush()
            for file in self._files:
                _sync(file)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class TensorBoardSink:
    """Takes deliveries; `lobench_tensorboard.scalars` has the tags.

    A run directory for each run and generation, so that the curves of lineages do not mix: the folder itself, below it
    the run's name where the checkpoint has one, and `generation_<g>` where g > 0.

    Raises:
      PluginError: the folder is on a remote file system, where event files cannot be read back and appended to.
    """

    def __init__(self, context: SinkContext) -> None:
        if "://" in context.argument:
            raise PluginError(
                "the folder must be a local one",
                where="sink 'tensorboard'",
                got=context.argument,
                next_step="write to a local folder and copy it, or let TensorBoard read it from there",
            )
        self._folder = Path(context.argument).expanduser() if context.argument else context.store / "tensorboard"
        self._runs: dict[Path, _Run] = {}

    @property
    def destination(self) -> str:
        """An id in a file of the folder: a folder that was removed is filled again."""
        file = self._folder / "lobench.id"
        if not file.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary = file.with_name(f"{file.name}.{os.getpid()}")
            temporary.write_text(uuid.uuid4().hex, encoding="ascii")
            temporary.replace(file)
        return file.read_text(encoding="ascii")

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        try:
            touched: dict[Path, _Run] = {}
            for delivery in deliveries:
                scalars, checkpoint = scalars_of(delivery.event), delivery.event.checkpoint
                if scalars:
                    folder = self._folder_of(checkpoint)
                    touched[folder] = self._run(folder)
                    touched[folder].add(scalars, checkpoint.outer_step)
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

    def _folder_of(self, checkpoint: Checkpoint) -> Path:
        folder = self._folder / quote(checkpoint.run, safe=" ").lstrip(".") if checkpoint.run else self._folder
        return folder / f"generation_{checkpoint.generation}" if checkpoint.generation else folder
