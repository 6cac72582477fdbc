"""Where suites lie that nobody named."""

from __future__ import annotations

from pathlib import Path

import lobench
from lobench.core.errors import UsageError

__all__ = ["default_folder"]


def default_folder() -> Path:
    """Returns `suites` here, or that of the checkout which lobench is installed from.

    Raises:
      UsageError: there is neither.
    """
    shipped = Path(lobench.__file__).resolve().parents[1] / "suites"
    for folder in (Path("suites"), shipped):
        if folder.is_dir():
            return folder
    raise UsageError(
        "there is no folder of suites here, and lobench is not installed from a checkout, which has some",
        where=str(Path.cwd()),
        next_step="name the folder of yours: lobench list suites --folder FOLDER",
    )
