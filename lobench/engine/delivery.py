"""From the ledger to the sinks: at least once, in order, each sink at its own pace.

Each sink has a thread and a cursor in the ledger, so that one which fails or hangs delays neither others nor the chief.
Threads only read; how far a sink came is written by the chief, when it calls `pump`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lobench.engine.ledger import Ledger
from lobench.hookspecs import ResultSink
from lobench.plugins import PluginManager

__all__ = ["Deliverer", "notify"]

_BATCH = 256
_FIRST_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 60.0

OnError = Callable[[str, BaseException], None]


class Deliverer:
    """Delivers a store's ledger.

    Args:
      ledger: The chief's, which writes.
      sinks: By address (`NAME[:ARG]`), which also names the cursor.
      on_error: Told a sink's address and exception, once for each change of the message.
      wait: Sleeps, or returns early once something is new; a test passes its own.
    """

    def __init__(self, ledger: Ledger, sinks: Mapping[str, ResultSink], on_error: OnError) -> None:
        self._ledger, self._on_error = ledger, on_error
        self._acknowledged: queue.Queue[tuple[str, int]] = queue.Queue()
        self._errors: queue.Queue[tuple[str, BaseException]] = queue.Queue()
        self._lanes = {
            address: _Lane(address, sink, ledger.store, ledger.cursor(address), self._acknowledged, self._errors)
            for address, sink in sinks.items()
        }
        for lane in self._lanes.values():
            lane.thread.start()

    def wake(self) -> None:
        """Says that the ledger has something new."""
        for lane in self._lanes.values():
            lane.news.set()

    def pump(self) -> None:
        """Writes how far the sinks came, and reports their errors; called by the chief."""
        newest: dict[str, int] = {}
        while not self._acknowledged.empty():
            address, sequence = self._acknowledged.get()
            newest[address] = sequence
        if newest:
            with self._ledger.transaction():
                for address, sequence in newest.items():
                    self._ledger.advance(address, sequence)
        while not self._errors.empty():
            self._on_error(*self._errors.get())

    def flush(self, timeout: float) -> dict[str, int]:
        """Waits until every sink has everything, at most `timeout` seconds; returns how much each one lacks."""
        last, deadline = self._ledger.last_sequence(), time.monotonic() + timeout
        self.wake()
        while True:
            self.pump()
            behind = {address: last - self._ledger.cursor(address) for address in self._lanes}
            behind = {address: count for address, count in behind.items() if count > 0}
            if not behind or time.monotonic() > deadline:
                return behind
            time.sleep(0.02)

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.stop()


class _Lane:
    """One sink's thread."""

    def __init__(
        self,
        address: str,
        sink: ResultSink,
        store: Path,
        sequence: int,
        acknowledged: queue.Queue[tuple[str, int]],
        errors: queue.Queue[tuple[str, BaseException]],
    ) -> None:
        self._address, self._sink, self._store, self._sequence = address, sink, store, sequence
        self._acknowledged, self._errors = acknowledged, errors
        self._stopping = False
        self.news = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"sink {address}", daemon=True)

    def stop(self) -> None:
        self._stopping = True
        self.news.set()
        self.thread.join(timeout=2)

    def _run(self) -> None:
        ledger = Ledger.open(self._store, read_only=True)
        backoff, last_error = 0.0, ""
        while not self._stopping:
            try:
                idle = not self._deliver(ledger)
                backoff, last_error = 0.0, ""
            except Exception as error:  # noqa: BLE001  (a plugin boundary: reported with its address, tried again)
                if str(error) != last_error:
                    self._errors.put((self._address, error))
                last_error = str(error)
                backoff = min(max(2 * backoff, _FIRST_BACKOFF_SECONDS), _LONGEST_BACKOFF_SECONDS)
                idle = True
            if idle and not self._stopping:
                self.news.wait(backoff or None)
                if not backoff:
                    self.news.clear()
        ledger.close()
        self._sink.close()

    def _deliver(self, ledger: Ledger) -> bool:
        deliveries = ledger.deliveries_after(self._sequence, _BATCH)
        if not deliveries:
            return False
        self._sink.deliver(deliveries)
        self._sequence = deliveries[-1].sequence
        self._acknowledged.put((self._address, self._sequence))
        return True


def notify(manager: PluginManager, hook: str, event: object, on_error: OnError) -> None:
    """Calls every implementation of an observing hook; one that raises is named and silences nobody."""
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        try:
            implementation.function(**({"event": event} if implementation.argnames else {}))
        except Exception as error:  # noqa: BLE001  (a plugin boundary)
            on_error(f"plugin {implementation.plugin_name!r}, hook {hook}", error)
