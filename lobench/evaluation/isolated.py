"""Isolated evaluation in a child process, for callers whose jax backend must not change.

The child lives as long as the caller, and ends when its pipe closes. It keeps the compiled programs of cases bound with
the last few layers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import queue
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

from lobench.core import errors
from lobench.core.case import CaseSpec, SeedBlock
from lobench.core.codec import Codec, Message
from lobench.core.errors import LobenchError
from lobench.core.result import Curves
from lobench.core.wording import headline
from lobench.engine.checkpoints.spool import dump_theta
from lobench.engine.config.import_path import prepare_import_path
from lobench.engine.config.layers import Layers
from lobench.engine.config.user_code import differing_parts_run
from lobench.engine.workers.channel import ChiefEnd
from lobench.engine.workers.child_python import PYTHON_COMMAND, cache_environment
from lobench.evaluation.programs import Programs
from lobench.evaluation.request import EditedCode, ThetaLeaves, WrongThreads
from lobench.evaluation.runner import BlockRunner
from lobench.inner.backend_guard import watch_for_backend

__all__ = ["IsolatedRunner"]

_NO_EXECUTABLES = "--no-executables"
_MAX_LAYERS = 8  # number of layers whose programs are kept
# gin raises subclasses of its own making, of the same names.
_LOBENCH_ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LobenchError)]
_ERROR_CLASSES = {kind.__name__: kind for kind in (*_LOBENCH_ERRORS, EditedCode, WrongThreads)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Train(Message):
    """Request for the curves of a seed block.

    Attributes:
      theta_path: Path of a file of leaves; "" without theta.
      code_hashes: Parts of the case's code as the caller imported it; empty if any code is right.
      case_key: `CaseInfo.whole_training_key` of the case as the caller bound it; "" if any bindings are right.
      together, perturbation: As in `BlockRunner.repeat`.
    """

    layers: Layers
    spec: CaseSpec
    test_name: str
    theta_path: str
    where: str
    seed_block: SeedBlock
    code_hashes: Mapping[str, str] = field(default_factory=dict)
    case_key: str = ""
    together: str = ""
    perturbation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedReply(Message):
    """Result of `Train`: `Curves.to_payload()`."""

    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReply(Message):
    """Answer to a `Train` that raised an error: the name of its class, and its message in one line."""

    error_class: str
    message: str


ChildAnswer: TypeAlias = TrainedReply | ErrorReply
_ANSWERS: Codec[ChildAnswer] = Codec(TrainedReply, ErrorReply)


class IsolatedRunner:
    """A child process that runs seed blocks as a `BlockRunner` does.

    Args:
      keeps_executables: As in `Programs`.
    """

    def __init__(self, *, keeps_executables: bool = True) -> None:
        self._flags = [] if keeps_executables else [_NO_EXECUTABLES]
        # For later children: the folder of jax's persistent cache, and further environment variables.
        self.compilation_cache = ""
        self.environment: Mapping[str, str] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def run(
        self,
        layers: Layers,
        spec: CaseSpec,
        test_name: str,
        theta: ThetaLeaves,
        block: SeedBlock,
        *,
        code_hashes: Mapping[str, str] | None = None,
        case_key: str = "",
        together: str = "",
        perturbation: int = 0,
    ) -> Curves:
        """Trains one seed block in the child.

        Args:
          layers: gin text bound before and after the case's own file.
          spec, test_name, theta, block, together, perturbation: As in `BlockRunner.run` and `repeat`.
          code_hashes: `BoundCode.parts` of the case as the caller imported its code. None: any code is right.
          case_key: `CaseInfo.whole_training_key` of the case as the caller bound it. "": any bindings are right.
        Raises:
          EditedCode: The child imported other code, or read other gin files.
          LobenchError: The child raised an error, raised here in its class and as one line; or the child died.
        """
        request = Train(
            layers=layers,
            spec=spec,
            test_name=test_name,
            theta_path="",
            where=theta.where,
            seed_block=block,
            code_hashes=code_hashes or {},
            case_key=case_key,
            together=together,
            perturbation=perturbation,
        )
        try:
            return self._run(request, theta)
        except WrongThreads:
            self.close()  # it computed a case with another number of cores before
            return self._run(request, theta)

    def _run(self, request: Train, theta: ThetaLeaves) -> Curves:
        connection = self._connect()
        with tempfile.TemporaryDirectory(prefix="lobench-") as folder:
            if theta.leaves is not None:
                path = Path(folder) / "theta.npz"
                path.write_bytes(dump_theta(theta.leaves))
                request = dataclasses.replace(request, theta_path=str(path))
            try:
                connection.send_bytes(request.to_bytes())
                reply = _ANSWERS.from_bytes(connection.recv_bytes())
            except (EOFError, OSError) as error:
                exit_code = self._child.wait() if self._child else None
                self.close()
                raise LobenchError(
                    "the evaluating process died",
                    where=f"{request.spec.path}: case {request.spec.name!r}",
                    got=f"exit status {exit_code}",
                ) from error
            except BaseException:
                self.close()  # interrupted: the next request would receive this answer
                raise
        if isinstance(reply, ErrorReply):
            raise _ERROR_CLASSES.get(reply.error_class, LobenchError)(reply.message)
        return Curves.from_payload(reply.payload)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._child = self._connection = None

    def _connect(self) -> Connection:
        if self._connection is None:
            own_end, child_end = socket.socketpair()
            with child_end:
                cache_variables = cache_environment(self.compilation_cache) if self.compilation_cache else {}
                self._child = subprocess.Popen(
                    [*PYTHON_COMMAND, "-m", "lobench.evaluation.isolated", str(child_end.fileno()), *self._flags],
                    pass_fds=[child_end.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={**cache_variables, **os.environ, **self.environment},
                )
            self._connection = Connection(own_end.detach())
        return self._connection


def main(descriptor: int, *, keeps_executables: bool = True) -> None:
    """Serves requests until the pipe ends."""
    prepare_import_path()
    watch_for_backend()
    requests: queue.Queue[Train | None] = queue.Queue()
    caller = ChiefEnd(Connection(descriptor), Codec(Train), owns_process=True)
    caller.listen(requests.put)
    programs = Programs(keeps_executables=keeps_executables)
    runner_for_layers = functools.lru_cache(maxsize=_MAX_LAYERS)(lambda layers: BlockRunner(layers, programs))
    # Interrupting a notebook also interrupts its child, which must not print a traceback.
    with contextlib.suppress(KeyboardInterrupt):
        while (request := requests.get()) is not None:
            try:
                theta = ThetaLeaves.from_file(request.theta_path, where=request.where)
                runner = runner_for_layers(request.layers)
                curves = runner.repeat(
                    *(request.spec, request.test_name, theta, request.seed_block),
                    together=request.together,
                    perturbation=request.perturbation,
                )
                _refuse_other_code(request, runner)
            except Exception as error:  # noqa: BLE001  (the process boundary: the caller raises it)
                reply: ChildAnswer = ErrorReply(error_class=type(error).__name__, message=headline(error))
            else:
                reply = TrainedReply(payload=curves.to_payload())
            caller.send(reply)


def _refuse_other_code(request: Train, runner: BlockRunner) -> None:
    """Raises EditedCode if a file was edited between the caller's import and that of this process."""
    bound_case = runner.bind(request.spec, request.test_name)
    if request.case_key and bound_case.info.whole_training_key != request.case_key:
        raise EditedCode.of(request.spec, ["its gin files"])
    present_code = {**bound_case.code.parts, **differing_parts_run(bound_case.info)}
    if edited_parts := [
        name for name, sha256 in request.code_hashes.items() if present_code.get(name, sha256) != sha256
    ]:
        raise EditedCode.of(request.spec, edited_parts)


if __name__ == "__main__":
    main(int(sys.argv[1]), keeps_executables=_NO_EXECUTABLES not in sys.argv)
