"""A thread that reads batches from a user's iterators while the program computes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["Reader"]


class Reader:
    """Reads what it is asked to, one after another, in one thread: no iterator meets two threads.

    The thread is a daemon: an iterator that never yields again keeps no process alive.
    """

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="lobench reads batches", daemon=True).start()

    def read(self, what: Callable[[], Any]) -> Future[Any]:
        """Returns what will hold what was read, or the error."""
        future: Future[Any] = Future()
        self._asked.put((future, what))
        return future

    def close(self) -> None:
        """Ends the thread after what it was asked for."""
        self._asked.put(None)

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            future, what = asked
            try:
                future.set_result(what())
            except BaseException as error:  # noqa: BLE001  (whoever asked raises it)
                future.set_exception(error)
