"""Baselines of stored cases. The files found do not depend on the folder in which a command is started."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.analysis.scores.baseline_file import find_baselines
from lobench.core.case import CaseInfo
from lobench.core.suite_place import BASELINES, SuitePlace
from lobench.engine.config.shipped import shipped_suite
from lobench.engine.config.suite import gin_files_of
from lobench.engine.paths import path_exists
from lobench.engine.store.ledger import Ledger

__all__ = ["BaselineFolders", "baselines_of_cases", "folder_of_suite", "record_suites"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineFolders:
    """Folders of suites with the baselines of some cases.

    Attributes:
      folders: Folders of the suites.
      notes: A line for each suite whose baselines are missing, or differ from those used when its store was scored.
    """

    folders: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def record_suites(ledger: Ledger, suites: Iterable[str | Path]) -> None:
    """Records in a store the locations of suites and the hashes of their baseline files.

    Args:
      ledger: Ledger of the store.
      suites: Folders, or gin files.
    """
    hashes_by_suite: dict[tuple[str, str], dict[str, str]] = {}
    for suite in (Path(os.path.abspath(suite)) for suite in suites):
        suite_folder = suite if path_exists(suite, kind="folder") else suite.parent
        names = {file.parent.name: file.parent for file in gin_files_of(suite)}
        names |= {suite.stem: suite_folder} if path_exists(suite, kind="file") else {}
        for name, folder in names.items():
            baseline_folder = folder if find_baselines(folder) else suite_folder  # as `lobench watch` finds them
            hashes_by_suite[name, str(baseline_folder)] = _hashes(baseline_folder)
    ledger.record_suites(hashes_by_suite)


def baselines_of_cases(cases: Iterable[CaseInfo]) -> BaselineFolders:
    """Returns the folders of the suites whose baselines apply to cases read from stores.

    A case's suite is found at the path recorded in its store, relative to the store or absolute. Stores of older
    lobench versions lack it: then the path of the case's file is resolved against the folders around the store and the
    working directory. The baselines of lobench's own suites are found by the suite's name.
    """
    read_texts = functools.cache(lambda suite: [file.read_text() for file in find_baselines(suite)])
    find_folder = functools.cache(_permitted_folder)
    folders: set[Path] = set()
    notes: dict[str, None] = {}
    for case in cases:
        folder, note = _baselines_of_case(case, find_folder, read_texts)
        if folder is not None:
            folders.add(folder)
        if note:
            notes[note] = None
    return BaselineFolders(folders=tuple(sorted(folders)), notes=tuple(notes))


def folder_of_suite(case: CaseInfo) -> Path | None:
    """Returns the present folder of a stored case's suite; None if it is gone, or not recorded in the store."""
    return next(
        (Path(path) for place in case.places for path in place.candidate_paths() if path_exists(path, kind="folder")),
        None,
    )


def _baselines_of_case(
    case: CaseInfo,
    find_folder: Callable[[SuitePlace, str], tuple[Path | None, str]],
    read_texts: Callable[[Path], Sequence[str]],
) -> tuple[Path | None, str]:
    """Returns the folder whose baselines apply to a case, if any, and a note if they differ from the recorded ones."""

    def has_baseline(folder: Path) -> bool:
        return any(case.problem in text for text in read_texts(folder))

    file = case.node_id.partition("::")[0]
    folders_and_notes = [
        find_folder(suite_place, file) for suite_place in case.places or (SuitePlace(suite=case.suite),)
    ]
    folders = [(folder, note) for folder, note in folders_and_notes if folder is not None]
    # If a store has two suites with one name, the suite with a baseline of the case counts.
    best = next((candidate for candidate in folders if has_baseline(candidate[0])), folders[0] if folders else None)
    builtin_suite = shipped_suite(case.suite)
    if (best is None or not find_baselines(best[0])) and builtin_suite is not None and has_baseline(builtin_suite):
        return builtin_suite, ""  # a user's suite may have the name of a built-in one
    return best if best is not None else (None, folders_and_notes[0][1])


def _permitted_folder(suite_place: SuitePlace, file: str) -> tuple[Path | None, str]:
    """Returns the folder of a suite with its baselines, and a note if these differ from the recorded ones.

    A suite counts as absent if this user is not permitted to read it.
    """
    try:
        return _folder_with_note(suite_place, file)
    except PermissionError as error:
        names = ", ".join(name for name, _ in suite_place.baselines)
        if not names:
            return None, ""
        return None, (
            f"the baselines of suite {suite_place.suite!r} that the store was scored by ({names}) may not "
            "be read by this "
            f"user ({error.filename}): --baseline SUITE names others"
        )


def _folder_with_note(suite_place: SuitePlace, file: str) -> tuple[Path | None, str]:
    folders = [Path(path) for path in suite_place.candidate_paths() if path_exists(path, kind="folder")]
    nearby_folders = [folder for folder in _folders_around(suite_place, file) if find_baselines(folder)]
    if not suite_place.path:
        return (nearby_folders[0] if nearby_folders else None), ""
    recorded_hashes = dict(suite_place.baselines)
    for folder in (folder / BASELINES for folder in folders if recorded_hashes):
        if path_exists(folder, kind="folder"):
            os.listdir(folder)  # a glob finds nothing in a folder that may not be read
    for folder in (*folders, *(nearby_folders if recorded_hashes else ())):
        if _are_unchanged(recorded_hashes, _hashes(folder)):
            return folder, ""
    if not folders:
        if not recorded_hashes:
            return None, ""
        files = ", ".join(recorded_hashes)
        return None, (
            f"suite {suite_place.suite!r} is gone from {suite_place.path}, and with it the baselines that "
            "the store was scored by "
            f"({files}): --baseline SUITE names others"
        )
    present_hashes = _hashes(folders[0])
    missing_names = [name for name in recorded_hashes if name not in present_hashes]
    if missing_names:
        return folders[0], (
            f"the baseline {', '.join(missing_names)} of suite {suite_place.suite!r}, which the store was "
            "scored by, is gone from "
            f"{folders[0]}"
        )
    return folders[0], (
        f"the baselines of suite {suite_place.suite!r} changed since the store was written: scores are by "
        "those of today, in "
        f"{folders[0]}"
    )


def _folders_around(suite_place: SuitePlace, file: str) -> Iterator[Path]:
    """Yields folders that may contain a case's file.

    Args:
      suite_place: Recorded place of the suite, with the path of the store.
      file: Relative path of the case's file. It is looked up in every parent folder of the store, then in the working
        directory.
    """
    if not file:
        return
    for folder in Path(suite_place.store).parents if suite_place.store else ():
        with contextlib.suppress(PermissionError):
            if path_exists(folder / file):
                yield (folder / file).parent
    yield Path(file).parent


def _are_unchanged(recorded_hashes: dict[str, str], present_hashes: dict[str, str]) -> bool:
    """Returns whether the recorded baselines are unchanged, and the first of them still defines the scale."""
    if not recorded_hashes:
        return True
    return all(present_hashes.get(name) == sha256 for name, sha256 in recorded_hashes.items()) and next(
        iter(present_hashes)
    ) == next(iter(recorded_hashes))


def _hashes(suite: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in find_baselines(suite)}
