"""Layers of gin text around a case, in the form in which workers receive them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from lobench.core.subject import Variant

__all__ = ["Layers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """gin text around the case's own file, in order of precedence.

    Attributes:
      trainer_config: Path of the `config.gin` next to the checkpoints. Unknown names in it are skipped.
      own_bindings: Values that a checkpoint carries, bound after `trainer_config`. Unknown names are skipped.
      optimizer: Text of `--optimizer`, or "".
      gin_files: Paths of `--gin-file`.
      gin_params: Texts of `--gin-param`.
      gin_modules: Modules to import before anything is bound.
      import_folders: Further folders searched for modules: the folder of an experiment's file.
      scopes: Scopes that other subjects' text enters. Bindings in them are not refused as unread.
      variant: gin text of the evaluated subject, over all others.

    >>> Layers(gin_params=("Case.num_seeds = 8",)).variant
    Variant(bindings=(), trainer_config=None)
    """

    trainer_config: str | None = None
    own_bindings: str = ""
    optimizer: str = ""
    gin_files: tuple[str, ...] = ()
    gin_params: tuple[str, ...] = ()
    gin_modules: tuple[str, ...] = ()
    import_folders: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    variant: Variant = field(default_factory=Variant)

    def relative_to(self, base: Path) -> Layers:
        """Returns the layers with their files' paths relative to a folder that contains them all."""
        return self._map_paths(lambda path: Path(os.path.abspath(path)).relative_to(base).as_posix())

    def relocated(self, base: Path) -> Layers:
        """Returns the layers with their files' relative paths resolved in a folder, possibly on another machine."""
        return self._map_paths(lambda path: str(base / path))

    def _map_paths(self, move: Callable[[str], str]) -> Layers:
        trainer_config = move(self.trainer_config) if self.trainer_config else None
        gin_files, import_folders = (tuple(map(move, paths)) for paths in (self.gin_files, self.import_folders))
        return replace(self, trainer_config=trainer_config, gin_files=gin_files, import_folders=import_folders)
