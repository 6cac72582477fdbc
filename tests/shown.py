"""Texts that people see, as tests look for them: one file a command, in `snapshots/`."""

from __future__ import annotations

import tomllib
from pathlib import Path

_FOLDER = Path(__file__).with_name("snapshots")


def texts_of(command: str) -> dict[str, str]:
    """Return the texts of a command, or of a package that no command names, by the names that tests use.

    >>> texts_of("keep")["another-lobench-keep-decides"]
    'another `lobench keep` decides in this store'
    """
    return tomllib.loads((_FOLDER / f"{command}.toml").read_text(encoding="utf-8"))
