"""User code: the files that a module reaches by its imports, and a fingerprint of them.

Nothing is imported: import statements are read from the syntax trees. For a module that this process has imported, the
imported content counts, even if its file has changed since. The user's own files, including those of editable installs,
count by their syntax trees without comments, docstrings and positions. Installed packages count by their versions. The
standard library, lobench, and the packages in `Program` do not count.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from lobench.core.case import CaseInfo
from lobench.core.code import CodeFingerprint
from lobench.core.code_origin import Origin, file_of, origin_of_file
from lobench.engine.config.gin_state import forget_configurables
from lobench.engine.config.imported_code import imported_content
from lobench.engine.config.source_files import CODE_SUFFIXES, ImportedNames, SourceFile, source_file
from lobench.engine.retries import retried_briefly

__all__ = [
    "edited_files",
    "fingerprint_of",
    "fingerprints_here",
    "forget_edited_code",
    "parts_imported_otherwise",
    "tree_sha256",
    "united_fingerprint",
]

# Packages whose versions are part of `Program`, or do not affect results.
_NOT_COUNTED = frozenset({"jax", "jaxlib", "lobench", "gin", "pytest", "_pytest", "pluggy"})
_COARSEST_SECONDS = 2.0  # coarsest resolution of a file system's times
_MOST_MODULES = 1000  # limit for a package from which a computed name is imported, and for files of a pattern
_MOST_FOLDERS = 100  # limit for the folders that the texts of a file name
_DEEPEST = 3  # most texts that are joined to the path of a folder
_COMPILED = tuple(importlib.machinery.EXTENSION_SUFFIXES)


def fingerprint_of(
    files: Iterable[str | Path] = (),
    *,
    modules: Iterable[str] = (),
    folders: Sequence[str] = (),
    added: Sequence[str] = (),
    as_imported: bool = True,
) -> CodeFingerprint:
    """Returns the fingerprint of files and modules, and of everything that they reach by import statements.

    A file that cannot be parsed counts by its bytes. A module that cannot be found is left out.

    Args:
      files: Files of code. Files that are not Python count by their bytes.
      modules: Names of modules, loaded or not.
      folders: Folders in which modules are searched before `sys.path`.
      added: Further folders that may be on the import path, at an unknown place: modules found there count too.
      as_imported: Whether the imported content of modules counts instead of their files. False: for other processes.
    """
    key = (tuple(map(str, files)), tuple(modules), tuple(folders), tuple(added), tuple(sys.path), as_imported)
    if key in _remembered and _remembered[key].is_current():
        return _remembered[key].fingerprint
    at = time.time()
    found = retried_briefly(lambda: _Walk(folders, added, as_imported=as_imported).fingerprint(*key[:2]))
    _remembered[key] = _Remembered(found, _marks_of(found), at)
    _made[found.id] = found
    return found


def united_fingerprint(fingerprints: Iterable[CodeFingerprint]) -> CodeFingerprint:
    """Returns the combined fingerprint of several ones."""
    found = functools.reduce(CodeFingerprint.__or__, fingerprints, CodeFingerprint())
    _made[found.id] = found
    return found


def fingerprints_here(cases: Iterable[CaseInfo]) -> dict[str, CodeFingerprint]:
    """Returns the fingerprints of cases by id, as far as this process has computed them."""
    ids = {code for case in cases for code in (case.case_code, case.subject_code)}
    return {one: _made[one] for one in sorted(ids) if one in _made}


def tree_sha256(content: bytes) -> str:
    """Returns the hash of Python source without comments, docstrings, layout and quotes' kind.

    >>> tree_sha256(b"x = f(1)  # one") == tree_sha256(b"x = f(\\n    1,\\n)")
    True
    """
    return source_file(content).sha256


def edited_files(fingerprint: CodeFingerprint) -> list[str]:
    """Returns the files of a fingerprint whose code on the disk has changed."""
    return sorted(file for file, sha256 in fingerprint.files.items() if _sha256_on_disk(file) != sha256)


def parts_imported_otherwise(case: CaseInfo) -> dict[str, str]:
    """Returns the parts of a case's code of which this process has imported other content than its fingerprint states.

    A module that was imported during the training may have been edited since the fingerprint was taken.
    """
    fingerprints = fingerprints_here([case]).values()
    return {_name_of(Path(file)): sha256 for one in fingerprints for file, sha256 in _imported_otherwise(one).items()}


def _imported_otherwise(fingerprint: CodeFingerprint) -> dict[str, str]:
    """Returns the hashes of a fingerprint's files that were imported with other content, by file."""
    contents = {file: imported_content(file) for file in fingerprint.files}
    hashes = {file: tree_sha256(content) for file, content in contents.items() if content is not None}
    return {file: sha256 for file, sha256 in hashes.items() if sha256 != fingerprint.files[file]}


def _sha256_on_disk(file: str) -> str:
    try:
        return _sha256_of_file(Path(file), retried_briefly(Path(file).read_bytes))
    except OSError:
        return ""


def _sha256_of_file(file: Path, content: bytes) -> str:
    return tree_sha256(content) if file.suffix == ".py" else hashlib.sha256(content).hexdigest()


def forget_edited_code() -> bool:
    """Makes this process import the user's code again if a file was edited since it was imported or read.

    Returns:
      Whether modules were dropped.
    """
    seen = [*dict.fromkeys(file for one in _remembered.values() for file in one.fingerprint.files)]
    if not any(edited_files(one.fingerprint) for one in _remembered.values()):
        return False
    dropped = [name for name, module in list(sys.modules.items()) if os.path.realpath(_file_of(module)) in seen]
    for name in dropped:
        del sys.modules[name]
    forget_configurables(dropped)
    _remembered.clear()
    importlib.invalidate_caches()
    return bool(dropped)


def _file_of(module: object) -> str:
    return file_of(module) if isinstance(module, ModuleType) else ""


class _Remembered(NamedTuple):
    """Fingerprint with the stamps of its files, and the time at which they were read, in seconds since 1970."""

    fingerprint: CodeFingerprint
    marks: Mapping[str, tuple[int, int] | None]
    at: float

    def is_current(self) -> bool:
        """Returns whether no file has changed.

        False if a file was written just before it was read: its stamp proves nothing.
        """
        newest = max((mark[1] for mark in self.marks.values() if mark is not None), default=0)
        is_old = self.at - newest / 1e9 > _COARSEST_SECONDS
        return is_old and self.marks == _marks_of(self.fingerprint) and not _imported_otherwise(self.fingerprint)


_remembered: dict[tuple[tuple[str, ...] | bool, ...], _Remembered] = {}
_made: dict[str, CodeFingerprint] = {}  # by id


def _marks_of(fingerprint: CodeFingerprint) -> dict[str, tuple[int, int] | None]:
    """Returns the size and time (ns) of each file, None for those that do not exist."""
    marks: dict[str, tuple[int, int] | None] = {}
    for file in (*fingerprint.files, *fingerprint.missing):
        try:
            found = os.stat(file)
        except OSError:
            marks[file] = None
        else:
            marks[file] = found.st_size, found.st_ctime_ns
    return marks


class _Walk:
    """Collector of files and packages.

    Args:
      folders: Folders in which modules are searched first, as in `fingerprint_of`.
      added: As in `fingerprint_of`.
      as_imported: As in `fingerprint_of`.
    """

    def __init__(self, folders: Sequence[str], added: Sequence[str], *, as_imported: bool) -> None:
        self._folders, self._as_imported = [Path(folder) for folder in folders], as_imported
        self._files: dict[Path, str] = {}  # hashes by file
        self._packages: dict[str, str] = {}
        self._missing: set[str] = set()
        self._waiting: list[tuple[Path, ImportedNames]] = []
        self._added: dict[
            Path, None
        ] = {}  # folders that the code itself adds to `sys.path`, as far as they can be inferred
        self._named = dict.fromkeys(map(Path, added))  # those of them that it names, and those of the caller
        self._sources: dict[Path, SourceFile] = {}
        self._unknown: set[str] = set()  # beginnings of texts that are no modules
        self._elsewhere: list[tuple[Path, ImportedNames, bool]] = []  # imports, and whether a file was found

    def fingerprint(self, files: Iterable[str], modules: Iterable[str]) -> CodeFingerprint:
        for file in files:
            self.add_file(Path(file))
        for name in modules:
            self.add_module(name)
        while self._waiting or self._elsewhere:
            while self._waiting:
                self._follow(*self._waiting.pop())
            self._search_added()
        parts = dict(self._packages)
        for found, sha256 in self._files.items():
            name, above = _name_of(found), found.parent
            while name in parts:  # for example, two files conftest.py
                name, above = f"{above.name}/{name}", above.parent
                if above == above.parent:
                    break
            parts[name] = sha256
        return CodeFingerprint(
            parts=parts,
            files={str(file): sha256 for file, sha256 in self._files.items()},
            missing=frozenset(self._missing - {*map(str, self._files)}),
        )

    def add_file(self, file: Path) -> None:
        """Adds a file of the user, the packages that contain it, and its imports."""
        file = Path(os.path.realpath(file))
        if file in self._files or origin_of_file(str(file)) is not Origin.USER:
            return
        content = imported_content(str(file)) if self._as_imported else None
        try:
            content = retried_briefly(file.read_bytes) if content is None else content
        except OSError:
            self._missing.add(str(file))
            return
        source = source_file(content, file.suffix)
        self._files[file], self._sources[file] = source.sha256, source
        self._waiting += [(file, imported) for imported in source.imports]
        if source.extends_path:
            named = dict.fromkeys(_folders_named(_around(file), source.texts))
            self._added |= dict.fromkeys([*_around(file), *named])
            self._named |= named
        for one in _files_named(file, source, self._folders) if source.names_files else ():
            self.add_file(one)
        if file.suffix == ".py" and (package := file.parent / "__init__.py") != file and package.is_file():
            self.add_file(package)
        elif file.name == "__init__.py" and (outer := file.parent.parent / "__init__.py").is_file():
            self.add_file(outer)

    def add_module(self, name: str) -> None:
        """Adds a module by name, from the file that was loaded or that would be found."""
        loaded = file_of(module) if (module := sys.modules.get(name)) is not None else ""
        if loaded and origin_of_file(loaded) is Origin.USER:
            self.add_file(Path(loaded))
        elif name not in ("", "__main__"):
            self._find(ImportedNames(0, name), [])

    def _follow(self, file: Path, imported: ImportedNames) -> None:
        if imported.has_all:
            self._add_all(file, imported)
            return
        if not imported.level:
            was_found = self._find(imported, [_import_root(file), file.parent])
            self._elsewhere.append((file, imported, was_found))
            return
        folder = file.parent
        for _ in range(imported.level - 1):
            folder = folder.parent
        parts = [part for part in imported.module.split(".") if part]
        self._add_below([folder], parts, imported.names)

    def _add_all(self, file: Path, imported: ImportedNames) -> None:
        """Adds all modules below a package, for an import whose name is computed."""
        folder = file.parent
        for _ in range(imported.level - 1):
            folder = folder.parent
        parts = imported.module.split(".") if imported.module else []
        roots = [folder] if imported.level else [*self._searched([_import_root(file), file.parent])]
        whole = folder if imported.level else _outermost(file)
        packages = [root.joinpath(*parts) for root in roots] if parts else [whole]
        for package in packages:
            for found in _modules_below(package):
                self.add_file(found)

    def _search_added(self) -> None:
        """Searches imports in the folders that the code adds to its import path, which may come before all others."""
        waiting, self._elsewhere = self._elsewhere, []
        if not self._named and not any(source.extends_path for source in self._sources.values()):
            return
        for file, imported, was_found in waiting:
            top, *rest = imported.module.split(".")
            folders = [*self._named]
            if not was_found:  # the folder may be an argument of a function in another file
                folders += [*self._added, *_folders_named(_around(file), self._sources[file].texts)]
            for folder in dict.fromkeys(folders):
                if found := _module_file(folder / top):
                    self.add_file(found)
                self._add_below([folder / top], rest, imported.names)
                self._add_below([folder], rest, imported.names)  # `__path__.append(folder)`

    def _find(self, imported: ImportedNames, near: Sequence[Path]) -> bool:
        """Adds the files of an absolute import. Returns whether the last of its names was found."""
        top, *rest = imported.module.split(".")
        if top in _NOT_COUNTED:
            return True
        searched = self._searched(near)
        if top in sys.stdlib_module_names:  # a file beside a script comes before the standard library
            searched = iter([one for one in near[:1] if _module_file(one / top)])
        namespaces: list[Path] = []
        for folder in searched:
            package = folder / top
            if found := _module_file(package):
                self.add_file(found)
                return self._add_below([package], rest, imported.names)
            if package.is_dir():
                namespaces.append(package)
        if top in sys.stdlib_module_names:
            return True
        spec = None if top in self._unknown else _spec_of(top)
        if spec is None and imported.is_text:
            self._unknown.add(top)
        if spec is None or spec.origin in (None, "namespace") or origin_of_file(spec.origin or "") is Origin.USER:
            if spec is not None and spec.origin and os.path.isfile(spec.origin):
                self.add_file(Path(spec.origin))
            elif not imported.is_text:
                self._missing.update(str(one) for folder in near[:1] for one in _candidates(folder / top))
            others = list(spec.submodule_search_locations or ()) if spec is not None else []
            below = [*namespaces, *map(Path, others)]
            return self._add_below(below, rest, imported.names) and bool(spec or below)
        if origin_of_file(spec.origin or "") is Origin.INSTALLED and not imported.is_text:
            self._packages.update(_versions_of(top, spec.origin or ""))
            self._missing.update(str(one) for folder in near[:1] for one in _candidates(folder / top))
        return True

    def _add_below(self, packages: Sequence[Path], parts: Sequence[str], names: Sequence[str]) -> bool:
        """Adds a module below the folders of a package, and those of the imported names that are modules.

        Returns:
          Whether all parts were found.
        """
        was_found = True
        for package in packages:
            if (init := package / "__init__.py").is_file():
                self.add_file(init)
        for part in parts:
            packages = [package / part for package in packages]
            files = [found for package in packages if (found := _module_file(package))]
            was_found = bool(files) or any(package.is_dir() for package in packages)
            for found in files:
                self.add_file(found)
        for name in names:
            for package in packages:
                if found := _module_file(package / name):
                    self.add_file(found)
        return was_found

    def _searched(self, near: Sequence[Path]) -> Iterator[Path]:
        """Yields the folders that may contain the user's modules."""
        on_path = (Path(entry or os.getcwd()) for entry in sys.path)
        for folder in dict.fromkeys((*near, *self._folders, *on_path, *self._added)):
            if origin_of_file(f"{folder}{os.sep}") is Origin.USER:
                yield folder


def _modules_below(package: Path) -> Iterator[Path]:
    """Yields the modules in a folder and in the packages below it, at most 1000."""
    folders, num_left = [package], _MOST_MODULES
    while folders and num_left > 0:
        folder = folders.pop()
        try:
            entries = [folder / name for name in sorted(retried_briefly(partial(os.listdir, folder)))]
        except OSError:
            continue
        for entry in entries:
            if entry.suffix == ".py" and entry.is_file():
                num_left -= 1
                yield entry
            elif (entry / "__init__.py").is_file():
                folders.append(entry)


def _around(file: Path) -> tuple[Path, ...]:
    """Returns the folders from which the code of a file may compute paths: its own, and two above."""
    return file.parent, *file.parent.parents[:2]


def _folders_named(around: Iterable[Path], texts: Sequence[str]) -> list[Path]:
    """Returns the existing folders that a text, or up to three joined texts, name relative to given folders."""
    words = [one for one in texts if "*" not in one and one.strip("./") and Path(one).suffix not in CODE_SUFFIXES]
    words += [".."] if ".." in texts else []
    found, last = dict[Path, None](), [*around]
    for _ in range(_DEEPEST):
        paths = dict.fromkeys(Path(os.path.normpath(folder / word)) for folder in last for word in words)
        last = [one for one in paths if one not in found and one.is_dir()][:_MOST_FOLDERS]
        found |= dict.fromkeys(last)
    return [*found]


def _files_named(file: Path, source: SourceFile, folders: Sequence[Path]) -> Iterator[Path]:
    """Yields the files of code that the texts of a file name: a path, a pattern, or all with a suffix in a folder."""
    named = [one for one in _folders_named(_around(file), source.texts) if origin_of_file(f"{one}/") is Origin.USER]
    own = [one for one in named if one.is_relative_to(_around(file)[1])]  # a folder far away may have any files
    num_left = _MOST_MODULES
    for text in source.texts:
        pattern = text if "*" in text else f"*{text}" if text in CODE_SUFFIXES else ""
        if pattern and (text in CODE_SUFFIXES or Path(text).suffix in CODE_SUFFIXES):
            for folder in dict.fromkeys([*own, *(() if own and "*" not in text else (file.parent,))]):
                for one in _matching(folder, pattern)[: max(num_left, 0)]:
                    num_left -= 1
                    yield one
        elif Path(text).suffix in CODE_SUFFIXES:
            for folder in dict.fromkeys([file.parent, *folders, *named]):
                for name in dict.fromkeys([text, text.lstrip("/")]):
                    if (one := folder / name).is_file():
                        yield one


def _matching(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(one for one in folder.glob(pattern) if one.is_file())
    except (ValueError, NotImplementedError, IndexError, OSError):  # no pattern: an absolute one, "a**"
        return []


def _outermost(file: Path) -> Path:
    """Returns the folder of the outermost package that holds a file; of a file in no package, its folder."""
    folder = file.parent
    while (folder / "__init__.py").is_file() and (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _candidates(package: Path) -> tuple[Path, Path]:
    return package / "__init__.py", package.with_name(f"{package.name}.py")


def _module_file(package: Path) -> Path | None:
    """Returns the file of a module, given its path without a suffix."""
    for file in _candidates(package):
        if file.is_file():
            return file
    for suffix in _COMPILED:
        if (file := package.with_name(f"{package.name}{suffix}")).is_file():
            return file
    return None


def _import_root(file: Path) -> Path:
    """Returns the folder from which a file is imported: the nearest one above it that is not a package."""
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


def _name_of(file: Path) -> str:
    return file.relative_to(_import_root(file)).as_posix()


def _spec_of(top: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):  # a loaded module without a spec, or a failing finder
        return None


@functools.cache
def _versions_of(top: str, origin: str) -> dict[str, str]:
    """Returns the versions of the packages of an installed module. Without a package, returns the hash of its file."""
    try:
        return {top: metadata.version(top)}
    except metadata.PackageNotFoundError:
        pass
    names = sorted(set(_distributions().get(top, ())))
    if names:
        return {name: metadata.version(name) for name in names}
    try:
        return {top: hashlib.sha256(Path(origin).read_bytes()).hexdigest()}
    except OSError:
        return {}


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())
