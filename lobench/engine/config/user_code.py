"""User code: the files that a module reaches by its imports, and a fingerprint of them.

Nothing is imported: import statements are read from the syntax trees. For a module that this process has imported, the
imported content counts, even if its file has changed since. The user's own files, including those of editable installs,
count by their syntax trees without comments, docstrings and positions. Installed packages count by their versions. The
standard library, lobench, and the packages in `Program` do not count.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from lobench.core.case import CaseInfo
from lobench.core.code import CodeFingerprint
from lobench.core.code_origin import Origin, file_of, origin_of_file
from lobench.engine.config.gin_state import forget_configurables
from lobench.engine.config.imported_code import imported_content
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
_IGNORED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_HAS_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_COARSEST_SECONDS = 2.0  # coarsest resolution of a file system's times
_IS_PATH = re.compile(r"[\w./+~-]{1,200}")
_CODE_SUFFIXES = (".py", ".so", ".sh")
_MOST_MODULES = 1000  # limit for a package from which a computed name is imported
_COMPILED = tuple(importlib.machinery.EXTENSION_SUFFIXES)


class _ImportedNames(NamedTuple):
    """Import statement: `from ..a import b, c` has level 2, module "a" and the names "b" and "c".

    `import_module(f"a.{name}")` has the module "a" and `has_all`, because any module below it may be imported. If the
    name has no constant beginning, any module in the file's folder or below may be.
    """

    level: int
    module: str
    names: tuple[str, ...] = ()
    has_all: bool = False


class _SourceFile(NamedTuple):
    """Parsed content of a code file.

    Attributes:
      sha256: Hash of its syntax tree.
      imports: Its import statements.
      texts: Constants that may be paths of code files or of folders on the import path.
      extends_path: Whether it adds to `sys.path`.
    """

    sha256: str
    imports: tuple[_ImportedNames, ...] = ()
    texts: tuple[str, ...] = ()
    extends_path: bool = False


def fingerprint_of(
    files: Iterable[str | Path] = (),
    *,
    modules: Iterable[str] = (),
    folders: Sequence[str] = (),
    as_imported: bool = True,
) -> CodeFingerprint:
    """Returns the fingerprint of files and modules, and of everything that they reach by import statements.

    A file that cannot be parsed counts by its bytes. A module that cannot be found is left out.

    Args:
      files: Files of code. Files that are not Python count by their bytes.
      modules: Names of modules, loaded or not.
      folders: Folders in which modules are searched before `sys.path`.
      as_imported: Whether the imported content of modules counts instead of their files. False: for other processes.
    """
    key = (tuple(map(str, files)), tuple(modules), tuple(folders), tuple(sys.path), as_imported)
    if key in _remembered and _remembered[key].is_current():
        return _remembered[key].fingerprint
    at = time.time()
    found = retried_briefly(lambda: _Walk(folders, as_imported=as_imported).fingerprint(*key[:2]))
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
    return _source_file(content).sha256


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
      as_imported: As in `fingerprint_of`.
    """

    def __init__(self, folders: Sequence[str], *, as_imported: bool) -> None:
        self._folders, self._as_imported = [Path(folder) for folder in folders], as_imported
        self._files: dict[Path, str] = {}  # hashes by file
        self._packages: dict[str, str] = {}
        self._missing: set[str] = set()
        self._waiting: list[tuple[Path, _ImportedNames]] = []
        self._added: dict[
            Path, None
        ] = {}  # folders that the code itself adds to `sys.path`, as far as they can be inferred

    def fingerprint(self, files: Iterable[str], modules: Iterable[str]) -> CodeFingerprint:
        for file in files:
            self.add_file(Path(file))
        for name in modules:
            self.add_module(name)
        while self._waiting:
            self._follow(*self._waiting.pop())
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
        source = _source_file(content) if file.suffix == ".py" else _SourceFile(hashlib.sha256(content).hexdigest())
        self._files[file] = source.sha256
        self._waiting += [(file, imported) for imported in source.imports]
        if source.extends_path:
            around = (file.parent, *file.parent.parents[:2])
            self._added |= dict.fromkeys([*around, *_folders_named(around, source.texts)])
        for text in source.texts:
            if Path(text).suffix in _CODE_SUFFIXES:
                for one in (file.parent / text, *(folder / text for folder in self._folders)):
                    if one.is_file():
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
            self._find(_ImportedNames(0, name), [])

    def _follow(self, file: Path, imported: _ImportedNames) -> None:
        if imported.has_all:
            self._add_all(file, imported)
            return
        if not imported.level:
            self._find(imported, [_import_root(file), file.parent])
            return
        folder = file.parent
        for _ in range(imported.level - 1):
            folder = folder.parent
        parts = [part for part in imported.module.split(".") if part]
        self._add_below([folder], parts, imported.names)

    def _add_all(self, file: Path, imported: _ImportedNames) -> None:
        """Adds all modules below a package, for an import whose name is computed."""
        folder = file.parent
        for _ in range(imported.level - 1):
            folder = folder.parent
        parts = imported.module.split(".") if imported.module else []
        roots = [folder] if imported.level else [*self._searched([_import_root(file), file.parent])]
        packages = [root.joinpath(*parts) for root in roots] if parts else [folder]
        for package in packages:
            for found in _modules_below(package):
                self.add_file(found)

    def _find(self, imported: _ImportedNames, near: Sequence[Path]) -> None:
        top, *rest = imported.module.split(".")
        if top in sys.stdlib_module_names or top in _NOT_COUNTED:
            return
        namespaces: list[Path] = []
        for folder in self._searched(near):
            package = folder / top
            if found := _module_file(package):
                self.add_file(found)
                self._add_below([package], rest, imported.names)
                return
            if package.is_dir():
                namespaces.append(package)
        spec = _spec_of(top)
        if spec is None or spec.origin in (None, "namespace") or origin_of_file(spec.origin or "") is Origin.USER:
            if spec is not None and spec.origin and os.path.isfile(spec.origin):
                self.add_file(Path(spec.origin))
            else:
                self._missing.update(str(one) for folder in near[:1] for one in _candidates(folder / top))
            others = list(spec.submodule_search_locations or ()) if spec is not None else []
            self._add_below([*namespaces, *map(Path, others)], rest, imported.names)
        elif origin_of_file(spec.origin or "") is Origin.INSTALLED:
            self._packages.update(_versions_of(top, spec.origin or ""))
            self._missing.update(str(one) for folder in near[:1] for one in _candidates(folder / top))

    def _add_below(self, packages: Sequence[Path], parts: Sequence[str], names: Sequence[str]) -> None:
        """Adds the files of an import: packages, modules on the path to it, and imported names that are modules.

        Args:
          packages: Folders of the top-level package.
          parts: Further parts of the module's name.
          names: Names that are imported from the module."""
        for package in packages:
            if (init := package / "__init__.py").is_file():
                self.add_file(init)
        for part in parts:
            packages = [package / part for package in packages]
            for package in packages:
                if found := _module_file(package):
                    self.add_file(found)
        for name in names:
            for package in packages:
                if found := _module_file(package / name):
                    self.add_file(found)

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


def _folders_named(around: Iterable[Path], texts: Sequence[str]) -> list[Path]:
    """Returns the existing folders that a text, or two joined texts, name relative to given folders."""
    first = [Path(os.path.normpath(folder / text)) for folder in around for text in texts]
    first = [*dict.fromkeys(one for one in first if one.is_dir())]
    second = [folder / text for folder in first for text in texts]
    return [*first, *(one for one in second if one.is_dir())]


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


_known: dict[str, _SourceFile] = {}  # by the sha256 of the content


def _source_file(content: bytes) -> _SourceFile:
    digest = hashlib.sha256(content).hexdigest()
    if digest not in _known:
        try:
            tree = ast.parse(content)
            _known[digest] = _SourceFile(_sha256_of(tree), tuple(_imports_in(tree)), *_paths_in(tree))
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # not parsable: compare the bytes
            _known[digest] = _SourceFile(digest)
    return _known[digest]


def _sha256_of(tree: ast.AST) -> str:
    """Returns a hash of a syntax tree that is equal in all versions of Python: fields by name, without empty ones.

    It uses a stack instead of recursion, because long expressions are deep trees.
    """
    words: list[str] = []
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            words.append(node)
        elif isinstance(node, ast.AST):
            words.append(f"({type(node).__name__}")
            stack.append(")")
            for name in sorted(node._fields, reverse=True):
                value = getattr(node, name, None)
                if name == "body" and isinstance(node, _HAS_DOCSTRING):
                    value = _without_docstring(value)
                if value is not None and value != [] and name not in _IGNORED_FIELDS:
                    stack += [value if isinstance(value, ast.AST | list) else _word(value), f"{name}="]
        else:
            words.append("[")
            stack.append("]")
            stack += [one if isinstance(one, ast.AST | list) else _word(one) for one in reversed(node)]
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()


def _word(value: object) -> str:
    text = hex(value) if type(value) is int else repr(value)
    return f"{type(value).__name__} {text}"


def _without_docstring(body: Any) -> Any:
    first = body[0] if isinstance(body, list) and body else None
    is_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_docstring else body


def _imports_in(tree: ast.AST) -> Iterator[_ImportedNames]:
    """Yields the imports of a module, at any depth, except those for type checkers only."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            yield from (_ImportedNames(0, one.name) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield _ImportedNames(node.level, node.module or "", tuple(one.name for one in node.names))
        elif isinstance(node, ast.Call):
            yield from _imported_by_call(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield from _pytest_plugins(node)
        if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
            stack += node.orelse
        else:
            stack += ast.iter_child_nodes(node)


def _imported_by_call(node: ast.Call) -> Iterator[_ImportedNames]:
    """Yields the imports made by `importlib.import_module("a.b")`, `__import__("a")` and calls with computed names."""
    called = _name(node.func)
    if called in ("iter_modules", "walk_packages"):
        yield _ImportedNames(0, "", has_all=True)
    first = node.args[0] if called in ("import_module", "__import__") and node.args else None
    if first is None:
        return
    if isinstance(first, ast.Constant):
        if isinstance(first.value, str) and (name := first.value.lstrip(".")):
            yield _ImportedNames(len(first.value) - len(name), name)
        return
    beginning = first.values[0] if isinstance(first, ast.JoinedStr) and first.values else first
    while isinstance(beginning, ast.BinOp):  # "a." + name, "a.%s" % name
        beginning = beginning.left
    if isinstance(beginning, ast.Call) and isinstance(beginning.func, ast.Attribute):  # "a.{}".format(name)
        beginning = beginning.func.value
    text = beginning.value if isinstance(beginning, ast.Constant) and isinstance(beginning.value, str) else ""
    name = text.lstrip(".")
    package = name.rpartition(".")[0]
    yield _ImportedNames(len(text) - len(name), package, has_all=True)


def _paths_in(tree: ast.AST) -> tuple[tuple[str, ...], bool]:
    """Returns constants that may be paths of code or of import folders, and whether the code extends `sys.path`."""
    texts, extends_path = dict[str, None](), False
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("path", "addsitedir"):
            extends_path |= _name(node.value) in ("sys", "site")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _IS_PATH.fullmatch(node.value):
            texts[node.value] = None
    return tuple(one for one in texts if extends_path or Path(one).suffix in _CODE_SUFFIXES), extends_path


def _pytest_plugins(node: ast.Assign | ast.AnnAssign) -> Iterator[_ImportedNames]:
    """Yields the modules of `pytest_plugins = ["helpers.fixtures"]`."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if node.value is not None and any(_name(target) == "pytest_plugins" for target in targets):
        for one in ast.walk(node.value):
            if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value:
                yield _ImportedNames(0, one.value)


def _name(node: ast.AST) -> str:
    """Returns the name of a variable, or the last name of an attribute."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
