"""`lobench watch --report`: the page, kept current while a watch runs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lobench.core.errors import LobenchError
from lobench.engine.whole_file import write_whole
from lobench.hookspecs import CheckpointFinished, Delivery

__all__ = ["PAGE", "ReportSink"]

PAGE = "report.html"  # in the store
_SECONDS = 30.0
_REFRESH = '<meta http-equiv="refresh" content="10">'  # a browser that shows the page takes the newer one by itself
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

# The chief has to stay quick: the page is made in a process of its own, which gives way to the workers.
_COMMAND = "import os; os.nice(19); from lobench.cli import main; main()"


class ReportSink:
    """Writes the page anew when a checkpoint is finished, and every half a minute while one takes longer.

    It is there from the start, and says that it waits. What arrives while a page is made is in the next one. The page
    is of the whole ledger, so that a delivery that comes twice changes nothing. While the watch runs, a browser loads
    the page again every ten seconds; when the watch ends, it stays as it is.
    """

    def __init__(self, store: Path, suites: Sequence[str]) -> None:
        self._store = store
        self._suites = tuple(suites)
        self._made_at = -_SECONDS
        self._is_stale = False
        self._page = store / PAGE
        if not self._page.exists():
            with contextlib.suppress(OSError):  # told when the page itself cannot be written
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
        arguments = ["report", "--store", str(self._store), "--output", str(self._page)]
        for suite in self._suites:
            arguments += ["--baseline", suite]
        command = [sys.executable, "-P", "-c", _COMMAND, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LobenchError("the report could not be made", got=(done.stderr or done.stdout).strip()[-300:])
        text = self._page.read_text(encoding="utf-8")
        write_whole(self._page, text.replace("<title>", f"{_REFRESH}\n<title>", 1))
        self._made_at, self._is_stale = time.monotonic(), False
