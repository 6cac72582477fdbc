"""Atomic file writes: a file is there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import uuid
from functools import partial
from pathlib import Path

from lobench.core.errors import UsageError
from lobench.core.wording import one_line_of
from lobench.engine.retries import retried

__all__ = ["require_folder", "require_writable", "sync", "write_whole"]

_PATIENCE_SECONDS = 5.0  # for a disk that fails for a moment


def write_whole(path: Path, content: str | bytes, *, durable: bool = False, sync_name: bool = True) -> None:
    """Writes a file, text as UTF-8, and makes its folder: who reads it meanwhile has what was there or the new content.

    Several processes and threads may write one file: the last one stays. A link stays a link. A device or a pipe
    (`/dev/null`, `/dev/stdout`) is written to, and not replaced.

    Args:
      durable: What is under the name when the machine loses power is whole too: the content is on the disk before it
        gets its name, and so is the name.
      sync_name: Whether a durable file's name is on the disk when this returns. Otherwise the caller syncs the folder,
        once for many files.
    Raises:
      OSError: nothing was replaced, and nothing is left beside the file. An error that may pass, as of a network disk,
        is raised after 5 s of attempts.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if _is_written_to(path):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    data = content.encode() if isinstance(content, str) else content
    write = partial(_write, path, data, durable=durable, sync_name=sync_name)
    retried(write, may_forbid=False, most_seconds=_PATIENCE_SECONDS)


def _write(path: Path, data: bytes, *, durable: bool, sync_name: bool) -> None:
    temporary = path.with_name(f".tmp-{uuid.uuid4().hex}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable and sync_name:
            with contextlib.suppress(OSError):  # some file systems sync no folders
                sync(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def require_writable(path: Path) -> None:
    """Checks that `write_whole` could write a file now, before the work that its content takes; leaves nothing behind.

    Folders that are missing are not made: the nearest one that exists must take new names.

    Raises:
      LobenchError: it could not, with the reason.
    """
    with one_line_of(OSError, UsageError, "cannot write here", where=path, next_step="name another file or folder"):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if _is_written_to(path):
            return
        place = Path(os.path.realpath(path)) if path.is_symlink() else path
        require_folder(place.parent)


def require_folder(folder: Path) -> None:
    """Checks that files could be written into a folder, which need not exist yet.

    Raises:
      OSError: they could not.
    """
    there = next(above for above in (folder.absolute(), *folder.absolute().parents) if above.exists())
    with tempfile.TemporaryFile(dir=there):
        pass


def _is_written_to(path: Path) -> bool:
    """Says whether a path is a device, a pipe, or what this process has open (`/dev/stdout`, `/dev/fd/3`)."""
    if not path.exists() or path.is_dir():
        return False
    names = (os.path.realpath(path.parent), os.readlink(path)) if path.is_symlink() else ()
    is_open = any(name.startswith("/proc/") for name in names)
    return is_open or not path.is_file()


def sync(path: Path) -> None:
    """Returns when the content of a file, or the names of a folder, are on the disk.

    Raises:
      OSError: it is not there, or the disk does not take it.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
