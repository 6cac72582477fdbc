"""Spool: one copy of each theta by content hash, independent of the trainer's files."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lobench.core.checkpoint import (
    Checkpoint,
    SeenCheckpoint,
    leaves_sha256,
    theta_digests,
    theta_sha256,
    with_float32_leaves,
)
from lobench.core.errors import CheckpointError, CheckpointGone, PickleRefused, StoreError
from lobench.core.wording import cause, convert_errors
from lobench.engine.checkpoints.files import exists, files_below_folder, is_folder, size_and_mtime
from lobench.engine.checkpoints.places import checkpoint_path
from lobench.engine.checkpoints.readers import checkpoint_of_content, load_readers, reader_name_for
from lobench.engine.checkpoints.whole_files import files_of_checkpoint, identity_of_files
from lobench.engine.retries import is_transient, retried, retried_briefly
from lobench.engine.store.database import unusable_store
from lobench.engine.whole_file import sync, write_whole
from lobench.hookspecs import CheckpointReader
from lobench.plugins import load_plugins

if TYPE_CHECKING:
    from etils import epath

__all__ = ["Spool", "checkpoint_sha256", "dump_theta", "files_fingerprint", "holds_theta", "load_theta"]

_ATTEMPTS = 3


class Spool:
    """Folder of thetas named by their SHA-256.

    Args:
      root: Path of the folder. Created if it does not exist.
      log: Called with a line for each file that cannot be removed.
    """

    def __init__(self, root: Path, log: Callable[[str], None] = lambda line: None) -> None:
        self._log, self._logged_uris = log, set[str]()
        self._root, self._root_prefix = root, os.path.join(root, "")
        self._has_unsynced_names = True  # a killed chief may have left unsynced names
        with self._store_errors():
            retried_briefly(partial(root.mkdir, parents=True, exist_ok=True))

    def copy_path(self, sha256: str) -> Path:
        return Path(self.copy_location(sha256))

    def copy_location(self, sha256: str) -> str:
        """Returns the path of a theta's copy as text.

        Each lease needs it several times, and creating a `Path` is slow.
        """
        return f"{self._root_prefix}{sha256}.npz"

    def has_copy(self, sha256: str) -> bool:
        """Returns whether there is a copy of a theta; True if unknown, because the disk fails at the moment."""
        return _may_exist(self.copy_location(sha256))

    def _entry_path(self, sha256: str) -> str:
        """Returns the path of the file or folder created with a theta's copy; `copy_identity` reads its mtime."""
        return self.copy_location(sha256)

    def copy_identity(self, sha256: str) -> tuple[str, int]:
        """Returns a theta's hash and the number of its copy. 0: no copy. A new copy has a new number."""
        try:
            return sha256, os.stat(self._entry_path(sha256)).st_mtime_ns
        except OSError:
            return sha256, 0

    def add(
        self,
        seen_checkpoint: SeenCheckpoint,
        reader: CheckpointReader,
        *,
        is_known: Callable[[str], bool] = lambda sha256: False,
        arrival: Callable[[str], int] = lambda sha256: 0,
    ) -> Checkpoint:
        """Copies a checkpoint, stores the evaluated part of the copy under its hash, and removes the rest.

        Args:
          seen_checkpoint: Checkpoint to copy.
          reader: Reader of its format.
          is_known: Returns whether a hash was recorded before. If only the hash that an older version computed is
            known, the checkpoint keeps that hash and thereby its results.
          arrival: Returns the outer step of a theta by its hash, for files without a step in their name and content.
        Raises:
          CheckpointGone: The checkpoint was deleted before or while it was copied.
          CheckpointError: It cannot be read, or it changed during each attempt to copy it.
          StoreError: The spool cannot be written.
        """
        source = checkpoint_path(seen_checkpoint.uri)
        for num_attempts_left in reversed(range(_ATTEMPTS)):
            folder = self._root / f"tmp-{uuid.uuid4().hex}"
            copy = folder / source.name
            try:
                stamp = files_fingerprint(source)
                self._copy(source, copy)
                if files_fingerprint(source) != stamp:
                    continue
                return self._store_copy(copy, seen_checkpoint, reader, is_known, arrival)
            except (CheckpointError, StoreError) as error:
                if num_attempts_left and not os.path.exists(copy):  # also False while the disk fails
                    continue  # the copy was removed together with the spool
                # The reader names the copy; the message should name the original.
                message = str(error).replace(str(copy), seen_checkpoint.uri)
                raise type(error)(message) from error
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        raise CheckpointError(
            "it changed each time that it was copied", where=seen_checkpoint.uri, got=f"{_ATTEMPTS} attempts"
        )

    def _copy(self, source: epath.Path, copy: Path) -> None:
        with self._store_errors():
            copy.parent.mkdir(parents=True)
        try:
            self._copy_files(source, copy)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CheckpointGone("the checkpoint was deleted while it was copied", where=str(source)) from error
        except OSError as error:
            raise _copy_error(source, error) from error

    def _copy_files(self, source: epath.Path, copy: Path) -> None:
        if is_folder(source):
            copy.mkdir()
        for file in list(files_of_checkpoint(source)):
            data = file.read_bytes()
            with self._store_errors():
                target = self._target_path(file, source, copy)
                target.write_bytes(data)

    def _target_path(self, file: epath.Path, source: epath.Path, copy: Path) -> Path:
        """Creates the folder for the copy of a checkpoint's file, and returns the path of the copy."""
        target = copy if file == source else copy / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _store_copy(
        self,
        copy: Path,
        seen_checkpoint: SeenCheckpoint,
        reader: CheckpointReader,
        is_known: Callable[[str], bool],
        arrival: Callable[[str], int],
    ) -> Checkpoint:
        """Reads a copy, and stores its theta."""
        content = reader.read(checkpoint_path(str(copy)))
        leaves = with_float32_leaves(content.leaves)  # npz cannot store bfloat16
        generation = seen_checkpoint.generation if content.generation is None else content.generation
        content = dataclasses.replace(content, leaves=leaves, generation=generation)
        checkpoint = dataclasses.replace(
            checkpoint_of_content(content, seen_checkpoint.uri, seen_checkpoint.index), run=seen_checkpoint.run
        )
        former_sha256 = leaves_sha256(content.leaves)
        if former_sha256 != checkpoint.sha256 and is_known(former_sha256) and not is_known(checkpoint.sha256):
            checkpoint = dataclasses.replace(checkpoint, sha256=former_sha256)
        if content.outer_step is None and seen_checkpoint.index is None:
            checkpoint = dataclasses.replace(checkpoint, outer_step=arrival(checkpoint.sha256))
        path = self.copy_path(checkpoint.sha256)
        if not path.exists():
            with self._store_errors():
                write_whole(path, dump_theta(content.leaves), durable=True, sync_name=False)
            self._has_unsynced_names = True
        return checkpoint

    def sync(self) -> None:
        """Syncs the names of new thetas to the disk. Their contents are synced already."""
        if self._has_unsynced_names:
            with contextlib.suppress(OSError):  # some file systems cannot sync folders
                sync(self._root)
            self._has_unsynced_names = False

    def remove_copy(self, sha256: str) -> None:
        with self._logging_removal_errors():
            self.copy_path(sha256).unlink(missing_ok=True)

    def remove_leftovers(self, keep: Collection[str]) -> None:
        """Removes leftovers of a killed chief, and thetas that are not needed.

        Other files stay: a file system may have folders of its own (`lost+found`, `.snapshot`).

        Args:
          keep: Hashes of the needed thetas.
        """
        with self._logging_removal_errors():
            for entry in list(self._root.iterdir()):
                with self._logging_removal_errors():
                    if entry.name.startswith("tmp-") and entry.is_dir():
                        shutil.rmtree(entry)
                    elif entry.name.startswith(("tmp-", ".tmp-")) or (
                        entry.suffix == ".npz" and entry.stem not in keep and not entry.is_dir()
                    ):
                        entry.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _logging_removal_errors(self) -> Iterator[None]:
        """Logs errors instead of raising them. A file that cannot be removed is removed at a later start."""
        try:
            yield
        except OSError as error:
            line = f"cannot clear the spool {self._root}: {cause(error)}"
            if line not in self._logged_uris:
                self._logged_uris.add(line)
                self._log(line)

    def _store_errors(self) -> contextlib.AbstractContextManager[None]:
        return unusable_store(self._root, "cannot write the spool")


def _copy_error(path: epath.Path, error: OSError) -> CheckpointError:
    return CheckpointError("the checkpoint cannot be copied", where=str(path), got=cause(error))


def files_fingerprint(path: epath.Path) -> str:
    """Returns a fingerprint of a checkpoint's files that changes if they are written or removed. Reads no content.

    Raises:
      CheckpointGone: The checkpoint does not exist any more.
      CheckpointError: It is inaccessible.
    """
    try:
        if not is_folder(path):
            return "{}:{}".format(*size_and_mtime(path))
        files = sorted((file.relative_to(path).as_posix(), *size_and_mtime(file)) for file in files_below_folder(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointGone("the checkpoint was deleted before it was copied", where=str(path)) from error
    except OSError as error:
        raise _copy_error(path, error) from error
    return hashlib.sha256(repr(files).encode(errors="surrogateescape")).hexdigest()


def checkpoint_sha256(location: str | Path) -> str:
    """Returns the hash (hex) of a checkpoint's theta, under which a watch records its results.

    Raises:
      CheckpointGone: The checkpoint does not exist.
      CheckpointError: No reader knows it, or it cannot be read.

    >>> checkpoint_sha256("run/theta_3.npz")[:8]
    '0cadc493'
    """
    return theta_sha256(_leaves_at(location))


def _may_exist(path: str) -> bool:
    """Returns whether a file or folder exists; True if unknown, because the disk fails at the moment."""
    try:
        os.stat(path)
    except OSError as error:
        return is_transient(error)
    return True


def holds_theta(location: str | Path, sha256: str) -> bool | None:
    """Returns whether the theta with a hash is at a location and can be read.

    Args:
      location: Path or URL.
      sha256: Hash of the theta, as `checkpoint_sha256` or an older version computes it.
    Returns:
      None if unknown here: a remote location, a pickle, or a format whose reader is in the suite.

    >>> holds_theta("run/theta_3.npz", checkpoint_sha256("run/theta_3.npz"))
    True
    """
    if "://" in str(location):
        return None
    try:
        if (
            retried(Path(location).exists)
            and reader_name_for(checkpoint_path(str(location)), _builtin_readers()) is None
        ):
            return _is_hash_of_files(location, sha256) or None
        if sha256 in theta_digests(_leaves_at(location)):
            return True
    except PickleRefused:
        return None
    except (CheckpointError, OSError):
        pass
    return _is_hash_of_files(location, sha256)


def _is_hash_of_files(location: str | Path, sha256: str) -> bool:
    """Returns whether the hash identifies the whole files, as in suites of commands, and not only theta."""
    with contextlib.suppress(OSError):
        return identity_of_files(checkpoint_path(str(location))).sha256 == sha256
    return False


def _leaves_at(location: str | Path) -> Mapping[str, np.ndarray]:
    path = checkpoint_path(str(location))
    readers = _builtin_readers()
    name = reader_name_for(path, readers)
    with convert_errors(OSError, CheckpointError, "the checkpoint cannot be looked at", where=location):
        if not retried(lambda: exists(path)):
            raise CheckpointGone("no checkpoint found", where=str(location))
    if name is None:
        raise CheckpointError("no reader knows this checkpoint", where=str(location), expected=", ".join(readers))
    return retried(lambda: readers[name].read(path)).leaves


@functools.cache
def _builtin_readers() -> Mapping[str, CheckpointReader]:
    return load_readers(load_plugins(), allow_pickle=False)


def dump_theta(leaves: Mapping[str, np.ndarray]) -> bytes:
    """Returns an npz of leaves. Their paths are stored in an array, because not every path is a valid member name."""
    buffer = io.BytesIO()
    paths = sorted(leaves)
    arrays: dict[str, np.ndarray] = {"paths": np.asarray(paths)}
    for index, path in enumerate(paths):
        arrays[f"leaf{index}"] = leaves[path]
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # numpy's signature mixes names and options
    return buffer.getvalue()


def load_theta(path: str | Path) -> dict[str, np.ndarray]:
    """Reads a theta from the spool, with retries after transient disk errors.

    Raises:
      CheckpointError: The file is missing or damaged.
    """
    try:
        leaves = retried(lambda: _read_leaves(path))
    except Exception as error:
        raise CheckpointError("the spool's copy cannot be read", where=str(path), got=str(error)) from error
    expected_sha256 = Path(path).stem
    if len(expected_sha256) == 64 and expected_sha256 not in theta_digests(leaves):
        raise CheckpointError("the spool's copy is damaged", where=str(path), next_step="remove it and start again")
    return leaves


def _read_leaves(path: str | Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return {str(name): file[f"leaf{index}"] for index, name in enumerate(file["paths"])}
