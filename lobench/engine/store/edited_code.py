"""Detection of results that were computed by other code than the user's present code.

No worker is started: the recorded hash of each code file is compared with the present file. Files that are not found,
as on another machine, count as unchanged.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Collection, Iterable, Mapping
from importlib import metadata
from pathlib import Path

from lobench.core.code import other_code_line, split_code
from lobench.core.subject import Subject
from lobench.engine.config.source_files import CODE_SUFFIXES, parse_source_file
from lobench.engine.file_stamps import FileStamp, is_stamp_reliable, stamp_of
from lobench.engine.store.codes import SHOWN_DIGITS
from lobench.engine.store.ledger import EvaluationRow, Ledger

__all__ = ["ResultCodes", "code_files", "edited_code", "edited_code_line", "is_package"]


def edited_code(ledger: Ledger, rows: Iterable[EvaluationRow]) -> dict[str, tuple[str, ...]]:
    """Returns the codes of results that differ from the user's present code, with the names of the differing files.

    Code that was declared equal to the present code (`--keep-results`) does not differ.

    Args:
      ledger: Ledger of the store.
      rows: Results.

    Returns:
      Names by `EvaluationKey.code`. For results of a script (`Method.command`), whose key has no code, by
      `Subject.uri`, which contains the beginning of its code.
    """
    result_codes = ResultCodes(ledger)
    codes = set[str]()
    uris = set[str]()
    for row in rows:
        if row.key.code:
            codes.add(row.key.code)
        else:
            uris.update(sighting.uri for sighting in row.sightings if sighting.is_imported)
    names_by_code = {code: result_codes.changed_files_of_code(code) for code in sorted(codes)}
    names_by_uri = {uri: result_codes.changed_files_of_code(result_codes.code_of_script(uri)) for uri in sorted(uris)}
    return {key: names for key, names in (names_by_code | names_by_uri).items() if names}


def code_files(ledger: Ledger) -> list[str]:
    """Returns the paths of the files that `edited_code` compares with recorded code. They need not exist."""
    files = _PresentFiles(ledger)
    return list(
        dict.fromkeys(
            path for name in ledger.names_of_code_parts() for paths in files.possible_paths(name) for path in paths
        )
    )


class ResultCodes:
    """Code of results, and the files that changed since. Each code is compared with the present files once.

    Args:
      ledger: Ledger of the store.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._files = _PresentFiles(ledger)
        self._names_by_code: dict[str, tuple[str, ...]] = {}
        self._codes_by_uri: dict[str, str] = {}

    def code_of(self, row: EvaluationRow, subject: Subject) -> str:
        """Returns the user's code that made a result; "" if it is unknown."""
        return row.key.code or (self.code_of_script(subject.uri) if subject.is_imported else "")

    def code_of_script(self, uri: str) -> str:
        """Returns the code of a script, by the uri of its imported curves; "" if it is unknown."""
        if uri not in self._codes_by_uri:
            codes = [code for name, code in self._script_codes if _has_code(uri, name, code)]
            self._codes_by_uri[uri] = codes[-1] if codes else ""
        return self._codes_by_uri[uri]

    def changed_files_of_code(self, code: str) -> tuple[str, ...]:
        """Returns the names of the files and packages that differ from a code now; () if none is known to differ."""
        if code not in self._names_by_code:
            differing_names = (self._files.changed_since(part_id) for part_id in split_code(code) if part_id)
            self._names_by_code[code] = tuple(dict.fromkeys(name for names in differing_names for name in names))
        return self._names_by_code[code]

    @functools.cached_property
    def _script_codes(self) -> list[tuple[str, str]]:
        return self._ledger.script_codes()


def edited_code_line(rows: Iterable[EvaluationRow], names_by_code: Mapping[str, Collection[str]]) -> str:
    """Returns a note such as "12 results were made by other code: signs.py"; "" if there are no such results.

    Args:
      rows: Results.
      names_by_code: Result of `edited_code` for them.
    """
    if not names_by_code:
        return ""
    keys_of_rows = ([row.key.code] if row.key.code else [sighting.uri for sighting in row.sightings] for row in rows)
    keys_of_edited_rows = [
        edited_keys for keys in keys_of_rows if (edited_keys := [key for key in keys if key in names_by_code])
    ]
    if not keys_of_edited_rows:
        return ""
    names = sorted({name for keys in keys_of_edited_rows for key in keys for name in names_by_code[key]})
    return other_code_line(len(keys_of_edited_rows), names)


def _has_code(uri: str, method: str, code: str) -> bool:
    """Returns whether a uri, such as `imported:mine-957d6c32-175b568e`, names a script's method and code."""
    name = uri.partition(":")[2]
    return bool(code) and name.startswith(f"{method}-") and code[:SHOWN_DIGITS] in name.split("-")


class _PresentFiles:
    """Present files of a store's recorded code.

    A name in a fingerprint is the path of a file relative to the folder that it was imported from. It is searched among
    the files that workers have read, in the folders of the suites and above them, and in the folder of the store's
    experiment.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._changed_names: dict[str, tuple[str, ...]] = {}  # by fingerprint

    def changed_since(self, fingerprint: str) -> tuple[str, ...]:
        """Returns the names of files and packages that now differ from a fingerprint; () if the code is unchanged."""
        if fingerprint not in self._changed_names:
            canonical_codes = self._ledger.canonical_codes
            canonical = canonical_codes.get(fingerprint, fingerprint)
            equal_codes = [
                fingerprint,
                *(
                    equal_code
                    for equal_code, canonical_code in canonical_codes.items()
                    if canonical_code == canonical and equal_code != fingerprint
                ),
            ]
            known_parts = [
                hashes_of_parts
                for equal_code in equal_codes
                if (hashes_of_parts := self._ledger.code_parts(equal_code)) is not None
            ]
            differing_names = [self._differing_parts(hashes_of_parts) for hashes_of_parts in known_parts]
            self._changed_names[fingerprint] = differing_names[0] if differing_names and all(differing_names) else ()
        return self._changed_names[fingerprint]

    def _differing_parts(self, hashes_of_parts: Mapping[str, str]) -> tuple[str, ...]:
        """Returns the names of parts that differ now; () if no file is found, as for code of another machine."""
        files = {name: hashes for name in hashes_of_parts if (hashes := self._hashes_of(name))}
        packages = [name for name in hashes_of_parts if is_package(name)]
        differing_names = [name for name, hashes in files.items() if hashes_of_parts[name] not in hashes]
        differing_names += [
            name for name in packages if files and name not in files and _version_differs(name, hashes_of_parts[name])
        ]
        return tuple(sorted(differing_names))

    def _hashes_of(self, name: str) -> set[str]:
        """Returns the hashes of the files that may have a name in a fingerprint; empty if none is found."""
        all_hashes = ({_sha256_of(path) for path in paths} - {""} for paths in self.possible_paths(name))
        return next(filter(None, all_hashes), set())

    def possible_paths(self, name: str) -> tuple[list[str], list[str]]:
        """Returns the recorded paths of files that may have a name, and paths to try if none of these exists."""
        recorded_paths = [
            recorded_path
            for recorded_path in self._paths_by_name.get(os.path.basename(name), ())
            if f"/{recorded_path}".endswith(f"/{name}")
        ]
        return recorded_paths, [f"{folder}/{name}" for folder in self._folders]

    @functools.cached_property
    def _paths_by_name(self) -> Mapping[str, list[str]]:
        """Paths of the files that workers have read, by file name."""
        recorded_paths = [path for paths in self._ledger.files_of_descriptions().values() for path in paths]
        paths_by_name: dict[str, list[str]] = {}
        for path in dict.fromkeys(
            path for recorded_path in recorded_paths for path in self._ledger.present_paths(recorded_path)
        ):
            paths_by_name.setdefault(os.path.basename(path), []).append(path)
        return paths_by_name

    @functools.cached_property
    def _folders(self) -> list[str]:
        suites = self._ledger.folders_of_suites()
        parents = [os.path.dirname(folder) for folder in suites]
        return list(dict.fromkeys([*suites, *parents, str(Path(os.path.abspath(self._ledger.store)).parent.parent)]))


def is_package(part: str) -> bool:
    """Returns whether a part of a fingerprint is an installed package, and not a file."""
    return "/" not in part and not part.endswith(tuple(CODE_SUFFIXES))


def _version_differs(package: str, recorded_version: str) -> bool:
    try:
        version = metadata.version(package)
    except (metadata.PackageNotFoundError, ValueError):
        return False
    return version != recorded_version.partition(" ")[0]


_cached_hashes: dict[str, tuple[FileStamp, str]] = {}  # by path


def _sha256_of(path: str) -> str:
    """Returns the hash of a file's code as in fingerprints; "" if the file cannot be read."""
    try:
        stamp = stamp_of(path)
        if stamp is None:
            return ""
        cached_entry = _cached_hashes.get(path)
        if cached_entry is not None and cached_entry[0] == stamp:
            return cached_entry[1]
        sha256 = parse_source_file(path).sha256
    except OSError:
        return ""
    if is_stamp_reliable(stamp[1], time.time()):
        _cached_hashes[path] = stamp, sha256
    return sha256
