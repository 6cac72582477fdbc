"""The controller's own copies of checkpoints, so that trainers may delete theirs while trials still need them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import threading
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NoReturn

from lobench import CheckpointError, StoreError
from lobench.extend import cause, checkpoint_sha256, holds_theta, sync
from lobench_pbt.trial import Artifact, Refusal, Refused

__all__ = ["CheckpointCopies", "bytes_sha256"]

_PATH_ERRORS = (errno.ENAMETOOLONG, errno.ELOOP)  # errors for which retries are useless
_MAX_BYTES = 64 << 30  # limit for one artifact, because a sparse file may have any size
_MAX_FILES = 10_000
_CHUNK_BYTES = 8 << 20


def bytes_sha256(path: Path) -> str:
    """Returns the sha256 (hex) of a file, or of the names and bytes of all files below a folder."""
    digest = hashlib.sha256()
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    for file in files:
        if path.is_dir():
            digest.update(f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as content:
            hashlib.file_digest(content, lambda: digest)
    return digest.hexdigest()


def _theta_sha256(path: Path, *, expected: str) -> str:
    """Returns the SHA-256 (hex) of the theta in a file.

    If `expected` is a digest of the same theta by an older version, it is returned.
    """
    return expected if holds_theta(path, expected) else checkpoint_sha256(path)


class CheckpointCopies:
    """Folder of checkpoint copies, with a subfolder for each accepted completion."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._root.mkdir(parents=True, exist_ok=True)
        self._closed_event = threading.Event()

    def close(self) -> None:
        """Cancels the copies in progress; their `copy_in` raises."""
        self._closed_event.set()

    def copy_in(self, name: str, checkpoint: Artifact, state: Artifact | None) -> tuple[Artifact, Artifact | None]:
        """Copies the checkpoint and state of a trial, and checks the copy.

        Raises:
          Refused: An artifact is missing, or does not match its digest.
          StoreError: The copy cannot be written.
        """
        folder = self._root / f"{name}-{uuid.uuid4().hex[:12]}"
        try:
            folder.mkdir()
            kept_checkpoint = self._copy(checkpoint, folder / "checkpoint", is_theta=True)
            kept_state = self._copy(state, folder / "state", is_theta=False) if state is not None else None
            sync(folder)
            sync(self._root)
            return kept_checkpoint, kept_state
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise StoreError("cannot keep a checkpoint", where=str(folder), got=cause(error)) from error
            raise

    def _copy(self, artifact: Artifact, folder: Path, *, is_theta: bool) -> Artifact:
        source = Path(artifact.uri)
        copy = folder / source.name
        folder.mkdir()
        try:
            if not source.name or self._root.resolve().is_relative_to(os.path.realpath(source)):
                raise Refused(Refusal.INVALID, "a folder around the store is not a checkpoint", where=artifact.uri)
            _Copy(artifact.uri, self._closed_event).copy(source, copy)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Refused(Refusal.INVALID, "no such checkpoint", where=artifact.uri) from error
        except PermissionError as error:
            if error.filename is None or Path(error.filename).is_relative_to(folder):
                raise  # an error of the store, not of the trainer
            raise Refused(Refusal.INVALID, "the controller may not read the checkpoint", where=artifact.uri) from error
        except ValueError as error:  # the path contains a NUL
            raise Refused(Refusal.INVALID, "no file has such a path", where=repr(artifact.uri)) from error
        except OSError as error:
            if error.errno not in _PATH_ERRORS:
                raise
            raise Refused(
                Refusal.INVALID, "no file has such a path", where=artifact.uri, got=os.strerror(error.errno)
            ) from error
        try:
            digest = _theta_sha256(copy, expected=artifact.sha256) if is_theta else bytes_sha256(copy)
        except CheckpointError as error:
            raise Refused(Refusal.INVALID, error.what, where=artifact.uri, got=error.got) from error
        if digest != artifact.sha256:
            raise Refused(
                Refusal.INVALID,
                "the checkpoint changed since it was completed",
                where=artifact.uri,
                got=digest[:12],
                expected=artifact.sha256[:12],
            )
        for file in [copy, *copy.rglob("*")] if copy.is_dir() else [copy]:
            sync(file)
        sync(folder)
        return Artifact(uri=str(copy), sha256=digest)

    def discard(self, artifact: Artifact) -> None:
        """Removes a completion's copies."""
        shutil.rmtree(self._folder_of(artifact), ignore_errors=True)

    def remove_all_but(self, artifacts: Collection[Artifact]) -> None:
        """Removes the remains of a killed controller.

        Raises:
          StoreError: The store was moved: artifacts were recorded in another folder, and trials would lose their state.
        """
        needed_folders = {self._folder_of(artifact) for artifact in artifacts}
        for artifact in artifacts:
            recorded_root = Path(artifact.uri).parents[2]
            if recorded_root != self._root and not (recorded_root.exists() and recorded_root.samefile(self._root)):
                raise StoreError(
                    "the store was moved, and its trials refer to the old paths of their checkpoints",
                    where=str(self._root.parent),
                    next_step=f"move it back to {recorded_root.parent}, or make that a link to it",
                )
        for folder in self._root.iterdir():
            if folder not in needed_folders:
                shutil.rmtree(folder, ignore_errors=True)

    def _folder_of(self, artifact: Artifact) -> Path:
        return self._root / Path(artifact.uri).parents[1].name  # the store may have another path now, such as a link


class _Copy:
    """Copy of one artifact into the store: regular files and folders, whose size is known when each is opened.

    Devices and pipes are refused, because they have no end and would block one of the few threads.
    """

    def __init__(self, where: str, closed: threading.Event) -> None:
        self._where, self._closed_event = where, closed
        self._num_bytes = self._num_files = 0

    def copy(self, source: Path, copy: Path) -> None:
        files = list(self._files_of(source, copy))  # all checks come before anything is written
        for path, target in files:
            if path.is_dir():
                target.mkdir()
            else:
                self._copy_file(path, target)

    def _files_of(self, source: Path, copy: Path) -> Iterator[tuple[Path, Path]]:
        """Yields the files of an artifact with their paths in the copy, each folder before its content."""
        status = source.stat()
        is_folder = stat.S_ISDIR(status.st_mode)
        if not is_folder and not stat.S_ISREG(status.st_mode):
            self._refuse(f"{source} is neither")
        num_bytes = 0 if is_folder else status.st_size
        self._count_and_check(num_files=1, num_bytes=num_bytes)
        yield source, copy
        with os.scandir(source) if is_folder else contextlib.nullcontext(()) as entries:
            for entry in entries:
                if entry.is_symlink() and entry.is_dir():
                    self._refuse(f"{entry.path} is a link to a folder")
                yield from self._files_of(Path(entry.path), copy / entry.name)

    def _copy_file(self, source: Path, copy: Path) -> None:
        # The file may have been replaced, and opening a pipe must not block.
        with open(os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file, copy.open("xb") as target:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                self._refuse(f"{source} is neither")
            bytes_left = status.st_size
            while bytes_left and (chunk := file.read(min(bytes_left, _CHUNK_BYTES))):
                target.write(chunk)
                bytes_left -= len(chunk)
                self._count_and_check()

    def _count_and_check(self, *, num_files: int = 0, num_bytes: int = 0) -> None:
        if self._closed_event.is_set():
            raise StoreError("the controller ends", where=self._where, next_step="complete the trial again")
        self._num_files += num_files
        self._num_bytes += num_bytes
        if self._num_files > _MAX_FILES or self._num_bytes > _MAX_BYTES:
            self._refuse(f"{self._num_files:,} files and folders, {self._num_bytes:,} bytes and more")

    def _refuse(self, got: str) -> NoReturn:
        raise Refused(
            Refusal.INVALID,
            "the controller cannot copy it",
            where=self._where,
            got=got,
            expected=f"a file or a folder of at most {_MAX_FILES:,} files and {_MAX_BYTES >> 30} GiB",
        )
