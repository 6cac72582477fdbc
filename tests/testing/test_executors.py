"""The built-in executors keep the executors' contract."""

from __future__ import annotations

import threading
from pathlib import Path

from shown import texts_of

from lobench.testing.executors import ExecutorContract

SHOWN = texts_of("testing")


class TestLocalPool(ExecutorContract):
    factory = "lobench.engine.workers.pool:LocalPool"


class TestInline(ExecutorContract):
    factory = "lobench.engine.workers.pool:InlineExecutor"
    has_processes = False

    def test_closing_waits_for_the_workers_thread(self, tmp_path: Path) -> None:
        """One that is left may be in the middle of XLA when the interpreter ends, and abort it."""
        before = set(threading.enumerate())
        with self.running(tmp_path) as executor:
            self.start(executor, 0)
            assert set(threading.enumerate()) > before
        left = set(threading.enumerate()) - before
        # Who listens runs nothing, and ends once it has read that the pipe is closed.
        assert {thread.name for thread in left} <= {SHOWN["lobench-listens-to-its-chief"]}

    def test_another_worker_takes_the_place_of_the_one_that_runs(self, tmp_path: Path) -> None:
        with self.running(tmp_path) as executor:
            self.start(executor, 0)
            first = executor._channel
            self.start(executor, 1)
            assert first.fileno() == -1, "it is closed"
