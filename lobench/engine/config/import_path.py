"""Import path of all processes that bind cases: commands, workers, child processes, pytest sessions, notebooks."""

from __future__ import annotations

import configparser
import contextlib
import functools
import os
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

from lobench.engine.config.imported_code import record_imports

__all__ = ["INI_FILES", "prepare_import_path", "pytest_import_folders"]

INI_FILES = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")  # each defines pytest's root
_PYTEST_FILES = ("pytest.ini", ".pytest.ini")  # belong to pytest even without a section

_added_folders: list[str] = []  # working directory that this module added to the path; at most one


def prepare_import_path(folder: str | Path = "") -> None:
    """Extends the import path with the folders of a case's modules, in the order of a worker's pytest session.

    These are the folders of pytest's setting `pythonpath`, and the working directory, which comes last: it may be a
    run's folder, and a file `queue.py` in it must not replace Python's module. Also starts to record the content of
    imported modules. Calling this again has no effect.

    Args:
      folder: Folder of the suite, from which pytest's configuration is searched upwards. "": only the working
        directory.
    """
    record_imports()
    for path in reversed(pytest_import_folders(Path(os.path.abspath(folder))) if folder else ()):
        if path not in sys.path:
            sys.path.insert(0, path)
    with contextlib.suppress(OSError):  # the working directory was removed
        _append_working_folder(os.getcwd())


def _append_working_folder(folder: str) -> None:
    """Puts the working directory last on the import path. After a `chdir`, removes the previous directory from it."""
    while _added_folders and _added_folders[-1] != folder:
        with contextlib.suppress(ValueError):
            sys.path.remove(_added_folders.pop())
    if not {folder, ""} & set(sys.path):
        sys.path.append(folder)
        _added_folders.append(folder)


@functools.lru_cache(maxsize=64)
def pytest_import_folders(folder: Path) -> tuple[str, ...]:
    """Returns the folders of pytest's setting `pythonpath`, from the first configuration in or above a folder."""
    for ancestor in (folder, *folder.parents):
        for name in INI_FILES:
            try:
                settings = _pytest_settings(ancestor / name)
            except (OSError, ValueError, configparser.Error):
                continue  # pytest reports the error
            if settings is None:
                continue
            value = settings.get("pythonpath", ())
            return tuple(str(ancestor / entry) for entry in (shlex.split(value) if isinstance(value, str) else value))
    return ()


def _pytest_settings(file: Path) -> dict[str, Any] | None:
    """Returns pytest's settings in a file; None if it has none, so that the next file is tried."""
    if not file.is_file():
        return None
    if file.suffix == ".toml":
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("pytest", {})
        options = tool.get("ini_options", tool)
        return options or None
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(file.read_text(encoding="utf-8"))
    section = "tool:pytest" if file.name == "setup.cfg" else "pytest"
    if parser.has_section(section):
        return dict(parser[section])
    return {} if file.name in _PYTEST_FILES else None
