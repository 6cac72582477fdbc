"""Python processes that are forked from one that has imported jax: each saves two seconds of a core.

`python` does here what `subprocess.run([sys.executable, ...])` does. A process whose environment changes what is
imported is forked from another one, with that environment. On a system that is not Linux every process is started anew.

`programs` has the same for scripts of a shell: a folder with `python`, `lobench` and `pytest`, to stand first in PATH.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
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
from typing import Any, NoReturn, TextIO

__all__ = ["programs", "python"]

_PR_SET_PDEATHSIG = 1
# A program that has the server fork what it stands for, with its own input and output, and ends as that ends.
_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
first, words = {first!r}, sys.argv[1:]
if not first and (not words or words[0] in ("-", "-P") or words[0][0] == "-" and words[0] not in ("-c", "-m")):
    os.execv({python!r}, [{python!r}, *words])
request = json.dumps({{"words": [*first, *words], "cwd": os.getcwd(), "env": dict(os.environ)}}).encode()
end = socket.socket(socket.AF_UNIX)
end.connect({address!r})
socket.send_fds(end, [len(request).to_bytes(8, "big")], [0, 1, 2])
end.sendall(request)
answers = end.makefile()
pid = int(answers.readline())
if not pid:
    os.execv({python!r}, [{python!r}, *first, *words])
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
code = int(answers.readline())
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
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


def programs() -> Path | None:
    """Returns a folder of programs that are forked; None on a system that is not Linux."""
    return _server(_at_import(os.environ)).programs() if sys.platform == "linux" else None


def _at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_IMPORT) and name not in ("PYTHONPATH", "COLUMNS")
    }


class _Server:
    """The process that is forked, with an environment.

    It runs one process of `run` after another, and those of `programs` beside each other.
    """

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
        self._address = "\0" + self._answers.readline().strip()
        self._programs: tempfile.TemporaryDirectory[str] | None = None

    def programs(self) -> Path:
        if self._programs is None:
            self._programs = tempfile.TemporaryDirectory()
            folder = Path(sys.executable).parent
            for name in ("python", "lobench", "pytest"):
                first = [] if name == "python" else [str(folder / name)]
                path = Path(self._programs.name, name)
                path.write_text(_PROGRAM.format(python=sys.executable, first=first, address=self._address))
                path.chmod(0o755)
        return Path(self._programs.name)

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
        if self._programs is not None:
            self._programs.cleanup()


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
    end, listener = socket.socket(fileno=descriptor), socket.socket(socket.AF_UNIX)
    listener.bind("")  # Linux gives it a name
    listener.listen()
    end.sendall(listener.getsockname()[1:] + b"\n")
    lines, ours = end.makefile("r"), (end, listener)
    while True:
        if listener in select.select(ours, [], [])[0]:
            _serve_program(listener.accept()[0], ours)
        elif line := lines.readline():
            _answer(end, json.loads(line), ours)
        else:
            return
        with contextlib.suppress(ChildProcessError):  # none is left
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _serve_program(end: socket.socket, ours: tuple[socket.socket, ...]) -> None:
    """Forks a process that forks what was asked for, and waits for it."""
    with end:
        if os.fork():
            return
        _die_with_parent()
        for one in ours:
            one.close()
        length, given, _, _ = socket.recv_fds(end, 8, 3)
        request = end.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
        asked = {**json.loads(request), "given": given}
        if _at_import(asked["env"]) == _at_import(os.environ):
            _answer(end, asked, (end,))
        else:
            end.sendall(b"0\n")
    os._exit(0)


def _answer(end: socket.socket, request: Mapping[str, Any], ours: tuple[socket.socket, ...]) -> None:
    """Forks a process, says its id, and its code when it ends."""
    pid = os.fork()
    if pid == 0:
        for one in ours:
            os.close(one.detach())
        _die_with_parent()
        _become(request)
    for file in request.get("given", ()):
        os.close(file)
    end.sendall(f"{pid}\n".encode())
    end.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())


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


def _text(number: int, like: TextIO) -> TextIO:
    """Returns a file as Python makes its own, which may seek or not as the file can."""
    is_unbuffered = like.write_through  # type: ignore[attr-defined]
    file = io.FileIO(number, "w", closefd=False)
    buffer = file if is_unbuffered else io.BufferedWriter(file)
    return io.TextIOWrapper(buffer, errors=like.errors, line_buffering=like.line_buffering, write_through=is_unbuffered)


def _run(request: Mapping[str, Any]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = request.get("given") or [0, *(os.open(path, flags) for path in request["output"])]
    for number, file in enumerate(files):
        if file != number:
            os.dup2(file, number)
            os.close(file)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout, sys.stderr = _text(1, sys.stdout), _text(2, sys.stderr)
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
