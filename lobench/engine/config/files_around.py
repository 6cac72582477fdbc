"""The files that a suite is made of: what its cases, or the gin files bound around them, can reach by name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["INCLUDE", "INI_FILES", "files_above", "files_below", "files_of_suite", "included_files"]

INI_FILES = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")  # any of them makes pytest's root

_MARKS_OF_FOREIGN_FOLDERS = ("pyvenv.cfg", "ledger.sqlite")
INCLUDE = re.compile(r"^\s*include\s+['\"](.+?)['\"]", re.MULTILINE)


def files_of_suite(suite: Path, *, follow_links: bool = False) -> Iterator[Path]:
    """Yields the files of a suite's folder, or a bare gin file and what it can import; and what gin files include.

    Args:
      follow_links: Whether links to folders are gone into.
    """
    seen: set[Path] = set()
    for file in files_below(suite, follow_links=follow_links) if suite.is_dir() else _beside(suite):
        yield file
        if file.suffix == ".gin":
            yield from included_files(file, seen)


def included_files(file: Path, seen: set[Path], below: Path | None = None) -> Iterator[Path]:
    """Yields a gin file and what it includes, below a folder alone; what is not there is the worker's to report."""
    if file in seen or not file.is_file():
        return
    seen.add(file)
    yield file
    for name in INCLUDE.findall(file.read_text(encoding="utf-8", errors="replace")):
        found = Path(os.path.normpath(file.parent / name))
        if below is None or found.resolve().is_relative_to(below):
            yield from included_files(found, seen, below)


def files_below(folder: Path, *, follow_links: bool = False) -> Iterator[Path]:
    """Yields a suite's files, without what is hidden, cached, a virtual environment or a store."""
    for root, folders, names in os.walk(folder, followlinks=follow_links):
        here = Path(root)
        folders[:] = [
            name
            for name in sorted(folders)
            if not name.startswith(".")
            and name != "__pycache__"
            and not any((here / name / mark).exists() for mark in _MARKS_OF_FOREIGN_FOLDERS)
            and not (follow_links and _is_circle(here / name))
        ]
        yield from (here / name for name in sorted(names) if (here / name).is_file() and not name.endswith(".pyc"))


def _is_circle(folder: Path) -> bool:
    """Says whether a folder is a link to one that it was come through."""
    return folder.is_symlink() and folder.resolve() in (above.resolve() for above in folder.parents)


def _beside(gin_file: Path) -> Iterator[Path]:
    """Yields a bare gin file and what it can import or include: the Python and gin files of its folder."""
    for file in sorted(gin_file.parent.iterdir()):
        if file == gin_file or (file.suffix in (".py", ".gin") and file.is_file()):
            yield file


def files_above(folder: Path) -> Iterator[Path]:
    """Yields conftest files, modules and pytest's configuration from the suite's parent up to pytest's root."""
    for above in folder.parents:
        if above == Path(above.anchor):
            return
        if above == folder.parent:  # importable from gin: modules and packages
            yield from sorted(file for file in above.glob("*.py") if file.is_file())
            for package in sorted(above.glob("*/__init__.py")):
                yield from files_below(package.parent, follow_links=True)
        elif (above / "conftest.py").is_file():
            yield above / "conftest.py"
        found = [above / name for name in INI_FILES if (above / name).is_file()]
        yield from found
        if found:
            return
