"""A service over real gRPC, in this process with a clock that a test moves, or as the command that it is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lobench_pbt.connection import Address, Connection
from lobench_pbt.proto import pbt_pb2
from lobench_pbt.server import Security, start_server
from lobench_pbt.service import Service
from pbt_simulation import PLUGINS, make_study

PATIENCE = 900.0


@dataclass
class Served:
    """A service on a port, with a clock that the test moves."""

    service: Service
    address: str
    folder: Path
    now: float = 0.0

    def connect(self, options: str = "") -> Connection:
        return Connection(Address.parse(self.address + options), patience=PATIENCE)

    def rows(self) -> list[str]:
        return [repr(trial) for trial in self.service.list_trials("")]


def serving(folder: Path, security: Security, **changes: object) -> Iterator[Served]:
    service = Service(folder / "store", clock=lambda: found.now, plugins=PLUGINS)
    service.create_study(make_study(**{"parameters": (), **changes}))
    server, address = start_server(service, "127.0.0.1:0", security)
    found = Served(service, address, folder)
    yield found
    server.stop(grace=None).wait()
    service.close()


def suggestion(connection: Connection, worker: str = "one") -> pbt_pb2.Trial:
    return connection.call(connection.stub.Suggest, pbt_pb2.SuggestRequest(worker=worker)).trial


STUDY = """
import pbt_trainer
Study.population = 2
Study.generations = 1
Study.n_steps = 3
Study.objectives = [@loss/Objective()]
loss/Objective.metric = "loss"
loss/Objective.direction = "min"
Study.parameters = [@rate/Real()]
rate/Real.path = "served.learning_rate"
rate/Real.low = 1e-4
rate/Real.high = 1e-1
rate/Real.scale = "log"
"""
TRAINER = "import gin\n@gin.configurable\ndef served(learning_rate=0.5):\n    return learning_rate\n"


def serve(folder: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lobench.cli", "pbt", "serve", str(folder / "study.gin")]
    command += ["--store", str(folder / "store")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert "is served at" in process.stdout.readline()
    return process
