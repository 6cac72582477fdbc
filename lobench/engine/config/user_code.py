"""User code: the files that a module reaches by its imports, and a fingerprint of them.

Nothing is imported: import statements are read from the syntax trees. For a module that this process has imported, the
imported content is used, even if its file has changed since. The fingerprint contains a hash of the syntax tree of each
of the user's files, including editable installs, without comments, docstrings and positions; and the versions of
installed packages. It excludes the standard library, lobench, and the packages in `Program`.
"""

from __future__ import annotations

import functools
import importlib
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lobench.core.case import CaseInfo
from lobench.core.code import CodeFingerprint
from lobench.core.code_origin import loaded_module_files
from lobench.engine.config.code_walk import CodeWalk, listing_sha256
from lobench.engine.config.gin_state import forget_configurables
from lobench.engine.config.imported_code import imported_content
from lobench.engine.config.source_files import parse_source, parse_source_file
from lobench.engine.file_stamps import FileStamp, is_stamp_reliable, stamps_of
from lobench.engine.retries import retried_briefly

__all__ = [
    "code_fingerprint",
    "computed_fingerprints",
    "differing_parts_run",
    "edited_files",
    "forget_edited_code",
    "forget_modules_of",
    "tree_sha256",
    "united_fingerprint",
]


def code_fingerprint(
    files: Iterable[str | Path] = (),
    *,
    modules: Iterable[str] = (),
    texts: Iterable[str] = (),
    folders: Sequence[str] = (),
    added_folders: Sequence[str] = (),
    as_imported: bool = True,
) -> CodeFingerprint:
    """Returns the fingerprint of files and modules, and of everything that they reach by import statements or name.

    For a file that cannot be parsed, the bytes are hashed. A module that cannot be found is left out.

    Args:
      files: Files of code. For files that are not Python, the bytes are hashed.
      modules: Names of modules, loaded or not.
      texts: Texts that may be paths of files, relative to one of the folders.
      folders: Folders in which modules are searched before `sys.path`, and from which relative paths count.
      added_folders: Further folders that may be on the import path, in unknown order. Modules found there count too.
      as_imported: Whether the imported content of modules counts instead of their files. False: for other processes.
    """
    key = _FingerprintArguments(
        tuple(map(str, files)),
        tuple(modules),
        tuple(texts),
        tuple(folders),
        tuple(added_folders),
        tuple(sys.path),
        as_imported,
    )
    if key in _cached_fingerprints and _cached_fingerprints[key].is_current():
        return _cached_fingerprints[key].fingerprint
    started_at = time.time()
    fingerprint = retried_briefly(
        lambda: CodeWalk(folders, added_folders, as_imported=as_imported).fingerprint(key.files, key.modules, key.texts)
    )
    # Modules read data files when they are imported.
    earlier_stamps = _cached_fingerprints[key].data_stamps if key in _cached_fingerprints else {}
    data = {file: earlier_stamps.get(file, stamp) for file, stamp in stamps_of(fingerprint.data_files).items()}
    _cached_fingerprints[key] = _CachedFingerprint(fingerprint, _stamps_by_file(fingerprint), started_at, data)
    _fingerprints_by_id[fingerprint.id] = fingerprint
    return fingerprint


def united_fingerprint(fingerprints: Iterable[CodeFingerprint]) -> CodeFingerprint:
    """Combines several fingerprints into one."""
    fingerprint = functools.reduce(CodeFingerprint.__or__, fingerprints, CodeFingerprint())
    _fingerprints_by_id[fingerprint.id] = fingerprint
    return fingerprint


def computed_fingerprints(cases: Iterable[CaseInfo]) -> dict[str, CodeFingerprint]:
    """Returns the fingerprints of cases by id, as far as this process has computed them."""
    ids = {code for case in cases for code in (case.case_code, case.subject_code)}
    return {code_id: _fingerprints_by_id[code_id] for code_id in sorted(ids) if code_id in _fingerprints_by_id}


def tree_sha256(content: bytes) -> str:
    """Returns the hash of Python source, ignoring comments, docstrings, layout and the kind of quotes.

    >>> tree_sha256(b"x = f(1)  # one") == tree_sha256(b"x = f(\\n    1,\\n)")
    True
    """
    return parse_source(content).sha256


def edited_files(fingerprint: CodeFingerprint) -> list[str]:
    """Returns the files of a fingerprint whose code on the disk has changed."""
    return sorted(file for file, sha256 in fingerprint.files.items() if _sha256_on_disk(file) != sha256)


def differing_parts_run(case: CaseInfo) -> dict[str, str]:
    """Returns the hashes of code that a training may have run instead of the code in the case's fingerprint, by name.

    These are modules that were imported with another content than in the fingerprint. Files on the disk that have
    changed and are not modules of this process are included, because the training may have read them
    (`runpy.run_path`).
    """
    changed_parts: dict[str, str] = {}
    for fingerprint in computed_fingerprints([case]).values():
        changed_parts |= {**_edited_after_reading(fingerprint), **_edited_after_import(fingerprint)}
    if not changed_parts:
        return {}
    walk = CodeWalk((), as_imported=False)
    return {walk.name_of(file): sha256 for file, sha256 in changed_parts.items()}


def _edited_after_reading(fingerprint: CodeFingerprint) -> dict[str, str]:
    """Returns the hashes of a fingerprint's files that have changed on the disk, by file, except imported modules."""
    changed_files = edited_files(fingerprint)
    if not changed_files:
        return {}
    imported_files = {file for _, file in loaded_module_files()}
    return {file: _sha256_on_disk(file) for file in changed_files if file not in imported_files}


def _edited_after_import(fingerprint: CodeFingerprint) -> dict[str, str]:
    """Returns the hashes of a fingerprint's files that were imported with other content, by file."""
    contents = {file: imported_content(file) for file in fingerprint.files}
    hashes = {file: tree_sha256(content) for file, content in contents.items() if content is not None}
    return {file: sha256 for file, sha256 in hashes.items() if sha256 != fingerprint.files[file]}


def _sha256_on_disk(file: str) -> str:
    try:
        return retried_briefly(functools.partial(parse_source_file, file)).sha256
    except OSError:
        return ""


def forget_edited_code() -> bool:
    """Makes this process import the user's code again if a file was edited since it was imported or read.

    A change of a data file that the code names counts as an edit, since a module may have read it. So does a new
    package or compiled module beside a module of the same name, because Python imports it instead.

    Returns:
      Whether modules were dropped.
    """
    read_files = [*dict.fromkeys(file for entry in _cached_fingerprints.values() for file in entry.fingerprint.files)]
    cached_entries = _cached_fingerprints.values()
    if not any(
        edited_files(entry.fingerprint)
        or stamps_of(entry.fingerprint.data_files) != entry.data_stamps
        or not stamps_of(entry.fingerprint.missing_files).items() <= entry.stamps.items()
        for entry in cached_entries
    ):
        return False
    _cached_fingerprints.clear()
    return forget_modules_of(read_files)


def forget_modules_of(files: Collection[str]) -> bool:
    """Makes this process import the modules of some files again. Returns whether there were such modules.

    Args:
      files: Real paths of the files.
    """
    module_names = [name for name, file in loaded_module_files() if file in files]
    for name in module_names:
        del sys.modules[name]
    forget_configurables(module_names)
    importlib.invalidate_caches()
    return bool(module_names)


class _FingerprintArguments(NamedTuple):
    """Arguments of `code_fingerprint`, and the import path."""

    files: tuple[str, ...]
    modules: tuple[str, ...]
    texts: tuple[str, ...]
    folders: tuple[str, ...]
    added_folders: tuple[str, ...]
    sys_path: tuple[str, ...]
    as_imported: bool


class _CachedFingerprint(NamedTuple):
    """Fingerprint of code, with stamps of its files by which a later change is noticed.

    Attributes:
      fingerprint: The fingerprint.
      stamps: Stamps of its files of code, and of those that are missing.
      started_at: Time at which the files were read, in seconds since 1970.
      data_stamps: Stamps of the data files that the code names, when they were first seen.
    """

    fingerprint: CodeFingerprint
    stamps: Mapping[str, FileStamp | None]
    started_at: float
    data_stamps: Mapping[str, FileStamp | None]

    def is_current(self) -> bool:
        """Returns whether no file has changed.

        False if a file was written just before it was read, because its stamp may then be equal after another edit.
        """
        newest_change = max((stamp[1] for stamp in self.stamps.values() if stamp is not None), default=0)
        if not is_stamp_reliable(newest_change, self.started_at) or self.stamps != _stamps_by_file(self.fingerprint):
            return False
        listing_hashes = self.fingerprint.folder_listings
        return {
            folder: listing_sha256(folder) for folder in listing_hashes
        } == listing_hashes and not _edited_after_import(self.fingerprint)


_cached_fingerprints: dict[_FingerprintArguments, _CachedFingerprint] = {}
_fingerprints_by_id: dict[str, CodeFingerprint] = {}  # by id


def _stamps_by_file(fingerprint: CodeFingerprint) -> dict[str, FileStamp | None]:
    return stamps_of((*fingerprint.files, *fingerprint.missing_files))
