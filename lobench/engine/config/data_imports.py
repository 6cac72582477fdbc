"""Imports by a run's `config.gin`: installed code is allowed, files in the run's folder are not.

The working directory is searched for modules, and it may be the run's folder: `cd run; lobench watch .`. A folder is a
run's folder if it, or the folder above, has a `config.gin`. Checkpoints are searched with the same rule.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from lobench.core.errors import ConfigError
from lobench.engine.config.binding import execute_import
from lobench.engine.config.run_configs import trainer_config_at
from lobench.engine.config.syntax import Import

__all__ = ["DataNotImported", "check_not_data", "import_unless_data"]


class DataNotImported(ConfigError):
    """Error for a run's configuration that imports a module from a run's folder."""


def import_unless_data(statement: Import) -> None:
    """Imports a module that a run's configuration names.

    Raises:
      DataNotImported: The module is in a run's folder.
      ConfigError: The module cannot be imported.
    """
    check_not_data(statement)
    execute_import(statement)


def check_not_data(statement: Import) -> None:
    """Checks that a module is not in a run's folder. Imports nothing, not even its package.

    Folders on PYTHONPATH and those of installed packages are allowed.

    Raises:
      DataNotImported: The module is in a run's folder.
    """
    module_parts = statement.module.split(".")
    search_folders: list[str] | None = None
    for depth in range(1, len(module_parts) + 1):
        name = ".".join(module_parts[:depth])
        spec = None if name in sys.modules else PathFinder.find_spec(name, search_folders)
        if spec is None:
            return
        for module_path in _module_paths(spec):
            run = _run_folder_of(module_path.parent)
            if run is not None and not _is_trusted(module_path, run):
                raise DataNotImported(
                    f"`import {statement.module}` is not followed",
                    where=statement.where,
                    got=f"{module_path} lies in a run's folder, which is data",
                    next_step=f"trust it with --gin-param 'import {statement.module}' or PYTHONPATH={run}",
                )
        if spec.origin is not None:
            return  # a regular package, whose content is code
        search_folders = list(spec.submodule_search_locations or ())


def _module_paths(spec: ModuleSpec) -> list[Path]:
    """Returns the module's file, or the folders of a package."""
    if spec.submodule_search_locations is not None:
        return [Path(folder).absolute() for folder in spec.submodule_search_locations]
    return [Path(spec.origin).absolute()] if spec.origin and spec.has_location else []


def _run_folder_of(folder: Path) -> Path | None:
    """Returns the run's folder that contains a folder, possibly the folder itself; None without a `config.gin`."""
    config = trainer_config_at(str(folder))
    return None if config is None else config.parent


def _is_trusted(module_path: Path, run: Path) -> bool:
    """Returns whether PYTHONPATH names the run's folder or one inside it. A folder around it does not count."""
    module_path = module_path.resolve()
    run = run.resolve()
    python_path = [Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if any(folder.is_relative_to(run) and module_path.is_relative_to(folder) for folder in python_path):
        return True
    return any(module_path.is_relative_to(Path(prefix).resolve()) for prefix in (sys.prefix, sys.base_prefix))
