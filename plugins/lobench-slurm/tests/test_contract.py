"""The SLURM executor keeps the executors' contract, in a real SLURM."""

from __future__ import annotations

import dataclasses
import os
from multiprocessing.connection import Connection

import pytest
from one_node import OneNode

from lobench.extend import WorkerConfig
from lobench.hookspecs import Executor
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
