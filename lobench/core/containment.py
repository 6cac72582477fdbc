"""Calls of plugins that cannot end the process, close its streams or change its working directory."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TextIO, cast

__all__ = ["contain_plugins", "convert_plugin_errors", "restore_working_directory"]


@contextlib.contextmanager
def contain_plugins() -> Iterator[None]:
    """Keeps plugins from ending the process, closing its streams or changing its working directory.

    `os._exit` raises SystemExit, closing standard output or standard error does nothing, and
    `restore_working_directory` knows which thread called `os.chdir`. Calls may be nested, and overlap in several
    threads: the original functions and streams are restored when the last call has ended.
    """
    _replacements.enter()
    try:
        with restore_working_directory():
            yield
    finally:
        _replacements.leave()


@contextlib.contextmanager
def convert_plugin_errors(
    failure: Callable[[BaseException], Exception], *passes: type[BaseException]
) -> Iterator[None]:
    """Contains a call of a plugin, and converts its exceptions to another error.

    Args:
      failure: Returns the error to raise for an error of the plugin.
      passes: Exceptions that are raised as they are, besides KeyboardInterrupt.
    """
    passed_errors: tuple[type[BaseException], ...] = (KeyboardInterrupt, *passes)
    try:
        with contain_plugins():
            yield
    except passed_errors:
        raise
    except BaseException as error:
        raise failure(error) from error


class _Replacements:
    """Replaced functions and streams of the process, counted by the calls that need them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant, because a signal's handler may run in between
        self._stack = contextlib.ExitStack()
        self.num_calls = 0

    def enter(self) -> None:
        with self._lock:
            if not self.num_calls:
                self._stack.enter_context(_replace_process_functions())
            self.num_calls += 1

    def leave(self) -> None:
        with self._lock:
            self.num_calls -= 1
            if not self.num_calls:
                self._stack.close()


_replacements = _Replacements()


@contextlib.contextmanager
def _replace_process_functions() -> Iterator[None]:
    own_pid = os.getpid()
    os_exit = os._exit
    os_chdir = os.chdir
    streams = sys.stdout, sys.stderr

    def refuse_exit(status: int) -> NoReturn:
        if os.getpid() != own_pid:  # this process was forked meanwhile
            os_exit(status)
        raise SystemExit(f"os._exit({status})")

    @functools.wraps(os_chdir)
    def note_change(path: Any) -> None:
        os_chdir(path)
        _thread_state.has_moved = True

    folder = _working_directory()
    os._exit, os.chdir = refuse_exit, note_change
    sys.stdout, sys.stderr = (cast("TextIO", _OpenStream(stream)) for stream in streams)
    open_streams = sys.stdout, sys.stderr
    try:
        yield
    finally:
        os._exit, os.chdir = os_exit, os_chdir
        if sys.stdout is open_streams[0]:
            sys.stdout = streams[0]
        if sys.stderr is open_streams[1]:
            sys.stderr = streams[1]
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


_thread_state = threading.local()


@contextlib.contextmanager
def restore_working_directory() -> Iterator[None]:
    """Restores the working directory if this thread changed it. Changes by other threads are left alone.

    Outside of `contain_plugins` the thread is unknown, and the working directory is always restored.
    """
    folder = _working_directory()
    had_moved = getattr(_thread_state, "has_moved", False)
    _thread_state.has_moved = False
    try:
        yield
    finally:
        may_be_ours = _thread_state.has_moved or not _replacements.num_calls
        if folder is not None and may_be_ours and _working_directory() != folder:
            os.chdir(folder)
        _thread_state.has_moved = had_moved


def _working_directory() -> str | None:
    """Returns the working directory; None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None
