"""Python processes of tests, forked from a server that has imported jax and lobench. Each fork saves seconds of a core.

`fork_processes` replaces `subprocess.Popen` in a process of tests. Commands of lobench, sessions of pytest, workers of
both and evaluating processes are then forked from the server, and so are those that a forked process starts. They are
children of the process that asked, with the folder, environment, descriptors, session and exit code of a process that
is started anew. `python` and `started` fork any other program. `programs` returns a folder with `python`, `lobench` and
`pytest` for scripts of a shell, to stand first in PATH.

With `ALL` in the environment any other Python program that a forked process starts is forked too. With `STATISTICS` or
`TORCH`, more is imported in what is forked.

A process is started anew if its folder has a module with the name of an imported one, or its environment has `ANEW`
(`programs` check neither), and on systems other than Linux.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib.metadata
import importlib.util
import inspect
import io
import json
import os
import pkgutil
import platform
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
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["ALL", "ANEW", "STATISTICS", "TORCH", "fork_processes", "programs", "python", "started"]

ANEW = {"LOBENCH_TESTS_FORK": "off"}  # in the environment of a process: it and what it starts are started anew
ALL = {"LOBENCH_TESTS_FORK": "all"}  # in the environment of a forked process
_ALSO_IMPORTED = "LOBENCH_TESTS_IMPORT"  # variable: further modules that are imported in a process, separated by commas
STATISTICS = {_ALSO_IMPORTED: "scipy.stats,sklearn.datasets"}
TORCH = {_ALSO_IMPORTED: "torch,torch._dynamo"}  # torch imports the second one with the first optimizer that is made

_WORKER_OF_XDIST = ("-u", "-c", "import sys;exec(eval(sys.stdin.readline()))")  # as execnet starts it
_FORKED = (
    *((*safe, "-m", name) for safe in ((), ("-P",)) for name in ("lobench.cli", "pytest")),
    *(("-P", "-m", name) for name in ("lobench.engine.workers.entry", "lobench.evaluation.isolated")),
    ("-P", "-m", "lobench.report.page.builtin_report"),
    _WORKER_OF_XDIST,
)
_IMPORTED = (
    *("jax.experimental.serialize_executable", "optax.contrib", "gin", "click", "pytest", "rich.console"),
    *("lobench.inner.optimizers", "lobench.inner.tasks", "lobench.evaluation.isolated", "lobench.cli"),
    *("lobench.pytest_plugin.worker", "lobench.experiments.run", "lobench.engine.chief.loop", "lobench.api"),
    *("lobench.cli.group", "lobench.cli.watch", "lobench.cli.endings", "lobench.cli.command_records", "lobench.extend"),
    *("lobench.tools.alarm.watching", "lobench.report.page.builtin_report", "pdb", "pandas", "scipy.special"),
    # What jax imports when it lowers its first program, and tables of scores and sinks need.
    *("jaxlib.mlir.dialects.mhlo", "jaxlib.mlir.dialects.builtin", "lobench.report.tables.ranking"),
    *("lobench.analysis.comparisons.best_group", "lobench.analysis.comparisons.run_sink"),
    "tensorboard.compat.proto.event_pb2",
)
# Imports depend on these variables: with another value of one, a process is forked from another server.
_READ_AT_IMPORT = ("JAX_", "OMP_", "OPENBLAS_", "MKL_", "PYTHON", "LD_", _ALSO_IMPORTED)
_CACHE = "JAX_COMPILATION_CACHE_DIR"
_SET_LATER = (_CACHE, "JAX_PLATFORMS")  # a forked process gives jax their values, as jax does when it is imported
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_PR_GET_TID_ADDRESS = 40
_CLONE_PARENT, _CLONE_CHILD_SETTID, _CLONE_CHILD_CLEARTID = 0x8000, 0x1000000, 0x200000
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_TOLD_BY_GROUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
_MOST_SERVERS = 2  # each holds 200 MB
# Program of `programs`: asks the server for a process with its own input and output, and ends with its exit code.
_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
first, words = {first!r}, sys.argv[1:]
if not first and (not words or words[0] in ("-", "-P") or words[0][0] == "-" and words[0] not in ("-c", "-m")):
    os.execv({python!r}, [{python!r}, *words])
request = {{"words": [*first, *words], "cwd": os.getcwd(), "env": dict(os.environ), "session": False, "group": -1}}
text = json.dumps({{**request, "descriptors": [0, 1, 2]}}).encode()
end = socket.socket(socket.AF_UNIX)
end.connect({address!r})
socket.send_fds(end, [f"{{len(text):<20}}".encode()], [0, 1, 2])
end.sendall(text)
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
_CAN_FORK = sys.platform == "linux" and platform.machine() in _SYS_CLONE
# In a forked session of pytest, the server's copy of this file may have replaced `subprocess.Popen`.
_ORIGINAL = next(one for one in subprocess.Popen.__mro__ if one.__module__ == "subprocess")
_ARGUMENTS = list(inspect.signature(_ORIGINAL._execute_child).parameters)[1:]  # type: ignore[attr-defined]


def fork_processes() -> None:
    """Makes `subprocess` in this process fork what can be forked; a second call changes nothing.

    A process that was forked itself, a worker of xdist, uses the server that it began with; it may start others too.
    """
    if not _CAN_FORK or subprocess.Popen is _Popen:
        return
    if subprocess.Popen is not _ORIGINAL:
        _servers.update(subprocess.Popen._execute_child.__globals__["_servers"])  # type: ignore[attr-defined]
    subprocess.Popen = _Popen  # type: ignore[misc]


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
    with started(*words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def started(*words: str | Path, **options: Any) -> subprocess.Popen[Any]:
    """Starts `python -c CODE`, `python -m MODULE` or `python FILE` with options of `subprocess.Popen`."""
    return _AnyPopen([sys.executable, *map(str, words)], **options)


def programs() -> Path | None:
    """Returns a folder of programs that are forked; None where none can be."""
    server = _server_for(os.environ) if _CAN_FORK else None
    return server.programs() if server else None


class _Popen(subprocess.Popen[Any]):
    """Process that is forked if its command is one of `_FORKED` and it asks for nothing that a fork cannot do."""

    is_forked, starts = False, False

    def _execute_child(self, *given: Any) -> None:
        asked = dict(zip(_ARGUMENTS, given, strict=True))
        pid = _forked(asked, starts=self.starts) if self._is_known(asked["args"]) and _is_usual(asked) else None
        if pid is None:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        self.pid, self._child_created, self.is_forked = pid, True, True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in pipes))  # type: ignore[attr-defined]

    def _is_known(self, words: Any) -> bool:
        if not isinstance(words, list | tuple):
            return False
        return any(list(words[1 : len(one) + 1]) == [*one] for one in _FORKED) or (
            _has(os.environ, ALL) and _is_program(words)
        )


class _AnyPopen(_Popen):
    """Process of any Python program."""

    starts = True

    def _is_known(self, words: Any) -> bool:
        return _CAN_FORK and _is_program(words)


def _is_program(words: Sequence[Any]) -> bool:
    return len(words) > 1 and (words[1] in ("-c", "-m") or not str(words[1]).startswith("-"))


def _is_usual(asked: Mapping[str, Any]) -> bool:
    """Returns whether a forked process can do all that was asked for."""
    environment = os.environ if asked["env"] is None else asked["env"]
    is_worker = asked["args"][1] == "-P"
    own = (asked["executable"], asked["preexec_fn"], asked["gid"], asked["gids"], asked["uid"])
    return (
        own == (None,) * 5
        and str(asked["args"][0]) == sys.executable
        and asked["umask"] == -1
        and asked["close_fds"]
        and not asked["shell"]
        and not _has(environment, ANEW)
        and not (is_worker and _CACHE not in environment)  # a worker sets it before it imports jax
        and not _has_other_modules(str(asked["cwd"] or os.getcwd()), environment)
    )


def _has(environment: Mapping[str, str], variables: Mapping[str, str]) -> bool:
    return variables.items() <= environment.items()


def _at_import(environment: Mapping[str, str]) -> dict[str, str]:
    at_import = {name: value for name, value in environment.items() if name.startswith(_READ_AT_IMPORT)}
    return {name: value for name, value in at_import.items() if name not in ("PYTHONPATH", *_SET_LATER)}


def _has_other_modules(folder: str, environment: Mapping[str, str]) -> bool:
    """Returns whether the process would import other modules than the server did, or one when it starts."""
    for path in {folder, *environment.get("PYTHONPATH", "").split(os.pathsep)} - {""}:
        with contextlib.suppress(OSError):
            names = {name.removesuffix(".py") for name in os.listdir(path)}
            known = [name for name in names if name in _installed() or name.startswith("lobench")]
            if any(name.isidentifier() and not _lies_in(name, os.path.realpath(path)) for name in known):
                return True
    return False


@functools.cache
def _installed() -> Collection[str]:
    packages = {name for name in importlib.metadata.packages_distributions() if not name.startswith("_")}
    return {*sys.stdlib_module_names, *packages, "sitecustomize", "usercustomize"} - {"tests", "test"}


@functools.cache
def _lies_in(name: str, folder: str) -> bool:
    spec = importlib.util.find_spec(name)
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any(os.path.realpath(place).startswith(folder + os.sep) for place in places)


class _Server:
    """Process that forks others.

    Args:
      end: This process's end of the socket for requests.
      address: Address of the socket for requests of `programs`; "" without one.
    """

    def __init__(self, end: socket.socket, address: str = "") -> None:
        self._end, self._lock, self._address = end, threading.Lock(), address
        self._programs: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def started(cls, at_import: Mapping[str, str]) -> _Server | None:
        end, theirs = socket.socketpair()
        with theirs:
            if modules := at_import.get(_ALSO_IMPORTED):
                base = _server_for({name: value for name, value in at_import.items() if name != _ALSO_IMPORTED})
                is_made = base is not None and base.ask({"serve": modules.split(",")}, [theirs.fileno()])
                return cls(end) if is_made else None
            others = {name: value for name, value in os.environ.items() if not name.startswith(_READ_AT_IMPORT)}
            # A thread of its own of OpenBLAS would be missing in what is forked.
            environment = {**others, **at_import, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ""}
            subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), json.dumps(at_import)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        return cls(end, "\0" + end.recv(100).decode())

    @classmethod
    def forked(cls) -> _Server:
        """Forks this process, which has not begun its program yet, so that it can have forked children itself."""
        end, theirs = socket.socketpair()
        if os.fork() == 0:
            _take([os.open(os.devnull, os.O_RDWR)] * 3 + [theirs.fileno()], range(4))
            _listen(socket.socket(fileno=3))
            os._exit(0)
        theirs.close()
        return cls(end, "\0" + end.recv(100).decode())

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> int | None:
        """Returns the id of a new process; None if the server made none."""
        text = json.dumps(request).encode()
        with self._lock, contextlib.suppress(OSError):
            socket.send_fds(self._end, [f"{len(text):<20}".encode()], descriptors)
            self._end.sendall(text)
            return int(self._end.recv(20) or 0) or None
        return None

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

    def close(self) -> None:
        self._end.close()
        if self._programs is not None:
            self._programs.cleanup()


_IS_FORKED = False  # this process; it has at most the server that it began with
_servers: dict[tuple[int, frozenset[tuple[str, str]]], _Server] = {}  # the last one was used last


def _server_for(environment: Mapping[str, str], *, starts: bool = True) -> _Server | None:
    """Returns the server whose imports were made with an environment's variables; None if there is none.

    Args:
      environment: Environment of the process to fork.
      starts: Whether a second server may be started.
    """
    key = (os.getpid(), frozenset(_at_import(environment).items()))
    # PR_SET_PDEATHSIG kills a server when the thread that started it ends.
    can_start = not _IS_FORKED and threading.current_thread() is threading.main_thread()
    starts = starts or not _servers or _ALSO_IMPORTED in environment
    if key not in _servers and not (can_start and starts):
        return None
    server = _servers.pop(key, None) or _Server.started(dict(key[1]))
    if server is None:
        return None
    _servers[key] = server
    if len(_servers) > _MOST_SERVERS:
        _servers.pop(next(iter(_servers))).close()
    return _servers[key]


def _forked(asked: Mapping[str, Any], *, starts: bool) -> int | None:
    """Returns the id of a process that was forked; None if there can be no server."""
    environment = dict(os.environ if asked["env"] is None else asked["env"])
    server = _server_for(environment, starts=starts)
    if server is None:
        return None
    given = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
    request = {
        "words": list(map(os.fspath, asked["args"]))[1:],
        "cwd": os.fspath(asked["cwd"] or os.getcwd()),
        "env": environment,
        "descriptors": [*range(3), *asked["pass_fds"]],
        "session": asked["start_new_session"],
        "group": asked["process_group"],
    }
    standard = [number if descriptor == -1 else descriptor for number, descriptor in enumerate(given)]
    return server.ask(request, [*standard, *asked["pass_fds"]])


def _listen(end: socket.socket) -> None:
    """Serves a process, and `programs`, whom it tells the address."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # Linux gives it a name
        listener.listen()
        end.sendall(listener.getsockname()[1:])
        _serve(end, listener)


def _serve(end: socket.socket, listener: socket.socket | None = None) -> None:
    """Forks a process for each request: a child of this one's parent, or of a process that waits for it."""
    _die_with_parent()
    for number in _TOLD_BY_GROUP:
        signal.signal(number, signal.SIG_IGN)
    while True:
        if listener is not None and listener in select.select([end, listener], [], [])[0]:
            with listener.accept()[0] as program:
                if os.fork() == 0:
                    _serve_program(program)
            with contextlib.suppress(ChildProcessError):  # none is left
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            continue
        received = _received(end)
        if received is None:
            return
        told, teller = os.pipe()
        pid = _sibling()
        if pid == 0 and "serve" in received[0]:
            _take([os.open(os.devnull, os.O_RDWR)] * 3 + received[1], range(4))
            for module in received[0]["serve"]:
                pkgutil.resolve_name(module)
            gc.freeze()
            _serve(socket.socket(fileno=3))
            os._exit(0)
        if pid == 0:
            _become(*received)
        os.close(teller)
        # The new process closes its end once it leads its session or group, which the caller may kill from then on.
        os.read(told, 1)
        os.close(told)
        end.sendall(f"{max(pid, 0)}".encode())  # 0: this system forks no siblings
        for each in received[1]:
            os.close(each)


def _received(end: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    length, descriptors, *_ = socket.recv_fds(end, 20, 200)
    return (json.loads(end.recv(int(length), socket.MSG_WAITALL)), descriptors) if length else None


def _serve_program(program: socket.socket) -> NoReturn:
    """Forks the process that one of `programs` asks for, and sends its id and exit code."""
    _die_with_parent()
    received = _received(program)
    if received is None:
        os._exit(1)
    if _at_import(received[0]["env"]) != json.loads(sys.argv[2]):
        program.sendall(b"0\n")
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        _die_with_parent()
        _become(*received)
    for each in received[1]:
        os.close(each)
    program.sendall(f"{pid}\n".encode())
    program.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())
    os._exit(0)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _sibling() -> int:
    """Forks as `os.fork` does, except that the new process is a child of this one's parent, which can wait for it."""
    python = ctypes.PyDLL(None)
    python.PyOS_BeforeFork()
    # Where the C library keeps the number of this thread, to which it sends signals: it is another in the new process.
    own_number = ctypes.c_void_p()
    python.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(own_number))
    flags = _CLONE_PARENT | signal.SIGCHLD | (_CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID if own_number.value else 0)
    place = own_number.value or 0
    last = (place, 0) if platform.machine() == "x86_64" else (0, place)
    pid = python.syscall(*map(ctypes.c_long, (_SYS_CLONE[platform.machine()], flags, 0, 0, *last)))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return int(pid)


def _become(request: Mapping[str, Any], descriptors: list[int]) -> NoReturn:
    """Runs the requested program in this process, and ends the process without a collection of all imported objects."""
    if request["session"]:
        os.setsid()
    if request["group"] >= 0:
        os.setpgid(0, request["group"])
    _take(descriptors, request["descriptors"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    starts_workers = any(name in str(request["words"][:3]) for name in ("lobench", "pytest", _WORKER_OF_XDIST[-1]))
    starts_any = starts_workers or _has(request["env"], ALL)
    nest = _Server.forked() if starts_any and not _has(request["env"], ANEW) else None
    code, is_interrupted = 0, False
    try:
        _run(request, nest)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 1
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001
        traceback.print_exception(error.with_traceback(_own_part(error.__traceback__)))
        code, is_interrupted = 1, isinstance(error, KeyboardInterrupt)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = 120
    if is_interrupted:  # as Python ends, after its output is written
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def _own_part(found: types.TracebackType | None) -> types.TracebackType | None:
    """Returns a traceback without the frames of this file and of runpy at its beginning."""
    while found is not None and found.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        found = found.tb_next
    return found


def _take(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Gives descriptors the requested numbers, and closes all others."""
    above = [fcntl.fcntl(each, fcntl.F_DUPFD, max(numbers) + 1) for each in descriptors]
    for each, number in zip(above, numbers, strict=True):
        os.dup2(each, number)
    last = 0
    for number in sorted(set(numbers)):
        if last < number:  # an empty range from 0 would be all descriptors
            os.closerange(last, number)
        last = number + 1
    os.closerange(last, 4096)


def _run(request: Mapping[str, Any], nest: _Server | None) -> None:
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    global _IS_FORKED
    _IS_FORKED = True
    if nest is not None:
        _servers[os.getpid(), frozenset(_at_import(os.environ).items())] = nest
        fork_processes()
    for name in _SET_LATER:
        sys.modules["jax"].config.update(name.lower(), os.environ.get(name))
    first, *rest = request["words"]
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED")) or first == "-u"
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, _stream(number, is_unbuffered=is_unbuffered and number > 0))
    sys.orig_argv = [sys.executable, *request["words"]]
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if first == "-u":
        first, *rest = rest
    beside = "" if first == "-c" else os.getcwd() if first == "-m" else os.path.dirname(os.path.abspath(first))
    if first == "-P":
        first, *rest = rest
    else:
        sys.path.insert(0, beside)
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    elif first == "-m":
        sys.argv = rest
        # The command line of a forked process is the server's: /proc names the module in `comm`, 15 bytes of it.
        ctypes.CDLL(None).prctl(_PR_SET_NAME, rest[0].encode())
        if not hasattr(sys.modules.get(rest[0]), "__path__"):
            sys.modules.pop(rest[0], None)  # it runs as the main module
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


def _stream(number: int, *, is_unbuffered: bool) -> io.TextIOWrapper | None:
    """Returns a standard stream as Python makes it when it starts."""
    try:
        raw = io.FileIO(number, "wb" if number else "rb", closefd=False)
    except OSError:
        return None
    buffer: Any = raw if is_unbuffered else io.BufferedWriter(raw) if number else io.BufferedReader(raw)
    return io.TextIOWrapper(
        buffer,
        encoding="utf-8",
        errors="backslashreplace" if number == 2 else "strict",
        line_buffering=number == 2 or raw.isatty(),
        write_through=is_unbuffered,
    )


def _import() -> None:
    from _pytest.assertion import install_importhook
    from _pytest.config import get_config

    # Sessions of tests do without hypothesis.
    points = importlib.metadata.entry_points(group="pytest11")
    plugins = {point.module for point in points if point.name != "hypothesispytest"}
    rewriting = install_importhook(get_config())  # as a session of pytest imports its plugins, lobench among them
    rewriting.mark_rewrite(*{name.partition(".")[0] for name in plugins})
    from lobench.engine.workers.devices import set_blas_variables

    set_blas_variables(1)
    # With `import_module` of any name the code of each suite of this checkout, whose conftest.py imports this file,
    # would be all tests: hundreds of files that each worker parses. The same holds for `_serve`.
    for name in (*_IMPORTED, *plugins):
        pkgutil.resolve_name(name)
    pkgutil.resolve_name("lobench.plugins").load_plugins()
    runpy.run_path(str(Path(__file__).with_name("lowered.py")))["share_contexts"]()
    _installed()  # takes a fifth of a second, and each command that starts workers needs it
    sys.meta_path.remove(rewriting)
    for name in ("OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE"):
        os.environ.pop(name, None)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # in what is forked; tracing creates many objects and little garbage


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if path != str(Path(__file__).parent)]
    _import()
    with socket.socket(fileno=int(sys.argv[1])) as given:
        _listen(given)
