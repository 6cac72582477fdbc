"""A worker that does no work: it answers each job with the same curves but for the last value, as no two trainings
end alike. Real processes and pipes, no jax."""

from __future__ import annotations

import dataclasses
import os
import struct
from array import array
from multiprocessing.connection import Connection

from lobench.core.case import CaseInfo
from lobench.core.result import Curves, Outcome, Provenance
from lobench.engine.workers.pool import LocalPool, WorkerConfig
from lobench.engine.workers.protocol import TO_WORKER, Configure, Describe, Described, Exit, Job, JobResult, Ready

__all__ = ["idle_pool", "serve"]


def _cases(count: int) -> list[CaseInfo]:
    return [
        CaseInfo(
            identity=f"{index:064x}",
            optimizer_hash="0" * 64,
            suite="idle",
            name=f"case{index}",
            node_id=f"idle::case{index}",
            num_inner_steps=100,
            num_seeds=1,
            seed_block=None,
        )
        for index in range(count)
    ]


def _curves() -> bytes:
    values = memoryview(array("f", [1.0 / (1 + i) for i in range(11)])).cast("B").cast("f", (1, 11))
    return Curves(
        seeds=(0,),
        metrics={"train/loss": values, "test/loss": values},
        eval_steps=tuple(range(0, 101, 10)),
        log_steps=(),
        diverged_at=(-1,),
        compile_seconds=0.0,
        wall_seconds=0.001,
        num_params=1,
        provenance=Provenance(),
    ).to_payload()


def serve(connection: Connection, configure: Configure, *, owns_process: bool) -> None:
    """Speaks for `lobench.pytest_plugin.worker.serve`."""
    cases = tuple(_cases(int(os.environ["LOBENCH_IDLE_CASES"])))
    connection.send_bytes(Ready().to_bytes())
    curves = _curves()[:-4]
    while True:
        try:
            message = TO_WORKER.from_bytes(connection.recv_bytes())
        except EOFError:
            return
        match message:
            case Exit():
                return
            case Describe(variant=variant):
                connection.send_bytes(Described(variant_key=variant.key, cases=cases, files=()).to_bytes())
            case Job(lease=lease):
                payload = curves + struct.pack("<f", 1 / (2 + lease))
                result = JobResult(lease=lease, outcome=Outcome.PASSED, payload=payload)
                connection.send_bytes(result.to_bytes())


def idle_pool(config: WorkerConfig, wakeup: Connection | None = None) -> LocalPool:
    """Executor of real worker processes that do no work."""
    return LocalPool(dataclasses.replace(config, serve="idle_worker:serve"), wakeup)
