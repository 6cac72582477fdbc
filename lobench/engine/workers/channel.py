"""Channel between a chief and a worker: the two ends of a pipe.

The chief's end never blocks and does not trust its input, because the worker may freeze in the middle of a
message, and a task may write into the pipe. The worker's end is a `multiprocessing.connection.Connection`. A frame is
the message's length in four bytes, big-endian, followed by the message (`lobench.core.codec`), as `Connection` sends
it. The chief's end only examines the beginning of a message.
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

from lobench.core.codec import Codec, Message, kind_of, may_be_message

__all__ = ["STALL_SECONDS", "Channel", "ChiefEnd"]

M = TypeVar("M", bound=Message)

STALL_SECONDS = 30.0  # longest pause in the middle of a message
_MAX_MESSAGE_BYTES = 1 << 30  # largest message in bytes, which is also the limit of a row in the ledger
_LENGTH_FORMAT = struct.Struct("!i")
_SHOWN_BYTES = 24  # bytes of an invalid message that are shown
_CHUNK_BYTES = 1 << 16  # larger buffers would be mapped on each call
_MAX_CHUNKS = 256  # limit per call, so that a worker that floods the chief does not block others
_end_process = os._exit  # kept here, because `os._exit` is replaced during a plugin's call
_MAX_LOOK_SECONDS = 5.0  # longest pause between calls of `look` that counts


class Channel:
    """Chief's end of a pair of sockets. `send` may be called in any thread, the other methods in one.

    Attributes:
      is_closed: Whether the other end is closed. All its messages have then been received.
      problem: Description of an invalid message or a stall, in one line; "" if there was none.

    >>> one, other = socket.socketpair()
    >>> channel = Channel(one)
    >>> other.close(), channel.close()
    (None, None)
    """

    def __init__(self, end: socket.socket, clock: Callable[[], float] = time.monotonic) -> None:
        end.setblocking(False)
        self._socket, self._clock = end, clock
        self._received_bytes, self._unsent_bytes = bytearray(), bytearray()
        self._send_lock = threading.Lock()
        self._last_look = clock()
        self._stalled_seconds = 0.0
        self._has_grown = False
        self.is_closed, self.problem = False, ""

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def is_amid_a_message(self) -> bool:
        return bool(self._received_bytes)

    def send(self, message: bytes) -> bool:
        """Sends as much of a message as fits into the pipe, and keeps the rest for `flush`.

        Returns:
          Whether everything was sent.
        """
        frame = _LENGTH_FORMAT.pack(len(message)) + message
        with self._send_lock:
            if not self._unsent_bytes:  # the usual case: there is room for the whole message
                with contextlib.suppress(OSError):  # `flush` handles the error
                    frame = frame[self._socket.send(frame) :]
            self._unsent_bytes += frame
        return not frame or self.flush()

    def flush(self) -> bool:
        """Sends as much of the kept data as fits into the pipe, and returns whether everything was sent.

        Drops the data if the other end is closed.
        """
        with self._send_lock:
            try:
                while self._unsent_bytes:
                    del self._unsent_bytes[: self._socket.send(self._unsent_bytes[:_CHUNK_BYTES])]
            except BlockingIOError:
                return False
            except OSError:
                self._unsent_bytes.clear()
            return True

    def receive(self, *, to_the_end: bool = False) -> list[bytes]:
        """Returns the messages that have arrived completely.

        Args:
          to_the_end: Whether to read until the end of the pipe. Set it only after all writers have ended.
        """
        num_chunks = 0
        while (num_chunks < _MAX_CHUNKS or to_the_end) and not self.is_closed:
            num_chunks += 1
            try:
                chunk = self._socket.recv(_CHUNK_BYTES)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            self._has_grown = True
            self._received_bytes += chunk
            self.is_closed = not chunk
            if len(chunk) < _CHUNK_BYTES and not to_the_end:
                break  # nothing more for now
        return [] if self.problem else self._messages()

    def _messages(self) -> list[bytes]:
        messages: list[bytes] = []
        start = 0
        while len(self._received_bytes) - start >= _LENGTH_FORMAT.size:
            (length,) = _LENGTH_FORMAT.unpack_from(self._received_bytes, start)
            body_start, body_end = start + _LENGTH_FORMAT.size, start + _LENGTH_FORMAT.size + length
            is_intact = 0 <= length <= _MAX_MESSAGE_BYTES and may_be_message(
                self._received_bytes[body_start : min(body_end, body_start + _SHOWN_BYTES)]
            )
            if is_intact and len(self._received_bytes) < body_end:
                break
            message = bytes(self._received_bytes[body_start:body_end]) if is_intact else b""
            if not kind_of(message):
                shown_bytes = bytes(self._received_bytes[start : start + _SHOWN_BYTES])
                self.problem = f"wrote something other than a message into its pipe: {shown_bytes!r}"
                self._received_bytes.clear()
                return messages
            messages.append(message)
            start = body_end
        del self._received_bytes[:start]
        return messages

    def look(self) -> None:
        """Detects that the other end has stopped in the middle of a message.

        Call it about once a second while a message is incomplete. Longer pauses between calls, for example because the
        chief was stopped, do not count.
        """
        now = self._clock()
        is_moving = self._has_grown or not self._received_bytes
        self._stalled_seconds = (
            0.0 if is_moving else self._stalled_seconds + min(now - self._last_look, _MAX_LOOK_SECONDS)
        )
        self._last_look, self._has_grown = now, False
        if self._stalled_seconds > STALL_SECONDS and not self.problem:
            self.problem = f"sent nothing for {STALL_SECONDS:g} s in the middle of a message"

    def close(self) -> None:
        self._socket.close()


class ChiefEnd(Generic[M]):
    """Worker's end. Messages may be sent in any thread. `listen` receives in a separate thread.

    So the worker notices at once if the chief is lost.

    Args:
      connection: Connection to the chief.
      codec: Codec of the messages that the chief may send.
      owns_process: Whether to exit this process if the chief is lost, because its results are no longer needed.

    >>> one, other = multiprocessing.Pipe()
    >>> ChiefEnd(one, Codec(Exit), owns_process=False).send(Exit())
    >>> kind_of(other.recv_bytes())
    'exit'
    """

    def __init__(self, connection: Connection, codec: Codec[M], *, owns_process: bool) -> None:
        self._connection = connection
        self._codec = codec
        self._owns_process = owns_process
        self._handle_message: Callable[[M | None], None] = lambda message: None
        self._send_lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Sends a message. Does nothing if the chief is lost."""
        data = message.to_bytes()
        try:
            with self._send_lock:
                self._connection.send_bytes(data)
        except OSError:
            self._chief_lost()

    def listen(self, take: Callable[[M | None], None]) -> None:
        """Calls `take` with each message, in a listening thread, and with None once the chief is lost."""
        self._handle_message = take
        threading.Thread(target=self._listen, name="lobench listens to its chief", daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                self._handle_message(self._codec.from_bytes(self._connection.recv_bytes()))
        except (EOFError, OSError):
            self._chief_lost()

    def _chief_lost(self) -> None:
        if self._owns_process:
            _end_process(1)
        self._handle_message(None)
