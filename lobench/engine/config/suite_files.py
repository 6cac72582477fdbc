"""Files of a suite, the modules that its cases can import, and detection of edits."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import gin

from lobench.core.code_origin import loaded_module_files
from lobench.core.errors import ConfigError
from lobench.core.suite_place import BASELINES
from lobench.engine.config.gin_state import CONFIGURABLES, forget_configurables
from lobench.engine.config.import_path import INI_FILES
from lobench.engine.config.run_configs import config_chain
from lobench.engine.config.syntax import parse_trainer_config
from lobench.engine.file_stamps import FileStamp, stamp_of, stamps_of
from lobench.engine.paths import path_exists
from lobench.engine.retries import is_transient, retried_briefly

__all__ = [
    "INCLUDE_PATTERN",
    "SuiteFiles",
    "data_files_of_suite",
    "files_above_suite",
    "files_below",
    "files_of_suite",
    "forget_modules",
    "included_files",
    "path_stamps",
    "temporary_modules",
]

_FOREIGN_FOLDER_FILES = ("pyvenv.cfg", "ledger.sqlite")
_SUFFIXES = (".py", ".gin")  # suffixes of files that can affect cases
# Suffixes of files that are not data: code, which evaluation keys contain, and files that affect no result.
_NON_DATA_SUFFIXES = (
    ".py",
    ".gin",
    ".md",
    ".rst",
    ".html",
    ".toml",
    ".ini",
    ".cfg",
    ".sh",
    ".svg",
    ".png",
    ".pdf",
    ".ipynb",
)
_SETTLED_SECONDS = 0.2  # a config.gin that has not changed for this time is complete
INCLUDE_PATTERN = re.compile(r"^\s*include\s+['\"](.+?)['\"]", re.MULTILINE)


def files_of_suite(suite: Path, *, follow_links: bool = False) -> Iterator[Path]:
    """Yields the files of a suite, and the files that its gin files include.

    For a gin file, yields the file itself and the files that it can import.

    Args:
      suite: Folder or gin file.
      follow_links: Whether linked folders are searched.
    """
    visited_files: set[Path] = set()
    for file in (
        files_below(suite, follow_links=follow_links) if path_exists(suite, kind="folder") else _files_beside(suite)
    ):
        yield file
        if file.suffix == ".gin":
            yield from included_files(file, visited_files)


def included_files(file: Path, visited_files: set[Path], top_folder: Path | None = None) -> Iterator[Path]:
    """Yields a gin file and the files that it includes. Missing files are skipped; the worker reports them.

    Args:
      file: Path of the gin file.
      visited_files: Files that were yielded before; updated.
      top_folder: Folder outside of which includes are ignored. None: no limit.
    """
    if file in visited_files or not path_exists(file, kind="file"):
        return
    visited_files.add(file)
    yield file
    for name in INCLUDE_PATTERN.findall(retried_briefly(file.read_bytes).decode(errors="replace")):
        included_file = Path(os.path.normpath(file.parent / name))
        if top_folder is None or included_file.resolve().is_relative_to(top_folder):
            yield from included_files(included_file, visited_files, top_folder)


def files_below(folder: Path, *, follow_links: bool = False) -> Iterator[Path]:
    """Yields the files below a folder, except hidden and cached ones, virtual environments and stores.

    Raises:
      OSError: The folder's disk has failed for some seconds.
    """
    yield from retried_briefly(lambda: list(_walk_files(folder, follow_links=follow_links)))


def _walk_files(folder: Path, *, follow_links: bool) -> Iterator[Path]:
    for root, folders, names in os.walk(folder, onerror=_raise_if_transient, followlinks=follow_links):
        root_path = Path(root)
        folders[:] = [
            name
            for name in sorted(folders)
            if not name.startswith(".")
            and name != "__pycache__"
            and not any((root_path / name / marker).exists() for marker in _FOREIGN_FOLDER_FILES)
            and not (follow_links and _is_circle(root_path / name))
        ]
        yield from (
            root_path / name for name in sorted(names) if (root_path / name).is_file() and not name.endswith(".pyc")
        )


def _raise_if_transient(error: OSError) -> None:
    """Raises the error if it may be transient: a file that cannot be read at the moment would count as removed."""
    if is_transient(error, retries_forbidden=False):
        raise error


def _is_circle(folder: Path) -> bool:
    """Returns whether a folder is a link to one of the folders above it."""
    return folder.is_symlink() and folder.resolve() in (ancestor.resolve() for ancestor in folder.parents)


def _files_beside(gin_file: Path) -> Iterator[Path]:
    """Yields a gin file and the files that it can import or include: Python and gin files in its folder."""
    for file in sorted(retried_briefly(lambda: list(gin_file.parent.iterdir()))):
        if file == gin_file or (file.suffix in (".py", ".gin") and path_exists(file, kind="file")):
            yield file


def data_files_of_suite(suite: Path) -> Iterator[Path]:
    """Yields the data files of a suite: those below its folder, or those next to it if the suite is a gin file."""
    files = files_below(suite) if retried_briefly(suite.is_dir) else retried_briefly(partial(_files_in, suite.parent))
    for file in files:
        is_hidden = file.name.startswith(".")
        if not is_hidden and file.suffix not in _NON_DATA_SUFFIXES and file.parent.name != BASELINES:
            yield file


def _files_in(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_file()]
    except OSError as error:
        _raise_if_transient(error)
        return []


def files_above_suite(folder: Path) -> Iterator[Path]:
    """Yields conftest files, modules and pytest's configuration from the suite's parent up to pytest's root."""
    for ancestor in folder.parents:
        if ancestor == Path(ancestor.anchor):
            return
        if ancestor == folder.parent:  # importable from gin: modules and packages
            yield from sorted(file for file in ancestor.glob("*.py") if path_exists(file, kind="file"))
            for package in sorted(ancestor.glob("*/__init__.py")):
                yield from files_below(package.parent, follow_links=True)
        elif path_exists(ancestor / "conftest.py", kind="file"):
            yield ancestor / "conftest.py"
        ini_files = [ancestor / name for name in INI_FILES if path_exists(ancestor / name, kind="file")]
        yield from ini_files
        if ini_files:
            return


class SuiteFiles:
    """Python and gin files of suites, and gin files bound around them.

    Args:
      suites: Folders or gin files.
      gin_files: Further gin files.
      run: Folder whose files do not belong to a suite, even if it is inside one.
      run_config: Returns the path of the run's `config.gin`, or None while there is none. A trainer writes this file: a
        change of its statements counts once all can be parsed, and its removal does not count.
      former: Files of the same watch before its last restart. None: it has just begun.
    """

    def __init__(
        self,
        suites: Sequence[str],
        gin_files: Sequence[str] = (),
        run: str = "",
        run_config: Callable[[], Path | None] = lambda: None,
        former: SuiteFiles | None = None,
    ) -> None:
        self._suites = suites
        self._gin_files = gin_files
        self._run_config = run_config
        self._run_folder = Path(run).resolve() if run else None
        self._file_stamps: dict[Path, tuple[FileStamp | None, str]] | None = None  # stamp and SHA-256 by file
        self._code_stamps: dict[Path, tuple[FileStamp | None, str]] = {}  # stamp and SHA-256 of code outside the suite
        # Statements of the run's `config.gin` files by path, and stamps of them and their includes.
        self._config_statements: Mapping[Path, str] = {}
        self._config_stamps = list[FileStamp | None]()
        # Paths of the `config.gin` files that had statements. The watch waits for one that is gone or empty.
        self._needed_configs: frozenset[Path] = frozenset() if former is None else former._needed_configs

    def is_of_run(self, file: Path) -> bool:
        """Returns whether a file lies in the folder of the run."""
        return self._run_folder is not None and file.is_relative_to(self._run_folder)

    def record_state(self) -> None:
        """Records the state of the files from which the cases come. Only the first call counts."""
        if self._file_stamps is None:
            self._file_stamps = retried_briefly(lambda: {file: _stamp_and_hash(file) for file in self.files()})
            configs = list(self._config_files())
            self._config_stamps = retried_briefly(lambda: list(map(stamp_of, configs)))
            self._config_statements = self._read_config_statements() or {}
            self._needed_configs |= self._config_statements.keys()

    def add_code_files(self, files: Iterable[Path]) -> None:
        """Records the state of code that the cases import from elsewhere. Only the first call for a file counts."""
        for file in files:
            if file not in self._code_stamps:
                self._code_stamps[file] = retried_briefly(partial(_stamp_and_hash, file))

    def changed_file(self) -> Path | None:
        """Returns a file that was edited, created or removed since `record_state`.

        None if there was no change, or if it is unknown because the disk fails at the moment.
        """
        try:
            return self._changed_file()
        except OSError as error:
            if not is_transient(error, retries_forbidden=False):
                raise
            return None

    def config_problem(self) -> str:
        """Returns the reason why the run's `config.gin` cannot be used now; "" if it can, or if there never was one.

        It cannot be parsed, or it had statements in this watch, and is gone or empty.
        """
        try:
            statements = {config: parse_trainer_config(config) for config in self._configs()}
        except ConfigError as error:
            return str(error)
        missing_config = next((config for config in sorted(self._needed_configs) if not statements.get(config)), None)
        return "" if missing_config is None else f"{missing_config}: gone or empty"

    def _changed_file(self) -> Path | None:
        if self._file_stamps is None:
            return None
        files = set(self.files())
        for file in sorted(files | self._file_stamps.keys()):
            if file not in files or file not in self._file_stamps:
                return file
        for stamps in (self._file_stamps, self._code_stamps):
            for file, (stamp, digest) in list(stamps.items()):
                if (new_stamp := stamp_of(file)) != stamp:
                    if _file_digest(file) != digest:
                        return file
                    stamps[file] = new_stamp, digest
        return self._changed_config()

    def _changed_config(self) -> Path | None:
        """Returns the run's `config.gin` if it has other statements than before, once all of it can be used."""
        files = list(self._config_files())
        stamps = list(map(stamp_of, files))
        last_stamps = self._config_stamps
        if not files or stamps == last_stamps:
            return None
        time.sleep(_SETTLED_SECONDS)
        statements = self._read_config_statements()
        is_complete = statements is not None and self._needed_configs <= statements.keys()
        if not is_complete or stamps != list(map(stamp_of, files)):
            return None
        if statements != self._config_statements:
            return next(
                (file for file, stamp in zip(files, stamps, strict=True) if stamp not in last_stamps), files[-1]
            )
        self._config_stamps = stamps
        return None

    def _config_files(self) -> Iterator[Path]:
        for config in self._configs():
            yield from included_files(config, set(), config.resolve().parent)

    def _configs(self) -> list[Path]:
        config = self._run_config()
        return [] if config is None else config_chain(config)

    def _read_config_statements(self) -> dict[Path, str] | None:
        """Returns the statements of the run's `config.gin` files as text by path; None if a file is invalid.

        Files without statements are left out. A trainer may be writing the file.
        """
        try:
            statements = {config: parse_trainer_config(config) for config in self._configs()}
        except ConfigError:
            return None
        return {
            config: "\n".join(repr(replace(statement, where="")) for statement in statements_of_config)
            for config, statements_of_config in statements.items()
            if statements_of_config
        }

    def names(self) -> tuple[str, ...]:
        """Returns the name of each suite: that of its folder, or `FOLDER/FILE` if it is a file."""
        suites = [Path(suite).resolve() for suite in self._suites]
        return tuple(
            sorted({suite.relative_to(root).as_posix() for suite, root in zip(suites, self._roots(), strict=True)})
        )

    def _roots(self) -> list[Path]:
        """Returns the folder above each suite."""
        suites = [Path(suite).resolve() for suite in self._suites]
        return [(suite if retried_briefly(suite.is_dir) else suite.parent).parent for suite in suites]

    def digests(self) -> dict[str, str]:
        """Returns the SHA-256 of each file when `record_state` was called. Names begin with the suite's folder."""
        roots = self._roots()
        digests = {file: digest for file, (_, digest) in (self._file_stamps or {}).items()}
        digests = digests or retried_briefly(lambda: {file: _file_digest(file) for file in self.files()})
        names = {
            file: next((file.relative_to(root).as_posix() for root in roots if file.is_relative_to(root)), file.name)
            for file in digests
        }
        return {names[file]: digests[file] for file in sorted(digests)}

    def files(self) -> Iterator[Path]:
        """Yields the files that exist now."""
        for suite in self._suites:
            with _ignoring_missing_folder():
                for file in files_of_suite(Path(suite).resolve()):
                    if file.suffix in _SUFFIXES and not self.is_of_run(file):
                        yield file
        yield from (Path(file) for file in self._gin_files if path_exists(file, kind="file"))


def path_stamps(files: Iterable[str | Path]) -> Iterator[tuple[str, int, int]]:
    """Yields path, size and time (ns) of each existing file, in order. A file with another stamp may have changed.

    Raises:
      OSError: The disk has failed for some seconds.
    """
    for file, stamp in stamps_of(sorted(set(map(os.path.abspath, files)))).items():
        if stamp is not None:
            yield file, *stamp


def forget_modules(suites: Sequence[str]) -> None:
    """Makes this process import modules in suites' folders again, for a conftest.py or an in-process worker."""
    forget_configurables(_drop_modules(suites))
    gin.enter_interactive_mode()  # lets configurables of the edited file replace earlier ones


@contextlib.contextmanager
def temporary_modules(suites: Sequence[str]) -> Iterator[None]:
    """Lets the body import modules in suites' folders. Removes the modules and their configurables afterwards."""
    old_configurables = dict(CONFIGURABLES.items())
    forget_configurables(_drop_modules(suites))
    with gin.config.interactive_mode():
        try:
            yield
        finally:
            forget_configurables(_drop_modules(suites))
            for selector, configurable in old_configurables.items():
                if selector not in CONFIGURABLES:
                    CONFIGURABLES[selector] = configurable


def _drop_modules(suites: Sequence[str]) -> set[str]:
    """Removes the modules in suites' folders from `sys.modules`, and returns their names."""
    paths = [Path(suite).resolve() for suite in suites]
    folders = {str(path if path_exists(path, kind="folder") else path.parent) for path in paths}
    module_names = set()
    for name, file in loaded_module_files():
        if os.path.dirname(file) in folders:
            del sys.modules[name]
            module_names.add(name)
    return module_names


@contextlib.contextmanager
def _ignoring_missing_folder() -> Iterator[None]:
    """Suppresses errors of a folder that is missing or closed to this user. Raises errors that may be transient."""
    try:
        yield
    except OSError as error:
        _raise_if_transient(error)


def _stamp_and_hash(file: Path) -> tuple[FileStamp | None, str]:
    return stamp_of(file), _file_digest(file)


def _file_digest(file: Path) -> str:
    try:
        return hashlib.sha256(retried_briefly(file.read_bytes)).hexdigest()
    except OSError as error:
        _raise_if_transient(error)
        return ""
