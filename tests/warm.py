"""Workers of tests, forked from a process that has imported jax: they need a third less processor time.

Only the start differs from that of `subprocess.Popen`. The worker is a child of the process that asks for it, leads a
process group, and has the environment, the folder and the open files that were given. It is started anew if its
environment changes what is imported, and with `COLD_WORKERS=1`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

__all__ = ["WarmPopen", "warm_workers"]

_PR_SET_CHILD_SUBREAPER = 36
# What importing depends on: with another value of one of these, a process is started anew.
_READ_AT_IMPORT = ("JAX_", "OMP_", "OPENBLAS_", "MKL_", "PYTHON", "LD_", "NPROC", "CUDA_", "PATH", "VIRTUAL_ENV")
_IMPORTED = (
    *("jax.experimental.serialize_executable", "optax.contrib", "gin", "pytest", "xdist.plugin", "xdist.workermanage"),
    *("_pytest.skipping", "_pytest.junitxml", "_pytest.unittest", "_pytest.warnings", "_pytest.faulthandler", "pdb"),
    *("lobench.pytest_plugin.worker", "lobench.pytest_plugin.gin_items", "lobench.pytest_plugin.variants"),
    *("lobench.evaluation.isolated", "lobench.evaluation.together", "lobench.experiments.pytest_items"),
    *("lobench.inner.optimizers", "lobench.inner.tasks", "lobench.engine.store.bundle", "lobench.report.tables.text"),
)
_OF_ONE_TEST = ("PYTHON_", "PYTHONUNBUFFERED")


def _at_import(environment: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_IMPORT) and not name.startswith(_OF_ONE_TEST)
    }


class _Server:
    """The process that is forked: it answers each request with the number of a new child of this process."""

    def __init__(self) -> None:
        self.environment = _at_import({**os.environ, "NPROC": "1"})
        self._lock = threading.Lock()
        self._end, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "NPROC": "1"},
            )

    def start(self, request: dict[str, Any], files: Sequence[int]) -> int:
        body = json.dumps(request).encode()
        with self._lock, _adopting():
            socket.send_fds(self._end, [len(body).to_bytes(4, "big")], list(files))
            self._end.sendall(body)
            return int.from_bytes(_exactly(self._end, 4), "big")


@functools.cache
def _server(_: int) -> _Server:
    return _Server()


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Meanwhile a process becomes this one's child if its parent ends: so the forked one does."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _exactly(end: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = end.recv(size - len(found))
        if not more:
            raise EOFError("the process that is forked has ended")
        found += more
    return found


class WarmPopen(subprocess.Popen[bytes]):
    """A worker that is forked; `args` are `python -P -m MODULE DESCRIPTOR`."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        pass_fds: Sequence[int],
        stdin: int,
        env: dict[str, str],
        stdout: Any = None,
        stderr: Any = None,
        process_group: int | None = None,
    ) -> None:
        server = _server(os.getpid())
        if _at_import(env) != server.environment:
            super().__init__(
                args, pass_fds=pass_fds, stdin=stdin, env=env, stdout=stdout, stderr=stderr, process_group=process_group
            )
            return
        self.args, self.stdin, self.stdout, self.stderr = args, None, None, None
        self.returncode, self._child_created = None, False
        self._input, self._communication_started, self.text_mode = None, False, None
        self._waitpid_lock, self._sigint_wait_secs = threading.Lock(), 0.25
        with contextlib.ExitStack() as stack:
            if stdout is None:
                out = 1
            elif stdout == subprocess.DEVNULL:
                out = stack.enter_context(open(os.devnull, "wb")).fileno()
            else:
                out = stdout.fileno()
            err = out if stderr == subprocess.STDOUT else 2
            request = {
                "module": args[3],
                "words": args[4:],
                "descriptors": list(pass_fds),
                "environment": dict(env),
                "folder": os.getcwd(),
                "process_group": process_group,
            }
            self.pid = server.start(request, [out, err, *pass_fds])
        self._child_created = True


@contextlib.contextmanager
def warm_workers() -> Iterator[None]:
    """Workers that this process starts are forked meanwhile, on Linux: others have no reaper of one's own choice."""
    if sys.platform != "linux" or os.environ.get("COLD_WORKERS"):
        yield
        return
    from lobench.engine.workers import process

    real = process.subprocess
    process.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": WarmPopen})  # type: ignore[attr-defined]
    try:
        yield
    finally:
        process.subprocess = real  # type: ignore[attr-defined]


def _serve(descriptor: int) -> None:
    from lobench.engine.workers.devices import settle_blas

    settle_blas(1)
    _import()
    for name in ("OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE"):
        os.environ.pop(name, None)
    gc.collect()
    gc.freeze()
    end = socket.socket(fileno=descriptor)
    while True:
        size, files, _, _ = socket.recv_fds(end, 4, 16)
        if len(size) < 4:
            os._exit(0)
        request = json.loads(_exactly(end, int.from_bytes(size, "big")))
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid:
                os.write(writing, pid.to_bytes(4, "big"))
                os._exit(0)
            parent = os.getppid()
            for each in (reading, writing):
                os.close(each)
            end.close()
            _become(request, files, parent)
            return
        os.close(writing)
        pid = os.read(reading, 4)
        os.close(reading)
        os.waitpid(between, 0)
        for file in files:
            os.close(file)
        end.sendall(pid)


def _import() -> None:
    """Imports what a worker imports of installed packages."""
    import importlib

    for name in _IMPORTED:
        importlib.import_module(name)


def _become(request: dict[str, Any], files: Sequence[int], between: int) -> None:
    """Makes this process what was asked for, and runs its module."""
    while os.getppid() == between:
        time.sleep(0.0005)
    if request["process_group"] is not None:
        os.setpgid(0, request["process_group"])
    out, err, *passed = files
    os.dup2(out, 1)
    os.dup2(err, 2)
    for each in {out, err}:
        os.close(each)
    for each in passed:
        os.set_inheritable(each, False)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    numbers = dict(zip(map(str, request["descriptors"]), map(str, passed), strict=True))
    sys.argv = [request["module"], *(numbers.get(word, word) for word in request["words"])]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.unfreeze()
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if path != str(Path(__file__).parent)]
    _serve(int(sys.argv[1]))
