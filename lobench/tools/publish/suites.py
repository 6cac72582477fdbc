"""Files of suites that the cases of a store depend on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from lobench.analysis.scores.baseline_places import folder_of_suite
from lobench.core.case import CaseInfo
from lobench.core.code import split_code
from lobench.core.subject import Subject
from lobench.core.wording import counted
from lobench.engine.config.reached_files import data_files_beside, imported_modules, is_named_code, reached_files
from lobench.engine.config.shipped import shipped_suite
from lobench.engine.config.user_code import tree_sha256
from lobench.engine.store.bundle import MAX_FILE_BYTES, ResultBundle, ledger_database
from lobench.engine.store.ledger import EvaluationRow, Ledger

__all__ = ["BundledSuites", "bundle_suites", "copy_suites"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledSuites:
    """Files of suites. In the bundle, `suites/N/` corresponds to the parent of a suite's folder.

    Attributes:
      members: Contents by name in the bundle.
      local_folders: Folders of the suites on this machine.
      bundle_folders: Folder in the bundle, by name of the suite.
      large_file_digests: sha256 of files that are too large, by name.
      left_out: A line for each missing part.
    """

    members: Mapping[str, bytes] = field(default_factory=dict)
    local_folders: tuple[Path, ...] = ()
    bundle_folders: dict[str, str] = field(default_factory=dict)
    large_file_digests: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def bundle_suites(store: Path, rows: Sequence[EvaluationRow], given_suites: Sequence[Path]) -> BundledSuites:
    """Returns the current files that the cases of results depend on.

    Args:
      store: Folder of the store.
      rows: The results.
      given_suites: Folders of suites whose location is not in the store.
    """
    recorded_files = _recorded_files(store, rows)
    folders: dict[Path, list[EvaluationRow]] = {}
    missing_suites: dict[str, int] = {}
    for row in rows:
        if not any(sighting.is_imported for sighting in row.sightings):
            folder = _find_suite_folder(row.case, given_suites, recorded_files.files_around)
            if folder is None:
                missing_suites[row.case.suite] = missing_suites.get(row.case.suite, 0) + 1
            else:
                folders.setdefault(folder, []).append(row)
    members: dict[str, bytes] = {}
    paths_by_suite = dict[str, str]()
    not_included = dict[str, str]()
    for number, folder in enumerate(sorted(folders, key=lambda folder: (folder.name, str(folder)))):
        root, bundle_folder = folder.parent, f"suites/{number}"
        name = folder.name if folder.name not in paths_by_suite else f"{folder.name} ({number})"
        paths_by_suite[name] = f"{bundle_folder}/{folder.name}"
        suite_rows = folders[folder]
        code_names = {
            name
            for row in suite_rows
            for code in split_code(row.key.code)
            for name in recorded_files.files_by_code.get(code, ())
        }
        cases = list(dict.fromkeys(row.case for row in suite_rows))
        binding_texts = {
            text for row in suite_rows for sighting in row.sightings for text in _binding_texts_of(sighting)
        }
        files = {
            Path(os.path.normpath(file))
            for file in reached_files(folder, cases, code_names=code_names, texts=sorted(binding_texts))
        }
        packed_files = {
            f"{bundle_folder}/{file.relative_to(root).as_posix()}": file for file in files if file.is_relative_to(root)
        }
        for member, file in sorted(
            {**_experiment_modules(bundle_folder, packed_files, code_names, recorded_files), **packed_files}.items()
        ):
            content = file.read_bytes()
            if len(content) > MAX_FILE_BYTES:
                not_included[member] = hashlib.sha256(content).hexdigest()
            else:
                members[member] = content
    left_out_lines = [
        f"the files of suite {suite}, of {counted(count, 'evaluation')}: give their folder with --suite"
        for suite, count in sorted(missing_suites.items())
    ]
    left_out_lines += [
        f"{name}: larger than {MAX_FILE_BYTES / 1e6:g} MB, its hash alone" for name in sorted(not_included)
    ]
    suite_folders = tuple(folders)
    return BundledSuites(
        members=members,
        local_folders=suite_folders,
        bundle_folders=paths_by_suite,
        large_file_digests=not_included,
        left_out=tuple(left_out_lines),
    )


def copy_suites(bundle: ResultBundle) -> BundledSuites:
    """Returns the suite files of a bundle, to copy them into another bundle of the same results."""
    description = json.loads(bundle.read("about.json"))
    cache_folder = ledger_database(bundle.path).parent  # where this process keeps the baselines of the bundle
    return BundledSuites(
        members={name: bundle.read(name) for name in bundle.members_in("suites")},
        local_folders=tuple(cache_folder / path for path in description["suites"].values()),
        bundle_folders=description["suites"],
        large_file_digests=description["files_not_included"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedFiles:
    """Files that a store has recorded.

    Attributes:
      files_around: Files that workers read around the suites.
      loaded_files: Other files that workers loaded.
      files_by_code: Names of the Python files of each code fingerprint, with the hash of their syntax tree.
      imports: Modules that experiments import.
    """

    files_around: tuple[Path, ...]
    loaded_files: tuple[Path, ...]
    files_by_code: Mapping[str, Mapping[str, str]]
    imports: frozenset[str]

    def digests(self, name: str) -> set[str]:
        """Returns the hashes of a Python file's syntax tree in all fingerprints."""
        return {digests_by_name[name] for digests_by_name in self.files_by_code.values() if name in digests_by_name}


def _recorded_files(store: Path, rows: Sequence[EvaluationRow]) -> _RecordedFiles:
    codes = {code for row in rows for code in split_code(row.key.code)}
    with Ledger.open(store, read_only=True) as ledger:
        files = ledger.files_of_descriptions() if store.is_dir() else {"around": [], "loaded": []}
        files_by_code = {
            code: {name: digest for name, digest in (ledger.code_parts(code) or {}).items() if name.endswith(".py")}
            for code in codes
        }
        imports = frozenset(
            module for experiment in ledger.experiments() for module in imported_modules(experiment.config)
        )
    return _RecordedFiles(
        files_around=tuple(map(Path, files["around"])),
        loaded_files=tuple(map(Path, files["loaded"])),
        files_by_code=files_by_code,
        imports=imports,
    )


def _experiment_modules(
    bundle_folder: str, packed_files: Mapping[str, Path], code_names: Collection[str], recorded_files: _RecordedFiles
) -> dict[str, Path]:
    """Returns modules that experiments import and results were computed with, by their name in the bundle.

    The bundle has them next to a suite, so that its cases can import them. Data files that they name are included.
    Installed packages are not.
    """
    code_files: dict[str, Path] = {}
    for name in sorted(code_names):
        if any(is_named_code(Path(f"/{member}"), [name]) for member in packed_files):
            continue
        depth = len(PurePosixPath(name).parts)
        for file in (*recorded_files.files_around, *recorded_files.loaded_files):
            if not is_named_code(file, [name]) or not _has_module(file.parents[depth - 1], recorded_files.imports):
                continue
            if file.is_file() and tree_sha256(file.read_bytes()) in recorded_files.digests(name):
                folder = PurePosixPath(bundle_folder, name).parent
                code_files |= {
                    str(folder / code_file.name): code_file for code_file in (file, *data_files_beside(file))
                }
                break
    return code_files


def _has_module(folder: Path, modules: Iterable[str]) -> bool:
    package_names = {module.partition(".")[0] for module in modules}
    return any(
        (folder / f"{package_name}.py").is_file() or (folder / package_name / "__init__.py").is_file()
        for package_name in package_names
    )


def _binding_texts_of(subject: Subject) -> tuple[str, ...]:
    return *subject.variant.bindings, subject.variant.trainer_config or ""


def _find_suite_folder(case: CaseInfo, given_suites: Iterable[Path], recorded_files: Iterable[Path]) -> Path | None:
    """Returns the folder of a case's suite: given, recorded in the store, the current one, or a shipped one."""
    file = case.node_id.partition("::")[0]
    for suite in given_suites:
        folder = suite.resolve() if suite.is_dir() else suite.resolve().parent
        if folder.name == case.suite or (folder / Path(file).name).is_file():
            return folder
    if (current_folder := folder_of_suite(case)) is not None:
        return current_folder.resolve()
    for path in recorded_files:
        if path.is_file() and str(path).endswith(f"/{file}"):
            return path.parent.resolve()
    with contextlib.suppress(OSError):
        if file and Path(file).is_file():
            return Path(file).resolve().parent
    builtin_suite = shipped_suite(case.suite)
    return (
        None if builtin_suite is None else (builtin_suite if builtin_suite.is_dir() else builtin_suite.parent).resolve()
    )
