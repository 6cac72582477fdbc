"""Cache of a store's page, which is rendered on request."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from lobench.analysis.comparisons.listed_part import listed_part
from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.comparisons.viewer_index import ViewerIndex
from lobench.analysis.store.methods import check_experiment, read_methods
from lobench.analysis.store.reading import StoreReading
from lobench.core.errors import LobenchError, UsageError
from lobench.core.wording import headline
from lobench.engine.store.bundle import has_ledger
from lobench.engine.store.ledger import Ledger
from lobench.report.page.explorer import explorer_data
from lobench.report.page.page import reading_page, render_page, waiting_page

__all__ = ["Page", "PageCache"]

_PATIENCE = 0.5  # seconds that a request waits for the first page, before it gets one that says that it is being made
_PAUSE = 1.0  # pause after rendering, relative to its duration, so that it takes half a core at most
_UNSAID = "unsaid"  # placeholder of the version in a draft of the page


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Page of a store at one time.

    Attributes:
      version: Hash of the content, which stays the same if equal content is written again.
      html: The page.
      viewer_index: Index of the results. None while the store has no evaluations, or is being read for the first time.
      data: Data that the explorer requests, as JSON.
    """

    version: str
    html: bytes
    viewer_index: ViewerIndex | None
    data: str


class PageCache:
    """Page of a store. It is rendered again on request if the store has changed, by one thread at a time.

    Raises:
      UsageError: The folder is not a store, or the store lacks the experiment.
    """

    def __init__(self, store: Path, baselines: tuple[Path, ...], *, experiment: str = "", every: bool = False) -> None:
        if not has_ledger(store):
            raise UsageError("no result store found", where=str(store), expected="a folder with ledger.sqlite")
        self._store, self._baselines = store.absolute(), baselines
        self._experiment, self._every = experiment or None, every
        self._reading = StoreReading(self._store)
        check_experiment(store, self._experiment)
        self._lock, self._making = threading.Lock(), threading.Lock()
        self._is_made = threading.Event()  # the first page, or the reason why there is none
        self._stamp: tuple[object, ...] = ()
        self._next_at = 0.0
        self._page: Page | None = None
        self._problem = ""
        self._error: Exception | None = None

    def start(self) -> None:
        """Begins to make the first page, and waits a moment for it.

        Raises:
          LobenchError: The store cannot be read.
        """
        Ledger.open(self._store, read_only=True).close()  # raises, also if the first page takes longer than a moment
        self.look()
        if self._error is not None:
            raise self._error

    def look(self) -> tuple[Page, str]:
        """Returns the page, and the current problem with the store or "".

        Pages are rendered in the background, so that requests do not wait. Until the first one of a large store is
        there, the page says that the store is being read.
        """
        is_due = time.monotonic() >= self._next_at and self._stamp != self._files()
        if is_due and self._making.acquire(blocking=False):
            threading.Thread(target=self._make_aside, daemon=True).start()
        if self._page is None:
            self._is_made.wait(_PATIENCE)
        with self._lock:
            return self._page or self._reading_page(), self._problem

    def _reading_page(self) -> Page:
        try:
            with Ledger.open(self._store, read_only=True) as ledger:
                html = reading_page(self._store, ledger.num_evaluations())
        except LobenchError:  # the problem is shown
            html = reading_page(self._store, 0)
        return Page(version="", html=html.encode(), viewer_index=None, data="null")

    def _files(self) -> tuple[object, ...]:
        """Returns a stamp that changes with every commit."""
        found: list[object] = []
        for name in ("ledger.sqlite", "ledger.sqlite-wal"):
            try:
                stat = (self._store / name if self._store.is_dir() else self._store).stat()
                found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
            except OSError:
                found.append(None)
        return tuple(found)

    def _make_aside(self) -> None:
        try:
            self._make()
        except LobenchError as error:
            with self._lock:
                self._problem, self._error = f"{headline(error)}.", error
        except Exception as error:  # noqa: BLE001  (a damaged store; visitors keep the last page)
            with self._lock:
                self._error = error
                self._problem = f"{self._store} cannot be read: {headline(error)}."
        finally:
            self._is_made.set()
            self._making.release()

    def _make(self) -> None:
        started, stamp = time.monotonic(), self._files()
        try:
            page = self._read()
            with self._lock:
                self._page, self._problem = page, ""
        finally:
            took = time.monotonic() - started
            self._stamp, self._next_at = stamp, time.monotonic() + _PAUSE * took

    def _read(self) -> Page:
        snapshot = read_methods(self._store, self._experiment, every=self._every, reading=self._reading)
        if not snapshot.rows:
            return Page(version="", html=waiting_page(self._store).encode(), viewer_index=None, data="null")
        summary = summary_of(self._store, self._baselines or None, snapshot=snapshot)
        listed = listed_part(summary)
        viewer_index = ViewerIndex(listed.subjects)
        data = json.dumps(explorer_data(viewer_index, served=True), allow_nan=False, separators=(",", ":"))
        draft = render_page(summary, version=_UNSAID, listed=listed)
        version = hashlib.sha256(f"{data}\0{draft}".encode()).hexdigest()[:16]
        html = draft.replace(f'data-version="{_UNSAID}"', f'data-version="{version}"', 1)
        return Page(version=version, html=html.encode(), viewer_index=viewer_index, data=data)
