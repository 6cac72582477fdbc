"""Closes the loop on one machine: PBT from `lobench watch`'s fitness against random search at the same budget.

    pip install -e plugins/lobench-pbt                      # with lobench itself
    python examples/pbt/close_the_loop.py OUTPUT [--studies 5]

The smallest is `--studies 1`: four minutes on two cores, and the whole of what a study is; it shows no difference. A
difference takes 24 studies or more, which `benchmarks/pbt_digits.py` runs in one process.

Each study has a controller and a watch of its own; each way of search has trainers that go from study to study. Both
draw the same first populations, train as many trials for as many outer steps, and choose their best trial by the same
fitness tasks; what is compared is that trial's loss on the report tasks, study by study.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import lobench_pbt
import numpy as np
from lobench_pbt.trial import StudyTrial
from scipy import stats

HERE = Path(__file__).resolve().parent
STRATEGIES = {"pbt": "exploit_explore", "random": "random_search"}
LIMIT_SECONDS = 1800
STOPPED = threading.Event()  # Ctrl-C: whoever waits ends, and with it what it runs

Trainers = dict[str, subprocess.Popen[bytes]]


def lobench(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "lobench.cli", *map(str, arguments)]


@contextlib.contextmanager
def running(log: Path, commands: list[list[str]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Runs programs beside each other, and ends those that still run at the end."""
    with log.open("ab") as file:
        processes = [subprocess.Popen(command, stdout=file, stderr=file) for command in commands]
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def wait_until(what: str, log: Path, done: Any, needed: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not done():
        if any(process.poll() is not None for process in needed):
            raise SystemExit(f"{what} did not happen: a program that it needs has ended; see {log}")
        if STOPPED.is_set():
            raise SystemExit("stopped")
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not happen in {LIMIT_SECONDS} s; see {log}")
        time.sleep(0.2)


def run_study(folder: Path, strategy: str, seed: int, config: str, trainers: Trainers) -> StudyTrial:
    """Runs a study and returns its best trial."""
    population = folder / "population"
    population.mkdir()
    (population / "config.gin").write_text(config)
    shutil.copy(HERE / "pbt_trainer.py", folder)
    lines = [(HERE / "study.gin").read_text(), f'Study.strategy = "{strategy}"', f"Study.seed = {seed}", ""]
    (folder / "study.gin").write_text("\n".join(lines))
    log, address = folder / "log.txt", folder / "store" / "address"

    def is_trained() -> bool:
        if any(process.poll() for process in trainers.values()):
            raise SystemExit("a trainer failed")
        return all((folder / f"{name}.done").exists() for name in trainers)

    with running(log, [lobench("pbt", "serve", folder / "study.gin", "--store", folder / "store")]) as controller:
        wait_until("the controller", log, address.exists, controller)
        sink = f"pbt:{address.read_text()}"
        watch = ["watch", population, "--suite", HERE / "fitness", "--checkpoints", "all", "--workers", "1"]
        with (
            running(log, [lobench(*watch, "--sink", sink)]) as watches,
            lobench_pbt.client(address.read_text()) as study,
        ):
            needed = [*controller, *watches]
            wait_until("the training", log, is_trained, needed)
            wait_until("the last fitness", log, lambda: all(trial.is_terminal for trial in study.all_trials()), needed)
            trials = [trial for trial in study.all_trials() if trial.state == "succeeded"]
    return max(trials, key=lambda trial: trial.fitness or ())


def search(output: Path, name: str, num_studies: int, num_trainers: int) -> None:
    """Runs all studies of one way of search, and keeps the best checkpoint of each for the report."""
    from pbt_trainer import CONFIG, publish

    folders = [output / f"{name}_{study}" for study in range(num_studies)]
    for folder in folders:
        folder.mkdir()
    names = [f"trainer-{place}" for place in range(num_trainers)]
    program = [sys.executable, str(HERE / "pbt_trainer.py")]
    commands = [[*program, trainer, *map(str, folders)] for trainer in names]
    with running(output / f"{name}_trainers.txt", commands) as processes:
        trainers = dict(zip(names, processes, strict=True))
        for study, folder in enumerate(folders):
            since = time.monotonic()
            best = run_study(folder, STRATEGIES[name], study, CONFIG, trainers)
            assert best.checkpoint is not None and best.fitness is not None
            publish(output / "report" / name / f"theta_{study}.npz", dict(np.load(best.checkpoint.uri)))
            took = time.monotonic() - since
            print(f"{name} {study}: fitness {-best.fitness[0]:.3f}; {parameters(best)}; {took:.0f} s", flush=True)


def report(folder: Path) -> dict[int, float]:
    """Evaluates the checkpoints of a folder on the report tasks; returns the mean final loss by their number."""
    watch = lobench("watch", folder, "--suite", HERE / "report", "--once", "--checkpoints", "all", "--workers", "1")
    with (folder / "log.txt").open("wb") as log:
        subprocess.run(watch, stdout=log, stderr=log, check=True)
    results = lobench("results", "--store", folder / "lobench_results" / "report", "--format", "json")
    losses: dict[int, list[float]] = {}
    for record in json.loads(subprocess.run(results, capture_output=True, check=True).stdout):
        final = record["metrics"]["train/loss"]["final"]
        losses.setdefault(record["checkpoint"]["outer_step"], []).append(float("nan") if final is None else final)
    return {number: float(np.mean(found)) for number, found in losses.items()}


def parameters(trial: StudyTrial) -> str:
    return ", ".join(f"{path.rpartition('.')[2]} {value:.3g}" for path, value in sorted(trial.params.items()))


def print_table(pbt: dict[int, float], random: dict[int, float], initial: float) -> None:
    """Prints the losses study by study, and the interval of the mean difference."""
    print(f"\nmean loss on the report tasks after 40 inner steps (initial theta: {initial:.3f})")
    print(f"{'study':>6}{'PBT':>9}{'random':>9}{'difference':>12}")
    for number in sorted(pbt):
        print(f"{number:6}{pbt[number]:9.3f}{random[number]:9.3f}{pbt[number] - random[number]:12.3f}")
    ours, theirs = (np.asarray([found[number] for number in sorted(pbt)]) for found in (pbt, random))
    print(f"{'mean':>6}{ours.mean():9.3f}{theirs.mean():9.3f}{(ours - theirs).mean():12.3f}")
    if len(ours) < 2:
        return
    test = stats.ttest_rel(ours, theirs)
    low, high = test.confidence_interval(0.95)
    verdict = "PBT is better" if high < 0 else "random search is better" if low > 0 else "no difference is shown"
    print(f"difference, paired by study: 95% interval [{low:.3f}, {high:.3f}], n = {len(ours)}: {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="Must not exist.")
    parser.add_argument("--studies", type=int, default=5, help="Of each way of search.")
    parser.add_argument("--trainers", type=int, default=1, help="Processes that train, for each way of search.")
    arguments = parser.parse_args()
    output: Path = arguments.output.absolute()
    if output.exists():
        parser.error(f"{output} exists")
    if min(arguments.studies, arguments.trainers) < 1:
        parser.error("--studies and --trainers are at least 1")
    output.mkdir(parents=True)
    print(f"{arguments.studies} studies of {' and of '.join(STRATEGIES)}, side by side; a line for each that ends.")
    first = output / "pbt_0"
    print(f"Look in: lobench pbt status --store {first / 'store'}, or {first / 'log.txt'}", flush=True)
    # Programs are compiled once for all studies; one thread each, so that a trial can be done again bit by bit.
    os.environ |= {
        "JAX_COMPILATION_CACHE_DIR": str(output / "xla"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "NPROC": "1",
    }
    from pbt_trainer import CONFIG, arrays_of, initial_theta, publish

    begun = time.monotonic()
    folders = {name: output / "report" / name for name in (*STRATEGIES, "initial")}
    for folder in folders.values():
        folder.mkdir(parents=True)
        (folder / "config.gin").write_text(CONFIG)
    with futures.ThreadPoolExecutor() as threads:
        searches = [threads.submit(search, output, name, arguments.studies, arguments.trainers) for name in STRATEGIES]
        try:
            for done in searches:
                done.result()
        except BaseException:
            STOPPED.set()
            raise
    for study in range(arguments.studies):
        publish(folders["initial"] / f"theta_{study}.npz", arrays_of(initial_theta(study)))
    found = {name: report(folder) for name, folder in folders.items()}
    print_table(found["pbt"], found["random"], float(np.mean(list(found["initial"].values()))))
    print(f"\n`lobench pbt status --store {output / 'pbt_0' / 'store'}` shows who descends from whom.")
    print(f"it took {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
