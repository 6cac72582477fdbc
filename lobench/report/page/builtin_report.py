"""Sink `report`: a page that is updated while a watch runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from lobench.core.errors import LobenchError
from lobench.engine.store.network import READS_LOCAL_COPY
from lobench.engine.whole_file import write_whole
from lobench.hookspecs import CheckpointFinished, Declaration, Delivery, SinkContext, hookimpl

__all__ = ["PAGE", "REPORT", "ReportSink", "lobench_result_sinks"]

PAGE = "report.html"  # relative to the store
REPORT = "report"  # name of the sink: `--sink report`, or `--report`
_SECONDS = 30.0
_NICENESS = 5  # yields to workers; at 19 a page took minutes next to eight busy processes
_REFRESH = '<meta http-equiv="refresh" content="10">'  # lets a browser reload the page
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
    summary = f"keeps a web page of the results current: {PAGE} in the store"
    return [Declaration(name=REPORT, factory=f"{__name__}:ReportSink", summary=summary)]


class ReportSink:
    """Writes the page when a checkpoint is finished, and every 30 seconds if one takes longer.

    The page exists from the start, with a note that it waits for results. Results that arrive while a page is written
    are in the next one. The page shows the whole ledger, so repeated deliveries change nothing. While the watch runs,
    browsers reload the page every ten seconds. After the watch it stays unchanged.
    """

    def __init__(self, context: SinkContext) -> None:
        self._store = store = context.store
        self._suites = context.suites
        self._made_at = -_SECONDS
        self._is_stale = False
        self._page = store / PAGE
        if not self._page.exists():
            with contextlib.suppress(OSError):  # writing the page itself raises
                write_whole(self._page, _WAITING)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self._is_stale = True
        is_finished = any(isinstance(one.event, CheckpointFinished) for one in deliveries)
        if is_finished or time.monotonic() - self._made_at > _SECONDS:
            self._make()

    def close(self) -> None:
        if self._is_stale:
            self._make()
        text = self._page.read_text(encoding="utf-8") if self._page.exists() else ""
        if _REFRESH in text:
            write_whole(self._page, text.replace(f"{_REFRESH}\n", "", 1))

    def _make(self) -> None:
        # In a separate process, so that the chief stays responsive. It yields to the workers.
        command = [sys.executable, "-P", "-m", __name__, str(self._store), str(self._page), *self._suites]
        environment = {**os.environ, READS_LOCAL_COPY: "1"}  # the store's file on a network disk lags behind
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise LobenchError("the report could not be made", got=(done.stderr or done.stdout).strip()[-300:])
        text = self._page.read_text(encoding="utf-8")
        write_whole(self._page, text.replace("<title>", f"{_REFRESH}\n<title>", 1))
        self._made_at, self._is_stale = time.monotonic(), False


def _write(store: str, page: str, *suites: str) -> None:
    os.nice(_NICENESS)
    from lobench.analysis.comparisons.summary import summary_of  # imports pandas
    from lobench.report.page.page import write_page

    try:
        write_page(summary_of(Path(store), tuple(map(Path, suites)) or None), Path(page))
    except LobenchError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _write(*sys.argv[1:])
