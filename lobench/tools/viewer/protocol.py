"""HTTP protocol with a time limit for requests.

The access token comes with the request, so a stranger could hold connections open by sending nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

__all__ = ["HeaderTimeout"]

_HEADER_SECONDS = 10.0
_MOST_WAITING = 64  # connections without a complete request; each takes a file descriptor
# Timers by server, in the order in which connections began to wait.
_WAITING: WeakKeyDictionary[ServerState, dict[HeaderTimeout, asyncio.TimerHandle]] = WeakKeyDictionary()


class HeaderTimeout(H11Protocol):
    """uvicorn's HTTP protocol, with a time limit for requests.

    A connection waits from its beginning, or from the end of its last response, until a request is complete. If too
    many connections wait, the one that has waited longest is closed.
    """

    def connection_made(self, transport: Any) -> None:
        self._waiting = _WAITING.setdefault(self.server_state, {})
        super().connection_made(transport)
        self._update_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_waiting()
        super().connection_lost(exc)

    def _update_timer(self) -> None:
        if self.transport.is_closing() or not (self.cycle is None or self.cycle.response_complete):
            self._end_waiting()
        elif self not in self._waiting:  # the limit is not extended by partial data
            self._waiting[self] = self.loop.call_later(_HEADER_SECONDS, self._abort)
            if len(self._waiting) > _MOST_WAITING:
                next(iter(self._waiting))._abort()

    def _abort(self) -> None:
        self._end_waiting()
        self.transport.abort()

    def _end_waiting(self) -> None:
        timer = self._waiting.pop(self, None)
        if timer is not None:
            timer.cancel()
