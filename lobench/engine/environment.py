"""Environment variables of this process for a while, with several users of one name."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping

__all__ = ["environment_with"]

_LOCK = threading.Lock()
_USERS: dict[str, int] = {}
_BEFORE: dict[str, str | None] = {}  # of names that have users


@contextlib.contextmanager
def environment_with(values: Mapping[str, str], *, as_defaults: bool = False) -> Iterator[None]:
    """Sets variables for libraries that read nothing else; the last user puts back what was there before the first.

    A process is its user's: what lobench sets in it, other libraries and later programs would find.

    Args:
      as_defaults: What somebody has set stays.
    """
    with _LOCK:
        for name, value in values.items():
            if not _USERS.setdefault(name, 0):
                _BEFORE[name] = os.environ.get(name)
            _USERS[name] += 1
            os.environ[name] = os.environ.get(name, value) if as_defaults else value
    try:
        yield
    finally:
        with _LOCK:
            for name in values:
                _USERS[name] -= 1
                if not _USERS[name] and (before := _BEFORE.pop(name)) is not None:
                    os.environ[name] = before
                elif not _USERS[name]:
                    os.environ.pop(name, None)
