"""What commands and tests leave behind in their process, where others run later: it goes, and a test's is told."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

__all__ = ["as_before", "forget_suites", "traceless"]

_TEMPORARY = {tempfile.gettempdir(), os.path.realpath(tempfile.gettempdir())}
_STAYING = {str(Path(__file__).parents[1]), sys.prefix, sys.base_prefix}  # these may lie in the temp folder


_others: dict[str, Any] = {}  # modules that are no suites, by name; thousands, which are looked at once


def forget_suites(kept: Collection[str] = ()) -> None:
    """Forgets modules that lie in temp folders, but those named, and what they registered: others have their names."""
    if sys.modules == _others:  # most tests import nothing, and a test in three looks three times
        return
    modules = dict(sys.modules)  # another thread may import meanwhile
    new = [(name, module) for name, module in modules.items() if _others.get(name) is not module]
    suites = {name for name, module in new if _is_suite(module)}
    gone = {name for name in suites if name not in kept}
    for name in gone:
        del sys.modules[name]
    _others.clear()
    _others.update((name, module) for name, module in modules.items() if name not in suites)
    if not gone or "gin" not in sys.modules:
        return
    from gin import config as gin

    for selector, named in list(gin._REGISTRY.items()):
        if {getattr(named.wrapped, "__module__", ""), named.module} & gone:
            gin._REGISTRY.pop(selector)
            gin._INVERSE_REGISTRY.pop(named.wrapped, None)
    if "lobench.engine.config.binding" in sys.modules:
        for name in gone:
            sys.modules["lobench.engine.config.binding"]._NAMES_ON_USE.pop(name, None)


def _places(module: ModuleType) -> Iterator[str]:
    """Yields a module's file, or the folders of a package without one."""
    held = getattr(module, "__dict__", {})  # a lazy module would import something if it were asked for a name
    places = [held["__file__"]] if held.get("__file__") else held.get("__path__", ())
    try:
        yield from (place for place in places if isinstance(place, str))
    except KeyError:  # of a package without a file whose parent is not in sys.modules
        yield from places._path


def _is_temporary(place: str) -> bool:
    around = [folder for folder in _TEMPORARY | _STAYING if place.startswith(folder + os.sep)]
    return max(around, key=len, default="") in _TEMPORARY


def _is_suite(module: Any) -> bool:
    return any(map(_is_temporary, _places(module)))


class _Part(NamedTuple):
    """Something of a process that a command or a test may change: named values.

    Attributes:
      grows: Whether new values stay: they come with what is imported, which stays too.
      goes: Says which values may go.
    """

    name: str
    read: Callable[[], dict[str, Any]]
    write: Callable[[dict[str, Any]], object]
    grows: bool = False
    goes: Callable[[Any], bool] = lambda value: False

    def changed(self, was: dict[str, Any]) -> list[str]:
        """Returns the names of what is not as it was."""
        now = self.read()
        if _are_same(was, now):
            return []
        names = was if self.grows else {*was, *now}
        found = (name for name in names if not (name in was and name in now and _are_same(was[name], now[name])))
        return sorted(name for name in found if not self.goes(was.get(name)))


def _are_same(was: Any, now: Any) -> bool:
    try:
        return bool(was == now)
    except ValueError:  # of arrays
        return False


@contextlib.contextmanager
def as_before() -> Iterator[list[str]]:
    """Makes this process afterwards what it was; yields a list that tells then what was different."""
    output: list[str] = []
    before, figures = {part: dict(part.read()) for part in _PARTS}, _figures()
    try:
        yield output
    finally:
        for part, was in before.items():
            if names := part.changed(was):
                part.write(was)
                if names := [name for name in names if not name.startswith(_IMPORTED)]:
                    output.append(f"{part.name}: {', '.join(names)}")
        forget_suites(before[_MODULES])
        for number in _figures() - figures:
            sys.modules["matplotlib.pyplot"].close(number)


@contextlib.contextmanager
def traceless() -> Iterator[None]:
    """Runs the body as a process of its own would, as far as this goes: without suites of others or traces."""
    forget_suites()
    with as_before():
        yield


def _figures() -> set[int]:
    """Returns what pyplot keeps open; it warns of more than twenty."""
    return set(sys.modules["matplotlib.pyplot"].get_fignums()) if "matplotlib.pyplot" in sys.modules else set()


def _process() -> dict[str, Any]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return {
        "working folder": os.getcwd(),
        "sys.path": [place for place in sys.path if not place.endswith("_vendor")],  # setuptools adds its own
        "garbage collection": gc.isenabled(),
        "logging": (logging.root.level, logging.root.manager.disable),
        "hooks of exceptions": (sys.excepthook, sys.unraisablehook, threading.excepthook),
        **{number.name: signal.getsignal(number) for number in numbers},
    }


def _set_process(was: dict[str, Any]) -> None:
    os.chdir(was["working folder"])
    sys.path[:] = was["sys.path"]
    (gc.enable if was["garbage collection"] else gc.disable)()
    logging.root.setLevel(was["logging"][0])
    logging.disable(was["logging"][1])
    sys.excepthook, sys.unraisablehook, threading.excepthook = was["hooks of exceptions"]
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if signal.getsignal(signal.Signals[name]) is not was[name]:
            signal.signal(signal.Signals[name], was[name])


def _environment() -> dict[str, str]:
    found = dict(os.environ)
    if "PYTEST_CURRENT_TEST" in found:  # it changes by itself; but a session of pytest within ends without it
        found["PYTEST_CURRENT_TEST"] = ""
    return found


def _set_environment(was: dict[str, str]) -> None:
    for name in os.environ.keys() - was.keys():
        del os.environ[name]
    os.environ.update(was)


def _set_modules(was: dict[str, Any]) -> None:
    sys.modules.update({name: module for name, module in was.items() if not _is_suite(module)})


def _gin() -> dict[str, Any]:
    gin = sys.modules.get("gin.config")
    if gin is None:
        return {
            "_CONFIG": {},
            "_IMPORTS": set(),
            "_SINGLETONS": {},
            "_FINALIZE_HOOKS": [],
            **dict.fromkeys(_FLAGS, False),
        }
    config = {key: dict(parameters) for key, parameters in gin._CONFIG.items()}
    held = {name: getattr(gin, name).copy() for name in ("_IMPORTS", "_SINGLETONS", "_FINALIZE_HOOKS")}
    return {"_CONFIG": config, **held, **{name: getattr(gin, name) for name in _FLAGS}}


def _set_gin(was: dict[str, Any]) -> None:
    gin = sys.modules["gin.config"]
    for name, value in was.items():
        if name in _FLAGS:
            setattr(gin, name, value)
        else:
            live = getattr(gin, name)
            live.clear()
            (live.extend if isinstance(live, list) else live.update)(value)


def _registered() -> dict[str, Any]:
    return dict(sys.modules["gin.config"]._REGISTRY.items()) if "gin.config" in sys.modules else {}


def _set_registered(was: dict[str, Any]) -> None:
    gin = sys.modules["gin.config"]
    for selector, named in was.items():
        gin._REGISTRY[selector] = gin._INVERSE_REGISTRY[named.wrapped] = named


def _jax() -> dict[str, Any]:
    return sys.modules["jax"].config.values if "jax" in sys.modules else {}


def _set_jax(was: dict[str, Any]) -> None:
    config = sys.modules["jax"].config
    for name, value in was.items():
        if config.values[name] != value:
            config.update(name, value)


def _matplotlib() -> dict[str, Any]:
    if "matplotlib" not in sys.modules:
        return {}
    held = dict.items(sys.modules["matplotlib"].rcParams)
    return {name: value for name, value in held if not name.startswith("backend")}  # who draws first finds the backend


def _set_matplotlib(was: dict[str, Any]) -> None:
    dict.update(sys.modules["matplotlib"].rcParams, was)


# What libraries set when they are imported, and lobench before it imports scipy: it says nothing of who imported them.
# Setuptools replaces distutils.
_IMPORTED = (
    "distutils",
    "TF_CPP_",
    "TPU_SKIP_MDS_QUERY",
    "OPENBLAS_",
    "KMP_",
    "TORCHINDUCTOR_",
    "PYGAME_HIDE_SUPPORT_PROMPT",
)
_FLAGS = ("_CONFIG_IS_LOCKED", "_INTERACTIVE_MODE")
_MODULES = _Part("modules that are gone or others", lambda: sys.modules, _set_modules, grows=True, goes=_is_suite)
_PARTS = (
    _Part("the process", _process, _set_process),
    _Part("the environment", _environment, _set_environment),
    _MODULES,
    _Part("gin", _gin, _set_gin),
    _Part("what is registered with gin", _registered, _set_registered, grows=True),
    _Part("jax's settings", _jax, _set_jax, grows=True),
    _Part("matplotlib's settings", _matplotlib, _set_matplotlib, grows=True),
)
