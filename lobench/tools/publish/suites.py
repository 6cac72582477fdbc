"""Files of the suites that a store's cases are of."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lobench.analysis.scores.baseline_places import folder_of_suite
from lobench.core.case import CaseInfo
from lobench.core.wording import counted
from lobench.engine.config.shipped import name_of, shipped_suite
from lobench.engine.config.suite_files import files_above, files_of_suite
from lobench.engine.store.ledger import EvaluationRow, Ledger

__all__ = ["LARGEST", "BundledSuites", "suites_of"]

LARGEST = 100_000_000  # bytes of a file that goes into a bundle; of a larger one the hash does


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledSuites:
    """Files of suites, below `suites/N/`, which is the folder that a suite's folder lies in.

    Attributes:
      members: Contents by their names in the bundle.
      folders: Of the suites, here.
      places: Where each of them is in the bundle, by what it is called here.
      not_included: sha256 by name, of files that are too large.
      left_out: A line for what is missing.
    """

    members: Mapping[str, bytes] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()
    places: dict[str, str] = field(default_factory=dict)
    not_included: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def suites_of(store: Path, rows: Sequence[EvaluationRow], given: Sequence[Path]) -> BundledSuites:
    """Returns the files of the suites of all cases, as they are now.

    Args:
      given: Folders that the store does not tell of.
    """
    known, modules = _files_of_workers(store)
    folders: dict[Path, None] = {}
    lacking: dict[str, int] = {}
    for row in rows:
        if not any(one.is_imported for one in row.sightings):
            folder = _folder_of(row.case, given, known)
            if folder is None:
                lacking[row.case.suite] = lacking.get(row.case.suite, 0) + 1
            else:
                folders[folder] = None
    members: dict[str, bytes] = {}
    places, not_included = dict[str, str](), dict[str, str]()
    for number, folder in enumerate(sorted(folders, key=lambda folder: (folder.name, str(folder)))):
        root, base = folder.parent, f"suites/{number}"
        places[name_of(folder)] = f"{base}/{folder.name}"
        above = [file for file in files_above(folder) if file.name == "conftest.py" or file in modules]
        for file in sorted({*files_of_suite(folder), *above}):
            resolved = Path(os.path.normpath(file))
            if not resolved.is_relative_to(root):
                continue
            name = f"{base}/{resolved.relative_to(root).as_posix()}"
            content = resolved.read_bytes()
            if len(content) > LARGEST:
                not_included[name] = hashlib.sha256(content).hexdigest()
            else:
                members[name] = content
    left_out = [
        f"the files of suite {suite}, of {counted(count, 'evaluation')}: --suite says where they lie"
        for suite, count in sorted(lacking.items())
    ]
    left_out += [f"{name}: larger than {LARGEST / 1e6:g} MB, its hash alone" for name in sorted(not_included)]
    found = tuple(folders)
    return BundledSuites(
        members=members, folders=found, places=places, not_included=not_included, left_out=tuple(left_out)
    )


def _files_of_workers(store: Path) -> tuple[list[Path], set[Path]]:
    """Returns the files that workers have read beside a store's suites, and those of them that lie elsewhere."""
    if not store.is_dir():
        return [], set()
    with Ledger.open(store, read_only=True) as ledger:
        marks = ledger.described_files()
    return [Path(path) for path in marks["around"]], {Path(path) for path in marks["loaded"]}


def _folder_of(case: CaseInfo, given: Iterable[Path], known: Iterable[Path]) -> Path | None:
    """Returns the folder of a case's suite: a given one, what its store names, this folder's, or one of lobench's."""
    file = case.node_id.partition("::")[0]
    for suite in given:
        folder = suite.resolve() if suite.is_dir() else suite.resolve().parent
        if folder.name == case.suite or (folder / Path(file).name).is_file():
            return folder
    if (placed := folder_of_suite(case)) is not None:
        return placed.resolve()
    for path in known:
        if path.is_file() and str(path).endswith(f"/{file}"):
            return path.parent
    with contextlib.suppress(OSError):
        if file and Path(file).is_file():
            return Path(file).resolve().parent
    own = shipped_suite(case.suite)
    return None if own is None else (own if own.is_dir() else own.parent).resolve()
