"""Git revision of a suite, on this machine or on the machine that sent it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lobench.core.wording import cause, shortened_list

__all__ = ["LARGEST_PATCH", "ORIGIN_FILE", "Revision", "git_environment", "git_state", "revision_of"]

ORIGIN_FILE = ".lobench-origin.json"  # next to files sent from another machine: their git state there
LARGEST_PATCH = 1_000_000  # bytes
_MAX_NAMED_FILES = 10  # most untracked files named in the note
_IGNORED_FOLDERS = frozenset({".lobench", "__pycache__"})  # stores, and caches of Python
_GIT_SECONDS = 30.0  # time limit of git

_REPOSITORY_VARIABLES = frozenset(
    ("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")
)
_NAME_LINE = re.compile(r"--- |\+\+\+ |rename (from|to) |copy (from|to) ")  # lines of a patch that name a file
# Overrides settings of a user's git configuration with which `git apply` would not accept the patch.
_PLAIN_OPTIONS = (
    *("--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--ignore-submodules=dirty"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """Revision of a checkout, and its uncommitted changes.

    Attributes:
      commit: Hash of the commit; "" outside a checkout.
      is_dirty: Whether tracked files differ from the commit.
      patch: Changes of tracked files, for `git apply`. None without changes, or if they are too large to keep.
      patch_sha256: Hash of the patch, even if it is not kept; "" for a clean checkout.
      note: One line on parts missing from the patch: untracked files, or the reason why it is not kept.
    """

    commit: str = ""
    is_dirty: bool = False
    patch: bytes | None = None
    patch_sha256: str = ""
    note: str = ""


@functools.cache
def git_state(folder: str) -> tuple[str, bool]:
    """Returns the revision of a folder, and whether tracked files differ from it.

    Cached: a process always gets the same answer, even if the folder is edited while it runs.
    """
    return _git_state(folder)


def _git_state(folder: str) -> tuple[str, bool]:
    """Returns the revision of the checkout that contains the folder, and whether tracked files differ from it."""
    for ancestor in (Path(folder), *Path(folder).parents):
        if (ancestor / ORIGIN_FILE).is_file():
            try:
                origin = json.loads((ancestor / ORIGIN_FILE).read_text())
                return str(origin["git_revision"]), bool(origin["git_dirty"])
            except (ValueError, TypeError, KeyError):
                return "", False
    try:
        revision = _run_git(folder, "rev-parse", "HEAD")
        return revision, bool(_run_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return "", False


def revision_of(folder: Path) -> Revision:
    """Returns the revision of the checkout that contains a folder, with the changes of its tracked files.

    Untracked files are named and not kept, since they may be data, results or secrets. Ignored files are not named.
    """
    commit, is_dirty = _git_state(str(folder))
    if not commit:
        return Revision()
    try:
        checkout_folder = _run_git(str(folder), "rev-parse", "--show-toplevel")
    except (OSError, subprocess.SubprocessError):  # files sent from another machine have no repository
        return Revision(commit=commit, is_dirty=is_dirty, note="sent from another machine, without a patch" * is_dirty)
    patch, sha256, missing_reason = _patch_and_hash(checkout_folder) if is_dirty else (None, "", "")
    notes = [note for note in (missing_reason, _untracked_note(checkout_folder)) if note]
    return Revision(commit=commit, is_dirty=is_dirty, patch=patch, patch_sha256=sha256, note="; ".join(notes))


def _patch_and_hash(checkout_folder: str) -> tuple[bytes | None, str, str]:
    """Returns the patch or None, its hash, and the reason for a missing patch. The patch need not fit into memory."""
    digest = hashlib.sha256()
    chunks = list[bytes]()
    size = 0
    command = ["git", "-C", checkout_folder, "diff", *_PLAIN_OPTIONS, "HEAD", "--"]
    try:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=git_environment()
        ) as process:
            assert process.stdout is not None
            while chunk := process.stdout.read(1 << 20):
                digest.update(chunk)
                size += len(chunk)
                if size < LARGEST_PATCH:
                    chunks.append(chunk)
    except OSError as error:
        return None, "", f"no patch: {cause(error)}"
    if process.returncode:
        return None, "", f"no patch: `git diff HEAD` ended with status {process.returncode}"
    if not size:
        return None, "", "no patch: the changes are inside a submodule"
    if size >= LARGEST_PATCH:
        return (
            None,
            digest.hexdigest(),
            f"the patch has {size:,} bytes and is not kept: less than {LARGEST_PATCH:,} are",
        )
    return b"".join(chunks), digest.hexdigest(), ""


def files_of_patch(patch: bytes) -> list[str]:
    """Returns the names of the files that a patch of `git diff` changes, adds or removes, without duplicates.

    >>> files_of_patch(b"diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n")
    ['train.py']
    """
    names: dict[str, None] = {}
    header, is_named = "", True
    for line in patch.split(b"\n"):
        text = os.fsdecode(line)
        if text.startswith("diff --git "):
            if not is_named:
                names[_name_in_header(header)] = None
            header = text.removeprefix("diff --git ")
            is_named = False
        elif header and (match := _NAME_LINE.match(text)):
            name = _without_quotes(text[match.end() :])
            if name != "/dev/null":
                names[name[2:] if text[:4] in ("--- ", "+++ ") else name] = None
                is_named = True
            if text.startswith("+++ "):
                header = ""  # the rest is content
    if not is_named:
        names[_name_in_header(header)] = None
    return list(names)


def _name_in_header(names: str) -> str:
    """Returns the name in `a/NAME b/NAME`. Only these headers name binary files and files with changed modes."""
    if names.startswith('"'):
        return _without_quotes(names[: names.index('"', 1) + 1])[2:]
    first_half = names[: len(names) // 2]
    return first_half[2:] if names == f"{first_half} b/{first_half[2:]}" else names


def _without_quotes(name: str) -> str:
    """Returns a name without git's quotes and escapes for unusual characters."""
    name = name.rstrip("\t")
    if not (name.startswith('"') and name.endswith('"')):
        return name
    unescaped = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), os.fsencode(name[1:-1]))
    return os.fsdecode(unescaped.replace(b'\\"', b'"').replace(b"\\\\", b"\\"))


def _untracked_note(checkout_folder: str) -> str:
    try:
        file_list = _run_git(
            checkout_folder, "ls-files", "-z", "--others", "--exclude-standard", "--directory", "--no-empty-directory"
        )
    except (OSError, subprocess.SubprocessError):
        return "files that are not tracked could not be listed"
    names = [name for name in file_list.split("\0") if name and not _IGNORED_FOLDERS.intersection(Path(name).parts)]
    if not names:
        return ""
    return f"not tracked, and in no patch: {shortened_list([repr(name) for name in names], _MAX_NAMED_FILES)}"


def _run_git(folder: str, *arguments: str) -> str:
    command = ["git", "-C", folder, *arguments]
    process = subprocess.run(command, capture_output=True, timeout=_GIT_SECONDS, check=True, env=git_environment())
    return os.fsdecode(process.stdout).strip("\n")


def git_environment() -> dict[str, str]:
    """Returns an environment in which git finds the repository by the folder alone.

    In a hook, git names another repository in variables such as GIT_DIR.
    """
    return {name: value for name, value in os.environ.items() if name not in _REPOSITORY_VARIABLES}
