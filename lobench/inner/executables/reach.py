"""Hash of everything that tracing a program could read in this process, computed before tracing.

Python code can read anything, so the hash covers every loaded module instead of following references. The user's
modules count by their files and values, lobench by its files, and installed packages by the sizes and times of their
files. The hash also covers the environment, jax's settings and the machine.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import platform
import random
import sys
import sysconfig
import threading
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lobench.core.code_origin import LOBENCH, Origin, file_of, loaded_modules, origin_of_file, origin_of_module
from lobench.inner.backend import settings_of_jax
from lobench.inner.executables.state import MADE_BY_PYTHON, StateHash, Unhashable, known_name

__all__ = [
    "InstalledFiles",
    "WatchedTrace",
    "are_as_then",
    "are_outlined",
    "installed_files",
    "outlines",
    "processor",
    "reach",
]

# "checked": each stored program is traced too; "unchecked": none is traced; "off": none is stored or loaded.
EXECUTABLES = "LOBENCH_EXECUTABLES"

# Variables of pytest and shells that describe a single run, and folders of programs. All other variables count, since
# tracing may read them.
_IGNORED_VARIABLES = frozenset(
    {
        "PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID",
        "PYTEST_VERSION", "_", "SHLVL", "OLDPWD", "COLUMNS", "LINES", EXECUTABLES,
        "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "LOBENCH_CACHE_DIR", "XDG_CACHE_HOME",
    }
)  # fmt: skip
_NAMESPACES = ("jax", "jax.lax", "jax.nn", "jax.numpy", "jax.random", "jax.tree", "jax.tree_util", "numpy", "optax")
_refused_modules: dict[str, tuple[types.ModuleType, str]] = {}  # module and reason by name
InstalledFiles = dict[str, tuple[int, int]]  # by path: bytes, and time of the last change in ns


def reach(*objects: Any) -> str:
    """Returns a hash of everything that tracing these objects could read.

    Raises:
      Unhashable: A value cannot be hashed completely.
    """
    state_hash = StateHash()
    state_hash.add(sys.version, sys.flags.optimize, sys.path, platform.machine(), processor())
    state_hash.add({name: value for name, value in os.environ.items() if name not in _IGNORED_VARIABLES})
    state_hash.add(settings_of_jax(), _distributions(), _lobench_hash())
    _refuse_replaced_functions()
    user_modules = sorted(loaded_modules(Origin.USER))
    for name, module in user_modules:
        if name in _refused_modules and _refused_modules[name][0] is module:
            raise Unhashable(_refused_modules[name][1])
    for name, module in user_modules:
        try:
            state_hash.add(name, _content_hash(file_of(module)))
            state_hash.module(module)
        except Unhashable as error:
            _refused_modules[name] = module, f"{error}, in {name}"  # cached, to fail early next time
            raise
    state_hash.add(*objects)
    return state_hash.hexdigest()


def _content_hash(file: str) -> str:
    """Returns the hash of a file of the user's code; "" if the file is missing.

    Raises:
      Unhashable: The file is compiled code, cannot be read, or was changed after this process started.
    """
    if not file:
        return ""
    if not file.endswith((".py", ".pyc")):
        raise Unhashable(f"{file}, a module that is not Python code")
    try:
        if os.stat(file).st_mtime >= _process_start_time():
            raise Unhashable(f"{file}, which changed after this process began")
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        raise Unhashable(f"{file}, a module that is not a file") from None


@functools.cache
def _lobench_hash() -> str:
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(LOBENCH):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                if os.stat(path).st_mtime >= _process_start_time():
                    raise Unhashable(f"{path}, which changed after this process began")
                digest.update(path.encode() + b"\0" + Path(path).read_bytes())
    return digest.hexdigest()


@functools.cache
def _process_start_time() -> float:
    """Returns the time when this process started, in seconds since the epoch; 0 if the system does not report it."""
    try:
        fields_after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return time.time() - uptime + int(fields_after_name[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


@functools.cache
def processor() -> str:
    """Returns the features of the processor, on which machine code depends."""
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        raise Unhashable("a processor that the system does not describe") from None
    fields = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU part")
    return "\n".join(line for line in lines if line.partition(":")[0].strip() in fields)


@functools.cache
def _distributions() -> tuple[str, ...]:
    """Returns names and versions of installed distributions, from the folders of their metadata."""
    folders = {_PATHS[key] for key in ("purelib", "platlib")} | {path for path in sys.path if "-packages" in path}
    distributions = set()
    for folder in folders:
        if os.path.isdir(folder):
            distributions |= {entry for entry in os.listdir(folder) if entry.endswith(_METADATA)}
    return tuple(sorted(distributions))


_PATHS = sysconfig.get_paths()
_METADATA = (".dist-info", ".egg-info", ".egg-link", ".pth")


def outlines() -> dict[str, str]:
    """Returns an outline of each module of lobench, which changes if a function is replaced.

    It consists of the module's constants and the positions of its code.
    """
    names = sorted(name for name, _ in loaded_modules(Origin.LOBENCH) if name.startswith("lobench.inner."))
    return {name: _outline(sys.modules[name]) for name in names if not name.startswith(f"{__package__}.")}


def are_outlined(outlines: Mapping[str, str]) -> bool:
    """Returns whether modules of lobench still have their outlines. Imports them, as tracing did."""
    return all(_outline(importlib.import_module(name)) == outline for name, outline in outlines.items())


def _outline(module: types.ModuleType) -> str:
    lines = []
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            attributes = list(vars(value).items())
            lines += [
                f"{name}.{key} {_value_outline(attribute)}"
                for key, attribute in attributes
                if key not in MADE_BY_PYTHON
            ]
        elif name.startswith("__") or isinstance(value, types.ModuleType):
            continue
        elif known_name(value) in ("", f"{module.__name__}.{name}"):  # others may be missing until their first use
            lines.append(f"{name} {_value_outline(value)}")
    return hashlib.sha256("\0".join(sorted(lines)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _value_outline(value: Any) -> str:
    value = getattr(value, "__func__", None) or (value.fget if isinstance(value, property) else value)
    if isinstance(value, types.FunctionType):
        return f"{value.__module__}.{value.__qualname__} {value.__code__.co_filename}:{value.__code__.co_firstlineno}"
    if isinstance(value, int | float | str | bytes | tuple | type(None)) and " at 0x" not in (text := repr(value)):
        return text
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _refuse_replaced_functions() -> None:
    """Refuses to continue if functions of jax, numpy or optax were replaced.

    Raises:
      Unhashable: A function was replaced.
    """
    for namespace in _NAMESPACES:
        for name, value in list(vars(sys.modules[namespace]).items()) if namespace in sys.modules else ():
            function = getattr(value, "__wrapped__", value) if not isinstance(value, types.ModuleType) else None
            file = function.__code__.co_filename if isinstance(function, types.FunctionType) else "<"
            if not file.startswith("<") and origin_of_file(file) is Origin.USER:
                raise Unhashable(f"{namespace}.{name}, which {file} replaced")


def installed_files() -> InstalledFiles:
    """Returns the loaded files of installed packages, with sizes and times.

    Raises:
      Unhashable: A file changed after this process started, or is gone.
    """
    files: InstalledFiles = {}
    for _, module in loaded_modules(Origin.INSTALLED):
        if file := file_of(module):
            files[file] = size_and_mtime = _size_and_mtime(file)
            if size_and_mtime[1] >= _process_start_time() * 1e9:
                raise Unhashable(f"{file}, which changed after this process began")
    return files


def are_as_then(files: Mapping[str, tuple[int, int]]) -> bool:
    """Returns whether files of installed packages are unchanged."""
    try:
        return all(_size_and_mtime(file) == tuple(size_and_mtime) for file, size_and_mtime in files.items())
    except Unhashable:
        return False


def _size_and_mtime(file: str) -> tuple[int, int]:
    try:
        status = os.stat(file)
    except OSError:
        raise Unhashable(f"{file}, a module that is not a file") from None
    return status.st_size, status.st_mtime_ns


class WatchedTrace:
    """Detects actions during tracing that the hash, computed before tracing, does not cover.

    Attributes:
      saw: First of these actions; "" if there was none.
    """

    _active_trace: WatchedTrace | None = None
    _is_hooked = False

    def __init__(self) -> None:
        self.saw = ""
        self._thread = threading.get_ident()
        self._depth = 0

    def __enter__(self) -> WatchedTrace:
        if not WatchedTrace._is_hooked:
            sys.addaudithook(_audit)
            WatchedTrace._is_hooked = True
        self._initial_modules, self._initial_random_state = (
            {name for name, _ in loaded_modules(Origin.USER)},
            _random_state(),
        )
        WatchedTrace._active_trace = self
        return self

    def __exit__(self, *_: object) -> None:
        WatchedTrace._active_trace = None
        if imported_names := {name for name, _ in loaded_modules(Origin.USER)} - self._initial_modules:
            self.saw = self.saw or f"the import of {', '.join(sorted(imported_names))}"
        if _random_state() != self._initial_random_state:
            self.saw = self.saw or "random numbers that no key gives"

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.saw or threading.get_ident() != self._thread:
            return
        if event in ("open", "os.listdir", "os.scandir", "os.mkdir", "os.rename"):
            if not isinstance(path := arguments[0], int) and not _is_allowed_path(path):
                self.saw = f"{event} of {path!r}"
        elif event == "import":
            self.saw = f"the import of {arguments[0]}" if _is_user_module(arguments[0]) else ""
        elif event.startswith(_OUTSIDE_EVENTS):
            self.saw = event


_OUTSIDE_EVENTS = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.putenv", "ctypes.dlopen",
    "sqlite3.", "urllib.", "mmap.",
)  # fmt: skip


def _is_allowed_path(path: Any) -> bool:
    """Returns whether a path belongs to Python, an installed package, lobench, or jax's cache."""
    try:
        text = os.path.abspath(os.fsdecode(path))
    except (TypeError, ValueError):
        return False
    cache = jax.config.values["jax_compilation_cache_dir"]
    is_cached = bool(cache) and text.startswith(os.path.abspath(cache))
    return is_cached or origin_of_file(text) is not Origin.USER


def _is_user_module(name: str) -> bool:
    """Returns whether a module name belongs neither to an installed package nor to lobench."""
    top_package = name.partition(".")[0]
    return top_package not in sys.stdlib_module_names and origin_of_module(top_package) is Origin.USER


def _random_state() -> Any:
    numpy_state = np.random.get_state(legacy=True)
    return random.getstate(), [value.tolist() if isinstance(value, np.ndarray) else value for value in numpy_state]


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    trace = WatchedTrace._active_trace
    if trace is not None:
        trace.see(event, arguments)
