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
from lobench.analysis.store.methods import read_methods
from lobench.core.errors import LobenchError, UsageError
from lobench.core.wording import headline
from lobench.engine.store.bundle import has_ledger
from lobench.report.page.explorer import explorer_data
from lobench.report.page.page import render_page, waiting_page

__all__ = ["Page", "PageCache"]

_PAUSE = 1.0  # pause after rendering, relative to its duration, so that it takes half a core at most
_UNSAID = "unsaid"  # placeholder of the version in a draft of the page


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Page of a store at one time.

    Attributes:
      version: Hash of the content, which stays the same if equal content is written again.
      html: The page.
      viewer_index: Index of the results. None while the store has no evaluations.
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
        self._lock, self._making = threading.Lock(), threading.Lock()
        self._stamp: tuple[object, ...] = ()
        self._next_at = 0.0
        self._page: Page | None = None
        self._problem = ""

    def look(self) -> tuple[Page, str]:
        """Returns the page, and the current problem with the store or "".

        The first call waits for the page. Later pages are rendered in the background, so that requests do not wait.

        Raises:
          LobenchError: The store cannot be read, before the first page was rendered.
        """
        if self._page is None:
            with self._making:
                if self._page is None:
                    self._make()
        elif (
            time.monotonic() >= self._next_at and self._stamp != self._files() and self._making.acquire(blocking=False)
        ):
            threading.Thread(target=self._make_aside, daemon=True).start()
        with self._lock:
            assert self._page is not None
            return self._page, self._problem

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
                self._problem = f"{headline(error)}."
        except Exception as error:  # noqa: BLE001  (a damaged store; visitors keep the last page)
            with self._lock:
                self._problem = f"{self._store} cannot be read: {headline(error)}."
        finally:
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
        snapshot = read_methods(self._store, self._experiment, every=self._every, summarized=True)
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
