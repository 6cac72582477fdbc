"""Data files in suites' folders. If one changes, the store's results are kept, and a notice reports the change."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from lobench.core.wording import counted
from lobench.engine.config.suite_files import files_below
from lobench.engine.retries import retried_briefly
from lobench.engine.store.bundle import BASELINES
from lobench.engine.store.ledger import Ledger

__all__ = ["changed_data"]

# Suffixes of files that are not data: code, which evaluation keys contain, and files that affect no result.
_NO_DATA = (".py", ".gin", ".md", ".rst", ".html", ".toml", ".ini", ".cfg", ".sh", ".svg", ".png", ".pdf", ".ipynb")
_WHOLE = 1 << 26  # bytes up to which a file is hashed whole; of larger ones, both ends are hashed
_END = 1 << 20
_NAMED = 4  # most files named in one notice


def changed_data(ledger: Ledger, suites: Iterable[str], run: str = "") -> str:
    """Records the data files of suites. Returns a notice if some changed after the store's last run, else "".

    Args:
      ledger: Ledger of the store.
      suites: Folders or gin files of the suites.
      run: Path of the watched run. Files below it are not data of a suite.
    """
    excluded = os.path.abspath(run) if run and "://" not in run else ""
    digests: dict[str, str] = {}
    folders = set[str]()
    for suite in suites:
        path = Path(os.path.abspath(suite))
        folder = path if retried_briefly(path.is_dir) else path.parent
        folders.add(folder.name)
        for file in _data_of(path):
            if not (excluded and (str(file) == excluded or str(file).startswith(f"{excluded}{os.sep}"))):
                digests[file.relative_to(folder.parent).as_posix()] = _digest(file)
    changed = ledger.record_data(digests, folders)
    if not changed:
        return ""
    names = ", ".join(changed[:_NAMED]) + (f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else "")
    return (
        f"{counted(len(changed), 'data file')} changed after the store's results were computed ({names}): the results "
        "are kept; a binding of the task that names a version of the data makes another case"
    )


def _data_of(suite: Path) -> Iterator[Path]:
    """Yields the data files of a suite: those below its folder, or those next to it if the suite is a gin file."""
    files = files_below(suite) if retried_briefly(suite.is_dir) else retried_briefly(partial(_files_in, suite.parent))
    for file in files:
        is_hidden = file.name.startswith(".")
        if not is_hidden and file.suffix not in _NO_DATA and file.parent.name != BASELINES:
            yield file


def _files_in(folder: Path) -> list[Path]:
    return [one for one in folder.iterdir() if one.is_file()]


def _digest(file: Path) -> str:
    """Returns a hash of a file's content (of size and both ends, if the file is large); "" if it cannot be read."""
    try:
        return retried_briefly(partial(_sha256, file))
    except OSError:
        return ""


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        content = opened.read(size if size <= _WHOLE else _END)
        if size > _WHOLE:
            opened.seek(-_END, os.SEEK_END)
            content += str(size).encode() + opened.read(_END)
    return hashlib.sha256(content).hexdigest()
