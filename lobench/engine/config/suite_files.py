"""Whether a suite was edited since its cases were collected."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import gin

from lobench.engine.config.files_around import files_of_suite

__all__ = ["SuiteFiles", "forget_modules"]

_SUFFIXES = (".py", ".gin")


class SuiteFiles:
    """The Python and gin files of suites, and gin files bound around them.

    Args:
      suites: Folders, or single gin files.
      gin_files: Other files.
      run: Folder whose files are not the suite's, even where it lies in it.
    """

    def __init__(self, suites: Sequence[str], gin_files: Sequence[str] = (), run: str = "") -> None:
        self._suites, self._gin_files = suites, gin_files
        self._run = Path(run).resolve() if run else None
        self._seen: dict[Path, tuple[tuple[int, int], str]] | None = None  # size and time, sha256

    def remember(self) -> None:
        """Takes the files as they are now for those that the cases come from; the first call counts."""
        if self._seen is None:
            self._seen = {file: (_stamp(file), _digest(file)) for file in self.files()}

    def changed(self) -> Path | None:
        """Returns a file that has another content since, that is new, or that is gone; None before `remember`."""
        if self._seen is None:
            return None
        files = set(self.files())
        for file in sorted(files | self._seen.keys()):
            if file not in files or file not in self._seen:
                return file
            stamp, digest = self._seen[file]
            if (now := _stamp(file)) != stamp:
                if _digest(file) != digest:
                    return file
                self._seen[file] = now, digest
        return None

    def files(self) -> Iterator[Path]:
        """Yields them as they are now."""
        for suite in self._suites:
            with contextlib.suppress(OSError):  # a folder that is gone has no files
                for file in files_of_suite(Path(suite).resolve()):
                    if file.suffix in _SUFFIXES and not (self._run and file.is_relative_to(self._run)):
                        yield file
        yield from (Path(file) for file in self._gin_files if Path(file).is_file())


def forget_modules(suites: Sequence[str]) -> None:
    """Has this process import anew what lies in a suite's folder: its conftest.py, or a worker within, may name it."""
    paths = [Path(suite).resolve() for suite in suites]
    folders = {str(path if path.is_dir() else path.parent) for path in paths}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and os.path.dirname(os.path.realpath(file)) in folders:
            del sys.modules[name]
    gin.enter_interactive_mode()  # the tasks and optimizers of the edited file take the place of those before


def _stamp(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""
