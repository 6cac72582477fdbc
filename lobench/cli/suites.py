"""Suites by name: what there is where one is asked for."""

from __future__ import annotations

import difflib
from pathlib import Path

import lobench
from lobench.core.errors import UsageError

__all__ = ["default_folder", "require_suite"]


def require_suite(suite: str) -> None:
    """Raises UsageError where there is no such suite, with what lies near it and has nearly its name."""
    path = Path(suite)
    if path.exists():
        return
    try:
        beside = sorted(other.name for other in path.parent.iterdir() if other.is_dir() or other.suffix == ".gin")
    except OSError:
        beside = []
    close = difflib.get_close_matches(path.name, beside, n=1)
    advice = f"did you mean {str(path.parent / close[0])!r}? " if close else ""
    raise UsageError("there is no such suite", where=suite, next_step=f"{advice}`lobench list suites` shows some")


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
