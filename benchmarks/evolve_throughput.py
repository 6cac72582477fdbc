"""What the machinery of `lobench evolve` gives on small digits networks, AdafacMLPLOpt, 100 inner steps.

    python benchmarks/evolve_throughput.py             # all, minutes; --quick: nothing is measured
    python benchmarks/evolve_throughput.py programs    # one part: programs, runs, workers, bytes
    python benchmarks/evolve_throughput.py programs --threads 2    # on the wall: wants a quiet machine

programs: members a second of a worker by how many share a program: decoding, transfer and reading back included, in
processor time of one thread, so that other load matters little; the best of several rounds, widths taking turns. One
by one is a program without any axis of members, as a worker with `Evolve.members_per_program = 1` runs it.
runs: the same on the wall for a whole `lobench evolve` of one worker, messages and journal included: the shortest of
its generations.
workers: members a second on the wall by how many workers there are, the mean over generations.
bytes: on the wire for a member, headers included, what comes back and what was sent, by the size of theta.
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["NPROC"] = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"

from lobench_evolve.crew import Crew, ThetaPath, WorkerJob
from lobench_evolve.evolution_strategies import EvolutionStrategies, Update
from lobench_evolve.messages import Begin, Evaluate
from lobench_evolve.run import Evolution, Machines, plan, run_experiment, worker_config
from lobench_evolve.settings import read_config
from lobench_evolve.worker import Evaluator

from lobench.extend import load_plugins
from lobench.hookspecs import WorkerMessage

_parser = argparse.ArgumentParser()
_parser.add_argument("parts", nargs="*", metavar="PART", default=["programs", "runs", "workers", "bytes"])
_parser.add_argument("--quick", action="store_true")
_parser.add_argument("--threads")
OPTIONS = _parser.parse_args()
THREADS = int(os.environ["NPROC"])
CONFIG = Path(__file__).resolve().parents[1] / "examples" / "evolve" / "digits_es.gin"
WIDTHS = (1, 4) if OPTIONS.quick else (1, 4, 16, 32)
ROUNDS = 1 if OPTIONS.quick else 7
GENERATIONS = 2 if OPTIONS.quick else 20
HALF = "AntitheticES.num_pairs = 32"  # as many blocks of 16 as four workers take
# A theta of a million numbers: a task's own initial parameters.
LARGE = (
    HALF,
    "Case.learned_optimizer = @LearnedInit()",
    "LearnedInit.task = @PermutedDigits()",
    "LearnedInit.optimizer = @sgd()",
    "sgd.learning_rate = 0.1",
    "PermutedDigits.hidden_sizes = (1000, 930)",
    "Case.num_inner_steps = 1",
    "Evolve.initial_scale = {}",
)


class Counted:
    """An executor that counts the bytes of its messages in both directions."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self.sent = self.received = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def send(self, worker: int, message: bytes, files: Sequence[str] = ()) -> None:
        self.sent += len(message)
        self._executor.send(worker, message, files)

    def wait(self, timeout: float) -> Any:
        received = self._executor.wait(timeout)
        self.received += sum(len(one.message) for one in received if isinstance(one, WorkerMessage))
        return received


def experiment(folder: Path, *params: str) -> Evolution:
    quick = ("Case.num_inner_steps = 1", "AntitheticES.num_pairs = 8") if OPTIONS.quick else ()
    return plan(CONFIG, folder=folder, scopes=[], seed=0, gin_params=(*params, *quick))


def members_per_second(folder: Path) -> None:
    """Times one process that trains 32 members, so many in a program."""
    clock = time.process_time if THREADS == 1 else time.perf_counter
    found: dict[int, list[float]] = {width: [] for width in WIDTHS}
    planned = [experiment(folder, f"Evolve.members_per_program = {width}") for width in WIDTHS]
    evaluators = {
        each.run.members_per_program: Evaluator(read_config(CONFIG, each.layers.gin_params), each.layers)
        for each in planned
    }
    search = EvolutionStrategies(planned[0].es, 0)
    trials = [(trial.genome.id, trial.seed) for trial in search.trials()]
    for width, evaluator in evaluators.items():
        evaluator.follow(search.theta, evaluator.begin(1), [])
        evaluator.decoder.learn(search.genomes.values())
        evaluator.evaluate(trials[:width])  # compiles
    for _ in range(ROUNDS):
        for width, evaluator in evaluators.items():
            started = clock()
            for first in range(0, len(trials), width):
                evaluator.evaluate(trials[first : first + width])
            found[width].append(len(trials) / (clock() - started))
    for width, rates in found.items():
        print(f"{width:3} in a program: {max(rates):6.1f} a second, x {max(rates) / max(found[1]):.2f}")


def runs(folder: Path) -> None:
    """Times whole runs of one worker, one member to a program and sixteen."""
    rates = []
    for width in (1, 16):
        params = [f"Evolve.members_per_program = {width}", f"Evolve.num_generations = {GENERATIONS + 1}"]
        planned = experiment(folder / f"run{width}", *params, "Evolve.checkpoint_every = 1000")
        closed = run_experiment(planned, Machines(executor="local"), num_workers=1, log=lambda line: None)
        rates.append(2 * planned.es.num_pairs / min(generation.seconds for generation in closed[1:-1]))
        print(f"a run with {width:2} in a program: {rates[-1]:6.1f} members a second, x {rates[-1] / rates[0]:.2f}")


def crew_of(planned: Evolution, num_workers: int) -> tuple[Crew, Counted]:
    local = load_plugins().find("lobench_executors", "local", kind="executor").load()
    counted = Counted(local(worker_config(planned, Machines(executor="local"))))
    crew = Crew(counted, num_workers=num_workers, num_cpus=1, timeout_seconds=600, log=print)
    crew.start()
    return crew, counted


def workers(folder: Path, num_workers: int, *params: str) -> None:
    """Runs generations as a run does, after one that compiles; prints members a second and bytes a member."""
    planned = experiment(folder, *params)
    crew, counted = crew_of(planned, num_workers)
    search, width = EvolutionStrategies(planned.es, 0), planned.run.members_per_program
    ((_, state),) = crew.run([WorkerJob(task=Begin(seed=search.init_seed))], {})
    updates: list[Update] = []
    started, before = 0.0, (0, 0)
    for generation in range(-num_workers, GENERATIONS):
        if generation == 0:
            started, before = time.perf_counter(), (counted.sent, counted.received)
        theta_path = ThetaPath(theta=search.theta, step=0, state=state, updates=tuple(updates))
        trials, fitness = search.trials(), [0.0] * (2 * planned.es.num_pairs)
        blocks = range(0, len(trials), width)
        jobs = [
            WorkerJob(
                task=Evaluate(trials=tuple((trial.genome.id, trial.seed) for trial in trials[first : first + width])),
                wanted=tuple(trial.genome.id for trial in trials[first : first + width]),
                theta_path=theta_path,
            )
            for first in blocks
        ]
        for block, payload in crew.run(jobs, search.genomes):
            fitness[block * width : (block + 1) * width] = struct.unpack(f"<{len(payload) // 4}f", payload)
        updates.append(search.update(fitness))
        search.close(fitness)
    seconds, count = time.perf_counter() - started, GENERATIONS * len(fitness)
    num_weights = crew.provenance["num_weights"]
    crew.close()
    print(
        f"{num_workers} workers, theta of {num_weights} weights: {count / seconds:6.1f} members a second; "
        f"{(counted.received - before[1]) / count:.1f} bytes a result, {(counted.sent - before[0]) / count:.0f} sent"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "programs" in OPTIONS.parts:
            members_per_second(folder)
        if "runs" in OPTIONS.parts:
            runs(folder)
        if "workers" in OPTIONS.parts:
            for number in (1, 2, 4):
                workers(folder / f"workers{number}", number, HALF)
        if "bytes" in OPTIONS.parts:
            workers(folder / "small", 1, HALF, "Case.num_inner_steps = 1")
            workers(folder / "large", 1, *LARGE)


if __name__ == "__main__":
    main()
