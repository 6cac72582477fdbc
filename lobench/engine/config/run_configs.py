"""Search for the `config.gin` files of a run. Every command that binds a checkpoint's configuration uses it.

A trainer writes the file next to its checkpoints. A folder of several runs may have a `config.gin` with common
bindings, which the `config.gin` of each run overrides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lobench.engine.retries import retried

__all__ = ["CONFIG_NAME", "config_chain", "is_population_folder", "trainer_config_at"]

CONFIG_NAME = "config.gin"
_POPULATION_FOLDER = re.compile(r"(generation|trial|attempt)_\d+")
_PROJECT_FILES = (".git", "pyproject.toml")


def trainer_config_at(uri: str) -> Path | None:
    """Returns the innermost `config.gin` of a run's folder or a checkpoint; None without such a file.

    It is searched in the folder, next to it, next to the checkpoint and, in a population, in the folders above.
    """
    if not uri or "://" in uri:
        return None
    path = Path(uri).absolute()
    folders = [path] if retried(path.is_dir) else []
    folders.append(path.parent)
    while is_population_folder(folders[-1]):
        folders.append(folders[-1].parent)
    return next((folder / CONFIG_NAME for folder in folders if retried((folder / CONFIG_NAME).is_file)), None)


def config_chain(config: Path) -> list[Path]:
    """Returns a `config.gin` and the `config.gin` files of outer folders, outermost first. Later files win.

    The chain ends at a folder without the file that is not a population's, and at a folder that holds a project.
    """
    return [*_configs_around(config.absolute().parent)][::-1] + [config]


def _configs_around(folder: Path) -> Iterator[Path]:
    while folder != folder.parent:
        folder = folder.parent
        if any((folder / project_file).exists() for project_file in _PROJECT_FILES):
            return
        if retried((folder / CONFIG_NAME).is_file):
            yield folder / CONFIG_NAME
        elif not is_population_folder(folder):
            return


def is_population_folder(folder: Path) -> bool:
    """Returns whether a folder has a name used in populations: `generation_2`, `trial_7` or `attempt_0`."""
    return _POPULATION_FOLDER.fullmatch(folder.name) is not None
