"""The controller's own copies of checkpoints: a trainer may delete its own, a live trial finds what it needs."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Collection
from pathlib import Path

from lobench import CheckpointError, StoreError
from lobench.extend import cause, checkpoint_sha256, sync
from lobench_pbt.trial import Artifact, Refusal, Refused

__all__ = ["Vault", "bytes_sha256"]

_NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP)  # waiting mends none of them


def bytes_sha256(path: Path) -> str:
    """Returns the sha256 (hex) of a file, or of the names and bytes of all files below a folder."""
    digest = hashlib.sha256()
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    for file in files:
        if path.is_dir():
            digest.update(f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as opened:
            hashlib.file_digest(opened, lambda: digest)
    return digest.hexdigest()


class Vault:
    """A folder with a folder for each completion that was accepted."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._root.mkdir(parents=True, exist_ok=True)

    def take(self, name: str, checkpoint: Artifact, state: Artifact | None) -> tuple[Artifact, Artifact | None]:
        """Copies what a trial leaves, and checks the copy.

        Raises:
          Refused: missing, or not what its digest says. StoreError: the copy cannot be written.
        """
        folder = self._root / f"{name}-{uuid.uuid4().hex[:12]}"
        try:
            folder.mkdir()
            kept = self._copy(checkpoint, folder / "checkpoint", is_theta=True)
            kept_state = self._copy(state, folder / "state", is_theta=False) if state is not None else None
            sync(folder)
            sync(self._root)
            return kept, kept_state
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
            if source.is_dir():
                shutil.copytree(source, copy)
            else:
                shutil.copyfile(source, copy)
        except shutil.Error as error:  # of a folder: what could not be copied, each with its source
            if all(os.access(entry[0], os.R_OK) for entry in error.args[0]):
                raise  # the store's, not the trainer's: a full disk
            raise Refused(Refusal.INVALID, "there is no such checkpoint", where=artifact.uri) from error
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Refused(Refusal.INVALID, "there is no such checkpoint", where=artifact.uri) from error
        except PermissionError as error:
            if os.access(source, os.R_OK):
                raise  # the store's, not the trainer's
            raise Refused(Refusal.INVALID, "the controller may not read the checkpoint", where=artifact.uri) from error
        except OSError as error:
            if error.errno not in _NO_PATH:
                raise
            raise Refused(
                Refusal.INVALID, "no file has such a path", where=artifact.uri, got=os.strerror(error.errno)
            ) from error
        try:
            found = checkpoint_sha256(copy) if is_theta else bytes_sha256(copy)
        except CheckpointError as error:
            raise Refused(Refusal.INVALID, error.what, where=artifact.uri, got=error.got) from error
        if found != artifact.sha256:
            raise Refused(
                Refusal.INVALID,
                "the checkpoint changed since it was completed",
                where=artifact.uri,
                got=found[:12],
                expected=artifact.sha256[:12],
            )
        for file in [copy, *copy.rglob("*")] if copy.is_dir() else [copy]:
            sync(file)
        sync(folder)
        return Artifact(uri=str(copy), sha256=found)

    def discard(self, artifact: Artifact) -> None:
        """Removes a completion's copies."""
        shutil.rmtree(self._folder(artifact), ignore_errors=True)

    def sweep(self, kept: Collection[Artifact]) -> None:
        """Removes what a killed controller left behind.

        Raises:
          StoreError: what is kept lies elsewhere: the store was moved, and trials would start from nothing.
        """
        needed = {self._folder(artifact) for artifact in kept}
        for artifact in kept:
            before = Path(artifact.uri).parents[2]
            if before != self._root and not (before.exists() and before.samefile(self._root)):
                raise StoreError(
                    "the store was moved, and its trials know their checkpoints by where it was",
                    where=str(self._root.parent),
                    next_step=f"move it back to {before.parent}, or make that a link to it",
                )
        for folder in self._root.iterdir():
            if folder not in needed:
                shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, artifact: Artifact) -> Path:
        return self._root / Path(artifact.uri).parents[1].name  # the store may be known by another path now, a link's
