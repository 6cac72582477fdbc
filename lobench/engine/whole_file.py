"""Atomic file writes: readers see the old or the new content, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from lobench.core.errors import UsageError
from lobench.core.wording import convert_errors
from lobench.engine.group_files import open_to_group
from lobench.engine.retries import retried_briefly

__all__ = ["replacing_file", "require_folder", "require_writable", "sync", "write_whole"]


def write_whole(path: Path, content: str | bytes, *, durable: bool = False, sync_name: bool = True) -> None:
    """Writes a file atomically, text as UTF-8. Creates its folder if needed.

    Several processes and threads may write the same file; the last one wins. A symbolic link stays a link. A device or
    a pipe (`/dev/null`, `/dev/stdout`) is written to, not replaced.

    Args:
      path: Path of the file.
      content: New content.
      durable: Whether the file must be complete even after a loss of power: its content is synced before it gets its
        name, and then the name.
      sync_name: Whether a durable file's name is synced too. If not, the caller syncs the folder, once for many files.
    Raises:
      OSError: Writing failed, after retries for 5 s if the error may be transient. Nothing was replaced, and no
        temporary file is left.

    >>> write_whole(Path("notes/first.txt"), "done")
    >>> Path("notes/first.txt").read_text()
    'done'
    """
    data = content.encode() if isinstance(content, str) else content
    retried_briefly(partial(_write, path, data, durable=durable, sync_name=sync_name))


def _write(path: Path, data: bytes, *, durable: bool, sync_name: bool) -> None:
    with replacing_file(path) as temporary_path, temporary_path.open("wb") as file:
        file.write(data)
        if durable and temporary_path != path:
            file.flush()
            os.fsync(file.fileno())
    if durable and sync_name:
        with contextlib.suppress(OSError):  # some file systems cannot sync folders
            sync(path.resolve().parent)


@contextlib.contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yields the path of a temporary file, which replaces a file if the body succeeds. Creates its folder if needed.

    A symbolic link stays a link. A device or a pipe is not replaced: its own path is yielded.

    Raises:
      OSError: The file cannot be created or replaced. After any error in the body too, nothing was replaced, and no
        temporary file is left.

    >>> with replacing_file(Path("notes/first.txt")) as temporary:
    ...     size = temporary.write_text("done")
    >>> Path("notes/first.txt").read_text()
    'done'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if _is_open_stream(path):
        yield path
        return
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    temporary_path = path.with_name(f".tmp-{uuid.uuid4().hex}{path.suffix}")  # some writers choose their format by it
    try:
        temporary_path.touch()
        open_to_group(temporary_path)
        yield temporary_path
        temporary_path.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary_path.unlink(missing_ok=True)
        raise


def require_writable(path: Path) -> None:
    """Checks that `write_whole` could write a file, before its content is computed. Leaves nothing behind.

    Missing folders are not created: the nearest existing folder must accept new files.

    Raises:
      UsageError: The file cannot be written. The message has the reason.
    """
    with convert_errors(OSError, UsageError, "cannot write here", where=path, next_step="name another file or folder"):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if _is_open_stream(path):
            return
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        require_folder(target.parent)


def require_folder(folder: Path) -> None:
    """Checks that files could be written to a folder, which need not exist yet.

    Raises:
      OSError: Files cannot be written there.
    """
    existing_folder = next(
        ancestor for ancestor in (folder.absolute(), *folder.absolute().parents) if ancestor.exists()
    )
    with tempfile.TemporaryFile(dir=existing_folder):
        pass


def _is_open_stream(path: Path) -> bool:
    """Returns whether a path is a device, a pipe, or an open file of this process (`/dev/stdout`, `/dev/fd/3`)."""
    if not path.exists() or path.is_dir():
        return False
    names = (os.path.realpath(path.parent), os.readlink(path)) if path.is_symlink() else ()
    is_open = any(name.startswith("/proc/") for name in names)
    return is_open or not path.is_file()


def sync(path: Path) -> None:
    """Syncs the content of a file, or the names in a folder, to the disk.

    Raises:
      OSError: The path does not exist, or syncing failed.

    >>> sync(Path("quadratic.gin"))
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
