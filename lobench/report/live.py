"""`lobench watch --report`: the page, kept current while a watch runs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lobench.core.errors import LobenchError
from lobench.hookspecs import CheckpointFinished, Delivery

__all__ = ["PAGE", "ReportSink"]

PAGE = "report.html"  # in the store
_SECONDS = 30.0

# The chief has to stay quick: the page is made in a process of its own, which gives way to the workers.
_COMMAND = "import os; os.nice(19); from lobench.cli import main; main()"


class ReportSink:
    """Writes the page anew when a checkpoint is finished, and every half a minute while one takes longer.

    What arrives while a page is made is in the next one. The page is of the whole ledger, so that a delivery that comes
    twice changes nothing.
    """

    def __init__(self, store: Path, suites: Sequence[str]) -> None:
        self._store = store
        self._suites = tuple(suites)
        self._made_at = -_SECONDS
        self._is_stale = False

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self._is_stale = True
        is_finished = any(isinstance(one.event, CheckpointFinished) for one in deliveries)
        if is_finished or time.monotonic() - self._made_at > _SECONDS:
            self._make()

    def close(self) -> None:
        if self._is_stale:
            self._make()

    def _make(self) -> None:
        arguments = ["report", "--store", str(self._store), "--output", str(self._store / PAGE)]
        for suite in self._suites:
            arguments += ["--baseline", suite]
        command = [sys.executable, "-P", "-c", _COMMAND, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LobenchError("the report could not be made", got=(done.stderr or done.stdout).strip()[-300:])
        self._made_at, self._is_stale = time.monotonic(), False
