"""Completeness and identity of checkpoints that lobench does not load, for suites of commands.

Nothing is unpickled. Only names, sizes, the ends of zip archives, and headers of safetensors and JSON are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from lobench.core.checkpoint import Checkpoint, CheckpointContent, index_in_name
from lobench.core.errors import CheckpointError, CheckpointGone
from lobench.core.wording import convert_errors
from lobench.engine.checkpoints.files import (
    ends_as_zip,
    exists,
    files_below_folder,
    is_folder,
    is_settled,
    size_and_mtime,
)
from lobench.engine.checkpoints.places import absolute_location, checkpoint_path
from lobench.engine.checkpoints.readers import SafetensorsReader
from lobench.hookspecs import CheckpointReader

if TYPE_CHECKING:
    from etils import epath

__all__ = [
    "BY_CONTENT",
    "BY_NAMES",
    "FileIdentity",
    "OpaqueFolderReader",
    "files_of_checkpoint",
    "identity_of_files",
    "opaque_checkpoint",
    "opaque_readers",
]

BY_CONTENT = "content"
BY_NAMES = "names, sizes and times of its files"
_MAX_HASHED_BYTES = 256 << 20  # bytes of a checkpoint that is identified by its content
_CHUNK_BYTES = 1 << 20
_SUFFIXES = (".ckpt", ".pt", ".pth", ".safetensors", ".npz", ".msgpack")
_STATE_PREFIXES = ("optimizer", "scheduler", "scaler", "rng_state", "training_args")  # files next to the weights
_FOLDER = re.compile(r"(checkpoint|ckpt|global_step|step|iter|iteration|epoch|model)[-_=]?\d+([-_=].*)?|\d+", re.I)
_DISTRIBUTED_FILE = ".metadata"  # a pickle that torch.distributed writes last
_MARKER_FILES = ("trainer_state.json", _DISTRIBUTED_FILE, "_CHECKPOINT_METADATA", "config.json")
_END_OF_PICKLE = b"."
_ORBAX_FILES = ("_CHECKPOINT_METADATA", "commit_success.txt")  # written last, or with the rename that ends the writing
# Files next to the folders of a trainer, which name the last complete folder, by prefix of the folders' names.
_LATEST_FILES = {"global_step": "latest", "iter_": "latest_checkpointed_iteration.txt"}
_ZIP_MAGIC = b"PK\x03\x04"
_ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError)
_MAX_JSON_BYTES = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIdentity:
    """Identity of a checkpoint's files.

    Attributes:
      sha256: Hash (hex) of the content, or of names, sizes and times.
      hash_origin: Origin of the hash: `BY_CONTENT` or `BY_NAMES`.
    """

    sha256: str
    hash_origin: str


def identity_of_files(path: epath.Path) -> FileIdentity:
    """Returns the identity of a file or folder: a hash of its content up to 256 MiB, else of names, sizes and times.

    The identity does not depend on the name of the checkpoint or on its folder.

    Raises:
      OSError: It cannot be read.
    """
    files = {_name_below(file, path): (file, *size_and_mtime(file)) for file in files_of_checkpoint(path)}
    identified_by = BY_CONTENT if sum(size for _, size, _ in files.values()) <= _MAX_HASHED_BYTES else BY_NAMES
    lines = [
        (name, _sha256(file)) if identified_by == BY_CONTENT else (name, size, changed_ns)
        for name, (file, size, changed_ns) in sorted(files.items())
    ]
    return FileIdentity(
        sha256=hashlib.sha256(f"{identified_by}\0{lines!r}".encode(errors="surrogateescape")).hexdigest(),
        hash_origin=identified_by,
    )


def opaque_checkpoint(location: str) -> Checkpoint:
    """Returns the checkpoint at a path, whose content is not interpreted.

    Raises:
      CheckpointError: It does not exist, or cannot be read.
    """
    path = checkpoint_path(location)
    with convert_errors(OSError, CheckpointError, "the checkpoint cannot be read", where=location):
        if not exists(path):
            raise CheckpointGone("no checkpoint found", where=location)
        sha256 = identity_of_files(path).sha256
    step = index_in_name(path.name)
    return Checkpoint(uri=absolute_location(location), sha256=sha256, outer_step=step or 0, generation=0)


def _name_below(file: epath.Path, path: epath.Path) -> str:
    return "" if file == path else file.relative_to(path).as_posix()


def _sha256(file: epath.Path) -> str:
    """Returns the hash of a file's content.

    `torch.save(state, "last.pt")` writes an archive whose members are in the folder `last`. This name does not count,
    so that `last.pt` and `ckpt_20.pt` of one state have one hash.
    """
    digest = hashlib.sha256()
    with file.open("rb") as data:
        if data.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC:
            with contextlib.suppress(*_ARCHIVE_ERRORS), zipfile.ZipFile(data) as archive:
                if members := _torch_members(archive):
                    return _sha256_of_members(archive, members)
        data.seek(0)
        for chunk in iter(lambda: data.read(_CHUNK_BYTES), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _torch_members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Returns the members of an archive of `torch.save` by their names below its folder; none of another archive."""
    members = archive.infolist()
    folder = members[0].filename.partition("/")[0] if members else ""
    members_by_name = {member.filename.removeprefix(f"{folder}/"): member for member in members}
    is_one_folder = all(member.filename.startswith(f"{folder}/") for member in members)
    return (
        members_by_name
        if is_one_folder and len(members_by_name) == len(members) and "data.pkl" in members_by_name
        else {}
    )


def _sha256_of_members(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> str:
    digest = hashlib.sha256()
    for name, member in sorted(members.items()):
        digest.update(f"{name}\0{member.file_size}\0".encode(errors="surrogateescape"))
        with archive.open(member) as data:
            for chunk in iter(lambda: data.read(_CHUNK_BYTES), b""):
                digest.update(chunk)
    return digest.hexdigest()


def files_of_checkpoint(path: epath.Path) -> Iterator[epath.Path]:
    """Yields the files below a folder, or the file itself."""
    if is_folder(path):
        yield from files_below_folder(path)
    else:
        yield path


class OpaqueFileReader:
    """Reader of checkpoints that are single files, such as Lightning's `.ckpt`, `.pt` and `.safetensors`."""

    in_place = True

    def recognises(self, path: epath.Path) -> bool:
        return path.suffix in _SUFFIXES and not path.name.startswith(_STATE_PREFIXES) and not path.is_dir()

    def is_complete(self, path: epath.Path) -> bool:
        is_whole = _is_file_complete(path)
        return is_settled(path) if is_whole is None else is_whole

    def read(self, path: epath.Path) -> CheckpointContent:
        return _check_complete(path, [path])


class OpaqueFolderReader:
    """Reader of checkpoints that are folders: `checkpoint-500`, `global_step500`, `iter_0000500`, steps of orbax.

    Args:
      complete_when: Glob pattern. A folder is complete if a path in it matches. "": see `is_complete`.
    """

    in_place = False

    def __init__(self, complete_when: str = "") -> None:
        self._complete_when = complete_when

    def recognises(self, path: epath.Path) -> bool:
        if not path.is_dir():
            return False
        if _FOLDER.fullmatch(path.name) or path.suffix in _SUFFIXES:
            return True
        if self._complete_when and any(path.glob(self._complete_when)):
            return True
        entries = {entry.name: entry for entry in path.iterdir()}
        return any(marker in entries for marker in _MARKER_FILES) and not any(
            _FOLDER.fullmatch(name) and entry.is_dir() for name, entry in entries.items()
        )

    def is_complete(self, path: epath.Path) -> bool:
        """Returns whether the trainer's last file exists, each file has its end, and no shard is missing.

        A folder in which no trainer leaves such a mark is complete once it has not changed for a while.
        """
        if self._complete_when:
            return any(path.glob(self._complete_when))
        files = list(files_of_checkpoint(path))
        if not files or any(_is_file_complete(file) is False for file in files) or _lacks_shards(files):
            return False
        is_marked = _is_marked_complete(path, {file.name for file in files})
        return is_settled(path) if is_marked is None else is_marked

    def read(self, path: epath.Path) -> CheckpointContent:
        return _check_complete(path, list(files_of_checkpoint(path)))


def _check_complete(path: epath.Path, files: list[epath.Path]) -> CheckpointContent:
    """Returns a content without leaves, because nothing is read. Raises CheckpointError for a truncated file."""
    if partial_files := [file for file in files if _is_file_complete(file) is False]:
        raise CheckpointError(
            "it is half-written", where=str(partial_files[0]), expected="a file that was written to its end"
        )
    return CheckpointContent(leaves={})


def opaque_readers(complete_when: str = "") -> dict[str, CheckpointReader]:
    """Returns readers that accept a checkpoint in any format, by name."""
    return {"folder": OpaqueFolderReader(complete_when), "file": OpaqueFileReader()}


def _is_file_complete(file: epath.Path) -> bool | None:
    """Returns whether a file is complete up to its end; None if its format has no recognizable end."""
    if file.suffix == ".safetensors":
        return SafetensorsReader().is_complete(file)
    try:
        if file.suffix == ".json" or file.name == _ORBAX_FILES[0]:
            if size_and_mtime(file)[0] > _MAX_JSON_BYTES:
                return None
            document = json.loads(file.read_bytes())
            is_unfinished = isinstance(document, dict) and document.get("commit_timestamp_nsecs", 0) is None
            # orbax writes this file first, and its commit time at the end.
            return not (file.name == _ORBAX_FILES[0] and is_unfinished)
        with file.open("rb") as data:
            first_bytes = data.read(len(_ZIP_MAGIC))
            if file.name == _DISTRIBUTED_FILE:
                return first_bytes != b"" and _last_byte(data) == _END_OF_PICKLE
    except ValueError:
        return False
    except (FileNotFoundError, NotADirectoryError):
        return False
    if first_bytes == _ZIP_MAGIC:
        return ends_as_zip(file)
    return None if first_bytes or file.suffix not in _SUFFIXES else False


def _last_byte(data: IO[bytes]) -> bytes:
    data.seek(-1, os.SEEK_END)
    return data.read(1)


def _lacks_shards(files: list[epath.Path]) -> bool:
    """Returns whether an index (`model.safetensors.index.json`) names a file that is missing."""
    names = {str(file) for file in files}
    for file in files:
        if file.name.endswith(".index.json"):
            document = json.loads(file.read_bytes())
            shards = document.get("weight_map", {}) if isinstance(document, dict) else {}
            if isinstance(shards, dict) and any(
                str(file.parent / str(shard)) not in names for shard in shards.values()
            ):
                return True
    sharded_folders = {file.parent for file in files if file.suffix == ".distcp"}
    return any(str(folder / _DISTRIBUTED_FILE) not in names for folder in sharded_folders)


def _is_marked_complete(path: epath.Path, names: set[str]) -> bool | None:
    """Returns whether a trainer has marked a folder as complete; None if the trainer writes no such mark."""
    for prefix, latest_name in _LATEST_FILES.items():
        if path.name.startswith(prefix) and (file := path.parent / latest_name).exists():
            last_index = index_in_name(file.read_bytes().decode(errors="replace").strip())
            return last_index is not None and last_index >= (index_in_name(path.name) or 0)
    if "trainer_state.json" in names or names.intersection(_ORBAX_FILES):
        return True
    if any(name.endswith(".distcp") for name in names):
        return True  # `_lacks_shards` has found the `.metadata`, which torch writes last
    return None
