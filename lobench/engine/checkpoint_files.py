"""What every reader needs: leaves checked, theta unwrapped, failures turned into one clear line."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from etils import epath

from lobench.core.checkpoint import OWN_BINDINGS, CheckpointContent
from lobench.core.errors import CheckpointError, CheckpointGone, LobenchError

__all__ = ["content_of", "flatten", "index_in_name", "mark_of", "reading"]

_STEP_NAMES = ("outer_step", "step", "iteration")
_GENERATION_NAMES = ("generation", "gen_id")
_WRAPPERS = ("theta", "params")
_MOST_DIGITS = 18  # what fits an integer of the ledger
_LFS = b"version https://git-lfs"


def index_in_name(name: str) -> int | None:
    """Returns the last number in a name; an index, not an outer step. One that no run can count to is none."""
    numbers = re.findall(r"\d+", name)
    return int(numbers[-1]) if numbers and len(numbers[-1]) <= _MOST_DIGITS else None


def mark_of(path: epath.Path) -> tuple[int, float]:
    """Returns what changes when a file is written again: size, and time as exactly as the file system knows it.

    Raises:
      OSError: it is gone, cannot be looked at, or is neither a file nor a folder: a pipe would be waited for.
    """
    if "://" not in str(path):
        # Not etils' own: it cuts times down to seconds, and stumbles over an owner whom the machine does not know.
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EINVAL, "neither a file nor a folder", str(path))
        return status.st_size, status.st_mtime_ns / 1e9
    remote = path.stat()
    return remote.length, float(remote.mtime)


@contextlib.contextmanager
def reading(path: Any, kind: str) -> Iterator[None]:
    """Turns what a parser raises on a broken file into `CheckpointError`, and a missing file into `CheckpointGone`."""
    try:
        yield
    except LobenchError:
        raise
    except FileNotFoundError as error:
        raise CheckpointGone("the checkpoint is gone", where=str(path)) from error
    except Exception as error:
        head = b""
        with contextlib.suppress(Exception), open(path, "rb") as file:
            head = file.read(64)
        if head.startswith(_LFS):
            raise CheckpointError(
                "this is a Git LFS pointer, not the file", where=str(path), next_step="run `git lfs pull`"
            ) from error
        line = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise CheckpointError(f"cannot read it as {kind}", where=str(path), got=line) from error


def flatten(tree: Any, path: str = "") -> dict[str, Any]:
    """Returns leaves by path: keys and indices joined by "/"; None and empty containers are no leaves."""
    if isinstance(tree, Mapping):
        items: Any = tree.items()
    elif isinstance(tree, list | tuple):
        items = enumerate(tree)
    else:
        return {} if tree is None else {path: tree}
    leaves: dict[str, Any] = {}
    for key, value in items:
        leaves.update(flatten(value, f"{path}/{key}" if path else str(key)))
    return leaves


def content_of(leaves: Mapping[str, Any], where: str) -> CheckpointContent:
    """Checks leaves and unwraps theta.

    Where everything but scalar counters lies below one top-level name `theta` or `params`, that is theta, and counters
    named step, outer_step, iteration, generation or gen_id say where the checkpoint stands. `gin_bindings` beside it,
    text or its bytes, is what theta was trained with.

    Raises:
      CheckpointError: no leaf, or a leaf that is no array of numbers.
    """
    counters = {name: leaves[name] for name in (*_STEP_NAMES, *_GENERATION_NAMES) if name in leaves}
    rest = {path: leaf for path, leaf in leaves.items() if path not in counters and path != OWN_BINDINGS}
    tops = {path.split("/")[0] for path in rest}
    wrapped = len(tops) == 1 and next(iter(tops)) in _WRAPPERS and all("/" in path for path in rest)
    if wrapped:
        top = next(iter(tops))
        rest = {path.removeprefix(f"{top}/"): leaf for path, leaf in rest.items()}
    else:
        rest, counters = dict(leaves), {}
    if not rest:
        raise CheckpointError("theta is empty", where=where, expected="at least one array")
    arrays = {path: _array(path, leaf, where) for path, leaf in rest.items()}
    if wrapped and OWN_BINDINGS in leaves:
        arrays[OWN_BINDINGS] = _text(leaves[OWN_BINDINGS], where)
    return CheckpointContent(
        leaves=arrays,
        outer_step=_counter(counters, _STEP_NAMES, where),
        generation=_counter(counters, _GENERATION_NAMES, where),
    )


def _array(path: str, leaf: Any, where: str) -> np.ndarray:
    if isinstance(leaf, str | bytes) or (isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OUS"):
        raise CheckpointError(
            f"leaf {path!r} is no array of numbers", where=where, got=type(leaf).__name__, expected="an array"
        )
    array = np.asarray(leaf)
    if array.dtype.kind not in "fiub" and array.dtype.name not in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        raise CheckpointError(f"leaf {path!r} is no array of numbers", where=where, got=str(array.dtype))
    return array


def _text(leaf: Any, where: str) -> np.ndarray:
    """Returns text as its bytes, uint8[length], which every kind of checkpoint can hold."""
    if np.asarray(leaf).dtype.kind == "U":
        return np.frombuffer(str(leaf).encode(), np.uint8)
    data = np.frombuffer(leaf, np.uint8) if isinstance(leaf, bytes) else np.asarray(leaf)
    with contextlib.suppress(UnicodeDecodeError):
        if data.dtype == np.uint8:
            data.tobytes().decode()
            return data.ravel()
    raise CheckpointError(f"{OWN_BINDINGS!r} is no text", where=where, got=str(data.dtype), expected="gin bindings")


def _counter(counters: Mapping[str, Any], names: tuple[str, ...], where: str) -> int | None:
    for name in names:
        value = counters.get(name)
        if value is None:
            continue
        if np.size(value) == 1:
            number = np.asarray(value).reshape(()).item()
            if isinstance(number, str | bytes):
                return int(number) if number.isdigit() and number.isascii() and len(number) <= _MOST_DIGITS else None
            if not isinstance(number, int | float) or not abs(number) < 10**_MOST_DIGITS:  # NaN is not below either
                raise CheckpointError(f"the counter {name!r} is no number of steps", where=where, got=repr(number)[:80])
            return int(number)
    return None
