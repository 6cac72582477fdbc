"""Shared parts of readers: checks of leaves, extraction of theta, and one-line errors."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lobench.core.checkpoint import (
    COUNTER_NAMES,
    GENERATION_NAMES,
    MOST_DIGITS,
    OWN_BINDINGS,
    STEP_NAMES,
    WRAPPER_NAMES,
    CheckpointContent,
)
from lobench.core.errors import CheckpointError, CheckpointGone, LobenchError
from lobench.core.wording import cause

if TYPE_CHECKING:
    from etils import epath

__all__ = [
    "content_of",
    "ends_as_zip",
    "exists",
    "files_below_folder",
    "flatten",
    "is_folder",
    "is_settled",
    "reading",
    "settling_seconds",
    "size_and_mtime",
    "times_of_files",
]

_NEVER_THETA_NAMES = ("outer_step", *GENERATION_NAMES)  # `step` and `iteration` could be leaves of theta itself
_ZIP_END_BYTES = 1 << 17  # larger than the end record of an archive with the longest comment
_LONG_AGO_SECONDS = 1800.0  # larger than the difference of two machines' clocks
_MAX_CHANGE_TIMES = 10_000
_change_times: dict[
    str, tuple[float | None, float]
] = {}  # by path: time of the latest change, and when it was first seen
_LFS_PREFIX = b"version https://git-lfs"


def size_and_mtime(path: epath.Path) -> tuple[int, float]:
    """Returns a file's size and mtime, which change when it is written.

    Raises:
      OSError: The path does not exist, is inaccessible, or is neither a file nor a folder (opening a pipe would block).
    """
    if "://" not in str(path):
        # The `stat` of etils truncates times to seconds, and fails for owners that the machine does not know.
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EINVAL, "neither a file nor a folder", str(path))
        return status.st_size, status.st_mtime_ns / 1e9
    remote_status = path.stat()
    return remote_status.length, float(remote_status.mtime)


def exists(path: epath.Path) -> bool:
    """Returns whether a path exists.

    Raises:
      OSError: The path is inaccessible: a permission is missing, or a network disk does not respond. `epath` would
        report this as absence.
    """
    try:
        size_and_mtime(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ELOOP):
            return error.errno == errno.EINVAL  # EINVAL: a pipe; ELOOP: a link to itself
        raise
    return True


def is_folder(path: epath.Path) -> bool:
    """Returns whether a path is a folder; False if it does not exist.

    Raises:
      OSError: The path is inaccessible, as in `exists`.
    """
    if "://" in str(path):
        return bool(path.is_dir())
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise


def files_below_folder(folder: epath.Path) -> Iterator[epath.Path]:
    """Yields every file below a folder, because etils has no recursive glob.

    Broken links, and links to a folder above, are skipped.
    """
    for entry in folder.iterdir():
        is_remote = "://" in str(entry)
        if not is_remote and os.path.islink(entry) and not exists(entry):
            continue
        if not is_folder(entry):
            yield entry
        elif is_remote or not os.path.realpath(folder).startswith(os.path.realpath(entry)):
            yield from files_below_folder(entry)


def times_of_files(path: epath.Path) -> list[float]:
    """Returns the mtimes of a checkpoint's files.

    Raises:
      OSError: The path does not exist or is inaccessible.
    """
    return [size_and_mtime(file)[1] for file in (files_below_folder(path) if is_folder(path) else [path])]


def ends_as_zip(path: epath.Path) -> bool:
    """Returns whether a file ends with the directory of a zip archive, which is written last; False if it is missing.

    Raises:
      OSError: The file cannot be read. `zipfile` would report another format.
    """
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _ZIP_END_BYTES))
            file.read()
            return zipfile.is_zipfile(file)
    except (FileNotFoundError, NotADirectoryError):
        return False


def settling_seconds(path: epath.Path) -> float:
    """Returns after how many seconds without a change a checkpoint counts as settled: 5, or 60 on a remote store."""
    return 60.0 if "://" in str(path) else 5.0


def is_settled(path: epath.Path, clock: Callable[[], float] = time.monotonic) -> bool:
    """Returns whether a file, or the content of a folder, has not changed for `settling_seconds`.

    A settled checkpoint is read even if it lacks the marks of completeness of its format. If it is broken, its reader
    reports that.

    The time is measured from the first call, because the clock of a network disk may differ from this machine's. A
    change more than half an hour ago counts at once. A path that does not exist is never settled.

    Raises:
      OSError: The path is inaccessible.

    >>> from etils import epath
    >>> is_settled(epath.Path("run/theta_3.npz"))  # the first call only begins to measure
    False
    """
    try:
        newest_change = _newest_change_time(path, depth=6)
    except (FileNotFoundError, NotADirectoryError):
        return False
    now = clock()
    last_time, unchanged_since = _change_times.get(str(path), (None, now))
    if last_time != newest_change:
        last_time, unchanged_since = newest_change, now
    is_unchanged = abs(time.time() - newest_change) > _LONG_AGO_SECONDS or now - unchanged_since > settling_seconds(
        path
    )
    _change_times[str(path)] = last_time, unchanged_since
    while len(_change_times) > _MAX_CHANGE_TIMES:
        del _change_times[next(iter(_change_times))]
    return is_unchanged


def _newest_change_time(path: epath.Path, depth: int) -> float:
    """Returns the time of the latest change below a path. Broken links are ignored."""
    times = [size_and_mtime(path)[1]]
    if depth and is_folder(path):
        for entry in path.iterdir():
            try:
                times.append(_newest_change_time(entry, depth - 1))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ELOOP):  # pipes, and links to themselves
                    raise
    return max(times)


@contextlib.contextmanager
def reading(path: Any, kind: str) -> Iterator[None]:
    """Turns a parser's exceptions on a broken file into `CheckpointError`, and a missing file into `CheckpointGone`.

    >>> with reading("theta.npz", "an npz archive"):
    ...     raise ValueError("cut off")
    Traceback (most recent call last):
    lobench.core.errors.CheckpointError: ...
    """
    try:
        yield
    except LobenchError:
        raise
    except FileNotFoundError as error:
        raise CheckpointGone("the checkpoint is gone", where=str(path)) from error
    except PermissionError as error:
        raise CheckpointError("no permission to read it", where=str(path), got=cause(error)) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise CheckpointError("cannot read it", where=str(path), got=cause(error)) from error
        first_bytes = b""
        with contextlib.suppress(Exception), open(path, "rb") as file:
            first_bytes = file.read(64)
        if first_bytes.startswith(_LFS_PREFIX):
            raise CheckpointError(
                "this is a Git LFS pointer, not the file", where=str(path), next_step="run `git lfs pull`"
            ) from error
        got = "an empty file" if _is_empty(path) else cause(error)[:200]
        raise CheckpointError(f"cannot read it as {kind}", where=str(path), got=got) from error


def _is_empty(path: Any) -> bool:
    with contextlib.suppress(Exception):
        return not is_folder(path) and size_and_mtime(path)[0] == 0
    return False


def flatten(tree: Any, path: str = "") -> dict[str, Any]:
    """Returns leaves by path: keys and indices joined by "/". None and empty containers are left out.

    >>> flatten({"layers": [1, 2], "bias": None})
    {'layers/0': 1, 'layers/1': 2}
    """
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
    """Checks leaves, and returns theta with the counters of the checkpoint.

    If everything except scalar counters and text is below one top-level name `theta` or `params`, that part is theta.
    Otherwise `match_theta` later finds theta among the leaves by the optimizer's structure. Top-level
    counters named step, outer_step, iteration, generation or gen_id give the position of the checkpoint. Among leaves
    of theta, step and iteration stay leaves, because theta may have leaves of these names. A top-level
    text `gin_bindings` (or its bytes) has the bindings with which theta was trained. Other text is left out.

    Args:
      leaves: Leaves by path.
      where: Name of the checkpoint in error messages.
    Raises:
      CheckpointError: The checkpoint has no leaf, or a leaf is neither text nor an array of numbers.

    >>> content_of({"theta/w": np.ones(2), "step": np.int64(3)}, "theta_3.npz").outer_step
    3
    """
    texts = [path for path, leaf in leaves.items() if _is_text(leaf)]
    counters = {name: leaves[name] for name in COUNTER_NAMES if name in leaves}
    arrays_by_path = {path: leaf for path, leaf in leaves.items() if path not in (*texts, OWN_BINDINGS)}
    leaf_paths = {path for path in arrays_by_path if path not in counters}
    wrapper = next(
        (name for name in WRAPPER_NAMES if leaf_paths and all(path.startswith(f"{name}/") for path in leaf_paths)), None
    )
    if wrapper:
        arrays_by_path = {
            path.removeprefix(f"{wrapper}/"): leaf for path, leaf in arrays_by_path.items() if path in leaf_paths
        }
    else:
        counters = {name: value for name, value in counters.items() if _is_counter(name, value)}
        arrays_by_path = {
            path: leaf
            for path, leaf in arrays_by_path.items()
            if path not in counters or path not in _NEVER_THETA_NAMES
        }
    if not arrays_by_path and texts:
        raise CheckpointError(f"leaf {texts[0]!r} is not an array of numbers", where=where, got="text")
    if not arrays_by_path:
        raise CheckpointError("theta is empty", where=where, expected="at least one array")
    arrays = {path: _checked_array(path, leaf, where) for path, leaf in arrays_by_path.items()}
    if OWN_BINDINGS in leaves:
        arrays[OWN_BINDINGS] = _text_bytes(leaves[OWN_BINDINGS], where)
    return CheckpointContent(
        leaves=arrays,
        outer_step=_counter_value(counters, STEP_NAMES, where),
        generation=_counter_value(counters, GENERATION_NAMES, where),
    )


def _is_text(leaf: Any) -> bool:
    return isinstance(leaf, str | bytes) or (isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "US")


def _is_counter(name: str, value: Any) -> bool:
    """Returns whether a leaf is a counter and not part of theta. Leaves of theta are rarely integers."""
    if _is_text(value):
        return True
    return np.size(value) == 1 and (name in _NEVER_THETA_NAMES or np.asarray(value).dtype.kind in "iu")


def _checked_array(path: str, leaf: Any, where: str) -> np.ndarray:
    array = np.asarray(leaf)
    if array.dtype.kind not in "fiub" and array.dtype.name not in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        raise CheckpointError(f"leaf {path!r} is not an array of numbers", where=where, got=str(array.dtype))
    return array


def _text_bytes(leaf: Any, where: str) -> np.ndarray:
    """Returns text as its bytes, uint8[length], which every format of checkpoints can store."""
    if np.asarray(leaf).dtype.kind == "U":
        return np.frombuffer(str(leaf).encode(), np.uint8)
    data = np.frombuffer(leaf, np.uint8) if isinstance(leaf, bytes) else np.asarray(leaf)
    with contextlib.suppress(UnicodeDecodeError):
        if data.dtype == np.uint8:
            data.tobytes().decode()
            return data.ravel()
    raise CheckpointError(f"{OWN_BINDINGS!r} is no text", where=where, got=str(data.dtype), expected="gin bindings")


def _counter_value(counters: Mapping[str, Any], names: tuple[str, ...], where: str) -> int | None:
    for name in names:
        value = counters.get(name)
        if value is None:
            continue
        if np.size(value) == 1:
            number = np.asarray(value).reshape(()).item()
            if isinstance(number, str | bytes):
                if number.isdigit() and number.isascii() and len(number) <= MOST_DIGITS:
                    return int(number)
                continue
            if not isinstance(number, int | float) or not abs(number) < 10**MOST_DIGITS:  # NaN is refused too
                problem = f"the counter {name!r} is not a number of steps"
                raise CheckpointError(problem, where=where, got=repr(number)[:80])
            return int(number)
    return None
