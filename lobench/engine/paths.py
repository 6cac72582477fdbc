"""Paths among the texts that people give, which may also be names in a store, or optimizers."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Literal

__all__ = ["path_exists"]


def path_exists(text: str | Path, *, kind: Literal["any", "file", "folder"] = "any") -> bool:
    """Returns whether something lies at a path, by a text that may be an optimizer with many settings.

    pathlib raises an error for a text that is too long to be a path.

    Args:
      kind: "file" and "folder" count only these.
    Raises:
      OSError: This user may not look there.
    """
    path = Path(text)
    look = {"any": path.exists, "file": path.is_file, "folder": path.is_dir}[kind]
    try:
        return look()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False
