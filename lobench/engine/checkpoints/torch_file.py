"""Checkpoint reader of `.pt`: reads torch's state dicts without torch, and without running code.

The file is an archive with `data.pkl`, a pickle of the tree, and one member of bytes per tensor. A pickle can call any
function that it names. This reader only allows the few functions of state dicts.
"""

from __future__ import annotations

import collections
import pickle
import zipfile
from typing import Any

import ml_dtypes
import numpy as np
from etils import epath

from lobench.core.checkpoint import CheckpointContent
from lobench.core.errors import CheckpointError, PickleRefused
from lobench.engine.checkpoints.files import content_of, ends_as_zip, flatten, reading, size_and_mtime
from lobench.engine.checkpoints.readers import FileReader

__all__ = ["TorchReader"]

_MAX_BYTES = 8 << 30
_OLD_MAGIC = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"  # the number 0x1950a86a20f9469cfc6c, pickled
_STORAGES: dict[str, Any] = {
    "DoubleStorage": np.float64, "FloatStorage": np.float32, "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16, "LongStorage": np.int64, "IntStorage": np.int32,
    "ShortStorage": np.int16, "CharStorage": np.int8, "ByteStorage": np.uint8, "BoolStorage": np.bool_,
}  # fmt: skip


class TorchReader(FileReader):
    """Reader of `.pt` and `.pth` files of torch 1.6 and later.

    The keys of the state dict are the paths of the leaves.
    """

    suffixes = (".pt", ".pth")

    def is_complete(self, path: epath.Path) -> bool:
        return ends_as_zip(path) or _is_old_format(path)

    def read(self, path: epath.Path) -> CheckpointContent:
        with reading(path, "torch"), path.open("rb") as file:
            if not ends_as_zip(path):
                old_format = "the format of torch before 1.6, which is a pickle that can run code"
                raise PickleRefused(
                    old_format if _is_old_format(path) else f"no archive of torch.save: half a file, or {old_format}",
                    where=str(path),
                    got="an empty file" if size_and_mtime(path)[0] == 0 else "",
                    next_step='of an older file, torch.save(torch.load(FILE, map_location="cpu", weights_only=True), '
                    "OTHER_FILE) writes today's format",
                )
            with zipfile.ZipFile(file) as archive:
                return content_of(flatten(_TreeUnpickler(archive, str(path)).load()), str(path))


def _is_old_format(path: epath.Path) -> bool:
    """Returns whether a file begins like those of torch before 1.6: with a pickled magic number."""
    try:
        with path.open("rb") as file:
            return bool(file.read(64)[2:].startswith(_OLD_MAGIC))
    except (FileNotFoundError, NotADirectoryError):
        return False


class _TreeUnpickler(pickle.Unpickler):
    """Unpickler of an archive's tree, with tensors as arrays."""

    def __init__(self, archive: zipfile.ZipFile, where: str) -> None:
        name = next((name for name in archive.namelist() if name.endswith("data.pkl")), None)
        if name is None or sum(member.file_size for member in archive.infolist()) > _MAX_BYTES:
            raise CheckpointError(
                "this archive is not a state dict",
                where=where,
                expected=f"data.pkl and tensors, {_MAX_BYTES >> 30} GiB at most",
            )
        super().__init__(archive.open(name))
        self._archive, self._folder, self._where = archive, name.removesuffix("data.pkl"), where

    def find_class(self, module: str, name: str) -> Any:
        if module == "collections" and name == "OrderedDict":
            return collections.OrderedDict
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_parameter"):
            return _tensor_from_storage if name == "_rebuild_tensor_v2" else (lambda array, *unused: array)
        if module == "torch" and name in _STORAGES:
            return np.dtype(_STORAGES[name])
        if module == "torch" and name == "Size":
            return tuple
        raise PickleRefused(
            "it holds more than tensors, and lobench runs no code from a file",
            where=self._where,
            got=f"{module}.{name}",
            expected="a state dict: names, tensors, numbers",
            next_step="torch.save(model.state_dict(), FILE) writes one",
        )

    def persistent_load(self, persistent_id: Any) -> np.ndarray:
        kind, dtype, key, *_ = persistent_id
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise CheckpointError(
                "this archive is not a state dict", where=self._where, got=f"{kind!r} in place of a tensor"
            )
        return np.frombuffer(self._archive.read(f"{self._folder}data/{key}"), dtype)


def _tensor_from_storage(
    storage: np.ndarray, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *unused: Any
) -> np.ndarray:
    """Returns a tensor of a storage as a contiguous copy."""
    last_index = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    num_values = int(np.prod(size, dtype=np.int64))
    if (
        min((offset, *size, *stride), default=0) < 0
        or num_values > storage.size
        or (num_values and last_index >= storage.size)
    ):
        raise ValueError(
            f"a tensor of shape {size} at {offset} does not fit into its storage of {storage.size} numbers"
        )
    strides = [step * storage.itemsize for step in stride]
    return np.array(np.lib.stride_tricks.as_strided(storage[offset:], size, strides))
