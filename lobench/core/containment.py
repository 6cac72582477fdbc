"""Calls of plugins that cannot end the process, close its streams or change its working directory."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn, TextIO, cast

__all__ = ["kept_folder", "plugins_contained"]


@contextlib.contextmanager
def plugins_contained() -> Iterator[None]:
    """Keeps plugins from ending the process, closing its streams or changing its working directory.

    `os._exit` raises SystemExit, closing standard output or standard error does nothing, and `kept_folder` knows which
    thread called `os.chdir`. Inside another one only the working directory is restored.
    """
    if _is_watched():
        with kept_folder():
            yield
        return
    ours, leave, change = os.getpid(), os._exit, os.chdir
    streams = sys.stdout, sys.stderr

    def stay(status: int) -> NoReturn:
        if os.getpid() != ours:  # a process that was forked meanwhile
            leave(status)
        raise SystemExit(f"os._exit({status})")

    @functools.wraps(change)
    def note_change(path: Any) -> None:
        change(path)
        _thread.has_moved = True

    folder = _working_directory()
    os._exit, os.chdir = stay, note_change
    sys.stdout, sys.stderr = (cast("TextIO", _OpenStream(stream)) for stream in streams)
    guards = sys.stdout, sys.stderr
    try:
        yield
    finally:
        os._exit, os.chdir = leave, change
        if (sys.stdout, sys.stderr) == guards:
            sys.stdout, sys.stderr = streams
        if folder is not None and _working_directory() != folder:
            os.chdir(folder)


class _OpenStream:
    """Text stream whose `close` does nothing."""

    def __init__(self, stream: object) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        pass


_thread = threading.local()


@contextlib.contextmanager
def kept_folder() -> Iterator[None]:
    """Restores the working directory if this thread changed it. Changes by other threads are left alone."""
    folder, had_moved = _working_directory(), getattr(_thread, "has_moved", False)
    _thread.has_moved = False
    try:
        yield
    finally:
        if folder is not None and (_thread.has_moved or not _is_watched()) and _working_directory() != folder:
            os.chdir(folder)
        _thread.has_moved = had_moved


def _is_watched() -> bool:
    """Returns whether `plugins_contained` notes changes of the working directory."""
    return hasattr(os.chdir, "__wrapped__")


def _working_directory() -> str | None:
    """Returns the working directory; None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None
