"""Permissions of files in a store that several users of a group share.

If the group may write a store, files in it get group permissions when they are created, whatever the umask. Otherwise
the next user could neither read nor continue the store.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection
from pathlib import Path

__all__ = ["open_to_group", "open_tree_to_group"]

_LEDGER_NAME = "ledger.sqlite"
_MAX_LEVELS = 8  # between a store and its files


def open_to_group(path: Path, *, store: Path | None = None) -> None:
    """Gives the group of a shared store access to a new file or folder. Does nothing outside of such stores.

    Folders between the store and the path get access too, because they may be new.

    Args:
      path: Path in a store, or elsewhere.
      store: Folder of the store, if it may have no ledger yet. None: looked for above the path.

    >>> Path("results/notes.txt").touch()
    >>> open_to_group(Path("results/notes.txt"))
    """
    path = Path(os.path.abspath(path))
    store_folder = _store_containing(path) if store is None else Path(os.path.abspath(store))
    if store_folder is not None and (group := _writing_group(store_folder)) is not None:
        levels = [
            ancestor
            for ancestor in (path, *path.parents)
            if ancestor == store_folder or store_folder in ancestor.parents
        ]
        for ancestor in levels:
            _give_access(str(ancestor), group)


def open_tree_to_group(store: Path, *, excluded: Collection[str] = ()) -> None:
    """Calls `open_to_group` for all files of this user in a store.

    Args:
      store: Folder of the store.
      excluded: Names of folders whose files are left out.
    """
    with contextlib.suppress(OSError):
        group = _writing_group(store)
        if group is None:
            return
        for folder, names, files in os.walk(store):
            names[:] = [name for name in names if name not in excluded]
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                _give_access(path, group)


def _store_containing(path: Path) -> Path | None:
    """Returns the folder of the store that a path belongs to: the nearest folder above it with a ledger."""
    ancestors = path.parents[:_MAX_LEVELS]
    return next((folder for folder in ancestors if os.path.exists(folder / _LEDGER_NAME)), None)


def _writing_group(store: Path) -> int | None:
    """Returns the group that may write a store; None if there is none, or if the umask keeps group permissions anyway.

    A store inside another one (`lobench best` creates such a store) has the group of the outer store.
    """
    try:
        is_nested = os.path.exists(store.parent / _LEDGER_NAME)
        status = os.stat(store.parent if is_nested else store)
    except OSError:
        return None
    return status.st_gid if status.st_mode & stat.S_IWGRP and _umask() & stat.S_IRWXG else None


def _give_access(path: str, group: int) -> None:
    """Gives a group the owner's permissions on a file, if the file has this group and this user owns it."""
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        mode = stat.S_IMODE(status.st_mode)
        group_mode = mode | (mode & stat.S_IRWXU) >> 3
        is_own = (status.st_uid, status.st_gid) == (os.geteuid(), group)
        # A file of several names may be a checkpoint outside the store, which the store keeps by a hard link.
        is_inside = stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)
        if is_own and is_inside and group_mode != mode:
            os.chmod(path, group_mode)


def _umask() -> int:
    """Returns the umask. Reads it from /proc if possible, because otherwise it must be set for a moment."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(errors="replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    umask = os.umask(0o077)  # the umask can only be read by setting it
    os.umask(umask)
    return umask
