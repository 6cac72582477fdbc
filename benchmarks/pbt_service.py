"""Many clients against one served study: nothing lost or doubled, and whether requests slow down as trials grow.

    python benchmarks/pbt_service.py --clients 50 --trials 20000

Each client asks for a trial, reports a measurement, sends a heartbeat and completes with a small checkpoint, again and
again, never pausing, so that a request waits for the other clients'. It prints requests a second, the service's
processor time a request, and the latency of the 500 trials up to 500, 5,000 and 20,000. The population stays as large:
a suggestion reads the two generations that it chooses from, and nothing before them.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import multiprocessing
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from lobench.extend import checkpoint_sha256

PROCESSES = 5
WINDOW = 500  # trials
STUDY = """
import benchmark_trainer
Study.population = {population}
Study.generations = {generations}
Study.objectives = [@loss/Objective()]
loss/Objective.metric = "loss"
loss/Objective.direction = "min"
Study.parameters = [@rate/Real()]
Study.p_crossover = 0.3
Study.budget = False
rate/Real.path = "outer.learning_rate"
rate/Real.low = 1e-4
rate/Real.high = 1e-1
rate/Real.scale = "log"
"""
TRAINER = "import gin\n@gin.configurable\ndef outer(learning_rate=0.1):\n    return learning_rate\n"

Record = tuple[str, int, float, float]  # request, trial, seconds, when it ended


def one_client(address: str, worker: str, folder: Path, records: list[Record]) -> None:
    """Does trials until the study is done."""
    from lobench_pbt.connection import Address, Connection
    from lobench_pbt.proto import pbt_pb2

    connection = Connection(Address.parse(address), patience=60.0)
    stub, path = connection.stub, folder / f"{worker}.npz"
    np.savez(path, theta=np.float32(hash(worker) % 1000))
    artifact = pbt_pb2.Artifact(uri=str(path), sha256=checkpoint_sha256(path))

    def timed(name: str, trial: int, request: Any) -> Any:
        begun = time.perf_counter()
        reply = connection.call(getattr(stub, name), request)
        ended = time.perf_counter()
        records.append((name, trial or reply.trial.id, ended - begun, ended))
        return reply

    while True:
        reply = timed("Suggest", 0, pbt_pb2.SuggestRequest(worker=worker))
        if reply.answer == pbt_pb2.SuggestReply.DONE:
            return
        if reply.answer == pbt_pb2.SuggestReply.WAIT:
            time.sleep(0.05)
            continue
        trial = reply.trial
        who: dict[str, Any] = {"trial": trial.id, "attempt": trial.attempt}
        loss = {"loss": abs(np.log(trial.params["outer.learning_rate"].real) + 5)}
        timed("AddMeasurement", trial.id, pbt_pb2.AddMeasurementRequest(step=1, metrics=loss, **who))
        timed("Heartbeat", trial.id, pbt_pb2.HeartbeatRequest(**who))
        request = pbt_pb2.CompleteRequest(checkpoint=artifact, metrics=loss, n_steps=trial.n_steps, **who)
        timed("Complete", trial.id, request)


def clients(address: str, name: str, count: int, folder: Path, results: Any) -> None:
    """A process of several clients, each with a connection of its own."""
    records: list[list[Record]] = [[] for _ in range(count)]
    threads = [
        threading.Thread(target=one_client, args=(address, f"{name}-{place}", folder, records[place]))
        for place in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put([record for part in records for record in part])


def serve(folder: Path, trials: int, population: int) -> tuple[subprocess.Popen[str], str]:
    (folder / "benchmark_trainer.py").write_text(TRAINER)
    values = {"population": population, "generations": trials // population - 1}
    (folder / "study.gin").write_text(STUDY.format(**values))
    command = [sys.executable, "-m", "lobench.cli", "pbt", "serve", "study.gin", "--store", "store"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    print(process.stdout.readline().strip(), flush=True)
    return process, (folder / "store" / "address").read_text()


def check(address: str, trials: int, population: int) -> None:
    """Nothing lost, nothing doubled."""
    import lobench_pbt

    with lobench_pbt.client(address) as study:
        rows = list(study.all_trials())
    assert [row.id for row in rows] == list(range(1, trials + 1))
    assert {row.state for row in rows} == {"succeeded"}, collections.Counter(row.state for row in rows)
    initiators = [row.initiator_id for row in rows if row.initiator_id is not None]
    assert len(set(initiators)) == len(initiators) == trials - population
    assert len({row.completed_seq for row in rows}) == trials
    assert {row.attempt for row in rows} == {0}


def percentile(records: list[Record], low: int, high: int, share: float, name: str = "") -> float:
    """Returns milliseconds of requests about trials low < id <= high."""
    found = [seconds for request, trial, seconds, _ in records if low < trial <= high and name in ("", request)]
    return 1000 * float(np.percentile(found, share))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--trials", type=int, default=5000, help="A multiple of the population.")
    parser.add_argument("--population", type=int, default=100)
    arguments = parser.parse_args()
    trials, population = arguments.trials, arguments.population
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        process, address = serve(folder, trials, population)
        stack.callback(process.kill)
        results = context.Queue()
        count = arguments.clients // PROCESSES
        workers = [
            context.Process(target=clients, args=(address, f"client-{place}", count, folder, results))
            for place in range(PROCESSES)
        ]
        begun, memory = time.perf_counter(), []
        service = psutil.Process(process.pid)
        processor: list[tuple[float, float]] = []  # when, seconds used so far
        for worker in workers:
            worker.start()
        records: list[Record] = []
        for _ in workers:
            while results.empty():
                processor.append((time.perf_counter(), sum(service.cpu_times()[:2])))
                memory.append(service.memory_info().rss / 2**20)
                time.sleep(0.5)
            records += results.get()
        seconds = time.perf_counter() - begun
        check(address, trials, population)
        process.terminate()
        process.wait()
    print(f"{trials} trials by {arguments.clients} clients in {seconds:.0f} s: {len(records) / seconds:.0f} requests/s")
    ends = [end for end in (500, 5000, 20000) if end < trials] + [trials]
    print_latency(records, ends)
    print_processor(records, processor, ends)
    early, late = memory[len(memory) // 10], memory[-1]
    print(f"memory of the service: {early:.0f} MiB after a tenth of the time, {late:.0f} MiB at the end")


def print_processor(records: list[Record], processor: list[tuple[float, float]], ends: list[int]) -> None:
    """Prints the service's processor time a request near each end: other work on the machine changes it little."""
    whens, used = np.asarray(processor).T
    done = np.sort([when for *_, when in records])
    cells = []
    for end in ends:
        around = [when for _, trial, _, when in records if end - WINDOW < trial <= end]
        # A few seconds at least: the system counts in hundredths.
        first, last = min(around), max(max(around), min(around) + 3.0)
        seconds = np.interp(last, whens, used) - np.interp(first, whens, used)
        cells.append(1000 * seconds / np.sum((done >= first) & (done <= last)))
    print("the service's processor time, ms a request: " + ", ".join(f"{cell:.2f}" for cell in cells))


def print_latency(records: list[Record], ends: list[int]) -> None:
    """Prints the median and the 99th percentile of the 500 trials before each end."""
    print(f"{'':16}{'p50 ms, trials to':<{11 * len(ends)}}p99 ms, trials to")
    print(f"{'':16}" + 2 * "".join(f"{end:<11}" for end in ends))
    for request in ("", "Suggest", "AddMeasurement", "Heartbeat", "Complete"):
        cells = [percentile(records, end - WINDOW, end, share, request) for share in (50, 99) for end in ends]
        print(f"{request or 'all':16}" + "".join(f"{cell:<11.1f}" for cell in cells))
    for share in (50, 99):
        first, last = (percentile(records, end - WINDOW, end, share) for end in (ends[0], ends[-1]))
        print(f"p{share} of the last {WINDOW} trials / of the first: {last / first:.2f}")


if __name__ == "__main__":
    main()
