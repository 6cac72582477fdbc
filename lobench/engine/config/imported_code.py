"""Imported code: the content of the user's modules as this process imported them.

A file may be edited between its import and the fingerprint of its code. Each file is read before its import. If its
content is the same afterwards, that content was imported.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from lobench.core.code_origin import Origin, origin_of_file

__all__ = ["imported_content", "record_imports"]

_COARSEST_NS = 2_000_000_000  # coarsest resolution of times in file systems and compiled files


class _ImportRecord(NamedTuple):
    """Record of an import: the spec of the module, and the content of its file."""

    spec: ModuleSpec
    content: bytes


_import_records: dict[str, _ImportRecord] = {}  # last import, by the file's real path


class _ImportRecorder:
    """Finder at the front of `sys.meta_path` that records the content of each file that a later finder finds."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else ():
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                _record_import(spec)
                return spec
        return None


_recorder = _ImportRecorder()


def record_imports() -> None:
    """Starts recording imports. Another call moves the recording finder in front of finders that were added since."""
    if sys.meta_path[:1] != [_recorder]:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(_recorder)
        sys.meta_path.insert(0, _recorder)


def imported_content(file: str) -> bytes | None:
    """Returns the content of a file that this process imported; None if it did not, or before `record_imports`.

    Args:
      file: Real path of the file.
    """
    record = _import_records.get(file)
    if record is None or getattr(sys.modules.get(record.spec.name), "__spec__", None) is not record.spec:
        return None
    return record.content


def _record_import(spec: ModuleSpec) -> None:
    origin = spec.origin or ""
    if not origin.endswith(".py") or origin_of_file(origin) is not Origin.USER:
        return
    file = os.path.realpath(origin)
    with contextlib.suppress(OSError):  # the import reports the error
        _drop_doubtful_bytecode(origin)
        _import_records[file] = _ImportRecord(spec, Path(file).read_bytes())


def _drop_doubtful_bytecode(file: str) -> None:
    """Removes bytecode files that may have been compiled from an earlier content.

    Python uses a bytecode file if it records the size and the time (in seconds) of the source. Both can be unchanged
    after an edit within a second. Files that this user may not remove are kept.
    """
    changed_ns = os.stat(file).st_ctime_ns
    name = f"{glob.escape(Path(file).stem)}.*.pyc"
    for bytecode_file in Path(importlib.util.cache_from_source(file)).parent.glob(name):
        with contextlib.suppress(OSError):
            if bytecode_file.stat().st_mtime_ns < changed_ns + _COARSEST_NS:
                bytecode_file.unlink()
