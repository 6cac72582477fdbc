"""Walk from files and modules of the user to all code that they reach. Nothing is imported.

The walk follows import statements and the names in source files (`source_files`). It searches the folder of each file,
the folder from which the file is imported, folders that its caller gives, and the user's folders on the import path. A
text counts only if it is the name of a module or the path of a file that exists there.
"""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from lobench.core.code import CodeFingerprint
from lobench.core.code_origin import Origin, file_of, origin_of_file
from lobench.engine.config.imported_code import imported_content
from lobench.engine.config.source_files import (
    CODE_SUFFIXES,
    FILE_FOLDER,
    ImportedNames,
    SourceFile,
    parse_source,
    parse_source_file,
    suffix_of,
)
from lobench.engine.retries import is_transient, retried_briefly

__all__ = ["CodeWalk", "listing_sha256"]

# Packages whose versions are part of `Program`, or do not affect results.
_UNCOUNTED_PACKAGES = frozenset({"jax", "jaxlib", "lobench", "gin", "pytest", "_pytest", "pluggy"})
_FOREIGN_FOLDER_FILES = frozenset({"pyvenv.cfg", "ledger.sqlite"})
_MAX_FILES = 1000  # limit for the files of one package, or of one pattern, that a computed name reaches
_MAX_FOLDERS = 1000  # limit for the folders that the patterns of a walk search
_COMPILED_SUFFIXES = tuple(importlib.machinery.EXTENSION_SUFFIXES)
_IMPORTED_SUFFIXES = (*_COMPILED_SUFFIXES, ".py")  # in the order in which Python looks for them
# Suffixes of a compiled module's sources, which are next to it.
_SOURCE_SUFFIXES = (".pyx", ".pxd", ".c", ".cc", ".cpp", ".cxx", ".cu")


class _FileSystemCache:
    """Names and kinds of files, each looked up once."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str] | None] = {}
        self._modes: dict[str, int] = {}

    def names(self, folder: str) -> frozenset[str] | None:
        """Returns the names in a folder; empty if it does not exist, None if this user may not list it."""
        if folder not in self._names:
            try:
                self._names[folder] = frozenset(os.listdir(folder))
            except (OSError, ValueError) as error:
                if is_transient(error, retries_forbidden=False):
                    raise
                self._names[folder] = None if isinstance(error, PermissionError) else frozenset()
        return self._names[folder]

    def is_file(self, path: str) -> bool:
        return stat.S_ISREG(self._mode(path))

    def is_dir(self, path: str) -> bool:
        return stat.S_ISDIR(self._mode(path))

    def _mode(self, path: str) -> int:
        """Returns the mode of a file or folder; 0 if it does not exist."""
        folder, _, name = path.rpartition("/")
        names = self.names(folder or "/")
        if names is not None and name not in names:
            return 0
        if path not in self._modes:
            try:
                self._modes[path] = os.stat(path).st_mode
            except (OSError, ValueError) as error:
                if is_transient(error, retries_forbidden=False):
                    raise
                self._modes[path] = 0
        return self._modes[path]


class CodeWalk:
    """Collector of files and packages.

    Args:
      folders: Folders in which modules are searched before `sys.path`, and from which relative paths count.
      added_folders: Further folders that may be on the import path, in unknown order. Modules found there count too.
      as_imported: Whether the imported content of modules counts instead of their files.
    """

    def __init__(self, folders: Sequence[str], added_folders: Sequence[str] = (), *, as_imported: bool) -> None:
        self._folders = [os.path.abspath(folder) for folder in folders]
        self._uses_imported_content = as_imported
        self._disk = _FileSystemCache()
        self._sha256_by_file: dict[str, str] = {}
        self._sources: dict[str, SourceFile] = {}  # parsed files, by their path and by the paths of links to them
        self._real_roots: dict[str, str] = {}  # resolved path of each folder on the import path
        self._packages: dict[str, str] = {}
        self._missing_files: set[str] = set()
        self._data_files: set[str] = set()
        self._listed_folders: set[str] = set()
        self._pending_imports: list[tuple[str, ImportedNames]] = []
        # Absolute imports, each with its file and whether it was found, before and after the search in added folders.
        self._unsearched_imports: list[tuple[str, ImportedNames, bool]] = []
        self._searched_imports: list[tuple[str, ImportedNames, bool]] = []
        self._num_searched_folders = 0  # number of added folders at the last search
        # Folders that were added to `sys.path`.
        self._added_folders = dict.fromkeys(map(os.path.abspath, added_folders))
        self._package_folders: dict[str, list[str]] = {}  # added to the path of a package, by its name
        self._possible_folders: dict[str, None] = {}  # folders that code may add to `sys.path`
        self._import_roots: dict[str, str] = {}  # by folder
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}
        self._num_pattern_folders = 0
        path_folders = dict.fromkeys(os.path.abspath(entry or os.curdir) for entry in sys.path)
        self._user_path_folders = [
            import_folder for import_folder in path_folders if origin_of_file(f"{import_folder}{os.sep}") is Origin.USER
        ]

    def fingerprint(self, files: Iterable[str], modules: Iterable[str], texts: Iterable[str] = ()) -> CodeFingerprint:
        """Returns the fingerprint of files, modules, and files that texts name, with all that they reach."""
        for file in files:
            self.add_file(file)
        for name in modules:
            self.add_module(name)
        for text in texts:
            self._add_named_files("", text, ())
        while (
            self._pending_imports or self._unsearched_imports or self._num_added_folders != self._num_searched_folders
        ):
            while self._pending_imports:
                self._follow_import(*self._pending_imports.pop())
            self._search_added_folders()
        hashes_of_parts = dict(self._packages)
        for file_path, sha256 in self._sha256_by_file.items():
            name = self.name_of(file_path)
            ancestor = Path(file_path).parent
            while name in hashes_of_parts:  # for example, two files conftest.py
                name, ancestor = f"{ancestor.name}/{name}", ancestor.parent
                if ancestor == ancestor.parent:
                    break
            hashes_of_parts[name] = sha256
        return CodeFingerprint(
            parts=hashes_of_parts,
            files=dict(self._sha256_by_file),
            missing_files=frozenset(self._missing_files - self._sha256_by_file.keys()),
            data_files=frozenset(self._data_files - self._sha256_by_file.keys()),
            folder_listings={folder: listing_sha256(folder) for folder in sorted(self._listed_folders)},
        )

    def add_file(self, path: str) -> None:
        """Adds a file of the user, the packages that contain it, and what it names."""
        file = os.path.realpath(path)
        link = os.path.abspath(path)
        if origin_of_file(file) is not Origin.USER:
            return
        self._missing_files.update(self._files_before(link))
        if file in self._sha256_by_file:
            self._follow_link(file, link)
            return
        content = imported_content(file) if self._uses_imported_content else None
        suffix = os.path.splitext(file)[1]
        try:
            read_source = functools.partial(parse_source_file, file)
            source = retried_briefly(read_source) if content is None else parse_source(content, suffix)
        except OSError:
            self._missing_files.add(file)
            return
        self._sha256_by_file[file] = source.sha256
        self._add_references(file, source)
        self._follow_link(file, link)
        if suffix == ".py":
            folder, name = os.path.split(file)
            package = folder if name != "__init__.py" else os.path.dirname(folder)
            if self._disk.is_file(f"{package}/__init__.py"):
                self.add_file(f"{package}/__init__.py")

    def _add_references(self, path: str, source: SourceFile) -> None:
        """Adds the modules and files that a file names.

        Args:
          path: Path of the file or of a link to it, from which names are searched.
          source: Names in the file.
        """
        self._sources[path] = source
        self._pending_imports += [(path, imported) for imported in source.imports]
        self._note_import_folders(path, source)
        for named_path in source.paths:
            self._add_named_files(path, named_path, source.paths)

    def _follow_link(self, file: str, link: str) -> None:
        """Adds what a file names, searched from a link to it, if the link is imported from another folder."""
        if link == file or link in self._sources:
            return
        root = self._import_root(os.path.dirname(link))
        if root not in self._real_roots:
            self._real_roots[root] = os.path.realpath(root)
        if self._real_roots[root] != self._import_root(os.path.dirname(file)):
            self._add_references(link, self._sources[file])

    def add_module(self, name: str) -> None:
        """Adds a module by name, from the file that was loaded or that would be found."""
        loaded_file = file_of(module) if (module := sys.modules.get(name)) is not None else ""
        if loaded_file and origin_of_file(loaded_file) is Origin.USER:
            self.add_file(loaded_file)
        elif name not in ("", "__main__"):
            imported_names = ImportedNames(0, name)
            self._unsearched_imports.append(("", imported_names, self._find_import(imported_names, [])))

    # Modules.

    def _follow_import(self, file: str, imported_names: ImportedNames) -> None:
        folder = os.path.dirname(file)
        for _ in range(imported_names.level - 1):
            folder = os.path.dirname(folder)
        path_parts = [path_part for path_part in imported_names.module.split(".") if path_part]
        near_folders = [self._import_root(os.path.dirname(file)), os.path.dirname(file)]
        if imported_names.has_all:
            package_folder = folder if imported_names.level else self._outermost_folder(file)
            roots = [folder] if imported_names.level else [*self._module_folders(near_folders)]
            for package in ["/".join((root, *path_parts)) for root in roots] if path_parts else [package_folder]:
                self._add_package(package)
        elif imported_names.level:
            self._add_submodules([folder], path_parts, imported_names.names)
        elif imported_names.is_text:
            self._unsearched_imports.append(
                (
                    file,
                    imported_names,
                    self._add_named_module(imported_names, near_folders, [*self._module_folders(near_folders)]),
                )
            )
        else:
            self._unsearched_imports.append((file, imported_names, self._find_import(imported_names, near_folders)))

    def _add_package(self, package: str) -> None:
        """Adds the modules in a folder and in the packages below it, at most 1000."""
        folders, num_files_left = [package], _MAX_FILES
        while folders and num_files_left > 0:
            folder = folders.pop()
            for name in sorted(self._disk.names(folder) or ()):
                entry = f"{folder}/{name}"
                if name.endswith(".py") and self._disk.is_file(entry):
                    num_files_left -= 1
                    self.add_file(entry)
                elif self._is_package(entry):
                    folders.append(entry)
            if self._disk.names(folder):
                self._listed_folders.add(folder)

    def _find_import(self, imported_names: ImportedNames, near_folders: Sequence[str]) -> bool:
        """Adds the files of an absolute import. Returns whether it was found."""
        top_module, *submodules = imported_names.module.split(".")
        if top_module in _UNCOUNTED_PACKAGES:
            return True
        # Only a file next to the script comes before a module of the standard library.
        is_standard = top_module in sys.stdlib_module_names
        namespace_folders: list[str] = []
        for folder in near_folders[:1] if is_standard else self._module_folders(near_folders):
            package = f"{folder}/{top_module}"
            if module_files := self._module_files(package):
                self._add_each(module_files)
                return self._add_submodules([package], submodules, imported_names.names)
            if self._disk.is_dir(package):
                namespace_folders.append(package)
        if is_standard:
            return True
        spec = self._module_spec(top_module)
        origin = spec.origin if spec is not None and spec.origin not in (None, "namespace") else ""
        candidates = [f"{folder}/{top_module}{end}" for folder in near_folders[:1] for end in ("/__init__.py", ".py")]
        if not origin or origin_of_file(origin) is Origin.USER:
            sources = (
                [source for folder in near_folders for source in self._compiled_sources(f"{folder}/{top_module}")]
                if spec is None
                else []
            )
            self._add_each([origin] if origin and os.path.isfile(origin) else sources)
            if not origin or not os.path.isfile(origin):
                self._missing_files.update(candidates)
            locations = list(spec.submodule_search_locations or ()) if spec is not None else []
            packages = [*namespace_folders, *locations]
            return self._add_submodules(packages, submodules, imported_names.names) and bool(
                spec or packages or sources
            )
        if origin_of_file(origin) is Origin.INSTALLED:
            self._packages.update(_package_versions(top_module, origin))
            self._missing_files.update(candidates)
        return True

    def _add_named_module(
        self, imported_names: ImportedNames, near_folders: Sequence[str], folders: Iterable[str]
    ) -> bool:
        """Adds the module that a text names, if it is the user's. Returns whether it was added.

        A folder without an `__init__.py` counts as a package only near the file. Elsewhere it may be another project.
        """
        path_parts = imported_names.module.split(".")
        if not all(path_parts):  # "a..b" names no module
            return False
        if path_parts[0] in _UNCOUNTED_PACKAGES:
            return True
        for folder in folders:
            if self._add_module(folder, path_parts, imported_names.names, is_near=folder in near_folders):
                return True
        spec = self._module_spec(path_parts[0]) if imported_names.names else None
        if spec is None or not spec.origin or origin_of_file(spec.origin) is not Origin.USER:
            return False
        if os.path.isfile(spec.origin):
            self.add_file(spec.origin)
        return self._add_submodules(list(spec.submodule_search_locations or ()), path_parts[1:], imported_names.names)

    def _add_module(self, folder: str, path_parts: Sequence[str], names: Sequence[str], *, is_near: bool) -> bool:
        """Adds the files of "a.b.c" or "a.b.Class" below a folder. Returns whether they exist."""
        path = folder
        files = list[str]()
        num_found = 0
        for path_part in path_parts:
            path = f"{path}/{path_part}"
            module_files = self._module_files(path)
            if not module_files and not ((files or is_near) and self._disk.is_dir(path)):
                path = os.path.dirname(path)
                break
            files, num_found = [*files, *module_files], num_found + 1
        remaining_parts = path_parts[num_found:]
        is_class = len(remaining_parts) == 1 and not names and (num_found > 1 or remaining_parts[0][0].isupper())
        if not num_found or not self._module_files(path) or (remaining_parts and not is_class):
            return False
        self._add_each(files)
        for name in names:
            self._add_each(self._module_files(f"{path}/{name}"))
        return True

    def _add_submodules(self, packages: Sequence[str], path_parts: Sequence[str], names: Sequence[str]) -> bool:
        """Adds a module below the folders of a package, and imported names that are modules themselves.

        Returns:
          Whether all parts were found.
        """
        was_found = True
        for package in packages:
            if self._is_package(package):
                self.add_file(f"{package}/__init__.py")
        for path_part in path_parts:
            packages = [f"{package}/{path_part}" for package in packages]
            files = [
                module_file
                for package in packages
                for module_file in self._module_files(package) or self._compiled_sources(package)
            ]
            was_found = bool(files) or any(map(self._disk.is_dir, packages))
            self._add_each(files)
        for name in names:
            for package in packages:
                self._add_each(self._module_files(f"{package}/{name}") or self._compiled_sources(f"{package}/{name}"))
        return was_found

    def _add_each(self, files: Iterable[str]) -> None:
        for file in files:
            self.add_file(file)

    def _module_folders(self, near_folders: Sequence[str]) -> Iterator[str]:
        """Yields the folders that may contain the user's modules."""
        for folder in dict.fromkeys((*near_folders, *self._folders, *self._user_path_folders)):
            if origin_of_file(f"{folder}{os.sep}") is Origin.USER:
                yield folder

    def _is_package(self, folder: str) -> bool:
        return self._disk.is_dir(folder) and self._disk.is_file(f"{folder}/__init__.py")

    def _module_files(self, package: str) -> list[str]:
        """Returns the file of a module, given its path without a suffix; for a compiled module, also its sources.

        Python's order is: package, compiled module, `.py` file.
        """
        if self._is_package(package):
            return [f"{package}/__init__.py"]
        source = [f"{package}.py"] if self._disk.is_file(f"{package}.py") else []
        for suffix in _COMPILED_SUFFIXES:
            if self._disk.is_file(f"{package}{suffix}"):
                return [f"{package}{suffix}", *source, *self._compiled_sources(package)]
        return source

    def _files_before(self, file: str) -> list[str]:
        """Returns the missing files beside a module's file that Python would import instead of it."""
        suffix = next((suffix for suffix in _IMPORTED_SUFFIXES if file.endswith(suffix)), None)
        if suffix is None:
            return []
        module = file.removesuffix(suffix)
        files = [f"{module}{earlier}" for earlier in _IMPORTED_SUFFIXES[: _IMPORTED_SUFFIXES.index(suffix)]]
        missing_files = [path for path in files if not self._disk.is_file(path)]
        is_beside_package = os.path.basename(module) == "__init__" or self._is_package(module)
        return missing_files if is_beside_package else [*missing_files, f"{module}/__init__.py"]

    def _compiled_sources(self, package: str) -> list[str]:
        """Returns the sources of a module that is compiled when it is imported, as pyximport does."""
        return [f"{package}{suffix}" for suffix in _SOURCE_SUFFIXES if self._disk.is_file(f"{package}{suffix}")]

    def _import_root(self, folder: str) -> str:
        """Returns the folder from which the modules of a folder are imported: the nearest that is not a package."""
        if folder not in self._import_roots:
            parent = os.path.dirname(folder)
            is_root = parent == folder or not self._disk.is_file(f"{folder}/__init__.py")
            self._import_roots[folder] = folder if is_root else self._import_root(parent)
        return self._import_roots[folder]

    def _outermost_folder(self, file: str) -> str:
        """Returns the folder of the outermost package that contains a file, or the file's folder if there is none."""
        folder = os.path.dirname(file)
        root = self._import_root(folder)
        return folder if folder == root else f"{root}/{os.path.relpath(folder, root).split(os.sep)[0]}"

    def name_of(self, file: str) -> str:
        """Returns the path of a file relative to the folder that it is imported from."""
        return Path(file).relative_to(self._import_root(os.path.dirname(file))).as_posix()

    def _module_spec(self, top_module: str) -> importlib.machinery.ModuleSpec | None:
        if top_module not in self._specs:
            try:
                self._specs[top_module] = importlib.util.find_spec(top_module)
            except (ImportError, ValueError, AttributeError):  # a loaded module without a spec, or a failing finder
                self._specs[top_module] = None
        return self._specs[top_module]

    # Folders that the code adds to the import path.

    def _note_import_folders(self, file: str, source: SourceFile) -> None:
        if not source.extends_path:
            return
        file_folder = os.path.dirname(file)
        is_package = os.path.basename(file) == "__init__.py"
        for path in source.folders:
            for folder in self._possible_paths(file, path):
                if "*" in folder or not self._disk.is_dir(folder):
                    continue
                self._added_folders[folder] = None
                if is_package:
                    name = os.path.relpath(file_folder, self._import_root(file_folder)).replace(os.sep, ".")
                    self._package_folders.setdefault(name, []).append(folder)
        self._possible_folders |= dict.fromkeys(
            [file_folder, os.path.dirname(file_folder), os.path.dirname(os.path.dirname(file_folder))]
        )
        self._possible_folders |= dict.fromkeys(self._named_folders(file))

    def _named_folders(self, file: str) -> Iterator[str]:
        """Yields the folders named by paths in a file."""
        for path in self._sources[file].paths if file else ():
            if not suffix_of(path) and "*" not in path:
                yield from (folder for folder in self._possible_paths(file, path) if self._disk.is_dir(folder))

    @property
    def _num_added_folders(self) -> int:
        return len(self._added_folders) + len(self._possible_folders) + sum(map(len, self._package_folders.values()))

    def _search_added_folders(self) -> None:
        """Searches imports in the folders that the code adds to its import path, which may come before all others.

        If folders were added since the last search, by files that it found, earlier imports are searched again.
        """
        pending_imports, self._unsearched_imports = self._unsearched_imports, []
        self._searched_imports += pending_imports
        if self._num_added_folders != self._num_searched_folders:
            self._num_searched_folders = self._num_added_folders
            pending_imports = [*self._searched_imports]
        if not self._added_folders and not self._possible_folders:
            return
        for file, imported_names, was_found in pending_imports:
            top_module, *submodules = imported_names.module.split(".")
            folders = [*self._added_folders]
            # The folder to import from may be the argument of a function in another file.
            if not was_found and not imported_names.is_text:
                folders += [*self._possible_folders, *self._named_folders(file)]
            if top_module in _UNCOUNTED_PACKAGES or top_module in sys.stdlib_module_names:
                continue
            if imported_names.is_text:
                self._add_named_module(imported_names, [], folders)
                continue
            for folder in dict.fromkeys(folders):
                self._add_each(self._module_files(f"{folder}/{top_module}"))
                self._add_submodules([f"{folder}/{top_module}"], submodules, imported_names.names)
            for package, package_folders in self._package_folders.items():
                if imported_names.module == package or imported_names.module.startswith(f"{package}."):
                    submodule_parts = [part for part in imported_names.module[len(package) :].split(".") if part]
                    self._add_submodules(package_folders, submodule_parts, imported_names.names)

    # Files that the code names.

    def _add_named_files(self, file: str, path: str, neighbours: Sequence[str]) -> None:
        """Adds the files of code that a path or pattern names, and notes the files of data.

        Args:
          file: File of code that names it; "": none.
          path: The path, as in `SourceFile.paths`.
          neighbours: All paths that the file names. In a listed folder, only files with a suffix of these paths count.
        """
        if path.endswith("/*"):
            for suffix in [neighbour for neighbour in neighbours if neighbour in CODE_SUFFIXES]:
                self._add_named_files(file, f"{path}{suffix}", ())
            return
        suffix = suffix_of(path)
        if suffix in ("", ".gin"):  # bindings are part of the case, not data
            return
        is_code = suffix in CODE_SUFFIXES
        for candidate in self._possible_paths(file, path):
            files = [*self._matching_paths(candidate)][:_MAX_FILES] if "*" in candidate else [candidate]
            files = [file for file in files if self._disk.is_file(file)]
            if is_code and not files and "*" not in candidate:
                self._missing_files.add(candidate)
            for named_file in files:
                if is_code:
                    self.add_file(named_file)
                elif origin_of_file(named_file) is Origin.USER and os.path.splitext(named_file)[1] not in CODE_SUFFIXES:
                    self._data_files.add(os.path.realpath(named_file))

    def _possible_paths(self, file: str, path: str) -> Iterator[str]:
        """Yields the absolute paths that a path may mean, inside of the folders that are searched.

        A path that begins with the file's own folder and has no unknown part may lead outside of them.
        """
        own_folders = [os.path.dirname(file)] if file else []
        bases = list(dict.fromkeys([*own_folders, *map(self._import_root, own_folders), *self._folders]))
        is_exact = path.startswith(FILE_FOLDER)
        if is_exact:
            for base in own_folders:
                candidate = os.path.normpath(f"{base}{path.removeprefix(FILE_FOLDER)}")
                if "*" not in candidate or _is_in_any(bases, candidate):
                    yield candidate
            return
        path = os.path.expanduser(path) if path.startswith("~") else path
        if path.startswith("/"):
            if _is_in_any([*bases, *self._user_path_folders], path := os.path.normpath(path)):
                yield path
            return
        for base in own_folders if "*" in path.partition("/")[0] else bases:
            if _is_in_any(bases, candidate := os.path.normpath(f"{base}/{path}")):
                yield candidate

    def _matching_paths(self, pattern: str) -> Iterator[str]:
        """Yields the paths that match a pattern, sorted. Hidden folders, environments and stores are left out."""
        pattern_parts = pattern.split("/")
        star_index = next(index for index, pattern_part in enumerate(pattern_parts) if "*" in pattern_part)
        folder = "/".join(pattern_parts[:star_index])
        pattern_part = pattern_parts[star_index]
        further_parts = pattern_parts[star_index + 1 :]
        names = sorted(self._disk.names(folder) or ())
        self._num_pattern_folders += 1
        if not names or self._num_pattern_folders > _MAX_FOLDERS or not _FOREIGN_FOLDER_FILES.isdisjoint(names):
            return
        self._listed_folders.add(folder)
        if pattern_part == "**" and further_parts:
            yield from self._expanded_paths("/".join((folder, *further_parts)))
        for name in names:
            if pattern_part == "**" and further_parts:
                if not name.startswith((".", "__pycache__")) and self._disk.is_dir(f"{folder}/{name}"):
                    yield from self._matching_paths("/".join((folder, name, *pattern_parts[star_index:])))
            elif fnmatch.fnmatchcase(name, pattern_part) and not name.startswith("."):
                yield from self._expanded_paths("/".join((folder, name, *further_parts)))

    def _expanded_paths(self, path: str) -> Iterator[str]:
        if "*" in path:
            yield from self._matching_paths(path)
        else:
            yield path


def listing_sha256(folder: str) -> str:
    """Returns a hash of the names of the code files and packages in a folder; "" if it cannot be listed."""
    try:
        names = retried_briefly(functools.partial(os.listdir, folder))
    except OSError:
        return ""
    code_names = (
        name
        for name in sorted(names)
        if os.path.splitext(name)[1] in CODE_SUFFIXES
        or ("." not in name and os.path.isfile(os.path.join(folder, name, "__init__.py")))
    )
    return hashlib.sha256("\0".join(code_names).encode("utf-8", "surrogatepass")).hexdigest()


def _is_in_any(folders: Iterable[str], path: str) -> bool:
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


@functools.cache
def _package_versions(top_module: str, origin: str) -> Mapping[str, str]:
    """Returns the versions of the packages of an installed module. Without a package, returns the hash of its file."""
    try:
        return {top_module: _package_version(top_module)}
    except metadata.PackageNotFoundError:
        pass
    names = sorted(set(_distributions().get(top_module, ())))
    if names:
        return {name: _package_version(name) for name in names}
    try:
        return {top_module: hashlib.sha256(Path(origin).read_bytes()).hexdigest()}
    except OSError:
        return {}


def _package_version(name: str) -> str:
    """Returns the version of a package, with a hash of its files if it was not installed from an index.

    Two commits of a repository may have the same version.
    """
    package = metadata.distribution(name)
    record_text = (package.read_text("RECORD") or "") if package.read_text("direct_url.json") else ""
    excluded_parts = (".dist-info/", "../")  # about the package, and scripts, which hold a path of this machine
    lines = (
        line
        for line in record_text.splitlines()
        if ",sha256=" in line and not any(excluded_part in line for excluded_part in excluded_parts)
    )
    content = "\n".join(sorted(lines))
    return f"{package.version} {hashlib.sha256(content.encode()).hexdigest()}" if content else package.version


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())
