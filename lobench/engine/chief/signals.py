"""Signal handling (Ctrl-C, SIGTERM) while a chief runs."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["Signals"]


class Signals:
    """Counts the signals that ask a chief to stop.

    Attributes:
      count: Number of signals received.
    """

    def __init__(self) -> None:
        self.count = 0

    @contextlib.contextmanager
    def counted(self, waking: int) -> Iterator[None]:
        """Counts signals while the body runs. Each signal also writes to the file descriptor `waking`, to end a wait.

        Only the main thread can handle signals. In another thread nothing changes: Ctrl-C raises KeyboardInterrupt in
        the main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self._count) for number in (signal.SIGINT, signal.SIGTERM)}
        wakeup_before = signal.set_wakeup_fd(waking)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup_before)
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _count(self, number: int, frame: Any) -> None:
        self.count += 1
