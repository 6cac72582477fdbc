"""Names in a folder of this machine that may matter, read again where they may have changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

__all__ = ["FolderListing"]

_COARSE_SECONDS = 3.0  # more than the least difference of times that any file system tells apart
_MOST_SECONDS = 10.0  # between two readings: some file systems do not say that a folder has changed


class FolderListing:
    """All folders and links in a folder, and the files that are wanted; beside 100,000 others, for little.

    A file is asked for once: whether it is wanted hangs on its name. A folder has the time of its last change, of a
    name in it: one whose time has stayed is not read again, but every ten seconds, and as long as another change might
    have had the same time.
    """

    def __init__(
        self, path: str, is_wanted: Callable[[str], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._is_wanted, self._clock = path, is_wanted, clock
        self._names: list[str] = []
        self._foreign: set[str] = set()
        self._changed: tuple[int, int, int] | None = None
        self._noticed_at = self._read_at = 0.0

    def names(self) -> list[str]:
        """Returns the names, in any order.

        Raises:
          OSError: it is not there, no folder, or cannot be read.
        """
        # Opened first: a network file system then asks for its time anew.
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            status, now = os.fstat(folder), self._clock()
            changed = (status.st_dev, status.st_ino, status.st_mtime_ns)
            if changed != self._changed:
                self._changed, self._noticed_at = changed, now
            elif self._noticed_at + _COARSE_SECONDS <= self._read_at and now < self._read_at + _MOST_SECONDS:
                return self._names
            self._changed, known, self._foreign, self._names = None, self._foreign, set(), []
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = entry.name
                    if not entry.is_file(follow_symlinks=False):
                        self._names.append(name)
                    elif name in known or not self._is_wanted(name):
                        self._foreign.add(name)
                    else:
                        self._names.append(name)
            self._changed, self._read_at = changed, now  # whole
            return self._names
        finally:
            os.close(folder)
