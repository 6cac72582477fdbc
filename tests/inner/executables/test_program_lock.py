"""Lock of a program that a process compiles while others wait for it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tiny import PATIENCE

from lobench.inner.executables import kept
from lobench.inner.executables.kept import Asked
from lobench.inner.executables.reach import WatchedTrace

_HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "ab")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(600)
"""


def request(folder: Path) -> Asked:
    return Asked(folder / "program", "key", lambda: "key", WatchedTrace())


class Waiting(logging.Handler):
    """Handler that counts requests that begin to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        if "another process" in record.getMessage():
            self.begun.release()


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    logger = logging.getLogger(kept.__name__)
    level = logger.level
    handler = Waiting()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_second_request_waits_and_those_that_waited_do_not_wait_for_each_other(
    tmp_path: Path, waiting: Waiting
) -> None:
    with ThreadPoolExecutor(2) as pool, contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        with contextlib.ExitStack() as stack:
            assert request(tmp_path).find_or_lock(stack) is None
            later = [pool.submit(request(tmp_path).find_or_lock, its_stack) for its_stack in (first, second)]
            assert waiting.begun.acquire(timeout=PATIENCE)
            assert not any(one.done() for one in later)
        assert [one.result(timeout=PATIENCE) for one in later] == [None, None]
    assert not list(tmp_path.iterdir())


def test_text_that_no_cache_takes_is_compiled_at_once_by_all_that_waited(tmp_path: Path, waiting: Waiting) -> None:
    meeting = threading.Barrier(2)

    class Lowered:
        def compile(self, _: object) -> int:
            return meeting.wait(PATIENCE)

    with ThreadPoolExecutor(2) as pool:
        with kept._locked(tmp_path / "text.lock"):
            later = [pool.submit(request(tmp_path).compile, Lowered(), "text") for _ in range(2)]  # type: ignore[arg-type]
            for _ in later:  # one that comes later would take the lock, and the other would wait for it
                assert waiting.begun.acquire(timeout=PATIENCE)
        assert sorted(one.result(timeout=PATIENCE) for one in later) == [0, 1]


def test_lock_is_free_though_a_child_process_has_its_file(tmp_path: Path) -> None:
    path = tmp_path / "text.lock"
    with path.open("ab") as waiter, contextlib.ExitStack() as stack:
        with kept._locked(path):
            (inherited,) = {
                int(name)
                for name in os.listdir("/proc/self/fd")
                if name != str(waiter.fileno()) and os.path.realpath(f"/proc/self/fd/{name}") == str(path)
            }
            stack.callback(os.close, os.dup(inherited))  # as after os.fork
            assert not kept._try_lock(waiter.fileno())
        assert kept._try_lock(waiter.fileno())


def test_lock_of_a_killed_process_is_free(tmp_path: Path, waiting: Waiting) -> None:
    with (
        subprocess.Popen(
            [sys.executable, "-c", _HOLDER, tmp_path / "program.lock"], stdout=subprocess.PIPE, text=True
        ) as holder,
        ThreadPoolExecutor(1) as pool,
        contextlib.ExitStack() as stack,
    ):
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        later = pool.submit(request(tmp_path).find_or_lock, stack)
        assert waiting.begun.acquire(timeout=PATIENCE)
        holder.kill()
        assert later.result(timeout=PATIENCE) is None


def test_folder_without_locks_is_used_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        assert request(tmp_path).find_or_lock(first) is None
        assert request(tmp_path).find_or_lock(second) is None
