"""Worker for the contract of executors. It speaks the protocol and trains nothing."""

from __future__ import annotations

import os
import queue
import subprocess
import time
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path

from lobench.core.case import CaseInfo
from lobench.core.result import Outcome
from lobench.engine.workers import protocol
from lobench.engine.workers.channel import ChiefEnd
from lobench.engine.workers.protocol import Configure, Job, ToWorker

__all__ = ["PID_FILE", "answer_to", "case_named", "serve"]

_HANG_SECONDS = 86400  # longer than any `patience_seconds`, so that a process that is left behind fails its test
PID_FILE = "pid_file"  # file in the suite with the path to which misbehaving processes write their pid


def case_named(name: str, num_cpus: int = 1) -> CaseInfo:
    return CaseInfo(
        identity=name,
        optimizer_hash="",
        suite="contract",
        name=name,
        node_id=name,
        num_inner_steps=1,
        num_seeds=1,
        seed_block=None,
        num_cpus=num_cpus,
    )


def answer_to(bindings: tuple[str, ...], *thetas: bytes) -> bytes:
    """Returns the result of a successful job: a megabyte that depends on all of its input."""
    return sha256(b"\0".join((*(text.encode() for text in bindings), *thetas))).digest() * (1 << 15)


def serve(connection: Connection, configure: Configure, *, owns_process: bool) -> None:
    """Answers requests until the request to exit.

    A variant has one case for each of its bindings, whose name determines its behaviour.
    """
    chief: ChiefEnd[ToWorker] = ChiefEnd(connection, protocol.TO_WORKER, owns_process=owns_process)
    requests: queue.Queue[ToWorker | None] = queue.Queue()
    chief.send(protocol.Ready())
    chief.listen(requests.put)
    while (request := requests.get()) is not None and not isinstance(request, protocol.Exit):
        match request:
            case protocol.Describe():
                names = (*request.variant.bindings, *configure.layers.gin_params)
                cases = tuple(case_named(name, int(os.environ["NPROC"])) for name in names)
                chief.send(protocol.Described(variant_key=request.variant.key, cases=cases, files=()))
            case Job():
                _run(chief, configure, request)


def _run(chief: ChiefEnd[ToWorker], configure: Configure, job: Job) -> None:
    chief.send(protocol.Progress(lease=job.lease, step=1))
    pid = os.getpid()
    if job.case_key == case_named("fork").key:
        pid = subprocess.Popen(["sleep", str(_HANG_SECONDS)]).pid
    if job.case_key != case_named("good").key:
        Path((Path(configure.arguments[0]) / PID_FILE).read_text()).write_text(str(pid))
    if job.case_key == case_named("die").key:
        os._exit(7)
    if job.case_key in (case_named("hang").key, case_named("fork").key):
        time.sleep(_HANG_SECONDS)
    paths = [Path(path) for path in (job.theta_path, *(path for _, path in job.companions))]
    if configure.file_folder:
        paths = [Path(configure.file_folder) / path.name for path in paths]
    payload = answer_to(job.variant.bindings, *(path.read_bytes() for path in paths))
    chief.send(protocol.JobResult(lease=job.lease, outcome=Outcome.PASSED, payload=payload))
