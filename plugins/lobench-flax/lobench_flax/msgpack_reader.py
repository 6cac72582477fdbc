"""Reader of flax's msgpack files without flax: a plain theta, or google/learned_optimization's theta + gen_id + step.

Format: msgpack with extension types 1 (array: shape, dtype name, bytes), 2 (complex) and 3 (numpy scalar); arrays
beyond 1 GiB come in chunks under the key `__msgpack_chunked_array__`. Source: flax.serialization.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 with numpy)
import msgpack
import numpy as np
from etils import epath

from lobench.extend import CheckpointContent, content_of, flatten, is_settled, reading

__all__ = ["MsgpackReader"]

_CHUNKED_KEY = "__msgpack_chunked_array__"


class MsgpackReader:
    """Reads `*.msgpack`, `*.state` and files named `params_N`, which flax renames into place."""

    in_place = False

    def __init__(self, allow_pickle: bool = False) -> None:
        del allow_pickle

    def recognises(self, path: epath.Path) -> bool:
        has_known_name = path.suffix in (".msgpack", ".state") or re.fullmatch(r"(params|checkpoint)_\d+", path.name)
        return bool(has_known_name) and not path.is_dir()

    def is_complete(self, path: epath.Path) -> bool:
        # A file that is written in place instead of renamed cannot be parsed while it is incomplete.
        try:
            _parse_msgpack(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            raise  # such as a missing permission, or an unreachable network disk
        except Exception:  # noqa: BLE001  (msgpack raises many kinds; all mean: not yet, or never)
            return is_settled(path)
        return True

    def read(self, path: epath.Path) -> CheckpointContent:
        with reading(path, "flax msgpack"):
            return content_of(flatten(_parse_msgpack(path.read_bytes())), str(path))


def _parse_msgpack(data: bytes) -> Any:
    return _join_chunks(msgpack.unpackb(data, ext_hook=_decode_extension, raw=False, strict_map_key=False))


def _decode_extension(code: int, data: bytes) -> Any:
    if code in (1, 3):
        shape, dtype, buffer = msgpack.unpackb(data, raw=True)
        array = np.frombuffer(buffer, dtype=np.dtype(dtype.decode())).reshape(shape)
        return array if code == 1 else array[()]
    if code == 2:
        return complex(*msgpack.unpackb(data))
    raise ValueError(f"unknown msgpack extension {code}")


def _join_chunks(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if _CHUNKED_KEY in tree:
        shape = tuple(tree["shape"][str(index)] for index in range(len(tree["shape"])))
        chunks = [tree["chunks"][str(index)] for index in range(len(tree["chunks"]))]
        return np.concatenate([np.ravel(chunk) for chunk in chunks]).reshape(shape)
    return {key: _join_chunks(value) for key, value in tree.items()}
