"""Watches in threads: only the main thread may take signals."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from tiny import ONE_CASE, make_run, make_suite

import lobench


def test_a_watch_may_run_in_any_thread(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -1.0)
    before, found = signal.getsignal(signal.SIGINT), list[object]()

    def watch() -> None:
        try:
            found.append(lobench.watch(run, suite, once=True, workers=1))
        except BaseException as error:  # noqa: BLE001
            found.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    (watched,) = found
    assert not isinstance(watched, BaseException), watched
    assert dict(watched.ending.outcomes) == {"passed": 1} and not watched.ending.interrupted
    assert signal.getsignal(signal.SIGINT) is before
