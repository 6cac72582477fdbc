"""A worker's end of the pipe to its chief."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

from lobench.core.codec import Codec, Message

__all__ = ["ChiefEnd"]

M = TypeVar("M", bound=Message)


class ChiefEnd(Generic[M]):
    """Says messages in any thread, and hears them in a thread of its own, so that the chief's end is noticed at once.

    Args:
      codec: Of what the chief may say.
      owns_process: Whether a chief that is gone ends this process: nothing that it could still do is wanted.
    """

    def __init__(self, connection: Connection, codec: Codec[M], *, owns_process: bool) -> None:
        self._connection, self._codec, self._owns_process = connection, codec, owns_process
        self._take: Callable[[M | None], None] = lambda message: None
        self._sending = threading.Lock()

    def say(self, message: Message) -> None:
        """Sends a message; to a chief that is gone, nothing."""
        data = message.to_bytes()
        try:
            with self._sending:
                self._connection.send_bytes(data)
        except OSError:
            self._gone()

    def listen(self, take: Callable[[M | None], None]) -> None:
        """Has `take` called with each message, in the thread that listens, and with None once the chief is gone."""
        self._take = take
        threading.Thread(target=self._listen, name="lobench listens to its chief", daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                self._take(self._codec.from_bytes(self._connection.recv_bytes()))
        except (EOFError, OSError):
            self._gone()

    def _gone(self) -> None:
        if self._owns_process:
            os._exit(1)
        self._take(None)
