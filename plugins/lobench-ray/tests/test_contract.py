"""The Ray executor keeps the executors' contract, on a real cluster."""

from __future__ import annotations

import dataclasses
from multiprocessing.connection import Connection

import pytest
from two_nodes import PATIENT, Cluster

from lobench.extend import WorkerConfig
from lobench.hookspecs import Executor
from lobench.testing.executors import ExecutorContract


class TestRay(ExecutorContract):
    factory = "lobench_ray.executor:RayExecutor"
    patience_seconds = PATIENT
    most_cpus = 1  # of each node of the cluster
    address = ""

    @pytest.fixture(autouse=True)
    def _join(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address = cluster.join(monkeypatch)

    def make(self, config: WorkerConfig, wakeup: Connection | None) -> Executor:
        return super().make(dataclasses.replace(config, address=self.address), wakeup)
