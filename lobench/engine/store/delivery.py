"""Delivery from the ledger to sinks: at least once, in order, each sink at its own pace.

Each sink has a thread and a cursor in the ledger, so a sink that fails or hangs delays neither the others nor the
chief. The threads only read the ledger; the chief writes their progress when it calls `write_progress`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lobench.core.containment import contain_plugins, restore_working_directory
from lobench.core.errors import LobenchError
from lobench.core.subject import Subject, SubjectKey
from lobench.engine.group_files import open_tree_to_group
from lobench.engine.store.ledger import Ledger
from lobench.hookspecs import CheckpointFinished, Delivery, ResultSink
from lobench.plugins import PluginManager

__all__ = ["Deliverer", "notify"]

_BATCH_SIZE = 256
_FIRST_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 60.0
_CLOSE_SECONDS = 2.0
_LAST_ATTEMPTS = 3  # attempts of `flush` if the sink's own code fails
_HURRIED_SECONDS = 2.0
_CURSOR_SECONDS = 0.25  # between two writings of the cursors
_GATHER_SECONDS = 0.1  # wait after a delivery, in which the next batch is collected
_STATE_SECONDS = 30.0  # until a sink that shows the store's state is called without deliveries

OnError = Callable[[str, BaseException], None]
OnUnwritten = Callable[[str, str], None]
Wait = Callable[[threading.Event, float | None], bool]


class Deliverer:
    """Delivers a store's ledger to sinks.

    Args:
      ledger: Ledger opened for writing by the chief.
      sinks: Sinks by address (`NAME[:ARG]`). The address and the sink's `destination` name its cursor.
      on_error: Called with a sink's address and exception when it begins to fail, or fails with another error.
      on_close_error: Called with a sink's address and exception if closing it fails. Closing is not retried. None:
        `on_error` is called.
      on_unwritten: Called with a sink's address and a line on results that the sink ignores because it already has
        values for them. Called once per run and kind.
      wait: Function that waits for an event for at most the given seconds (None: without limit). Tests replace it.
    """

    def __init__(
        self,
        ledger: Ledger,
        sinks: Mapping[str, ResultSink],
        on_error: OnError,
        *,
        on_close_error: OnError | None = None,
        on_unwritten: OnUnwritten = lambda address, what: None,
        wait: Wait = threading.Event.wait,
    ) -> None:
        self._ledger = ledger
        self._on_error = on_error
        self._on_close_error = on_close_error or on_error
        self._on_unwritten, self._reported_unwritten = on_unwritten, set[tuple[str, str, str]]()
        self._addresses_keeping_first = [
            address for address, sink in sinks.items() if getattr(sink, "keeps_first", False)
        ]
        self._reports: queue.SimpleQueue[_Report] = queue.SimpleQueue()
        self._unwritten_cursors: dict[str, int] = {}  # sequence by address, not yet written to the ledger
        self._written_at = -_CURSOR_SECONDS
        self._cursors = {address: _cursor_of(address, sink) for address, sink in sinks.items()}
        self._threads = {
            address: _SinkThread(address, sink, ledger.open_reader, self._cursor_position(address), self._reports, wait)
            for address, sink in sinks.items()
        }
        self._outstanding_at_start = self._num_outstanding(sinks)
        for thread in self._threads.values():
            thread.thread.start()

    @property
    def outstanding_at_start(self) -> Mapping[str, int]:
        """Number of outstanding deliveries that were recorded before this process started, by address."""
        return self._outstanding_at_start

    def _cursor_position(self, address: str) -> int:
        return self._ledger.sink_cursor(self._cursors[address])

    def _num_outstanding(self, addresses: Iterable[str]) -> dict[str, int]:
        """Returns the number of outstanding deliveries by address, for sinks that have any."""
        counts = {address: self._ledger.num_deliveries_after(self._cursor_position(address)) for address in addresses}
        return {address: count for address, count in counts.items() if count}

    def wake(self) -> None:
        """Wakes the sinks' threads because the ledger has new deliveries."""
        for thread in self._threads.values():
            thread.new_deliveries.set()

    def write_progress(self, *, now: bool = False) -> None:
        """Writes the sinks' progress to the ledger and reports their errors. Called by the chief.

        Args:
          now: Whether to write progress even if it was written a moment ago. After a kill, deliveries whose progress
            was not written are repeated.
        """
        error_calls = []
        while not self._reports.empty():
            report = self._reports.get()
            for unwritten in report.unwritten:
                self._log_unwritten(report.address, unwritten)
            if report.error is None:
                self._unwritten_cursors[report.address] = report.sequence
            else:
                error_calls.append(
                    (self._on_close_error if report.is_closing else self._on_error, report.address, report.error)
                )
        if self._unwritten_cursors and (now or time.monotonic() > self._written_at + _CURSOR_SECONDS):
            with self._ledger.transaction():
                for address, sequence in self._unwritten_cursors.items():
                    self._ledger.advance_cursor(self._cursors[address], sequence)
            self._unwritten_cursors.clear()
            self._written_at = time.monotonic()
        for report_to, address, error in error_calls:
            report_to(address, error)

    def _log_unwritten(self, address: str, unwritten: _UnwrittenResult) -> None:
        notice_key = (address, unwritten.run, unwritten.kind)
        if notice_key not in self._reported_unwritten:
            self._reported_unwritten.add(notice_key)
            self._on_unwritten(address, unwritten.line)

    def flush(self, timeout: float, *, is_hurried: Callable[[], bool] = lambda: False) -> dict[str, int]:
        """Waits until every sink has received all deliveries, for at most `timeout` seconds.

        Sinks that wait for a retry try at once. A sink is abandoned after three failures of its code. Failures of a
        disk or a network are retried until the end. A sink that shows the store's state is called once more.

        Args:
          timeout: Time limit in seconds.
          is_hurried: Polled while waiting. Once it returns True, at most two seconds remain.
        Returns:
          Number of outstanding deliveries by address, for sinks that have any.
        """
        last_sequence = self._ledger.last_sequence()
        deadline = time.monotonic() + timeout
        for thread in self._threads.values():
            thread.begin_last_attempts()
        self.wake()
        was_hurried = False
        while True:
            self.write_progress(now=True)
            if not was_hurried and is_hurried():
                was_hurried = True
                deadline = min(deadline, time.monotonic() + _HURRIED_SECONDS)
            late_addresses = [
                address
                for address, thread in self._threads.items()
                if thread.is_state_due or self._cursor_position(address) < last_sequence
            ]
            is_hopeless = all(self._threads[address].num_failures >= _LAST_ATTEMPTS for address in late_addresses)
            if not late_addresses or is_hopeless or time.monotonic() > deadline:
                return self._num_outstanding(late_addresses)
            time.sleep(0.02)

    def close(self) -> None:
        """Stops the threads and closes the sinks.

        The thread of a hanging sink is abandoned; it ends with the process.
        """
        for thread in self._threads.values():
            thread.ask_to_stop()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in self._threads.values():
            thread.thread.join(timeout=max(0.0, deadline - time.monotonic()))
        self.write_progress(now=True)
        if self._addresses_keeping_first:
            for run, methods in self._ledger.shared_runs().items():
                names = " and ".join(map(repr, methods))
                for address in self._addresses_keeping_first:
                    self._log_unwritten(
                        address, _UnwrittenResult(run, "shared", f"methods {names} are one subject: one run, {run!r}")
                    )


def _cursor_of(address: str, sink: ResultSink) -> str:
    destination = getattr(sink, "destination", "")
    return f"{address} {destination}" if destination else address


@dataclass(frozen=True, slots=True)
class _UnwrittenResult:
    """Results that a sink ignores because it keeps the first ones: run, kind, and a line for the user."""

    run: str
    kind: str
    line: str


class _WrittenSubjects:
    """Subjects whose values a first-write-wins sink already has, by run, generation and outer step.

    Args:
      ledger: Reader of the ledger, from which earlier deliveries are read once.
      sequence: Number of the last earlier delivery.
    """

    def __init__(self, ledger: Ledger, sequence: int) -> None:
        self._ledger, self._start_sequence = ledger, sequence
        self._received_completions: set[int] = set()  # completions
        self._owners: dict[tuple[str, int, int], Subject] = {}
        for run, subject in ledger.first_deliveries(sequence):
            self._owners.setdefault(_series_and_index(run, subject), subject)

    def add(self, deliveries: Sequence[Delivery]) -> tuple[_UnwrittenResult, ...]:
        """Adds deliveries that the sink received, and returns the results among them that it did not write."""
        reopened_sequences = self._ledger.reopened_completions()
        return tuple(filter(None, (self._add(delivery, reopened_sequences) for delivery in deliveries)))

    def _add(self, delivery: Delivery, reopened_sequences: Mapping[SubjectKey, set[int]]) -> _UnwrittenResult | None:
        run, subject = delivery.run, delivery.event.subject
        owner = self._owners.setdefault(_series_and_index(run, subject), subject)
        if not isinstance(delivery.event, CheckpointFinished):
            return None
        self._received_completions.add(delivery.sequence)
        step = f"outer step {subject.outer_step} of {repr(run) if run else 'the run'}"
        if owner.key != subject.key:
            duplicate_text, first_text = (
                f"{theta_subject.label} ({theta_subject.sha256[:12]})" for theta_subject in (subject, owner)
            )
            return _UnwrittenResult(
                run, "theta", f"{duplicate_text} is not written: {step} has the numbers of {first_text}"
            )
        if any(
            sequence <= self._start_sequence or sequence in self._received_completions
            for sequence in reopened_sequences.get(subject.key, ())
        ):
            message = f"{subject.label} has more results than are written: {step} keeps the numbers of before"
            return _UnwrittenResult(run, "seeds", message)
        return None


def _series_and_index(run: str, subject: Subject) -> tuple[str, int, int]:
    return run, subject.checkpoint.generation, subject.outer_step


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    """Report of a sink's thread to the chief: its progress, or its error."""

    address: str
    sequence: int = 0
    error: BaseException | None = None
    is_closing: bool = False
    unwritten: tuple[_UnwrittenResult, ...] = ()


class _SinkThread:
    def __init__(
        self,
        address: str,
        sink: ResultSink,
        open_reader: Callable[[], Ledger],
        sequence: int,
        reports: queue.SimpleQueue[_Report],
        wait: Wait,
    ) -> None:
        self._address = address
        self._sink = sink
        self._open_reader = open_reader
        self._sequence = sequence
        self._reports, self._wait = reports, wait
        self._ledger: Ledger | None = None
        self._written: _WrittenSubjects | None = None
        self._is_stopping = False
        self.is_at_the_end = False
        self.num_failures = 0  # consecutive failures of the sink's own code
        self._shows_state = bool(getattr(sink, "shows_state", False))
        self._num_states_due, self._num_states_shown = int(self._shows_state), 0
        self._called_at = time.monotonic()  # when the sink was called last
        # Two events, because new deliveries must not shorten the wait of a failing sink.
        self.new_deliveries, self.retry_now = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"sink {address}", daemon=True)

    @property
    def is_state_due(self) -> bool:
        """Whether the sink shows the store's state, and has not yet shown that of the start or of the last attempts."""
        return self._num_states_shown < self._num_states_due

    def begin_last_attempts(self) -> None:
        self.num_failures, self.is_at_the_end = 0, True
        self._num_states_due += self._shows_state
        self.retry_now.set()

    def ask_to_stop(self) -> None:
        self._is_stopping = True
        self.new_deliveries.set()
        self.retry_now.set()

    def _run(self) -> None:
        backoff, last_error = 0.0, ""
        while not self._is_stopping:
            try:
                num_delivered = self._deliver()
                backoff, last_error, self.num_failures = 0.0, "", 0
                if not num_delivered:
                    self._wait(self.new_deliveries, _STATE_SECONDS if self._shows_state else None)
                    self.new_deliveries.clear()
                elif num_delivered < _BATCH_SIZE and self._wait(self.retry_now, _GATHER_SECONDS):
                    self.retry_now.clear()
            except BaseException as error:  # noqa: BLE001  (a plugin boundary; SystemExit would end the thread unseen)
                if repr(error) != last_error:
                    self._reports.put(_Report(address=self._address, error=error))
                last_error = repr(error)
                backoff = min(max(2 * backoff, _FIRST_BACKOFF_SECONDS), _LONGEST_BACKOFF_SECONDS)
                if not isinstance(error, OSError | LobenchError):
                    self.num_failures += 1
                    backoff = _FIRST_BACKOFF_SECONDS if self.is_at_the_end else backoff
                self._wait(self.retry_now, backoff)
                self.retry_now.clear()
        self._release()

    def _deliver(self) -> int:
        """Delivers the next batch to the sink, which syncs its files each time, and returns the batch's size."""
        if self._ledger is None:
            self._ledger = self._open_reader()
        deliveries = self._ledger.deliveries_after(self._sequence, _BATCH_SIZE)
        num_states_due = self._num_states_due
        is_overdue = self._shows_state and time.monotonic() - self._called_at >= _STATE_SECONDS
        if not deliveries and not self.is_state_due and not is_overdue:
            return 0
        with restore_working_directory():
            self._sink.deliver(deliveries)
        self._called_at = time.monotonic()
        open_tree_to_group(self._ledger.store, excluded=["spool"])  # a sink may have made files there
        if not deliveries:
            self._num_states_shown = num_states_due
            return 0
        if getattr(self._sink, "keeps_first", False):
            self._written = self._written or _WrittenSubjects(self._ledger, self._sequence)
            unwritten = self._written.add(deliveries)
        else:
            unwritten = ()
        self._sequence = deliveries[-1].sequence
        self._reports.put(_Report(address=self._address, sequence=self._sequence, unwritten=unwritten))
        return len(deliveries)

    def _release(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
        try:
            with restore_working_directory():
                self._sink.close()
        except BaseException as error:  # noqa: BLE001  (a plugin boundary: reported with its address)
            self._reports.put(_Report(address=self._address, error=error, is_closing=True))


def notify(manager: PluginManager, hook: str, event: object, on_error: OnError) -> None:
    """Calls every implementation of an observing hook. If one raises, `on_error` is called and the others still run."""
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        try:
            with contain_plugins():
                implementation.function(**({"event": event} if implementation.argnames else {}))
        except BaseException as error:  # noqa: BLE001  (a plugin boundary; Ctrl-C sets a flag while a watch runs, and raises nothing)
            on_error(f"plugin {implementation.plugin_name!r}, hook {hook}", error)
