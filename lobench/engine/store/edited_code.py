"""Results that other code than the user's present code made, as far as a reader of the store can tell.

A reader starts no worker. It compares the recorded hash of each file of code with the file that is there now. A file
that is not found, as on another machine, counts as unchanged.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Collection, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Protocol

from lobench.core.code import parts_of_code
from lobench.core.result import EvaluationKey
from lobench.core.wording import counted, first_of
from lobench.engine.config.source_files import CODE_SUFFIXES, source_at
from lobench.engine.config.user_code import COARSEST_SECONDS
from lobench.engine.file_stamps import FileStamp, stamp_of
from lobench.engine.store.ledger import Ledger

__all__ = ["edited_code", "edited_code_line"]

_MOST_NAMED = 3


class _Row(Protocol):
    @property
    def key(self) -> EvaluationKey: ...


def edited_code(ledger: Ledger, codes: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns the codes that are not the user's present code, each with the names of the files that differ.

    Code counts as present code if it was declared equal to present code (`--keep-results`).

    Args:
      ledger: Ledger of the store.
      codes: `EvaluationKey.code` of results.
    """
    files, names_by_code = _PresentFiles(ledger), dict[str, tuple[str, ...]]()
    for code in sorted({*codes} - {""}):
        changed = (files.changed_since(part) for part in parts_of_code(code) if part)
        if names := tuple(dict.fromkeys(name for part in changed for name in part)):
            names_by_code[code] = names
    return names_by_code


def edited_code_line(rows: Iterable[_Row], edited: Mapping[str, Collection[str]]) -> str:
    """Returns a line on results that other code made, such as "12 results were made by other code: signs.py"; or "".

    Args:
      rows: Results.
      edited: Result of `edited_code` for their codes.
    """
    codes = [row.key.code for row in rows if row.key.code in edited]
    if not codes:
        return ""
    names = sorted({name for code in codes for name in edited[code]})
    were = "was" if len(codes) == 1 else "were"
    return f"{counted(len(codes), 'result')} {were} made by other code: {first_of(names, _MOST_NAMED)}"


class _PresentFiles:
    """Files of a store's recorded code, as they are now.

    A name in a fingerprint is the path of a file from the folder that it was imported from. It is looked up among the
    files that workers have read; in the folders of the suites and above them; and in the folder of the store's
    experiment.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._changed: dict[str, tuple[str, ...]] = {}  # by fingerprint

    def changed_since(self, fingerprint: str) -> tuple[str, ...]:
        """Returns the names of files and packages in a fingerprint that differ now; () if code equal to it is there."""
        if fingerprint not in self._changed:
            same = self._ledger.accepted_code
            canonical = same.get(fingerprint, fingerprint)
            alike = [fingerprint, *(one for one, other in same.items() if other == canonical and one != fingerprint)]
            known = [parts for one in alike if (parts := self._ledger.code_parts(one)) is not None]
            changed = [self._differing(parts) for parts in known]
            self._changed[fingerprint] = changed[0] if changed and all(changed) else ()
        return self._changed[fingerprint]

    def _differing(self, parts: Mapping[str, str]) -> tuple[str, ...]:
        """Returns the names of parts that differ now; () if no file is found, as for another machine's code."""
        files = {name: hashes for name in parts if (hashes := self._hashes_of(name))}
        packages = [name for name in parts if "/" not in name and not name.endswith(tuple(CODE_SUFFIXES))]
        found = [name for name, hashes in files.items() if parts[name] not in hashes]
        found += [name for name in packages if files and name not in files and _version_differs(name, parts[name])]
        return tuple(sorted(found))

    def _hashes_of(self, name: str) -> set[str]:
        """Returns the hashes of the files that may have a name in a fingerprint; empty if none is found."""
        paths = [one for one in self._by_name.get(os.path.basename(name), ()) if f"/{one}".endswith(f"/{name}")]
        hashes = {_sha256_of(path) for path in paths} - {""}
        return hashes or {_sha256_of(f"{folder}/{name}") for folder in self._folders} - {""}

    @functools.cached_property
    def _by_name(self) -> Mapping[str, list[str]]:
        """Paths of the files that workers have read, by file name."""
        recorded = [path for paths in self._ledger.described_files().values() for path in paths]
        found: dict[str, list[str]] = {}
        for path in dict.fromkeys(path for one in recorded for path in self._ledger.present_paths(one)):
            found.setdefault(os.path.basename(path), []).append(path)
        return found

    @functools.cached_property
    def _folders(self) -> list[str]:
        suites = self._ledger.folders_of_suites()
        above = [os.path.dirname(folder) for folder in suites]
        return list(dict.fromkeys([*suites, *above, str(Path(os.path.abspath(self._ledger.store)).parent.parent)]))


def _version_differs(package: str, recorded: str) -> bool:
    try:
        version = metadata.version(package)
    except (metadata.PackageNotFoundError, ValueError):
        return False
    return version != recorded.partition(" ")[0]


_hashes: dict[str, tuple[FileStamp, str]] = {}  # by path


def _sha256_of(path: str) -> str:
    """Returns the hash of a file's code, as fingerprints have it; "" if the file cannot be read."""
    try:
        stamp = stamp_of(path)
        if stamp is None:
            return ""
        known = _hashes.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        sha256 = source_at(path).sha256
    except OSError:
        return ""
    if time.time() - stamp[1] / 1e9 > COARSEST_SECONDS:  # else a later edit may give the same stamp
        _hashes[path] = stamp, sha256
    return sha256
