"""torch optimizers of another environment, run in a process with that environment's Python.

`serve` runs there, and needs torch but not lobench; `OtherPython` is the client. Messages are tuples of numbers, texts
and bytes, so that the versions of Python, numpy and torch may differ.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lobench_torch.specs import OptimizerClass, OptimizerSpec, RefusedOptimizer, Settings, StepResult

if TYPE_CHECKING:
    from lobench_torch.host import Host

__all__ = ["OtherPython", "serve"]

Array = Any
# The working folder is not searched, because a library's checkout there is not the installed one.
_SCRIPT = """
import importlib.util, sys
sys.path[:] = [folder for folder in sys.path if folder]
home, fd = sys.argv[1:]
spec = importlib.util.spec_from_file_location("lobench_torch", home + "/__init__.py", submodule_search_locations=[home])
sys.modules["lobench_torch"] = importlib.util.module_from_spec(spec)
from lobench_torch.other_python import serve
serve(int(fd))
"""
_PYTHON_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


class OtherPython:
    """Optimizers of another environment. Has the interface of `Library`.

    Args:
      python: Path of its Python. The process starts with the first request, is restarted if it has ended, and ends with
        this process.
    """

    def __init__(self, python: str) -> None:
        self._python, self._lock = python, threading.RLock()
        self._hosts: dict[_OtherHost, int] = {}  # numbers of hosts in the running process
        self._process_and_pipe: tuple[subprocess.Popen[bytes], Connection] | None = None

    @classmethod
    @functools.cache
    def at(cls, python: str) -> OtherPython:
        """Returns the shared instance for a Python."""
        return cls(python)

    def describe_class(self, name: str) -> OptimizerClass:
        return OptimizerClass(*self.ask("describe_class", name))

    def identity(self, name: str) -> str:
        return self._python

    def host(
        self,
        optimizer_spec: OptimizerSpec,
        shapes: Mapping[str, tuple[int, ...]],
        settings: Settings,
        scheduled_names: Sequence[str],
    ) -> _OtherHost:
        groups = [(pattern, dict(own_settings)) for pattern, own_settings in optimizer_spec.groups]
        spec_values = optimizer_spec.name, groups, optimizer_spec.takes_closure, optimizer_spec.no_decay
        return _OtherHost(self, (spec_values, dict(shapes), dict(settings), tuple(scheduled_names)))

    def ask(self, *message: Any, host: _OtherHost | None = None) -> Any:
        """Calls a method of `_Server` in the other process and returns its result.

        Args:
          message: Name of the method and its arguments.
          host: Host whose number is inserted before the other arguments.
        Raises:
          RefusedOptimizer: The method raised it, or the Python does not exist, or its process ended.
        """
        with self._lock:
            process, pipe = self._process_and_pipe or self._start()
            try:
                if host is not None:
                    message = (message[0], self._host_number(host), *message[1:])
                pipe.send(message)
                status, *reply = pipe.recv()
            except (EOFError, OSError) as error:
                self._process_and_pipe = None
                self._hosts.clear()
                pipe.close()
                code = process.wait()
                raise RefusedOptimizer(
                    f"the Python of {message[0]!r} has ended",
                    where=self._python,
                    got=f"exit code {code}",
                    expected="Python 3.10 or later, with torch and numpy",
                ) from error
        if status == "refused":
            problem, error_fields = reply
            raise RefusedOptimizer(problem, **error_fields)
        return reply[0]

    def _host_number(self, host: _OtherHost) -> int:
        if host not in self._hosts:
            self._hosts[host] = self.ask("make", *host.make_arguments)[0]
        return self._hosts[host]

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        our_socket, their_socket = socket.socketpair()
        command = [self._python, "-c", _SCRIPT, str(Path(__file__).parent), str(their_socket.fileno())]
        env = {name: value for name, value in os.environ.items() if name not in _PYTHON_VARIABLES}
        try:
            # A session of its own, so that Ctrl-C reaches only the worker, which then ends this process.
            process = subprocess.Popen(command, env=env, pass_fds=[their_socket.fileno()], start_new_session=True)
        except OSError as error:
            our_socket.close()
            raise RefusedOptimizer(
                "no Python",
                where=self._python,
                got=error.strerror or str(error),
                expected="a path as envs/old/bin/python",
            ) from error
        finally:
            their_socket.close()
        self._process_and_pipe = process, Connection(our_socket.detach())
        return self._process_and_pipe


class _OtherHost:
    """A `Host` in another process.

    Args:
      make_arguments: Arguments of `_Server.make`.
    """

    def __init__(self, library: OtherPython, make_arguments: tuple[Any, ...]) -> None:
        self._library, self.make_arguments = library, make_arguments
        self.empty_state = np.zeros(library.ask("make", *make_arguments)[1], np.uint8)

    def step(
        self,
        settings: Settings,
        step_settings: Settings,
        params: Array,
        grads: Array,
        loss: Array,
        state: Array,
        seed: int,
    ) -> StepResult:
        arguments = (params.tobytes(), grads.tobytes(), float(loss), state.tobytes(), seed)
        return _step_result(self._library.ask("step", settings, step_settings, *arguments, host=self))

    def continue_step(self, token: int, loss: Array, grads: Array) -> StepResult:
        return _step_result(self._library.ask("continue_step", token, float(loss), grads.tobytes(), host=self))

    def eval_params(self, settings: Settings, params: Array, state: Array) -> np.ndarray:
        param_bytes = self._library.ask("eval_params", settings, params.tobytes(), state.tobytes(), host=self)
        return np.frombuffer(param_bytes, np.float32)


def _step_result(reply: tuple[bool, bytes, bytes, int]) -> StepResult:
    is_done, params, state, token = reply
    return StepResult(is_done, np.frombuffer(params, np.float32), np.frombuffer(state, np.uint8), token)


class _Server:
    """Methods that the client calls in the other environment."""

    def __init__(self) -> None:
        from lobench_torch.host import Library

        self._library, self._hosts = Library(), list[Any]()

    def describe_class(self, name: str) -> tuple[str, bool, bool]:
        optimizer_class = self._library.describe_class(name)
        return optimizer_class.first_argument, optimizer_class.takes_closure, optimizer_class.has_modes

    def make(self, spec_values: Any, shapes: Any, settings: Any, scheduled_names: Any) -> tuple[int, int]:
        """Creates a host. Returns its number and the size of its state."""
        self._hosts.append(self._library.host(OptimizerSpec(*spec_values), shapes, settings, scheduled_names))
        return len(self._hosts) - 1, self._hosts[-1].empty_state.size

    def step(
        self,
        host: int,
        settings: Any,
        step_settings: Any,
        params: bytes,
        grads: bytes,
        loss: float,
        state: bytes,
        seed: int,
    ) -> tuple[bool, bytes, bytes, int]:
        flat_params = np.frombuffer(params, np.float32)
        gradients = np.frombuffer(grads, np.float32)
        return _encode_result(
            self._host(host).step(
                settings, step_settings, flat_params, gradients, loss, np.frombuffer(state, np.uint8), seed
            )
        )

    def continue_step(self, host: int, token: int, loss: float, grads: bytes) -> tuple[bool, bytes, bytes, int]:
        return _encode_result(self._host(host).continue_step(token, loss, np.frombuffer(grads, np.float32)))

    def eval_params(self, host: int, settings: Any, params: bytes, state: bytes) -> bytes:
        flat_params = np.frombuffer(params, np.float32)
        state_array = np.frombuffer(state, np.uint8)
        return self._host(host).eval_params(settings, flat_params, state_array).tobytes()

    def _host(self, number: int) -> Host:
        host: Host = self._hosts[number]
        return host


def _encode_result(result: StepResult) -> tuple[bool, bytes, bytes, int]:
    return result.is_done, result.params.tobytes(), result.state.tobytes(), result.token


def serve(fd: int) -> None:
    """Answers requests until the client closes the connection.

    Args:
      fd: File descriptor of a socket.
    """
    pipe = Connection(fd)
    server = _Server()
    while True:
        try:
            method_name, *args = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            reply: tuple[Any, ...] = ("done", getattr(server, method_name)(*args))
        except RefusedOptimizer as error:
            reply = ("refused", error.what, error.error_fields)
        pipe.send(reply)
