"""Compiled programs in files, found by a hash of everything that tracing could read."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import logging
import os
import pickle
import re
import secrets
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jaxlib.version
from jax.experimental import serialize_executable
from jax.interpreters import partial_eval

from lobench.core.case import UnboundDefault
from lobench.inner.backend import CompilationCounter, compiler_options, device_description
from lobench.inner.executables.reach import (
    EXECUTABLES,
    WatchedTrace,
    are_as_then,
    are_outlined,
    installed_files,
    outlines,
    processor,
    reach,
)
from lobench.inner.executables.state import Unhashable

__all__ = ["Asked", "KeptExecutables", "KeptProgram"]

_log = logging.getLogger(__name__)
_VERSION = 1
_MAGIC = b"lobench executable %d\n" % _VERSION
_CHECK_INTERVAL = 16  # one of so many loaded programs is traced for comparison
_MAX_WAIT_SECONDS = 600.0  # seconds for which a process waits for another one's program; that one may be stopped
_POLL_SECONDS = 0.05  # seconds between two looks at a lock
_CUSTOM_CALL = re.compile(r"custom_call\s+@([\w.]+)")
_HARMLESS_CALLS = frozenset({"Sharding", "annotate_device_placement"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptProgram:
    """Program kept by another process.

    Attributes:
      program: Compiled program of jax.
      layout: Layout, as in `compile_cache`.
      places: Positions of the settings that are its arguments.
      text_sha256: Hash of the text that XLA compiled.
    """

    program: Any
    layout: Any
    places: frozenset[int]
    text_sha256: str


class Asked:
    """Request for one kept program.

    Args:
      path: Path of its file, which may not exist.
      key: Hash that names the program.
      compute_key: Function that computes the hash again, to detect that tracing has changed it. A program stored under
        a changed hash would not be found next time.
      trace: Detects actions during tracing that the hash does not cover.
    """

    def __init__(self, path: Path, key: str, compute_key: Callable[[], str], trace: WatchedTrace) -> None:
        self._path = path
        self._key = key
        self._compute_key = compute_key
        self._is_fresh = False
        self.trace = trace

    def find(self) -> KeptProgram | None:
        """Returns the program; None if no stored one may be used."""
        try:
            program = _load(self._path)
            _log.info("an executable is there: %s", self._path.name if program is not None else "of other packages")
            return program
        except OSError:
            return None
        except Exception:  # noqa: BLE001  (a damaged file, another jax: whatever is wrong with it, it is made again)
            self.drop()
            return None

    def find_or_lock(self, stack: contextlib.ExitStack) -> KeptProgram | None:
        """Returns the program, after waiting for a process that compiles it.

        If there is none, `stack` holds the program's lock, so that other processes wait until this one has kept it. If
        the other process could not keep it, all that waited compile it, at the same time.
        """
        program = self.find()
        if program is None:
            has_waited = stack.enter_context(_locked(self._path.with_name(f"{self._path.name}.lock")))
            program = self.find()
            if has_waited or program is not None:
                stack.close()
        return program

    def is_checked(self) -> bool:
        """Returns whether to trace a stored program again and compare the two."""
        setting = os.environ.get(EXECUTABLES)
        return setting == "checked" or (setting != "unchecked" and secrets.randbelow(_CHECK_INTERVAL) == 0)

    def drop(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()

    def differs(self) -> None:
        """Warns that a kept program differs from its code, and deletes it."""
        self.drop()
        warnings.warn(
            f"{self._path}: a kept executable is not what its case compiles to now; it was not used and is deleted. "
            "What does its code hang on that changed? --lobench-no-executables does without them",
            RuntimeWarning,
            stacklevel=2,
        )

    def compile(self, lowered: jax.stages.Lowered, text_sha256: str) -> jax.stages.Compiled:
        """Compiles a program, or loads it from jax's cache.

        XLA can only serialize programs that it compiled in this process.

        Args:
          lowered: Lowered program.
          text_sha256: Hash of its text. Programs of several hashes may have the same text, such as those with and
            without a binding. While one process compiles it, others wait, and then load it from jax's cache. What
            jax cannot cache, all that waited compile at the same time.
        """
        with contextlib.ExitStack() as stack:
            if stack.enter_context(_locked(self._path.with_name(f"{text_sha256}.lock"))):
                stack.close()  # it is in jax's cache now, or cannot be there
            num_compilations = _compilations().count
            compiled = lowered.compile(compiler_options())
        self._is_fresh = _compilations().count > num_compilations
        return compiled

    def keep(
        self,
        traced: jax.stages.Traced,
        lowered: jax.stages.Lowered,
        program: jax.stages.Compiled,
        layout: Any,
        read_settings: frozenset[int],
        text_sha256: str,
    ) -> None:
        """Stores a program returned by `compile`, if its hash is still the same."""
        try:
            if self.trace.saw:
                raise Unhashable(self.trace.saw)
            if layout.parts != 1:
                raise Unhashable("several devices")
            custom_calls = set(_CUSTOM_CALL.findall(lowered.as_text())) - _HARMLESS_CALLS
            if custom_calls or traced.jaxpr.effects:
                raise Unhashable(
                    f"parts outside of the program: {', '.join(sorted(custom_calls)) or traced.jaxpr.effects}"
                )
            files = installed_files()
            if self._compute_key() != self._key:
                raise Unhashable("what tracing itself changes")
            code_path = self._path.with_name(f"{_name_of_code(traced, program, text_sha256)}.code")
            if self._is_fresh:
                _write(code_path, serialize_executable.serialize(program)[0])
            elif not code_path.exists():
                return  # it is kept when XLA compiles it again
            header: dict[str, Any] = {"places": sorted(read_settings), "text": text_sha256, "code": code_path.name}
            header |= {"files": files, "outlines": outlines()}
            structures = (jax.tree.structure(program.args_info), program.out_tree, layout)
            packed_header = zlib.compress(json.dumps(header).encode(), 1)
            _write(self._path, len(packed_header).to_bytes(8, "big") + packed_header + pickle.dumps(structures))
        except Unhashable as error:
            _log.info("not kept: it reaches %s", error)
        except Exception as error:  # noqa: BLE001  (jax or pickle cannot: then it is traced each time, as before)
            _log.info("not kept: %s: %s", type(error).__name__, error)


class KeptExecutables:
    """Kept executables of one program.

    Args:
      subject: Function that returns the objects that are traced: the case with its task and optimizer.
      names: Further texts that determine the program; part of the hash.
    """

    def __init__(self, subject: Callable[[], Sequence[Any]], *names: str) -> None:
        self._subject, self._names = subject, names
        self._earlier_trace: WatchedTrace | None = None

    def ask(self, theta_and_settings: Any, arguments: Any, num_thetas: int) -> Asked | None:
        """Returns the request for the program of these arguments; None if the program may not be kept.

        Args:
          theta_and_settings: Theta, and values of the settings.
          arguments: Other arguments of the program, or their shapes.
          num_thetas: Number of thetas. 0: one, without an axis.
        """
        folder = str(jax.config.values["jax_compilation_cache_dir"] or "")
        is_cached = folder and "://" not in folder and jax.config.values["jax_enable_compilation_cache"]
        if os.environ.get(EXECUTABLES) == "off" or not is_cached or jax.default_backend() != "cpu":
            return None
        theta, values = theta_and_settings
        setting_values = [float(value) for value in values]
        defaults = [isinstance(value, UnboundDefault) for value in values]

        def compute_key() -> str:
            environment_parts = (_VERSION, device_description(), repr(sorted(compiler_options().items())), num_thetas)
            shapes = _shapes((theta, arguments))
            return reach(self._names, environment_parts, setting_values, defaults, shapes, *self._subject())

        try:
            digest = compute_key()
        except Unhashable as error:
            _log.info("not looked for: it reaches %s", error)
            return None
        trace = WatchedTrace()
        # jax does not trace parts again that it has traced for an earlier request, so what that trace saw counts too.
        trace.saw = self._earlier_trace.saw if self._earlier_trace is not None else ""
        self._earlier_trace = trace
        return Asked(Path(folder) / "executables" / digest, digest, compute_key, trace)


def _shapes(values: Any) -> list[str]:
    leaves, structure = jax.tree.flatten(values)
    return [str(structure), *(_shape(leaf) for leaf in leaves)]


def _shape(leaf: Any) -> str:
    aval = leaf if isinstance(leaf, jax.ShapeDtypeStruct) or hasattr(leaf, "donated") else jax.typeof(leaf)
    if hasattr(aval, "donated"):
        return repr(aval)
    return f"{aval.shape} {aval.dtype} {aval.weak_type}"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Locks a program while the body runs, and yields whether this had to wait for another process.

    The system releases the lock of a process that was killed. Without a lock, as on some network file systems, the
    body runs at once.

    Args:
      path: Path of the lock's file. The process that did not wait removes it.
    """
    with contextlib.ExitStack() as stack:
        has_waited = False
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("ab"))
            deadline = time.monotonic() + _MAX_WAIT_SECONDS
            while not _try_lock(file.fileno()) and time.monotonic() < deadline:
                if not has_waited:
                    _log.info("another process compiles it: %s", path.name)
                has_waited = True
                time.sleep(_POLL_SECONDS)
            stack.callback(_unlock, file.fileno())
        try:
            yield has_waited
        finally:
            if not has_waited:  # those that still wait have the file open
                with contextlib.suppress(OSError):
                    path.unlink()


def _try_lock(descriptor: int) -> bool:
    """Returns whether an open file is locked now; False if another process has locked it.

    Raises:
      OSError: The file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(descriptor: int) -> None:
    """Releases a lock, also if a child process has inherited the file; closing it here would then not release it."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


@functools.cache
def _compilations() -> CompilationCounter:
    return CompilationCounter()


def _name_of_code(traced: jax.stages.Traced, program: jax.stages.Compiled, text_sha256: str) -> str:
    """Returns a name that depends on all inputs of jax's compilation, and on the types of the arguments."""
    jaxpr = traced.jaxpr.jaxpr
    _, are_read = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    hashed_parts = (
        *(_VERSION, jax.__version__, jaxlib.version.__version__, text_sha256, device_description()),
        *(sorted(compiler_options().items()), are_read, _shapes(program.args_info), program.out_tree),
        *(traced.jaxpr.in_avals, traced.jaxpr.out_avals, os.environ.get("XLA_FLAGS"), processor()),
    )
    return hashlib.sha256(repr(hashed_parts).encode()).hexdigest()


def _write(path: Path, body: bytes) -> None:
    """Writes a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(body).digest() + body)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _read(path: Path) -> bytes:
    """Returns the content of a file written by `_write`.

    Raises:
      OSError: The file is missing, or other users may write it. It holds machine code, which would be run.
      ValueError: The file is damaged.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise PermissionError(f"{path}: others than its reader may write it")
        data = file.read()
    start = len(_MAGIC) + 32
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(data[start:]).digest() != data[len(_MAGIC) : start]:
        raise ValueError("damaged")
    return data[start:]


def _load(path: Path) -> KeptProgram | None:
    """Returns the program of a file; None if installed packages have changed since."""
    data = _read(path)
    start = 8 + int.from_bytes(data[:8], "big")
    header = json.loads(zlib.decompress(data[8:start]))
    if not are_as_then(header["files"]) or not are_outlined(header["outlines"]):
        return None
    code = _read(path.with_name(header["code"]))
    in_tree, out_tree, layout = pickle.loads(data[start:])  # noqa: S301  (the user's own file, see `_read`)
    program = serialize_executable.deserialize_and_load(code, in_tree, out_tree, execution_devices=jax.devices()[:1])
    return KeptProgram(program=program, layout=layout, places=frozenset(header["places"]), text_sha256=header["text"])
