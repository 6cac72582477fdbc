"""Built-in checkpoint readers (npz, safetensors), refusal of pickles, and reading of a single checkpoint."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lobench.core.checkpoint import Checkpoint, CheckpointContent, index_in_name, theta_sha256
from lobench.core.errors import CheckpointError, CheckpointGone, PickleRefused, PluginError, ReaderFailure
from lobench.core.wording import convert_errors
from lobench.engine.checkpoints.files import (
    content_of,
    ends_as_zip,
    exists,
    flatten,
    is_folder,
    reading,
    settling_seconds,
)
from lobench.engine.checkpoints.places import absolute_location, checkpoint_path
from lobench.engine.paths import similar_path_advice
from lobench.engine.retries import retried
from lobench.hookspecs import CheckpointReader
from lobench.plugins import BrokenPlugin

if TYPE_CHECKING:
    from etils import epath

    from lobench.plugins import PluginManager

__all__ = [
    "FileReader",
    "NpzReader",
    "PickleReader",
    "SafetensorsReader",
    "load_checkpoint",
    "load_readers",
    "reader_name_for",
]

_MAX_BYTES = 8 << 30  # a theta beyond this is a mistake, or a bomb
_MIN_UNPACKED_BYTES, _MAX_RATIO = 1 << 28, 200  # limits of the unpacked size: bytes, or a multiple of the packed size


_SAFETENSORS_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "C64": "complex64",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


class FileReader:
    """Base of readers of single files, which are recognized by their suffixes."""

    in_place = True
    suffixes: tuple[str, ...]

    def __init__(self, allow_pickle: bool = False) -> None:
        self._allow_pickle = allow_pickle

    def recognises(self, path: epath.Path) -> bool:
        return path.suffix in self.suffixes


class NpzReader(FileReader):
    """Reader of numpy's `.npz`. The member names are the paths of the leaves."""

    suffixes = (".npz",)

    def is_complete(self, path: epath.Path) -> bool:
        return ends_as_zip(path)

    def read(self, path: epath.Path) -> CheckpointContent:
        with reading(path, "npz"), path.open("rb") as file:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                declared_bytes = max(
                    sum(member.file_size for member in members),
                    sum(_declared_size(archive, member) for member in members),
                )
                packed_bytes = sum(member.compress_size for member in members)
            max_bytes = min(_MAX_BYTES, _memory_bytes() // 2, max(_MIN_UNPACKED_BYTES, _MAX_RATIO * packed_bytes))
            if declared_bytes > max_bytes:
                raise CheckpointError(
                    "too large for a theta",
                    where=str(path),
                    got=f"{declared_bytes:,} bytes declared in {packed_bytes:,}",
                    expected=f"at most {max_bytes:,} here",
                )
            file.seek(0)
            try:
                with np.load(file, allow_pickle=self._allow_pickle) as arrays:
                    leaves = {name: arrays[name] for name in arrays.files}
            except ValueError as error:
                if "allow_pickle" in str(error):
                    raise _pickle_error(path, "an npz with pickled objects") from error
                raise
            return content_of(leaves, str(path))


def _declared_size(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Returns the number of bytes that an array's header declares; 0 if it cannot be read."""
    try:
        with archive.open(member) as file:
            version = np.lib.format.read_magic(file)
            read_header = (
                np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            )
            shape, _, dtype = read_header(file)
            return math.prod(shape) * dtype.itemsize
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return 0  # loading it reports the fault


def _memory_bytes() -> int:
    """Returns this machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class SafetensorsReader(FileReader):
    """Reader of `.safetensors`. The tensor names are the paths of the leaves."""

    suffixes = (".safetensors",)

    def is_complete(self, path: epath.Path) -> bool:
        try:
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = file.read(min(size, 64 << 20))
                if len(header) != size or size == 0:
                    return False
                return bool(file.seek(0, os.SEEK_END) >= 8 + size + _data_bytes(header))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def read(self, path: epath.Path) -> CheckpointContent:
        import ml_dtypes  # noqa: F401  (registers bfloat16 with numpy)
        from safetensors import deserialize  # safetensors.numpy does not support dtypes that numpy lacks

        with reading(path, "safetensors"):
            tensors = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
            leaves = {
                name: np.frombuffer(tensor["data"], _SAFETENSORS_DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
                for name, tensor in tensors
            }
            return content_of(leaves, str(path))


def _data_bytes(header: bytes) -> int:
    """Returns the number of bytes of tensors that the header of a safetensors file declares; 0 if it cannot be read."""
    try:
        entries = json.loads(header)
        return max((entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return 0  # reading it reports the fault


class PickleReader(FileReader):
    """Reader of pickles. They can run code when they are loaded, so they are refused without `--allow-pickle`."""

    suffixes = (".pkl", ".pickle", ".joblib")

    def is_complete(self, path: epath.Path) -> bool:
        return exists(path) and not is_folder(path)

    def read(self, path: epath.Path) -> CheckpointContent:
        if not self._allow_pickle or path.suffix not in (".pkl", ".pickle"):
            raise _pickle_error(path, "a pickle")
        import pickle

        with reading(path, "a pickle"):
            tree: Any = pickle.loads(path.read_bytes())  # noqa: S301  (the user allowed it by name)
            return content_of(flatten(tree), str(path))


def _pickle_error(path: epath.Path, description: str) -> PickleRefused:
    return PickleRefused(
        f"{description} is not loaded: it can run code",
        where=str(path),
        next_step="write npz, safetensors, msgpack or orbax; --allow-pickle loads .pkl files that you trust",
    )


_READER_RESULTS: Mapping[str, Callable[[Any], bool]] = {
    "recognises": lambda value: isinstance(value, bool | np.bool_),
    "is_complete": lambda value: isinstance(value, bool | np.bool_),
    "read": lambda content: isinstance(content, CheckpointContent),
}


def load_readers(manager: PluginManager, *, allow_pickle: bool) -> dict[str, CheckpointReader]:
    """Returns all readers by name. A reader that cannot be created is recorded in the manager's `broken` plugins."""
    hook = "lobench_checkpoint_readers"
    readers = dict[str, CheckpointReader]()
    for name, registration in manager.usable_declarations(hook).items():
        try:
            readers[name] = registration.make_guarded(
                allow_pickle,
                passes=(OSError,),
                where=f"reader {name!r}",
                hook=hook,
                results=_READER_RESULTS,
                fallbacks={"recognises": False, "is_complete": False},
                failure=ReaderFailure,
            )
        except PluginError as error:
            manager.broken.append(
                BrokenPlugin(name=registration.plugin, distribution=hook, cause=str(error), imports=True)
            )
    return readers


def reader_name_for(path: epath.Path, readers: Mapping[str, CheckpointReader]) -> str | None:
    """Returns the name of the reader that recognizes a path; None if no reader does."""
    return next((name for name, reader in readers.items() if reader.recognises(path)), None)


def _checkpoints_in(folder: epath.Path, readers: Mapping[str, CheckpointReader]) -> list[str]:
    """Returns the paths of the checkpoints directly below a folder, by name; [] if it is not a folder."""
    if not folder.is_dir():
        return []
    return [str(path) for path in sorted(folder.iterdir()) if reader_name_for(path, readers) is not None]


def load_checkpoint(
    location: str, manager: PluginManager, *, allow_pickle: bool
) -> tuple[Checkpoint, Mapping[str, np.ndarray]]:
    """Reads a checkpoint and returns it with its leaves.

    Raises:
      CheckpointGone: The checkpoint does not exist.
      CheckpointError: No reader knows it, or it cannot be read; see `path_of`.
    """
    path = checkpoint_path(location)
    readers = load_readers(manager, allow_pickle=allow_pickle)
    with _lookup_errors(location):
        if not retried(lambda: exists(path)):
            raise CheckpointGone("no checkpoint found", where=location, next_step=similar_path_advice(location))
    name = reader_name_for(path, readers)
    if name is None:
        if paths_inside := _checkpoints_in(path, readers):
            raise CheckpointError(
                "this is a folder of checkpoints", where=location, expected=f"one, such as {paths_inside[-1]}"
            )
        raise CheckpointError(
            "no reader knows this checkpoint",
            where=location,
            expected=f"one of {', '.join(readers)}",
            next_step="is a plugin missing? see `lobench plugins`",
        )
    with _lookup_errors(location):
        content = _read_settled(path, readers[name])
    return checkpoint_of_content(content, absolute_location(location), index_in_name(path.name)), content.leaves


def _read_settled(path: epath.Path, reader: CheckpointReader) -> CheckpointContent:
    """Reads a checkpoint as a watch would: without marks of completeness, it is read once it has settled."""
    content = retried(lambda: reader.read(path))
    deadline = time.monotonic() + settling_seconds(path) + 1.0
    while not retried(lambda: reader.is_complete(path)):
        if time.monotonic() > deadline:
            raise CheckpointError(
                "half-written: its end is missing, or a file that marks it as complete",
                where=str(path),
                next_step="wait until it is written; if nothing writes it any more, remove its temporary files",
            )
        time.sleep(0.2)
        content = retried(lambda: reader.read(path))
    return content


def _lookup_errors(location: str) -> contextlib.AbstractContextManager[None]:
    return convert_errors(OSError, CheckpointError, "the checkpoint cannot be looked at", where=location)


def checkpoint_of_content(content: CheckpointContent, uri: str, index: int | None) -> Checkpoint:
    """Returns a checkpoint, identified by its content.

    Without an outer step in its content, the index of its name is used.
    """
    step = content.outer_step if content.outer_step is not None else index
    return Checkpoint(
        uri=uri, sha256=theta_sha256(content.leaves), outer_step=step or 0, generation=content.generation or 0
    )
