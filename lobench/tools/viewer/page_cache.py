"""Cache of a store's page, which is rendered on request."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from lobench.analysis.comparisons.listed_part import ListedPart, listed_part, listed_with_new
from lobench.analysis.comparisons.summary import Summary, summary_of
from lobench.analysis.comparisons.viewer_index import ViewerIndex
from lobench.analysis.scores.outside_files import OutsideFiles
from lobench.analysis.store.methods import check_experiment, read_methods
from lobench.analysis.store.reading import StoreReading
from lobench.analysis.store.snapshot import Snapshot
from lobench.core.errors import LobenchError
from lobench.core.wording import headline
from lobench.engine.store.bundle import has_ledger, no_store_error
from lobench.engine.store.ledger import Ledger
from lobench.report.page.explorer import PageParts, explorer_data
from lobench.report.page.page import reading_page, render_page, waiting_page
from lobench.report.tables.verdict import report_subtitle

__all__ = ["Page", "PageCache"]

_PATIENCE = 0.5  # seconds that a request waits for a page that is being made, before it gets the previous one
_PAUSE = 1.0  # pause after rendering, relative to its duration, so that it takes half a core at most
_RETRY = 5.0  # seconds after an error until the store is read again, even if it has not changed
_SLOW = 0.3  # seconds of rendering a whole page from which new evaluations are shown before it is rendered again
_DRAFT_VERSION = "unsaid"  # placeholder of the version in a draft of the page


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Page of a store at one time.

    Attributes:
      version: Hash of the content, which stays the same if equal content is written again.
      html: The page.
      viewer_index: Index of the results. None while the store has no evaluations, or is being read for the first time.
      data: Data that the explorer requests, as JSON.
      subtitle: Replaces the subtitle of `html` if its tables are older than `data`; "" if they are not.
    """

    version: str
    html: bytes
    viewer_index: ViewerIndex | None
    data: str
    subtitle: str = ""

    @property
    def note(self) -> str:
        """Note that tables and charts are of an earlier time; "" if they are not."""
        if not self.subtitle:
            return ""
        return (
            "New evaluations are listed, with scores on the scale of the earlier ones. Rankings, tables and charts "
            "follow in a few seconds."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _WholePage:
    """Page that was rendered as a whole, and its inputs.

    Attributes:
      page: The page.
      summary: Summary of the store.
      listed_part: Part of the store that the page lists.
      seconds: Duration of its rendering.
    """

    page: Page
    summary: Summary
    listed_part: ListedPart
    seconds: float


class PageCache:
    """Page of a store. It is rendered again on request if the store, the code behind its results or a baseline changed.

    One thread at a time renders it.

    If rendering takes long, new evaluations are shown before the tables and charts that they change (`Page.subtitle`).

    Args:
      store: Folder of the store.
      baselines: Suites or files of baselines. (): those of the store's suites.
      experiment: Experiment whose methods are shown. "": the last one that ran.
      include_all: Whether to show everything in the store, instead of an experiment's methods.
    Raises:
      StoreError: The folder is not a store.
      UsageError: The store lacks the experiment.
    """

    def __init__(
        self,
        store: Path,
        baselines: tuple[Path, ...],
        *,
        experiment: str = "",
        include_all: bool = False,
    ) -> None:
        if not has_ledger(store):
            raise no_store_error(store)
        self._store, self._baselines = store.absolute(), baselines
        self._experiment, self._include_all = experiment or None, include_all
        self._reading, self._parts = StoreReading(self._store), PageParts()
        check_experiment(store, self._experiment)
        self._lock, self._making_lock = threading.Lock(), threading.Lock()
        self._is_made = threading.Event()  # set once there is a page, or a reason why there is none
        self._is_current = threading.Event()  # set while no page of new evaluations is being made
        self._is_current.set()
        self._outside_files: OutsideFiles | None = None
        # States of the files from which the page, and the whole page, were made.
        self._page_stamp: tuple[object, ...] = ()
        self._whole_stamp: tuple[object, ...] = ()
        self._next_at = self._whole_at = 0.0  # when the page, and the whole page, may be made again
        self._retry_at = math.inf  # when an unchanged store is read again, as its disk may have failed for a moment
        self._page: Page | None = None
        self._whole_page: _WholePage | None = None
        self._problem = ""
        self._error: Exception | None = None

    def start(self) -> None:
        """Begins to make the first page, and waits a moment for it.

        Raises:
          LobenchError: The store cannot be read.
        """
        Ledger.open(self._store, read_only=True).close()  # raises, also if the first page takes longer than a moment
        self.current_page()
        if self._error is not None:
            raise self._error

    def current_page(self, *, waits: bool = False) -> tuple[Page, str]:
        """Returns the page, and the current problem with the store or "".

        Pages are rendered in the background, so that requests do not wait. Until the first page of a large store is
        ready, a placeholder shows that the store is being read.

        Args:
          waits: Whether to wait a moment for a page with new evaluations that is being made.
        """
        if self._is_due() and self._making_lock.acquire(blocking=False):
            self._is_current.clear()
            threading.Thread(target=self._refresh_in_background, daemon=True).start()
        if self._page is None:
            self._is_made.wait(_PATIENCE)
        elif waits:
            self._is_current.wait(_PATIENCE)
        with self._lock:
            return self._page or self._reading_page(), self._problem

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now >= self._retry_at:
            return True
        if self._whole_stamp != self._page_stamp and now >= self._whole_at:
            return True
        return now >= self._next_at and self._page_stamp != self._file_stamp()

    def _reading_page(self) -> Page:
        try:
            with Ledger.open(self._store, read_only=True) as ledger:
                html = reading_page(self._store, ledger.num_evaluations())
        except LobenchError:  # the problem is shown
            html = reading_page(self._store, 0)
        return Page(version="", html=html.encode(), viewer_index=None, data="null")

    def _file_stamp(self) -> tuple[object, ...]:
        """Returns a stamp of the files that the page shows. That of the ledger's files changes with every commit."""
        stamps: list[object] = []
        for name in ("ledger.sqlite", "ledger.sqlite-wal"):
            try:
                stat = (self._store / name if self._store.is_dir() else self._store).stat()
                stamps.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
            except OSError:
                stamps.append(None)
        with contextlib.suppress(OSError):
            stamps.append(self._outside_files.stamps() if self._outside_files is not None else {})
        return tuple(stamps)

    def _refresh_in_background(self) -> None:
        try:
            self.refresh()
        except LobenchError as error:
            with self._lock:
                self._problem, self._error = _sentence(headline(error)), error
        except Exception as error:  # noqa: BLE001  (a damaged store; visitors keep the last page)
            with self._lock:
                self._error = error
                self._problem = _sentence(f"{self._store} cannot be read: {headline(error)}")
        finally:
            self._is_made.set()
            self._is_current.set()
            self._making_lock.release()

    def refresh(self, *, waits: bool = True) -> None:
        """Reads new evaluations and renders the page.

        Args:
          waits: Whether to postpone rendering the whole page if it was rendered a short time ago.
        """
        started = early_at = time.monotonic()
        with contextlib.suppress(LobenchError), Ledger.open(self._store, read_only=True) as ledger:  # raised below
            self._outside_files = OutsideFiles(ledger, self._baselines)
        stamp = whole_stamp = self._file_stamp()  # also after an error, which is repeated later
        self._retry_at = math.inf
        try:
            snapshot = read_methods(self._store, self._experiment, include_all=self._include_all, reading=self._reading)
            early_page = self._page_with_new_data(snapshot)
            if early_page is not None:
                self._publish(early_page)
                self._is_current.set()
                early_at = time.monotonic()
                if waits and time.monotonic() < self._whole_at:
                    whole_stamp = self._whole_stamp
                    return
            self._publish(self._render_page(snapshot))
        except Exception:
            now = time.monotonic()
            self._retry_at = now + max(_RETRY, _PAUSE * (now - started))
            raise
        finally:
            now = time.monotonic()
            if whole_stamp == stamp:
                self._whole_at = now + _PAUSE * (now - started)
            is_slow = self._whole_page is not None and self._whole_page.seconds >= _SLOW
            self._next_at = now + _PAUSE * (early_at - started) if is_slow else self._whole_at
            self._page_stamp, self._whole_stamp = stamp, whole_stamp

    def _publish(self, page: Page) -> None:
        with self._lock:
            self._page, self._problem = page, ""

    def _render_page(self, snapshot: Snapshot) -> Page:
        """Returns the whole page of a store."""
        if not snapshot.rows:
            self._whole_page = None
            return Page(version="", html=waiting_page(self._store).encode(), viewer_index=None, data="null")
        started = time.monotonic()
        summary = summary_of(self._store, self._baselines or None, snapshot=snapshot)
        listed_parts = listed_part(summary)
        viewer_index = ViewerIndex(listed_parts.subjects)
        data = self._explorer_json(viewer_index)
        draft = render_page(summary, version=_DRAFT_VERSION, listed_parts=listed_parts)
        version = _hash(f"{data}\0{draft}")
        html = draft.replace(f'data-version="{_DRAFT_VERSION}"', f'data-version="{version}"', 1)
        page = Page(version=version, html=html.encode(), viewer_index=viewer_index, data=data)
        seconds = time.monotonic() - started
        self._whole_page = _WholePage(page=page, summary=summary, listed_part=listed_parts, seconds=seconds)
        return page

    def _page_with_new_data(self, snapshot: Snapshot) -> Page | None:
        """Returns the last whole page with newer data; None if rendering a whole page is fast enough.

        It is the same page if no evaluation is new, as when a watch has seen a checkpoint.
        """
        whole_page = self._whole_page
        if whole_page is None or whole_page.seconds < _SLOW or not snapshot.rows:
            return None
        listed_summary = listed_with_new(whole_page.listed_part, whole_page.summary, snapshot)
        if listed_summary is None:
            return None
        viewer_index = ViewerIndex(listed_summary, self._page.viewer_index if self._page is not None else None)
        data, text = self._explorer_json(viewer_index), report_subtitle(snapshot)
        if data == whole_page.page.data:
            return whole_page.page
        version = _hash(f"{data}\0{text}\0{whole_page.page.version}")
        return Page(version=version, html=whole_page.page.html, viewer_index=viewer_index, data=data, subtitle=text)

    def _explorer_json(self, viewer_index: ViewerIndex) -> str:
        data = explorer_data(viewer_index, served=True, parts=self._parts)
        return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _sentence(text: str) -> str:
    return text if text.endswith(("?", ".", "!")) else f"{text}."


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
