"""Channel between a chief and a worker: the two ends of a pipe.

The chief's end never waits for the other one, and believes nothing that it hears. The worker's end is a
`multiprocessing.connection.Connection`: it may be frozen in the middle of a message, and a task may write into its
pipe. A frame is what `Connection` makes of a message: its length in four bytes, big-endian, and then the message
(`lobench.core.codec`), of which nothing but its beginning is looked at by the chief's end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

from lobench.core.codec import Codec, Message, has_begun_well, kind_of

__all__ = ["STALL_SECONDS", "Channel", "ChiefEnd"]

M = TypeVar("M", bound=Message)

STALL_SECONDS = 30.0  # without a byte in the middle of a message
_LIMIT = 1 << 30  # bytes of a message: a ledger's row holds no more
_HEAD = struct.Struct("!i")
_SHOWN = 24  # bytes of what is no message
_CHUNK = 1 << 16  # more would be mapped anew for each call
_CHUNKS = 256  # read in one turn: who floods the chief lets others be heard
_LONGEST_LOOK_SECONDS = 5.0  # between two looks of a chief that runs


class Channel:
    """The chief's end, of a pair of sockets. `send` may be called in any thread, the rest in one.

    Attributes:
      is_closed: The other end is gone; what it said before has been received.
      problem: What is wrong with what came, in one line; "" while all is well.
    """

    def __init__(self, end: socket.socket, clock: Callable[[], float] = time.monotonic) -> None:
        end.setblocking(False)
        self._end, self._clock = end, clock
        self._received, self._unsent = bytearray(), bytearray()
        self._sending = threading.Lock()
        self._looked, self._stalled, self._grew = clock(), 0.0, False
        self.is_closed, self.problem = False, ""

    def fileno(self) -> int:
        return self._end.fileno()

    @property
    def is_amid_a_message(self) -> bool:
        return bool(self._received)

    def send(self, message: bytes) -> bool:
        """Sends what the other end has room for, and keeps the rest for `flush`; returns whether all is sent."""
        frame = _HEAD.pack(len(message)) + message
        with self._sending:
            if not self._unsent:  # nearly always: there is room for all of it
                with contextlib.suppress(OSError):  # `flush` finds out what it is
                    frame = frame[self._end.send(frame) :]
            self._unsent += frame
        return not frame or self.flush()

    def flush(self) -> bool:
        """Sends what was kept, as far as there is room now; returns whether all is sent. To nobody, nothing is."""
        with self._sending:
            try:
                while self._unsent:
                    del self._unsent[: self._end.send(self._unsent[:_CHUNK])]
            except BlockingIOError:
                return False
            except OSError:
                self._unsent.clear()
            return True

    def receive(self, *, to_the_end: bool = False) -> list[bytes]:
        """Returns the messages that have come whole.

        Args:
          to_the_end: Nobody writes any more: reads all that is left, however much.
        """
        turn = 0
        while (turn < _CHUNKS or to_the_end) and not self.is_closed:
            turn += 1
            try:
                chunk = self._end.recv(_CHUNK)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            self._grew = True
            self._received += chunk
            self.is_closed = not chunk
            if len(chunk) < _CHUNK and not to_the_end:
                break  # that was all, for now
        return [] if self.problem else self._messages()

    def _messages(self) -> list[bytes]:
        messages: list[bytes] = []
        start = 0
        while len(self._received) - start >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self._received, start)
            first, end = start + _HEAD.size, start + _HEAD.size + length
            is_well = 0 <= length <= _LIMIT and has_begun_well(self._received[first : min(end, first + _SHOWN)])
            if is_well and len(self._received) < end:
                break
            message = bytes(self._received[first:end]) if is_well else b""
            if not kind_of(message):
                shown = bytes(self._received[start : start + _SHOWN])
                self.problem = f"wrote what is no message into its pipe: {shown!r}"
                self._received.clear()
                return messages
            messages.append(message)
            start = end
        del self._received[:start]
        return messages

    def look(self) -> None:
        """Finds out whether the other end stopped in the middle of a message; called every second or so meanwhile.

        Time in which the chief itself did not look, since it was stopped, say, does not count.
        """
        now = self._clock()
        is_moving = self._grew or not self._received
        self._stalled = 0.0 if is_moving else self._stalled + min(now - self._looked, _LONGEST_LOOK_SECONDS)
        self._looked, self._grew = now, False
        if self._stalled > STALL_SECONDS and not self.problem:
            self.problem = f"said nothing for {STALL_SECONDS:g} s in the middle of a message"

    def close(self) -> None:
        self._end.close()


class ChiefEnd(Generic[M]):
    """The worker's end. It says messages in any thread, and hears them in a thread of its own: so it notices at once
    where the chief is gone.

    Args:
      codec: Of what the chief may say.
      owns_process: Whether a chief that is gone ends this process: nothing that it could still do is wanted.
    """

    def __init__(self, connection: Connection, codec: Codec[M], *, owns_process: bool) -> None:
        self._connection, self._codec, self._owns_process = connection, codec, owns_process
        self._take: Callable[[M | None], None] = lambda message: None
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
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
