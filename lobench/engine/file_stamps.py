"""Stamps of files, which differ if a file may have changed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from lobench.engine.retries import is_transient, retried_briefly

__all__ = ["FileStamp", "is_stamp_reliable", "stamp_of", "stamps_of"]

FileStamp: TypeAlias = tuple[int, int]  # size in bytes, and time of the last change in ns
_COARSEST_SECONDS = 2.0  # coarsest resolution of a file system's times


def stamp_of(file: str | Path) -> FileStamp | None:
    """Returns the stamp of a file; None if it does not exist, or lies in a folder closed to this user.

    The time is that of the last change of the file or its attributes. The time of the last edit is unsuitable, because
    `rsync -a`, `cp -p` and images preserve it.

    Raises:
      OSError: The disk fails, perhaps for a moment.
    """
    try:
        status = os.stat(file)
    except OSError as error:
        if is_transient(error, retries_forbidden=False):
            raise
        return None
    return status.st_size, status.st_ctime_ns


def is_stamp_reliable(changed_ns: int, seen_at: float) -> bool:
    """Returns whether any later change of a file is certain to change its stamp.

    Args:
      changed_ns: Time of the last change, in ns since 1970.
      seen_at: Time at which the file was read, in seconds since 1970. False if the file had changed just before.
    """
    return seen_at - changed_ns / 1e9 > _COARSEST_SECONDS


def stamps_of(files: Iterable[str | Path]) -> dict[str, FileStamp | None]:
    """Returns the stamps of files by path, None for files that do not exist.

    Raises:
      OSError: The disk has failed for some seconds.
    """
    paths = [os.fspath(file) for file in files]
    return retried_briefly(lambda: {path: stamp_of(path) for path in paths})
