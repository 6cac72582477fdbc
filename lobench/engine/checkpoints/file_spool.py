"""File spool: one copy of each checkpoint as it is, by hard links where the file system allows."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Collection
from pathlib import Path

from etils import epath

from lobench.core.checkpoint import Checkpoint, SeenCheckpoint
from lobench.core.errors import CheckpointError, CheckpointGone
from lobench.core.wording import cause
from lobench.engine.checkpoints.files import is_folder
from lobench.engine.checkpoints.places import path_of
from lobench.engine.checkpoints.spool import Spool, fingerprint, may_exist
from lobench.engine.checkpoints.whole_files import files_below, identity_of
from lobench.engine.paths import WHOLE_SUFFIX
from lobench.hookspecs import CheckpointReader

__all__ = ["FileSpool"]

_ATTEMPTS = 3


class FileSpool(Spool):
    """Folder of checkpoints by the hash of their identity: `SHA256.files/checkpoint-500`."""

    def __init__(self, root: Path, log: Callable[[str], None] = lambda line: None) -> None:
        super().__init__(root, log)
        self._names: dict[str, str] = {}  # paths of copies, by hash

    def location(self, sha256: str) -> str:
        home = f"{self._folder}{sha256}{WHOLE_SUFFIX}"
        if sha256 not in self._names:
            try:
                (name,) = os.listdir(home)
            except (OSError, ValueError):
                return home
            self._names[sha256] = os.path.join(home, name)
        return self._names[sha256]

    def holds(self, sha256: str) -> bool:
        return may_exist(f"{self._folder}{sha256}{WHOLE_SUFFIX}")

    def copy_of(self, sha256: str) -> tuple[str, int]:
        try:
            return sha256, os.stat(f"{self._folder}{sha256}{WHOLE_SUFFIX}").st_mtime_ns
        except OSError:
            return sha256, 0

    def take(
        self,
        seen: SeenCheckpoint,
        reader: CheckpointReader,
        *,
        is_known: Callable[[str], bool] = lambda sha256: False,
        arrival: Callable[[str], int] = lambda sha256: 0,
    ) -> Checkpoint:
        """Links or copies a checkpoint's files, and returns it with their identity; see `Spool.take`."""
        source = path_of(seen.uri)
        for _ in range(_ATTEMPTS):
            folder = self._root / f"tmp-{uuid.uuid4().hex}"
            copy = folder / source.name
            try:
                before = fingerprint(source)
                self._link(source, copy)
                if fingerprint(source) != before:
                    continue
                reader.read(epath.Path(copy))  # refuses half-written files
                sha256 = identity_of(epath.Path(copy)).sha256
                if not self.holds(sha256):
                    with self._writing():
                        folder.rename(f"{self._folder}{sha256}{WHOLE_SUFFIX}")
                    self._has_unsynced = True
                step = seen.index if seen.index is not None else arrival(sha256)
                return Checkpoint(
                    uri=seen.uri, sha256=sha256, outer_step=step, generation=seen.generation or 0, run=seen.run
                )
            except CheckpointError as error:
                text = str(error).replace(str(copy), seen.uri)
                raise type(error)(text) from error
            except OSError as error:
                raise CheckpointError("the copy cannot be read", where=seen.uri, got=cause(error)) from error
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        raise CheckpointError("it changed each time that it was copied", where=seen.uri, got=f"{_ATTEMPTS} attempts")

    def _link(self, source: epath.Path, copy: Path) -> None:
        if "://" in str(source):
            self._copy(source, copy)
            return
        with self._writing():
            copy.parent.mkdir(parents=True)
        try:
            is_single = not is_folder(source)
            for file in [source] if is_single else list(files_below(source)):
                target = copy if is_single else copy / file.relative_to(source)
                real = os.path.realpath(file)
                with self._writing():
                    target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(real, target)
                except FileNotFoundError:
                    raise
                except OSError:  # another file system, or one without links
                    if not os.path.exists(real):
                        raise FileNotFoundError(real) from None
                    with self._writing():
                        shutil.copy2(real, target)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CheckpointGone("the checkpoint was deleted while it was copied", where=str(source)) from error

    def discard(self, sha256: str) -> None:
        self._names.pop(sha256, None)
        with self._removing():
            shutil.rmtree(f"{self._folder}{sha256}{WHOLE_SUFFIX}")

    def sweep(self, keep: Collection[str]) -> None:
        super().sweep(keep)
        with self._removing():
            for entry in list(self._root.iterdir()):
                if entry.name.endswith(WHOLE_SUFFIX) and entry.name.removesuffix(WHOLE_SUFFIX) not in keep:
                    self.discard(entry.name.removesuffix(WHOLE_SUFFIX))
