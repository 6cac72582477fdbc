"""Signal handling (Ctrl-C, SIGTERM, SIGHUP) while a chief runs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["Signals", "obeying_interrupts"]


_OUTPUT_DESCRIPTORS = (1, 2)  # standard output and standard error


@contextlib.contextmanager
def obeying_interrupts() -> Iterator[None]:
    """Lets SIGINT raise KeyboardInterrupt while the body runs, also if this process was started with SIGINT ignored.

    A shell ignores it in what a script starts with `&`. A chief counts it nevertheless, so it must not be lost before
    the chief runs, or between two chiefs after an edit. Only the main thread can handle signals. In another thread
    nothing changes.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not is_main_thread or signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class Signals:
    """Counts the signals that ask a chief to stop.

    Attributes:
      count: Number of signals received.
    """

    def __init__(self) -> None:
        self.count = 0
        self._terminal_descriptors: list[int] = []

    @contextlib.contextmanager
    def counting(self, waking: int) -> Iterator[None]:
        """Counts signals while the body runs. Each signal also writes to the file descriptor `waking`, to end a wait.

        Only the main thread can handle signals. In another thread nothing changes: Ctrl-C raises KeyboardInterrupt in
        the main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signal_numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` ignores it
            signal_numbers.append(signal.SIGHUP)
        self._terminal_descriptors = [number for number in _OUTPUT_DESCRIPTORS if os.isatty(number)]
        previous_handlers = {number: signal.signal(number, self._count) for number in signal_numbers}
        previous_wakeup = signal.set_wakeup_fd(waking)
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous_wakeup)
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)

    def _count(self, number: int, frame: Any) -> None:
        self.count += 1
        if number == signal.SIGHUP:
            self._discard_lost_terminals()

    def _discard_lost_terminals(self) -> None:
        """Discards further output if its terminal was closed. Writing to it would fail."""
        for number in self._terminal_descriptors:
            if not os.isatty(number):
                os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), number)
