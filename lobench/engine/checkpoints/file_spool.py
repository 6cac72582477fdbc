"""File spool: one unchanged copy of each checkpoint, by hard links if the file system allows them.

A checkpoint that cannot be linked and is too large to be copied is evaluated from its original path.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from etils import epath

from lobench.core.checkpoint import Checkpoint, SeenCheckpoint
from lobench.core.errors import CheckpointError
from lobench.core.wording import convert_errors
from lobench.engine.checkpoints.spool import Spool
from lobench.engine.checkpoints.whole_files import files_of_checkpoint, identity_of_files
from lobench.engine.group_files import open_to_group
from lobench.engine.paths import COPY_FOLDER_SUFFIX
from lobench.hookspecs import CheckpointReader

__all__ = ["FileSpool"]

_CHUNK_BYTES = 1 << 24


class FileSpool(Spool):
    """Folder of checkpoints by the hash of their identity: `SHA256.files/checkpoint-500`.

    Args:
      root: Path of the folder. Created if it does not exist.
      log: Called with a line for each file that cannot be removed, and for the first checkpoint that is not copied.
      keep_limit: Size in bytes of the largest checkpoint that is copied. For a larger one, the folder has a symbolic
        link to the original.
    """

    def __init__(
        self, root: Path, log: Callable[[str], None] = lambda line: None, *, keep_limit: float = math.inf
    ) -> None:
        super().__init__(root, log)
        self._keep_limit, self._has_logged_link = keep_limit, False
        self._copy_paths: dict[str, str] = {}  # paths of copies, by hash

    def copy_location(self, sha256: str) -> str:
        folder = self._entry_path(sha256)
        if sha256 not in self._copy_paths:
            try:
                (name,) = os.listdir(folder)
            except (OSError, ValueError):
                return folder
            self._copy_paths[sha256] = os.path.join(folder, name)
        return self._copy_paths[sha256]

    def _entry_path(self, sha256: str) -> str:
        return f"{self._root_prefix}{sha256}{COPY_FOLDER_SUFFIX}"

    def _store_copy(
        self,
        copy: Path,
        seen_checkpoint: SeenCheckpoint,
        reader: CheckpointReader,
        is_known: Callable[[str], bool],
        arrival: Callable[[str], int],
    ) -> Checkpoint:
        """Stores a copy with its folder, under the identity of its files."""
        with convert_errors(OSError, CheckpointError, "the copy cannot be read", where=seen_checkpoint.uri):
            reader.read(epath.Path(copy))  # refuses half-written files
            sha256 = identity_of_files(epath.Path(copy)).sha256
        if not self.has_copy(sha256):
            with self._store_errors():
                if os.path.exists(self._entry_path(sha256)):  # a link to an original that was deleted
                    self.remove_copy(sha256)
                copy.parent.rename(self._entry_path(sha256))
            self._has_unsynced_names = True
        step = seen_checkpoint.index if seen_checkpoint.index is not None else arrival(sha256)
        return Checkpoint(
            uri=seen_checkpoint.uri,
            sha256=sha256,
            outer_step=step,
            generation=seen_checkpoint.generation or 0,
            run=seen_checkpoint.run,
        )

    def _copy_files(self, source: epath.Path, copy: Path) -> None:
        if "://" in str(source):
            super()._copy_files(source, copy)
            return
        files = list(files_of_checkpoint(source))
        is_small = False
        for file in files:
            real_path = os.path.realpath(file)
            with self._store_errors():
                target = self._target_path(file, source, copy)
                open_to_group(target.parent)
            try:
                os.link(real_path, target)
            except FileNotFoundError:
                raise
            except OSError:  # another file system, or one without links
                if not os.path.exists(real_path):
                    raise FileNotFoundError(real_path) from None
                if not is_small and (size := sum(os.stat(file).st_size for file in files)) > self._keep_limit:
                    self._link_original(source, copy, size)
                    return
                is_small = True
                self._copy_file(real_path, target)

    def _copy_file(self, source: str, target: Path) -> None:
        """Copies a file. Errors while reading it are raised as `OSError`, and errors while writing as `StoreError`."""
        with open(source, "rb") as data:
            with self._store_errors():
                copy = open(target, "wb")  # noqa: SIM115  # opening and closing are errors of the spool
            try:
                while chunk := data.read(_CHUNK_BYTES):
                    with self._store_errors():
                        copy.write(chunk)
            finally:
                with self._store_errors():
                    copy.close()
        with self._store_errors():
            shutil.copystat(source, target)
            open_to_group(target)

    def _link_original(self, source: epath.Path, copy: Path, size: int) -> None:
        with self._store_errors():
            shutil.rmtree(copy, ignore_errors=True)
            copy.symlink_to(os.path.abspath(source))
        if not self._has_logged_link:
            self._has_logged_link = True
            self._log(
                f"{source} has {size / 1e9:.3g} GB and cannot be linked: it is evaluated in place, and so are others "
                f"above --keep-limit {self._keep_limit / 1e9:g}; one that is deleted before its turn is not evaluated"
            )

    def remove_copy(self, sha256: str) -> None:
        self._copy_paths.pop(sha256, None)
        with self._logging_removal_errors():
            shutil.rmtree(self._entry_path(sha256))

    def remove_leftovers(self, keep: Collection[str]) -> None:
        super().remove_leftovers(keep)
        with self._logging_removal_errors():
            for entry in list(self._root.iterdir()):
                if entry.name.endswith(COPY_FOLDER_SUFFIX) and entry.name.removesuffix(COPY_FOLDER_SUFFIX) not in keep:
                    self.remove_copy(entry.name.removesuffix(COPY_FOLDER_SUFFIX))
