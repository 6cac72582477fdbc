"""How far one chief goes: the scheduler itself under a simulated cluster, and a real ledger beside it.

Usage: python benchmarks/scaling.py [--workers 1000] [--hours 0.25] [--per-hour 100000] [--preemption 0.05]

Time, machines and durations are simulated; every decision is `lobench.core.planner`'s own, and its CPU is measured.
The ledger's part is measured on real records in a temporary folder; the network's on messages as they are encoded.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import itertools
import json
import platform
import random
import tempfile
import time
from array import array
from dataclasses import dataclass, field
from pathlib import Path

from lobench.core.admission import every_checkpoint
from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.planner import (
    Action,
    Capacity,
    CasesKnown,
    Event,
    FinishCheckpoint,
    Finished,
    KillWorker,
    Lease,
    Planner,
    Record,
    Size,
    StartWorker,
    SubjectSeen,
    Tick,
    WorkerDied,
    WorkerReady,
)
from lobench.core.program import PROGRAM_VERSION
from lobench.core.result import Curves, EvaluationKey, Outcome, Provenance
from lobench.core.subject import Subject, SubjectKey
from lobench.engine.store.ledger import Ledger
from lobench.engine.workers.protocol import Job, JobResult, Progress

START_SECONDS = 10.0  # of a worker: imports, collection
COMPILE_SECONDS = 5.0  # of a case that a worker has not run; of each case on each node only once, by its cache
CACHED_SECONDS = 1.0
NOTICE_SECONDS = 30.0  # until a node that fell silent is given up
RETURN_SECONDS = 120.0  # until a pre-empted machine is replaced
NODE_WORKERS = 16
NUM_CASES = 50
PROGRESS_SECONDS = 0.5
THETA_BYTES = 400_000
LEDGER_RECORDS = 2000


@dataclass(slots=True)
class Totals:
    """Totals of a simulation, which a row of the table shows. `cpu_seconds` is measured."""

    cpu_seconds: float = 0.0
    num_events: int = 0
    recorded: int = 0
    max_backlog: int = 0
    lost_seconds: float = 0.0  # of work that was thrown away
    idle_seconds: float = 0.0  # of workers that started, or compiled
    busy_seconds: float = 0.0
    preempted: int = 0
    latencies: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Cluster:
    """Simulated machines around a real schedule. Times are in simulated seconds."""

    num_workers: int
    per_hour: float
    preemption: float
    random: random.Random = field(default_factory=lambda: random.Random(0))
    now: float = 0.0
    totals: Totals = field(default_factory=Totals)

    def run(self, hours: float) -> None:
        means = [self.random.lognormvariate(0.0, 0.7) for _ in range(NUM_CASES)]
        # Workers are busy nine tenths of their time, start-up and losses apart.
        scale = 0.9 * self.num_workers * 3600 / self.per_hour / (sum(means) / NUM_CASES)
        cases = tuple(_case(index, scale * mean) for index, mean in enumerate(means))
        seconds = {case.key: scale * mean for case, mean in zip(cases, means, strict=True)}
        schedule = Planner(self.num_workers, every_checkpoint(""))
        tickets = itertools.count()
        queue: list[tuple[float, int, Event | int]] = []
        gone: set[int] = set()
        leases: dict[int, tuple[int, float, float]] = {}
        nodes: dict[int, int] = {}
        compiled: dict[int, set[str]] = {}
        cached: dict[int, set[str]] = {}
        seen: dict[int, float] = {}
        capacity = self.num_workers

        def at(when: float, event: Event | int) -> None:
            heapq.heappush(queue, (when, next(tickets), event))

        def take(action: Action) -> None:
            match action:
                case StartWorker(worker, _):
                    nodes[worker] = worker // NODE_WORKERS % max(self.num_workers // NODE_WORKERS, 1)
                    compiled[worker] = set()
                    wait = START_SECONDS * self.random.uniform(0.8, 1.5)
                    self.totals.idle_seconds += wait
                    at(self.now + wait, WorkerReady(worker, self.now + wait))
                    # A pre-emption anywhere in its life; exponential, as if machines had no memory.
                    life = self.random.expovariate(self.preemption / 3600) if self.preemption else 1e12
                    at(self.now + life, WorkerDied(worker, -1.0, "pre-empted", lost=True))
                case KillWorker(worker, _):
                    gone.add(worker)
                case Lease(worker, lease, evaluation, case, _):
                    node = cached.setdefault(nodes[worker], set())
                    first = 0.0
                    if case.key not in compiled[worker]:
                        first = CACHED_SECONDS if case.key in node else COMPILE_SECONDS
                        compiled[worker].add(case.key)
                        node.add(case.key)
                    took = seconds[evaluation.case_key] * self.random.uniform(0.9, 1.1)
                    self.totals.idle_seconds += first
                    leases[worker] = (lease, self.now, took)
                    end = self.now + first + took
                    at(end, Finished(worker, lease, Outcome.PASSED, end))
                case Record():
                    self.totals.recorded += 1
                case FinishCheckpoint(position):
                    self.totals.latencies.append(self.now - seen.pop(position))

        def send(event: Event) -> None:
            started = time.process_time()
            actions = schedule.handle(event)
            self.totals.cpu_seconds += time.process_time() - started
            self.totals.num_events += 1
            for action in actions:
                take(action)

        send(CasesKnown(cases))
        interval = NUM_CASES / self.per_hour * 3600
        arrivals = itertools.count()
        next_arrival, next_tick, end = 0.0, 0.0, hours * 3600
        while self.now < end:
            next_event = queue[0][0] if queue else float("inf")
            self.now = min(next_event, next_arrival, next_tick)
            if self.now == next_arrival:
                position = next(arrivals)
                seen[position] = self.now
                self.totals.max_backlog = max(self.totals.max_backlog, len(seen))
                send(SubjectSeen(position, SubjectKey(_checkpoint(position).sha256, "")))
                next_arrival += interval
            elif self.now == next_tick:
                # As the chief does after each look at its pipes; results that come together share a look.
                send(Tick(self.now))
                next_tick += 0.1
            else:
                _, _, event = heapq.heappop(queue)
                match event:
                    case WorkerDied(worker, now, _, _) if worker not in gone and now < 0:
                        # The machine goes now; the chief knows later, and a replacement comes later still.
                        gone.add(worker)
                        self.totals.preempted += 1
                        if worker in leases:
                            self.totals.lost_seconds += min(self.now - leases[worker][1], leases[worker][2])
                        self.totals.idle_seconds += RETURN_SECONDS
                        known = self.now + NOTICE_SECONDS
                        at(known, WorkerDied(worker, known, "pre-empted", lost=True))
                        at(known, -1)
                        at(self.now + RETURN_SECONDS, 1)
                    case WorkerDied(worker, now, _, _) if now >= 0:
                        leases.pop(worker, None)
                        send(event)
                    case int(change):
                        capacity += change
                        send(Capacity((Size(capacity),)))
                    case WorkerReady(worker, _) if worker not in gone:
                        send(event)
                    case Finished(worker=worker) if worker not in gone:
                        self.totals.busy_seconds += leases.pop(worker)[2]
                        send(event)


def _case(index: int, seconds: float) -> CaseInfo:
    return CaseInfo(
        identity=hashlib.sha256(f"case{index}".encode()).hexdigest(),
        optimizer_hash=hashlib.sha256(b"optimizer").hexdigest(),
        suite="suite",
        name=f"case{index}",
        node_id=f"suite/test_suite.py::test_suite[case{index}]",
        num_inner_steps=int(100 * seconds),
        num_seeds=4,
        seed_block=None,
    )


def _checkpoint(position: int) -> Checkpoint:
    sha256 = hashlib.sha256(str(position).encode()).hexdigest()
    return Checkpoint(uri=f"/runs/today/theta_{position}.npz", sha256=sha256, outer_step=position)


def _curves() -> Curves:
    """What a case of 1,000 steps with three splits and 4 seeds gives."""
    names = [f"{split}/{metric}" for split in ("train", "outer_valid", "test") for metric in ("loss", "accuracy")]
    source = random.Random(0)

    def values() -> memoryview:
        flat = array("f", [source.random() for _ in range(4 * 21)])
        return memoryview(flat).cast("B").cast("f", shape=(4, 21))

    provenance = Provenance(
        host="node-17", device="cpu", versions=dict.fromkeys("abcde", "1.2.3"), bindings="x/Case.task = @Y()\n" * 20
    )
    return Curves(
        seeds=(0, 1, 2, 3),
        metrics={name: values() for name in names},
        eval_steps=tuple(range(0, 1001, 50)),
        diverged_at=(-1,) * 4,
        compile_seconds=1.0,
        wall_seconds=30.0,
        provenance=provenance,
    )


def measure_ledger(records: int, per_commit: int) -> dict[str, float]:
    """Returns CPU seconds and bytes on the disk for each record, `per_commit` of them in a transaction."""
    cases = [_case(index, 30.0) for index in range(NUM_CASES)]
    curves = _curves()
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.open(Path(folder), name="scaling")
        for position in range(records // NUM_CASES):
            ledger.record_sighting(Subject.of_checkpoint(_checkpoint(position)))
            ledger.record_admission(position, "admitted")
        keys = [
            EvaluationKey(
                checkpoint_sha256=_checkpoint(number // NUM_CASES).sha256,
                optimizer_hash=cases[0].optimizer_hash,
                case_identity=cases[number % NUM_CASES].identity,
                seed_block=SeedBlock(start=0, size=4),
                program_version=PROGRAM_VERSION,
            )
            for number in range(records)
        ]
        started = time.process_time()
        for first in range(0, records, per_commit):
            with ledger.transaction():
                for number in range(first, min(first + per_commit, records)):
                    case = cases[number % NUM_CASES]
                    ledger.record_evaluation(keys[number], case, Outcome.PASSED, curves=curves)
        cpu = time.process_time() - started
        ledger.close()
        size = sum(file.stat().st_size for file in Path(folder).glob("ledger.sqlite*"))
    return {"cpu_seconds": cpu / records, "bytes": size / records}


def message_bytes() -> dict[str, int]:
    """Returns what crosses between chief and a worker for one evaluation, by kind of message."""
    case = _case(0, 30.0)
    block = SeedBlock(start=0, size=4)
    job = Job(lease=10**6, case_key=case.key, seed_block=block, checkpoint_uri="/runs/x", theta_path="/s/" + "0" * 64)
    result = JobResult(lease=10**6, outcome=Outcome.PASSED, payload=_curves().to_payload())
    messages = (job, result, Progress(lease=10**6, step=1000))
    return {type(message).__name__.lower(): len(message.to_bytes()) for message in messages}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--hours", type=float, default=0.25)
    parser.add_argument("--per-hour", type=float, default=100_000.0)
    parser.add_argument("--preemption", type=float, default=0.05, help="share of workers lost in an hour")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cluster = Cluster(options.workers, options.per_hour, options.preemption)
    cluster.run(options.hours)
    held = cluster.num_workers * options.hours * 3600
    per_commit = max(round(options.per_hour / 3600 * 0.1), 1)
    ledger, messages = measure_ledger(LEDGER_RECORDS, per_commit), message_bytes()
    mean_seconds = cluster.totals.busy_seconds / max(cluster.totals.recorded, 1)
    progress = messages["progress"] * mean_seconds / PROGRESS_SECONDS
    wire = messages["job"] + messages["jobresult"] + progress
    thetas = options.per_hour / NUM_CASES * THETA_BYTES * (options.workers / NODE_WORKERS)
    hour = 1 / options.hours
    latencies = sorted(cluster.totals.latencies)
    found = {
        "workers": options.workers,
        "simulated hours": options.hours,
        "evaluations an hour": cluster.totals.recorded * hour,
        "events": cluster.totals.num_events,
        "scheduler: CPU seconds an hour": cluster.totals.cpu_seconds * hour,
        "scheduler: milliseconds an event": 1e3 * cluster.totals.cpu_seconds / cluster.totals.num_events,
        "ledger: CPU seconds an hour": ledger["cpu_seconds"] * options.per_hour,
        "ledger: MB an hour": ledger["bytes"] * options.per_hour / 1e6,
        "network at the chief: MB an hour": wire * options.per_hour / 1e6,
        "thetas to the nodes: MB an hour": thetas / 1e6,
        "pre-empted workers": cluster.totals.preempted,
        "time lost to repeated work": cluster.totals.lost_seconds / held,
        "time lost to starting, compiling and missing machines": cluster.totals.idle_seconds / held,
        "time at work": cluster.totals.busy_seconds / held,
        "checkpoints waiting, at most": cluster.totals.max_backlog,
        "seconds to a checkpoint's last result, median": latencies[len(latencies) // 2] if latencies else float("nan"),
    }
    print(f"{platform.machine()}, Python {platform.python_version()}")
    for name, value in found.items():
        print(f"{name:56} {value:>12,.4g}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
