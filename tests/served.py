"""A store served by `lobench view` in a thread of the test's own process, and requests to it."""

from __future__ import annotations

import http.client
import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tiny import PATIENCE

from lobench.tools.viewer.server import ServedPage, view


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def record(self) -> Any:
        return json.loads(self.body)


def serve(store: Path, **options: Any) -> ServedPage:
    """Serves a store at a free port until the process ends; returns when the page can be opened."""
    ready: queue.Queue[ServedPage | BaseException] = queue.Queue()

    def run() -> None:
        try:
            view(store, port=0, on_ready=ready.put, **options)
        except BaseException as error:  # noqa: BLE001  (the test's thread raises it)
            ready.put(error)

    threading.Thread(target=run, daemon=True).start()
    found = ready.get(timeout=PATIENCE)
    if isinstance(found, BaseException):
        raise found
    return found


def until(address: str, is_there: Callable[[Answer], object], path: str = "data.json", **headers: str) -> Answer:
    """Asks a server again and again; returns the first answer that is as wanted."""
    deadline = time.monotonic() + PATIENCE / 3
    while not is_there(answer := get(address, path, **headers)):
        assert time.monotonic() < deadline, (answer.status, answer.body[:1000])
        time.sleep(0.02)
    return answer


def get(address: str, path: str = "", *, method: str = "GET", **headers: str) -> Answer:
    """Asks a server; `_` in the names of headers stands for `-`."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=PATIENCE)
    try:
        connection.request(method, f"/{path}", headers={name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read())
    finally:
        connection.close()
