"""gin files as one text each, with what they include in its place: what is sent to workers is content, not a path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lobench.engine.config.files_around import INCLUDE
from lobench.engine.config.syntax import parse_file, parse_trainer_config

__all__ = ["gin_text", "trainer_text"]


def gin_text(path: Path) -> str:
    """Returns a gin file's text.

    Raises:
      ConfigError: as `parse_file`.
    """
    return _checked(path, parse_file)


def trainer_text(path: Path) -> str:
    """Returns the text of a `config.gin` beside checkpoints.

    Raises:
      ConfigError: as `parse_trainer_config`: above all, it includes a file of another folder.
    """
    return _checked(path, parse_trainer_config)


def _checked(path: Path, parse: Callable[[Path], object]) -> str:
    parse(path)  # afterwards each file is there, and none includes itself
    return _text(path.resolve())


def _text(path: Path) -> str:
    content = path.read_text(encoding="utf-8")
    return INCLUDE.sub(lambda found: _text((path.parent / found[1]).resolve()), content)
