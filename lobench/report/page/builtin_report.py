"""Sink `report`: a page that is updated while a watch runs."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from lobench.analysis.scores.outside_files import OutsideFiles
from lobench.core.errors import LobenchError
from lobench.core.wording import one_line
from lobench.engine.store.bundle import ledger_database
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.network import READS_LOCAL_COPY, newer_local_database
from lobench.engine.store.schema import open_ledger_database
from lobench.engine.whole_file import write_whole
from lobench.hookspecs import CheckpointFinished, Declaration, Delivery, SinkContext, hookimpl

__all__ = ["PAGE", "REPORT", "ReportSink", "lobench_result_sinks"]

PAGE = "report.html"  # relative to the store
REPORT = "report"  # name of the sink: `--sink report`, or `--report`
_SECONDS = 30.0
_NICENESS = 5  # yields to workers; at 19 a page took minutes next to eight busy processes
_REFRESH = '<meta http-equiv="refresh" content="10">'  # lets a browser reload the page
_MADE_OF = '<meta name="lobench-content" content="{}">'  # hash of what the page was made of
_ADDED_LINES = re.compile(f"{re.escape(_REFRESH)}\n|{_MADE_OF.format('[^>]*')}\n")
_MADE, _FAILED = "lobench: made\n", "lobench: failed: "  # answers of the process that writes the page
_WAITING = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{_REFRESH}
<title>lobench: waiting for results</title>
</head>
<body>
<h1>No result yet</h1>
<p>The watch runs. This page becomes the report when the first checkpoint is finished, and keeps itself current.</p>
</body>
</html>
"""


@hookimpl
def lobench_result_sinks() -> Iterable[Declaration]:
    summary = f"web page of the results, kept current: {PAGE} in the store"
    return [Declaration(name=REPORT, factory=f"{__name__}:ReportSink", summary=summary)]


class ReportSink:
    """Writes the page when a checkpoint is finished, and every 30 seconds if a checkpoint takes longer.

    The page exists from the start, with a note that it waits for results. Results that arrive while a page is written
    are in the next one. The page shows the whole ledger. It has a hash of what it was made of, and is made again only
    if this has changed: by results, or by anything else that it shows, such as a plan, edited code or a baseline. While
    the watch runs, browsers reload the page every ten seconds. After the watch it stays unchanged.
    """

    shows_state = True

    def __init__(self, context: SinkContext) -> None:
        self._store = store = context.store
        self._suites = context.suites
        self._updated_at = -_SECONDS
        self._page = store / PAGE
        self._page_process: subprocess.Popen[str] | None = None
        if not self._page.exists():
            with contextlib.suppress(OSError):  # writing the page itself raises
                write_whole(self._page, _WAITING)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        is_finished = any(isinstance(delivery.event, CheckpointFinished) for delivery in deliveries)
        if is_finished or not deliveries or time.monotonic() - self._updated_at > _SECONDS:
            self._update_page()

    def close(self) -> None:
        try:
            # An experiment adds its imported curves, and what a search reports, when all evaluations are delivered.
            self._update_page()
        finally:
            self._end_page_process()
        text = self._page_text()
        if _REFRESH in text:
            write_whole(self._page, text.replace(f"{_REFRESH}\n", "", 1))

    def _update_page(self) -> None:
        """Makes the page, unless the present one was made of the same content or there is no result yet."""
        content_hash = _content_hash(self._store, self._suites)
        if not content_hash or _MADE_OF.format(content_hash) in self._page_text():
            return
        problem = self._request_page()
        if problem:
            self._end_page_process()
            raise LobenchError("the report could not be made", got=problem[-300:])
        text = _ADDED_LINES.sub("", self._page_text())
        added_lines = f"{_REFRESH}\n{_MADE_OF.format(content_hash)}\n"
        write_whole(self._page, text.replace("<title>", f"{added_lines}<title>", 1))
        self._updated_at = time.monotonic()

    def _page_text(self) -> str:
        return self._page.read_text(encoding="utf-8") if self._page.exists() else ""

    def _request_page(self) -> str:
        """Writes the page in a separate process. Returns the reason if that failed, else "".

        The separate process keeps the chief responsive. It has a low priority, and reads only evaluations that are new
        since its last page.
        """
        if self._page_process is None or self._page_process.poll() is not None:
            self._end_page_process()
            command = [sys.executable, "-P", "-m", __name__, str(self._store), str(self._page), *self._suites]
            environment = {**os.environ, READS_LOCAL_COPY: str(os.getpid())}  # the store's file on a network disk lags
            self._page_process = subprocess.Popen(
                command,
                text=True,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        assert self._page_process.stdin is not None and self._page_process.stdout is not None
        output_lines = list[str]()
        with contextlib.suppress(BrokenPipeError):
            self._page_process.stdin.write("make\n")
            self._page_process.stdin.flush()
        for line in self._page_process.stdout:
            if line.endswith(_MADE):  # a library may have written before it without a line break
                return ""
            output_lines.append(line)
            if _FAILED in line:
                break
        return "".join(output_lines).replace(_FAILED, "").strip() or "its process ended"

    def _end_page_process(self) -> None:
        if self._page_process is not None:
            self._page_process.communicate()
            self._page_process = None


def _content_hash(store: Path, suites: Sequence[str]) -> str:
    """Returns a hash of all that the page of a store is made of; "" while the store has no result."""
    if not ledger_database(store).is_file():
        return ""
    connection = open_ledger_database(store, read_only=True, database=newer_local_database(store))
    with Ledger(store, connection) as ledger:
        content_marker = ledger.content_marker()
        stamps = OutsideFiles(ledger, map(Path, suites)).stamps()
    content = (metadata.version("lobench"), str(store), suites, content_marker, sorted(stamps.items()))
    return hashlib.sha256(repr(content).encode(errors="surrogateescape")).hexdigest()[:16] if content_marker else ""


def _write_on_request(store: str, page: str, *suites: str) -> None:
    """Writes the page for each line of standard input, and answers with `_MADE`, or with `_FAILED` and a reason."""
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # this process ends when its input ends
    gc.set_threshold(100_000, 50, 1000)  # objects made by reading live long
    from lobench.analysis.comparisons.summary import summary_of
    from lobench.analysis.store.methods import read_methods
    from lobench.analysis.store.reading import StoreReading
    from lobench.report.page.page import write_page

    reading = StoreReading(Path(store))
    baselines = tuple(map(Path, suites)) or None
    for _ in sys.stdin:
        try:
            snapshot = read_methods(Path(store), reading=reading)
            if snapshot.rows:  # the experiment that was begun last may have none yet
                write_page(summary_of(Path(store), baselines, snapshot=snapshot), Path(page))
            reply = _MADE
        except LobenchError as error:
            reply = f"{_FAILED}{one_line(str(error))}\n"
        sys.stdout.write(reply)
        sys.stdout.flush()


if __name__ == "__main__":
    _write_on_request(*sys.argv[1:])
