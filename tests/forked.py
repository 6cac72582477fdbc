"""Python processes that are forked from one that has imported jax: each saves two seconds of a core.

`python` does here what `subprocess.run([sys.executable, ...])` does. A process whose environment changes what is
imported is forked from another one, with that environment. On a system that is not Linux every process is started anew.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["python"]

_PR_SET_PDEATHSIG = 1
_MOST_SERVERS = 2  # each holds 200 MB
# What an import depends on: with another value of one of these, a process is forked from another one.
_READ_AT_IMPORT = ("JAX_", "OMP_", "OPENBLAS_", "MKL_", "PYTHON", "LD_", "CUDA_", "COLUMNS")
_IMPORTED = (
    *("jax.experimental.serialize_executable", "optax.contrib", "gin", "click"),
    *("lobench.inner.optimizers", "lobench.inner.tasks", "lobench.evaluation.isolated", "lobench.cli"),
)


def python(
    *words: str | Path,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 900.0,
) -> subprocess.CompletedProcess[str]:
    """Runs `python -c CODE`, `python -m MODULE` or `python FILE` to its end.

    Raises:
      subprocess.TimeoutExpired: It did not end in time; it was killed.
    """
    command = [sys.executable, *map(str, words)]
    environment = dict(os.environ if env is None else env)
    if sys.platform != "linux" or words[0] == "-P":
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=timeout
        )
    with tempfile.TemporaryDirectory() as folder:
        output = [str(Path(folder, name)) for name in ("out", "err")]
        request = {"words": command[1:], "cwd": str(cwd or os.getcwd()), "env": environment, "output": output}
        code = _server(_at_import(environment)).run(request, timeout)
        out, err = (Path(path).read_bytes().decode(errors="replace") for path in output)
    if code is None:
        raise subprocess.TimeoutExpired(command, timeout, out, err)
    return subprocess.CompletedProcess(command, code, out, err)


def _at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_IMPORT) and name not in ("PYTHONPATH", "COLUMNS")
    }


class _Server:
    """The process that is forked, with an environment. It runs one process after another."""

    def __init__(self, at_import: Mapping[str, str]) -> None:
        self._end, theirs = socket.socketpair()
        with theirs:
            # A thread of its own of OpenBLAS would be missing in what is forked.
            others = {name: value for name, value in os.environ.items() if not name.startswith(_READ_AT_IMPORT)}
            environment = {**others, **at_import, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ""}
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        self._answers = self._end.makefile("r")

    def run(self, request: Mapping[str, Any], timeout: float) -> int | None:
        """Returns the exit code of a process as `subprocess` does; None if it was killed after the timeout."""
        self._end.sendall(json.dumps(request).encode() + b"\n")
        pid = int(self._answers.readline())
        in_time = bool(select.select([self._end], [], [], timeout)[0])
        if not in_time:
            os.kill(pid, signal.SIGKILL)
        code = int(self._answers.readline())
        return code if in_time else None

    def close(self) -> None:
        self._answers.close()
        self._end.close()
        self._process.wait()


_servers: dict[tuple[int, frozenset[tuple[str, str]]], _Server] = {}  # the last one was used last


def _server(at_import: Mapping[str, str]) -> _Server:
    key = (os.getpid(), frozenset(at_import.items()))
    _servers[key] = _servers.pop(key, None) or _Server(at_import)
    if len(_servers) > _MOST_SERVERS:
        _servers.pop(next(iter(_servers))).close()
    return _servers[key]


def _serve(descriptor: int) -> None:
    """Forks a process for each request."""
    _die_with_parent()
    for name in _IMPORTED:
        importlib.import_module(name)
    del os.environ["OPENBLAS_NUM_THREADS"]
    gc.collect()
    gc.freeze()
    end = socket.socket(fileno=descriptor)
    lines = end.makefile("r")
    while line := lines.readline():
        pid = os.fork()
        if pid == 0:
            end.detach()
            os.close(descriptor)
            _die_with_parent()
            _become(json.loads(line))
        end.sendall(f"{pid}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        end.sendall(f"{code}\n".encode())


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _become(request: Mapping[str, Any]) -> NoReturn:
    """Runs in this process what was asked for, and ends it without a look at all that was imported."""
    code = 0
    try:
        _run(request)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 1
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


def _run(request: Mapping[str, Any]) -> None:
    for number, path in enumerate(request["output"], 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    first, *rest = request["words"]
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = paths
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    elif first == "-m":
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if path != str(Path(__file__).parent)]
    _serve(int(sys.argv[1]))
