"""Format of files with curves, as `lobench_import_formats` declares it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lobench.core.case import CaseInfo
from lobench.core.metric import Direction
from lobench.tools.curve_import.points import CurveRequest, Points

__all__ = ["FileKind", "read_database"]


@contextlib.contextmanager
def read_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a SQLite file for reading. It is not created."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as database:
        yield database


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """Reader of one file format.

    Attributes:
      read: Yields the points of a file, and adds oddities to notes.
      files: Lists the files to read in a folder. None: the format is a single file.
      last_counts: Whether the last value counts if a run has a step twice. Otherwise that is an error.
      draws: Origin of the seed numbers, if equal numbers mean equal draws. "": seeds are only labels.
      cases: Returns the cases described in a file, by suite and name.
      directions: Returns the directions of metrics described in a file.
      columns: Roles of columns that `--column` can set.
      recognises: Returns whether a file or folder has this format. The files of most shipped formats look alike, so
        that `kinds.py` decides between them, in a certain order.
      has_facts: Whether runs have data besides their names, such as a configuration, parameters or tags.
      primary: Default primary metric of files with several. "": the user has to choose one.
      may_repeat_runs: Whether a file or folder may contain a run twice, because its runs have no names.
      about: Description of the format. "": that of its declaration.

    >>> def read(path, asked, notes):
    ...     yield from ()
    >>> FileKind(read=read).last_counts
    False
    """

    read: Callable[[Path, CurveRequest, list[str]], Iterator[Points]]
    files: Callable[[Path], list[Path]] | None = None
    last_counts: bool = False
    draws: str = ""
    cases: Callable[[Path], dict[str, CaseInfo]] = lambda path: {}
    directions: Callable[[Path, CurveRequest], dict[str, Direction]] = lambda path, asked: {}
    columns: tuple[str, ...] = ()
    recognises: Callable[[Path], bool] = lambda path: False
    has_facts: bool = False
    primary: str = ""
    may_repeat_runs: bool = False
    about: str = ""
