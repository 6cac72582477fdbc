"""The contract of executors, as tests: a plugin's test module subclasses `ExecutorContract`.

class TestMyCluster(ExecutorContract):
    factory = "mypackage.executors:MyCluster"
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from lobench.core.case import SeedBlock
from lobench.core.checkpoint import theta_sha256
from lobench.core.codec import Message
from lobench.core.result import Curves, Outcome
from lobench.core.subject import Variant
from lobench.engine.checkpoints.spool import dump_theta
from lobench.engine.config.layers import Layers
from lobench.engine.workers.pool import WorkerConfig
from lobench.engine.workers.protocol import (
    FROM_WORKER,
    Describe,
    Described,
    Failed,
    FromWorker,
    Job,
    Progress,
    Ready,
    Result,
)
from lobench.hookspecs import Capacity, Died, Executor, Heard, Notice, Said

__all__ = ["ExecutorContract"]

_TASKS = """
import os, signal, time
import jax, jax.numpy as jnp
from lobench import Task, configurable

@configurable
class ContractBowl(Task):
    def __init__(self, *, act="", pid_file=""):
        self.act, self.pid_file = act, pid_file
    def init(self, key):
        if self.act:
            with open(self.pid_file, "w") as file:
                file.write(str(os.getpid()))
        if self.act == "die":
            os._exit(7)
        if self.act == "hang":
            time.sleep(600)
        return jax.random.normal(key, (3,))
    def loss(self, params, key, data):
        return jnp.sum(params**2)
"""
_GIN = """
import contract_tasks
Case.learned_optimizer = @LearnableSGD()
Case.num_inner_steps = 4
Case.eval_every = 2
Case.num_seeds = 2
good/Case.task = @ContractBowl()
die/Case.task = @ContractBowl()
die/ContractBowl.act = "die"
die/ContractBowl.pid_file = "PID_FILE"
hang/Case.task = @ContractBowl()
hang/ContractBowl.act = "hang"
hang/ContractBowl.pid_file = "PID_FILE"
"""
_TEST = "from lobench import cases\n\n@cases('contract.gin')\ndef test(case, evaluate):\n    evaluate(case)\n"


_M = TypeVar("_M", bound=Message)


class ExecutorContract:
    """Tests that every executor must pass; they run on this machine.

    Attributes:
      factory: "module:attribute", as in the executor's declaration.
      has_processes: False for one whose worker is this process, which cannot be killed.
      patience_seconds: How long a worker may take to start, to answer or to end.
    """

    factory: ClassVar[str]
    has_processes: ClassVar[bool] = True
    patience_seconds: ClassVar[float] = 600.0

    def make(self, config: WorkerConfig, wakeup: Connection | None) -> Executor:
        module, _, attribute = self.factory.partition(":")
        executor: Executor = getattr(importlib.import_module(module), attribute)(config, wakeup)
        return executor

    @contextmanager
    def running(self, folder: Path, *, gin: str = _GIN, wakeup: Connection | None = None) -> Iterator[Executor]:
        suite = folder / "contract_suite"
        suite.mkdir(exist_ok=True)
        (suite / "contract_tasks.py").write_text(_TASKS)
        (suite / "contract.gin").write_text(gin.replace("PID_FILE", str(_pid_file(folder))))
        # A worker in this process meets the suites of all tests; pytest wants modules of different names.
        (suite / f"test_contract_{sha256(bytes(folder)).hexdigest()[:8]}.py").write_text(_TEST)
        config = WorkerConfig(
            arguments=(str(suite),),
            layers=Layers(gin_modules=("lobench.inner.optimizers", "lobench.inner.tasks")),
            serve="lobench.pytest_plugin.worker:serve",
            log_folder=folder / "logs",
            compilation_cache=folder / "xla_cache",
        )
        executor = self.make(config, wakeup)
        try:
            yield executor
        finally:
            executor.close()

    def heard(self, executor: Executor, kind: type[_M]) -> tuple[int, _M]:
        """Returns the first message of a kind and who said it; any other end of a worker is a failure."""
        deadline = time.monotonic() + self.patience_seconds
        while time.monotonic() < deadline:
            for worker, message in _of_workers(executor.wait(0.2)):
                if isinstance(message, kind):
                    return worker, message
                assert isinstance(message, Ready | Progress | Result), message
        raise AssertionError(f"not heard within {self.patience_seconds:g} s")

    def ready(self, executor: Executor, worker: int) -> dict[str, str]:
        """Starts a worker and returns its cases: key by name."""
        executor.start(worker, 1)
        assert self.heard(executor, Ready)[0] == worker
        executor.send(worker, Describe().to_bytes())
        found, described = self.heard(executor, Described)
        assert found == worker and described.files
        return {case.name: case.key for case in described.cases}

    def send(self, executor: Executor, worker: int, lease: int, case_key: str, folder: Path) -> None:
        job = Job(lease=lease, **self._of(case_key, folder))
        executor.send(worker, job.to_bytes(), [job.theta_path])

    def _of(self, case_key: str, folder: Path) -> dict[str, Any]:
        """Returns what a job is of, with theta in a file."""
        leaves = {"log_lr": np.asarray(-3.0, np.float32)}
        theta = folder / f"{theta_sha256(leaves)}.npz"
        theta.write_bytes(dump_theta(leaves))
        block = SeedBlock(start=0, size=2)
        return {"case_key": case_key, "seed_block": block, "theta_path": str(theta), "checkpoint_uri": "theta_1.npz"}

    def pid(self, folder: Path) -> int:
        """Waits until a misbehaving case has begun; returns its process."""
        file = _pid_file(folder)
        deadline = time.monotonic() + self.patience_seconds
        while time.monotonic() < deadline:
            if file.is_file() and (text := file.read_text()):
                return int(text)
            time.sleep(0.02)
        raise AssertionError("the case did not begin")

    def test_a_warm_worker_tells_its_cases_and_gives_the_same_bits_for_each_lease(self, tmp_path: Path) -> None:
        with self.running(tmp_path) as executor:
            cases = self.ready(executor, 0)
            assert set(cases) == {"good", "die", "hang"}
            found = []
            for lease in (3, 4):
                self.send(executor, 0, lease, cases["good"], tmp_path)
                worker, result = self.heard(executor, Result)
                assert (worker, result.lease) == (0, lease)
                assert result.outcome is Outcome.PASSED, result.message
                curves = Curves.from_payload(result.payload)
                assert curves.seeds == (0, 1)
                found.append({name: values.tobytes() for name, values in curves.metrics.items()})
            assert found[0] == found[1]

    def test_waiting_ends_in_time_and_when_it_is_woken(self, tmp_path: Path) -> None:
        ours, theirs = socket.socketpair()
        wakeup = Connection(ours.detach())
        with theirs, wakeup, self.running(tmp_path, wakeup=wakeup) as executor:
            assert _of_workers(executor.wait(0.05)) == []
            theirs.send(b"\0")
            started = time.monotonic()
            assert _of_workers(executor.wait(self.patience_seconds)) == []
            assert time.monotonic() - started < self.patience_seconds / 2
            assert not wakeup.poll(), "what woke it was left in the pipe, and wakes it for ever"

    def test_a_suite_that_cannot_be_used_is_told_with_its_reason(self, tmp_path: Path) -> None:
        gin = _GIN.replace("@ContractBowl()", "@ContractBwol()")
        with self.running(tmp_path, gin=gin) as executor:
            executor.start(0, 1)
            self.heard(executor, Ready)
            variant = Variant(bindings=("Case.log_every = 0",))
            executor.send(0, Describe(variant=variant).to_bytes())
            _, failed = self.heard(executor, Failed)
            assert failed.variant_key == variant.key and "ContractBwol" in " ".join(failed.messages)

    def test_a_workers_death_is_told_once_and_another_takes_its_place(self, tmp_path: Path) -> None:
        if not self.has_processes:
            return
        with self.running(tmp_path) as executor:
            cases = self.ready(executor, 0)
            self.send(executor, 0, 1, cases["die"], tmp_path)
            worker, died = self.heard(executor, Died)
            assert worker == 0 and died.message
            self.send(executor, 0, 2, cases["good"], tmp_path)
            executor.kill(0)
            cases = self.ready(executor, 1)
            self.send(executor, 1, 3, cases["good"], tmp_path)
            worker, result = self.heard(executor, Result)
            assert (worker, result.lease) == (1, 3)

    def test_a_killed_worker_ends_at_once_and_is_not_heard_of_again(self, tmp_path: Path) -> None:
        if not self.has_processes:
            return
        with self.running(tmp_path) as executor:
            cases = self.ready(executor, 5)
            self.send(executor, 5, 1, cases["hang"], tmp_path)
            pid = self.pid(tmp_path)
            executor.kill(5)
            self._ends(pid)
            assert _of_workers(executor.wait(0.5)) == []

    def test_closing_ends_every_worker_even_one_that_is_stopped(self, tmp_path: Path) -> None:
        if not self.has_processes:
            return
        with self.running(tmp_path) as executor:
            cases = self.ready(executor, 0)
            self.send(executor, 0, 1, cases["hang"], tmp_path)
            pid = self.pid(tmp_path)
            os.kill(pid, signal.SIGSTOP)
        self._ends(pid)

    def _ends(self, pid: int) -> None:
        deadline = time.monotonic() + self.patience_seconds
        while _is_alive(pid):
            assert time.monotonic() < deadline, f"process {pid} lives on"
            time.sleep(0.02)


def _pid_file(folder: Path) -> Path:
    return folder / "pid"


def _of_workers(heard: Sequence[Heard]) -> list[tuple[int, FromWorker | Died]]:
    """Reads what workers say, and what is said for them; leaves out what an executor says for itself."""
    assert all(isinstance(one, Said | Died | Notice | Capacity) for one in heard), heard
    return [
        (one.worker, FROM_WORKER.from_bytes(one.message) if isinstance(one, Said) else one)
        for one in heard
        if isinstance(one, Said | Died)
    ]


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
