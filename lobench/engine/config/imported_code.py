"""Imported code: the content of the user's modules as this process imported them.

A file may be edited between its import and the fingerprint of its code. Each file is read before it is imported: if it
has the same content afterwards, that content was imported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from lobench.core.code_origin import Origin, origin_of_file

__all__ = ["imported_content", "note_imports"]

_COARSEST_NS = 2_000_000_000  # steps of a file system's times, and of those in compiled files


class _Imported(NamedTuple):
    """What was found for an import of a file: the spec that the module has then, and the content."""

    spec: ModuleSpec
    content: bytes


_imported: dict[str, _Imported] = {}  # by the file's real path, the last import


class _ImportNotes:
    """Finder in front of all others that notes the content of the files that they find."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else ():
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                _note(spec)
                return spec
        return None


_notes = _ImportNotes()


def note_imports() -> None:
    """Begins to note imports. Calling this again puts the finder in front of those that were added since."""
    if sys.meta_path[:1] != [_notes]:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(_notes)
        sys.meta_path.insert(0, _notes)


def imported_content(file: str) -> bytes | None:
    """Returns the content of a file that this process imported; None if it did not, or before `note_imports`.

    Args:
      file: Its real path.
    """
    found = _imported.get(file)
    if found is None or getattr(sys.modules.get(found.spec.name), "__spec__", None) is not found.spec:
        return None
    return found.content


def _note(spec: ModuleSpec) -> None:
    origin = spec.origin or ""
    if not origin.endswith(".py") or origin_of_file(origin) is not Origin.USER:
        return
    file = os.path.realpath(origin)
    with contextlib.suppress(OSError):  # the import fails by itself
        _drop_doubtful_bytecode(origin)
        _imported[file] = _Imported(spec, Path(file).read_bytes())


def _drop_doubtful_bytecode(file: str) -> None:
    """Removes compiled files that may be of an earlier content.

    Python takes a compiled file if it has the size and the time in seconds of the source. After an edit within the same
    second both can be the same.
    """
    changed_ns = os.stat(file).st_ctime_ns
    for compiled in Path(importlib.util.cache_from_source(file)).parent.glob(f"{Path(file).stem}.*.pyc"):
        if compiled.stat().st_mtime_ns < changed_ns + _COARSEST_NS:
            compiled.unlink()
