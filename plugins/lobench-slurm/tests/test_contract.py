"""The SLURM executor keeps the executors' contract, in a real SLURM."""

from __future__ import annotations

import dataclasses
import os
import socket
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from lobench_slurm.executor import SlurmExecutor
from lobench_slurm.jobs import Jobs
from one_node import OneNode

from lobench import LobenchError
from lobench.extend import WorkerConfig
from lobench.hookspecs import Executor, ExecutorEvent, WorkerExited
from lobench.testing.executors import ExecutorContract


@pytest.mark.long
class TestSlurm(ExecutorContract):
    factory = "lobench_slurm.executor:SlurmExecutor"
    most_cpus = min(os.cpu_count() or 1, 2)

    @pytest.fixture(autouse=True)
    def _in_slurm(self, in_slurm: OneNode) -> None:
        pass

    def make(self, config: WorkerConfig, wakeup: Connection | None) -> Executor:
        return super().make(dataclasses.replace(config, max_cores=2, argument="host=127.0.0.1"), wakeup)

    def test_worker_whose_connection_breaks_is_lost(self, tmp_path: Path) -> None:
        """Its job completes, since it cannot report anything. That is not the fault of its case."""
        with self.running(tmp_path) as executor:
            assert isinstance(executor, SlurmExecutor)
            self.start(executor, 0)
            channel = executor._slots[0].channel
            assert channel is not None
            with socket.socket(fileno=os.dup(channel.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)
            exited = next(event for event in _events(executor) if isinstance(event, WorkerExited))
            assert exited.lost and "(completed)" in exited.message

    def test_failure_of_a_submission_ends_the_watch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*args: object, **options: object) -> str:
            raise ValueError("out of luck")

        monkeypatch.setattr(Jobs, "submit", fail)
        with self.running(tmp_path) as executor:
            executor.start(0, 1)
            with pytest.raises(LobenchError, match="out of luck"):
                next(_events(executor))

    def test_closed_executor_listens_no_more(self, tmp_path: Path) -> None:
        before = {*threading.enumerate()}
        with self.running(tmp_path) as executor:
            assert isinstance(executor, SlurmExecutor)
            threads = [one for one in threading.enumerate() if one not in before and "listens" in one.name]
            for _ in range(2):  # after the second challenge the thread waits again
                with socket.create_connection(("127.0.0.1", executor._listener.address[1]), timeout=60) as end:
                    assert end.recv(1)
        assert threads
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()


def _events(executor: Executor) -> Iterator[ExecutorEvent]:
    while True:
        yield from executor.wait(0.2)
