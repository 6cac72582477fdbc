"""Files that the cases of results depend on: gin files, tests, code, data, and the baselines of their suite."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePath

from lobench.core.case import CaseInfo, CaseSpec
from lobench.core.errors import LobenchError
from lobench.core.suite_place import BASELINES
from lobench.engine.config.suite import gin_files_of, specs_in
from lobench.engine.config.suite_files import files_below, included_files
from lobench.engine.config.syntax import Import, parse_file
from lobench.engine.config.user_code import code_fingerprint

__all__ = ["data_files_beside", "imported_modules", "is_named_code", "matches_spec", "reached_files"]

_CODE_SUFFIXES = (".py", ".gin")
_FILE_NAME = re.compile(r"[\w.*?\[\]-]+")
_IMPORT = re.compile(r"^\s*(?:import|from)\s+([A-Za-z_][\w.]*)", re.MULTILINE)


def reached_files(
    folder: Path, cases: Iterable[CaseInfo], *, code_names: Collection[str] = (), texts: Iterable[str] = ()
) -> set[Path]:
    """Returns the files around a suite that cases depend on.

    These are the cases' gin files with all included files, the cases' tests with their conftest files, the code that
    these files import, the data files that they name, and the suite's baselines. Nothing is imported.

    Args:
      folder: Folder of the suite.
      cases: Cases of the suite that have results.
      code_names: Names of files in the recorded fingerprints of the cases' code.
      texts: gin texts of the results' subjects, whose imports count too.
    """
    root = folder.parent
    case_list = list(cases)
    gin_files = {
        included.resolve() for file in _gin_files_with(case_list, folder) for included in included_files(file, set())
    }
    suite_files = [file.resolve() for file in files_below(folder)]
    tests = {file for file in suite_files if any(_is_test_of(file, case) for case in case_list)}
    conftests = {
        conftest
        for file in (*tests, *gin_files)
        for ancestor in file.parents
        if ancestor == root or ancestor.is_relative_to(root)
        if (conftest := ancestor / "conftest.py").is_file()
    }
    named_files = _files_named(suite_files, code_names, folder, root)
    modules = {module_name for file in gin_files for module_name in _imports_of_gin_file(file)}
    modules |= {module for text in texts for module in imported_modules(text)}
    import_folders = list(dict.fromkeys([*(file.parent for file in sorted(gin_files)), folder, root]))
    imported_files = {file for module in modules for file in _module_file(module, import_folders)}
    code = code_fingerprint(
        sorted({*tests, *conftests, *named_files, *imported_files}),
        folders=[str(import_folder) for import_folder in import_folders],
    )
    found_files = {*gin_files, *tests, *conftests, *named_files, *imported_files, *(Path(file) for file in code.files)}
    found_files |= {file for file in suite_files if file.parent.name == BASELINES and file.suffix == ".json"}
    data_files = {file for file in suite_files if file.suffix not in _CODE_SUFFIXES and file not in found_files}
    file_words = _words_in(found_files) if data_files else set()
    return found_files | {
        file for file in data_files if any(fnmatch.fnmatch(file.name, file_word) for file_word in file_words)
    }


def _gin_files_with(cases: Iterable[CaseInfo], folder: Path) -> set[Path]:
    """Returns the gin files below a folder that describe cases.

    Files other than the recorded one count only if the recorded file and folder do not have the case, because they may
    have been renamed.
    """
    specs: list[tuple[Path, CaseSpec]] = []
    for file in gin_files_of(folder):
        try:
            specs += [(file, spec) for spec in specs_in(file)]
        except LobenchError:
            continue  # notes, or an unfinished file: it has no results
    gin_files: set[Path] = set()
    for case in cases:
        candidates = [(file, spec) for file, spec in specs if matches_spec(spec, case)]
        files_of_suite = [(file, spec) for file, spec in candidates if spec.suite == case.suite] or candidates
        files_of_case = [(file, spec) for file, spec in files_of_suite if spec.file == case.file] or files_of_suite
        gin_files.update(file for file, _ in files_of_case)
    return gin_files


def matches_spec(spec: CaseSpec, case: CaseInfo) -> bool:
    """Returns whether a stored case is the one that `spec` describes."""
    return spec.name == case.own_name if case.own_name and case.file == spec.file else spec.has_name(case.name)


def data_files_beside(file: Path) -> set[Path]:
    """Returns the data files (not code) in the folder of a Python file that the Python file names."""
    words = _words_in([file])
    return {
        neighbour
        for neighbour in file.parent.iterdir()
        if neighbour.name in words and neighbour.suffix not in _CODE_SUFFIXES and neighbour.is_file()
    }


def _files_named(files: Iterable[Path], names: Collection[str], folder: Path, root: Path) -> set[Path]:
    """Returns the files of recorded code: those from which a case can import, or else all files of that name."""
    python_files = {file for file in files if file.suffix == ".py"}
    named_files: set[Path] = set()
    for name in names:
        direct_files = {parent / name for parent in (folder, root)} & python_files
        named_files |= direct_files or {file for file in python_files if is_named_code(file, [name])}
    return named_files


def imported_modules(text: str) -> list[str]:
    """Returns the modules that a gin text imports."""
    return _IMPORT.findall(text)


def is_named_code(file: PurePath, names: Collection[str]) -> bool:
    """Returns whether the file's path ends with one of the names in a code fingerprint."""
    path = file.as_posix()
    return any(path.endswith(f"/{name}") for name in names)


def _is_test_of(file: Path, case: CaseInfo) -> bool:
    test_path = Path(case.node_id.partition("::")[0])
    return (
        file.suffix == ".py" and file.name == test_path.name and file.parent.name in (test_path.parent.name, case.suite)
    )


def _imports_of_gin_file(gin_file: Path) -> Iterator[str]:
    try:
        yield from (statement.module for statement in parse_file(gin_file) if isinstance(statement, Import))
    except LobenchError:
        return


def _module_file(module: str, import_folders: Iterable[Path]) -> Iterator[Path]:
    """Yields the file of a module from the first folder that has it."""
    path_parts = module.split(".")
    for import_folder in import_folders:
        path = import_folder.joinpath(*path_parts)
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file.is_file():
                yield file
                return


def _words_in(files: Iterable[Path]) -> set[str]:
    """Returns the words in code and gin files that may be file names or patterns."""
    words = set[str]()
    for file in files:
        if file.suffix in _CODE_SUFFIXES:
            words.update(_FILE_NAME.findall(file.read_text(encoding="utf-8", errors="replace")))
    return {word for word in words if "." in word and word.strip("*.?")}
