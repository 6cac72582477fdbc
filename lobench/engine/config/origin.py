"""Git revision of a suite, on this machine or on the one that sent it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lobench.core.wording import cause, first_of

__all__ = ["LARGEST_PATCH", "ORIGIN", "Revision", "git_state", "revision_of"]

ORIGIN = ".lobench-origin.json"  # beside files that were sent here: what git says of them where they come from
LARGEST_PATCH = 1_000_000  # bytes
_NAMED = 10  # untracked files
_OWN = frozenset({".lobench", "__pycache__"})  # stores, and what Python leaves
_SECONDS = 30.0  # for so long git may take

# What a user's configuration of git may change of a patch, so that `git apply` would not know it.
_PLAIN = (
    *("--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--ignore-submodules=dirty"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A checkout's revision, and what its files have besides.

    Attributes:
      commit: Hash; "" outside of a checkout.
      is_dirty: Whether tracked files differ from it.
      patch: What makes the tracked files of a checkout of `commit`, by `git apply`; None where they do not differ, and
        where it is too large to be kept.
      patch_sha256: Of the patch, also of one that is not kept; "" for a clean checkout.
      note: What the patch lacks, in a line: files that are not tracked, or why it is not kept.
    """

    commit: str = ""
    is_dirty: bool = False
    patch: bytes | None = None
    patch_sha256: str = ""
    note: str = ""


@functools.cache
def git_state(folder: str) -> tuple[str, bool]:
    """Returns the revision of a folder, and whether tracked files differ from it, as they were when first asked for."""
    return _git_state(folder)


def _git_state(folder: str) -> tuple[str, bool]:
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


def revision_of(folder: Path) -> Revision:
    """Returns the revision of the checkout that the folder is in, with what would make its tracked files again.

    Files that are not tracked are named and not kept: among them may be data, results and secrets. What git ignores is
    not named either.
    """
    commit, is_dirty = _git_state(str(folder))
    if not commit:
        return Revision()
    try:
        top = _run_git(str(folder), "rev-parse", "--show-toplevel")
    except (OSError, subprocess.SubprocessError):  # it was sent here, without its repository
        return Revision(commit=commit, is_dirty=is_dirty, note="sent from another machine, without a patch" * is_dirty)
    patch, sha256, lacking = _diff(top) if is_dirty else (None, "", "")
    notes = [note for note in (lacking, _untracked(top)) if note]
    return Revision(commit=commit, is_dirty=is_dirty, patch=patch, patch_sha256=sha256, note="; ".join(notes))


def _diff(top: str) -> tuple[bytes | None, str, str]:
    """Returns the patch, None where there is none, its hash, and why there is none; it need not fit into memory."""
    digest, kept, size = hashlib.sha256(), list[bytes](), 0
    command = ["git", "-C", top, "diff", *_PLAIN, "HEAD", "--"]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            while chunk := process.stdout.read(1 << 20):
                digest.update(chunk)
                size += len(chunk)
                if size < LARGEST_PATCH:
                    kept.append(chunk)
    except OSError as error:
        return None, "", f"no patch: {cause(error)}"
    if process.returncode:
        return None, "", f"no patch: `git diff HEAD` ended with status {process.returncode}"
    if not size:
        return None, "", "no patch: what differs is inside of a submodule"
    if size >= LARGEST_PATCH:
        return (
            None,
            digest.hexdigest(),
            f"the patch has {size:,} bytes and is not kept: less than {LARGEST_PATCH:,} are",
        )
    return b"".join(kept), digest.hexdigest(), ""


def _untracked(top: str) -> str:
    try:
        listed = _run_git(
            top, "ls-files", "-z", "--others", "--exclude-standard", "--directory", "--no-empty-directory"
        )
    except (OSError, subprocess.SubprocessError):
        return "files that are not tracked could not be listed"
    names = [name for name in listed.split("\0") if name and not _OWN.intersection(Path(name).parts)]
    if not names:
        return ""
    return f"not tracked, and in no patch: {first_of([repr(name) for name in names], _NAMED)}"


def _run_git(folder: str, *arguments: str) -> str:
    command = ["git", "-C", folder, *arguments]
    done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=True)
    return os.fsdecode(done.stdout).strip("\n")
