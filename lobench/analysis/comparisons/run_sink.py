"""Base class of sinks that write numbers into runs of another program, each number once."""

from __future__ import annotations

import contextlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from lobench.analysis.comparisons.event_numbers import Number, numbers_of
from lobench.core.errors import PluginError
from lobench.engine.whole_file import write_whole
from lobench.hookspecs import CheckpointFinished, Delivery, SinkContext

__all__ = ["RunSink", "SinkRun", "kept_id", "of_another_training"]


class SinkRun(Protocol):
    """Run of another program, as a sink writes it. It knows the numbers that are written already.

    >>> sorted(name for name in vars(SinkRun) if not name.startswith("_"))
    ['add', 'close', 'flush']
    """

    def add(self, numbers: Sequence[Number], step: int, *, is_whole: bool) -> None:
        """Adds the numbers of an event that are not written yet.

        Args:
          numbers: Numbers of the event.
          step: Outer step of the checkpoint.
          is_whole: Whether these are all numbers of the checkpoint.
        """

    def flush(self) -> None:
        """Writes the added numbers, and waits until they are on the disk."""

    def close(self) -> None:
        """Releases the resources of the run. Called by the sink's `close`, and after a failed delivery."""


R = TypeVar("R", bound=SinkRun)


class RunSink(ABC, Generic[R]):
    """Sink that keeps one run of another program for each run and generation of the store.

    After a failed delivery all runs are closed, since it is unknown what was written. The next attempt opens them
    again, and a run then reads back what it has.

    Args:
      context: Arguments of the sink.
    Attributes:
      context: Arguments of the sink.
      runs: Open runs by key.

    >>> class FileSink(RunSink):
    ...     def run_key(self, delivery):
    ...         return delivery.run, delivery.event.checkpoint.generation
    ...
    ...     def open_run(self, delivery, key):
    ...         return FileRun(self.context.store / "files" / delivery.run)
    >>> FileSink(SinkContext(store=Path("results"))).context.store
    PosixPath('results')
    """

    keeps_first = True

    def __init__(self, context: SinkContext) -> None:
        self.context = context
        self.runs: dict[Hashable, R] = {}

    @abstractmethod
    def run_key(self, delivery: Delivery) -> Hashable:
        """Returns the key of the run that a delivery belongs to."""

    @abstractmethod
    def open_run(self, delivery: Delivery, key: Hashable) -> R:
        """Opens or creates the run of a delivery."""

    def arranged(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Returns deliveries in the order in which they are written: by default, sorted by outer step."""
        return sorted(deliveries, key=lambda delivery: delivery.event.checkpoint.outer_step)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        try:
            touched: dict[Hashable, R] = {}
            for delivery in self.arranged(deliveries):
                event = delivery.event
                if numbers := numbers_of(event, self.context.suites):
                    key = self.run_key(delivery)
                    if key not in self.runs:
                        self.runs[key] = self.open_run(delivery, key)
                    touched[key] = self.runs[key]
                    is_whole = isinstance(event, CheckpointFinished)
                    touched[key].add(numbers, event.checkpoint.outer_step, is_whole=is_whole)
            for run in touched.values():
                run.flush()
        except BaseException:
            with contextlib.suppress(Exception):
                self._close_runs()
            self.runs.clear()
            raise

    def close(self) -> None:
        self._close_runs()

    def _close_runs(self) -> None:
        with contextlib.ExitStack() as runs:
            for run in self.runs.values():
                runs.callback(run.close)


def kept_id(file: Path) -> str:
    """Returns the id in a file, which gets a new one if it does not exist.

    A sink stores it with what it writes: if that was removed, the id is new, and everything is written again.

    >>> kept_id(Path("sink/id")) == kept_id(Path("sink/id"))
    True
    """
    if not file.exists():
        write_whole(file, uuid.uuid4().hex)
    return file.read_text(encoding="ascii")


def of_another_training(run: str, label: str, *, where: str, argument: str = "run=ID") -> PluginError:
    """Returns the error for a given run that has the results of another training.

    Args:
      run: Id or name of the run.
      label: Label of the training that is delivered.
      where: The sink.
      argument: Part of the sink's address that names a run.

    >>> of_another_training("3f2a", "runs/today", where="sink 'wandb'").got
    'runs/today'
    """
    return PluginError(
        f"run {run!r} has the results of another training",
        where=where,
        got=label,
        next_step=f"pass {argument} of this training's own run; a restarted trainer has a new run",
    )
