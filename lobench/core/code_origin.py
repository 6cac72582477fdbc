"""Origin of code: Python and installed packages, lobench itself, or the user's own."""

from __future__ import annotations

import enum
import functools
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

__all__ = [
    "LOBENCH",
    "Origin",
    "file_of",
    "loaded_module_files",
    "loaded_modules",
    "origin_of_file",
    "origin_of_module",
]

LOBENCH = str(Path(__file__).parents[1]) + os.sep
_PATHS = sysconfig.get_paths()
_FOLDERS = (
    *(_PATHS[name] for name in ("purelib", "platlib", "stdlib", "platstdlib")),
    *site.getsitepackages(),
    site.getusersitepackages(),
)
# Folders of installed packages. Paths of other environments contain them, too.
_PACKAGE_FOLDERS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_INSTALLED = tuple(
    sorted({f"{path.rstrip(os.sep)}{os.sep}" for each in _FOLDERS for path in (each, os.path.realpath(each))})
)


class Origin(enum.Enum):
    """Origin of code; determines how the code is hashed."""

    INSTALLED = "installed"  # hashed by sizes and times of its files
    LOBENCH = "lobench"  # hashed by content of its files
    USER = "user"  # hashed by content of its files, and values of its modules


def file_of(module: ModuleType) -> str:
    """Returns a module's file; "" if it has none."""
    file = vars(module).get("__file__")
    return file if isinstance(file, str) else ""


def loaded_module_files() -> Iterator[tuple[str, str]]:
    """Yields the name and the real path of the file of each loaded module that has a file."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and (file := file_of(module)):
            yield name, os.path.realpath(file) if origin_of_file(file) is Origin.USER else _installed_path(file)


@functools.cache
def _installed_path(file: str) -> str:
    """Returns the real path of a file of an installed package or of lobench.

    Cached, because their links do not change.
    """
    folder, base = os.path.split(file)
    # Thousands of files lie in a few hundred folders.
    return os.path.realpath(file) if os.path.islink(file) else os.path.join(_installed_folder(folder), base)


_installed_folder = functools.cache(os.path.realpath)


@functools.cache
def origin_of_file(file: str) -> Origin:
    """Returns the origin of a file of code; `USER` for names that are not files."""
    if file.startswith(LOBENCH):
        return Origin.LOBENCH
    if file.startswith(_INSTALLED) or file.startswith("<frozen "):
        return Origin.INSTALLED
    if any(folder in file for folder in _PACKAGE_FOLDERS):
        return Origin.INSTALLED
    return Origin.USER


def origin_of_module(name: str) -> Origin:
    """Returns the origin of a loaded module."""
    module = sys.modules.get(name)
    if module is None or not isinstance(module, ModuleType):
        return Origin.USER
    if file := file_of(module):
        return origin_of_file(file)
    loader = getattr(vars(module).get("__spec__"), "loader", None)
    kind = loader if isinstance(loader, type) else type(loader)
    if kind.__module__.startswith(("_frozen_importlib", "importlib.")):
        return Origin.INSTALLED  # part of Python itself, or a namespace package
    top_package = name.partition(".")[0]
    if top_package.startswith(("_cython_", "cython_runtime")):
        return Origin.INSTALLED
    # Modules inside of a compiled module, and modules that a package creates.
    return origin_of_module(top_package) if top_package != name else Origin.USER


_installed_modules: dict[str, ModuleType] = {}  # loaded modules that are known to be of installed packages, by name


def loaded_modules(*origins: Origin) -> list[tuple[str, ModuleType]]:
    """Returns the loaded modules of some origins, with their names."""
    modules = []
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType):
            continue
        # Thousands of modules are installed, and a description of cases asks for the others.
        origin = Origin.INSTALLED if _installed_modules.get(name) is module else origin_of_module(name)
        if origin is Origin.INSTALLED:
            _installed_modules[name] = module
        if origin in origins:
            modules.append((name, module))
    return modules
