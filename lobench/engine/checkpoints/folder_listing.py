"""Listing of a local folder that is only read again if the folder may have changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

__all__ = ["FolderListing"]

_COARSE_SECONDS = 3.0  # coarser than the resolution of any file system's times
_MAX_SECONDS = 10.0  # longest pause between readings: some file systems do not report changes of a folder


class FolderListing:
    """Names in a folder that may be checkpoints: all folders and links, and wanted files.

    It stays fast with 100,000 other files. `is_wanted` is called once per name. A folder with an unchanged mtime is
    read only every ten seconds, unless its mtime is so recent that a further change could have the same mtime.

    Args:
      path: Path of the folder.
      is_wanted: Returns True for names of files that may be checkpoints.
      clock: Monotonic clock in seconds; tests replace it.
    """

    def __init__(
        self, path: str, is_wanted: Callable[[str], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._is_wanted = is_wanted
        self._clock = clock
        self._names: list[str] = []
        self._unwanted_names: set[str] = set()
        self._stamp: tuple[int, int, int] | None = None
        self._changed_at = self._read_at = 0.0

    def names(self) -> list[str]:
        """Returns the names, in any order.

        Raises:
          OSError: The folder does not exist, is not a folder, or cannot be read.
        """
        # Opened first, which makes a network file system refresh the time.
        descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            status = os.fstat(descriptor)
            now = self._clock()
            stamp = (status.st_dev, status.st_ino, status.st_mtime_ns)
            if stamp != self._stamp:
                self._stamp, self._changed_at = stamp, now
            elif self._changed_at + _COARSE_SECONDS <= self._read_at and now < self._read_at + _MAX_SECONDS:
                return self._names
            self._stamp, known_unwanted, self._unwanted_names, self._names = None, self._unwanted_names, set(), []
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    name = entry.name
                    if not entry.is_file(follow_symlinks=False):
                        self._names.append(name)
                    elif name in known_unwanted or not self._is_wanted(name):
                        self._unwanted_names.add(name)
                    else:
                        self._names.append(name)
            self._stamp, self._read_at = stamp, now  # set last, after a complete reading
            return self._names
        finally:
            os.close(descriptor)
