"""Which revision of its repository a suite is of, here or on the machine that it was sent from."""

from __future__ import annotations

import functools
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ORIGIN", "Revision", "git_state"]

ORIGIN = ".lobench-origin.json"  # beside files that were sent here: what git says of them where they come from


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A checkout's revision, and what its files have besides.

    Attributes:
      commit: Hash; "" outside of a checkout.
      is_dirty: Whether tracked files differ from it.
      patch: What `git apply` makes the tracked files of with; None for a clean checkout, and for a patch too large.
      patch_sha256: Of the patch, of one that is too large to be kept too.
      note: What the patch lacks, in a line: files that are not tracked, or why there is none.
    """

    commit: str = ""
    is_dirty: bool = False
    patch: bytes | None = None
    patch_sha256: str = ""
    note: str = ""


@functools.cache
def git_state(folder: str) -> tuple[str, bool]:
    """Returns the revision of the checkout that the folder is in, and whether tracked files differ from it."""
    for above in (Path(folder), *Path(folder).parents):
        if (above / ORIGIN).is_file():
            try:
                origin = json.loads((above / ORIGIN).read_text())
                return str(origin["git_revision"]), bool(origin["git_dirty"])
            except (ValueError, TypeError, KeyError):
                return "", False
    try:
        revision = _run_git(folder, "rev-parse", "HEAD")
        return revision, bool(_run_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return "", False


def _run_git(folder: str, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
