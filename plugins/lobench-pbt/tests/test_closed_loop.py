"""The closed loop of real processes: a controller, two workers and a watch, killed at random points.

`LOBENCH_PBT_KILLS` says how often, for who wants to see more of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import loop_trainer
import numpy as np
import pytest
from lobench_pbt.lineage import replay
from lobench_pbt.service import Service
from lobench_pbt.study import study_from_json
from lobench_pbt.trial import State
from pbt_simulation import PLUGINS, assert_properties
from tiny import make_suite

from lobench.extend import Draws, checkpoint_sha256

KILLS = int(os.environ.get("LOBENCH_PBT_KILLS", "4"))
GENERATIONS = max(2, KILLS // 2)
VICTIMS = ("watch", "worker-0", "controller")
LIMIT_SECONDS = 900 + 30 * KILLS  # on a machine that is busy with other things, too
STUDY = """
import loop_trainer
Study.population = 4
Study.generations = %d
Study.n_steps = 5
Study.objectives = [@loss/Objective()]
loss/Objective.metric = "train/loss"
loss/Objective.direction = "min"
Study.parameters = [@speed/Real(), @kind/Categorical()]
Study.p_crossover = 0.3
Study.fitness_from = "watch"
Study.keep = "all"
Study.lease_seconds = 5.0
Study.max_attempts = 100
speed/Real.path = "drift.speed"
speed/Real.low = 0.01
speed/Real.high = 1.0
speed/Real.scale = "log"
kind/Categorical.path = "drift.kind"
kind/Categorical.values = ["up", "both"]
"""
CONFIG = "Case.learned_optimizer = @LearnableSGD()\n"


class Loop:
    """The processes, each of which may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.suite = folder, make_suite(folder)
        self.population = folder / "population"
        self.population.mkdir()
        (self.population / "config.gin").write_text(CONFIG)
        (folder / "study.gin").write_text(STUDY % GENERATIONS)
        here = str(Path(__file__).parent)
        self.environment = {**os.environ, "PYTHONPATH": here, "NPROC": "1"}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.start("controller")
        deadline = time.monotonic() + LIMIT_SECONDS
        while not (folder / "store" / "address").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.address = (folder / "store" / "address").read_text()
        for name in ("watch", "worker-0", "worker-1"):
            self.start(name)

    def start(self, name: str) -> None:
        if name == "controller":
            arguments = ["-m", "lobench.cli", "pbt", "serve", "study.gin", "--store", "store"]
        elif name == "watch":
            arguments = ["-m", "lobench.cli", "watch", str(self.population), "--suite", str(self.suite)]
            arguments += ["--checkpoints", "all", "--workers", "1", "--sink", f"pbt:{self.address}"]
        else:
            arguments = [loop_trainer.__file__, self.address, str(self.population), name, str(GENERATIONS)]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *arguments], cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def is_done(self) -> bool:
        """Workers end when nothing is left to do."""
        return all(self.processes[name].poll() is not None for name in ("worker-0", "worker-1"))

    def logs(self) -> str:
        return "\n".join(f"== {file.name}\n{file.read_text()[-2000:]}" for file in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.mark.timeout(LIMIT_SECONDS + 60)
def test_killed_at_random_points_the_study_completes_and_its_best_trial_can_be_replayed(tmp_path: Path) -> None:
    draws, loop, killed = Draws(KILLS, "kills"), Loop(tmp_path), Counter[str]()
    deadline = time.monotonic() + LIMIT_SECONDS
    try:
        while not loop.is_done():
            assert time.monotonic() < deadline, f"{killed}\n{loop.logs()}"
            time.sleep(draws.uniform(0.05, 0.8))
            if killed.total() < KILLS:
                name = VICTIMS[killed.total() % len(VICTIMS)]
                if loop.processes[name].poll() is None:
                    loop.kill(name)
                    loop.start(name)
                    killed[name] += 1
            else:
                (tmp_path / "all_killed").touch()
        wait_for_fitness(loop, deadline)
    finally:
        loop.close()
    assert killed.total() == KILLS
    service = Service(tmp_path / "store", plugins=PLUGINS)
    study = study_from_json(service.get_study()[0].config)
    trials = service.list_trials("", limit=10_000)
    service.close()
    assert_properties(study, trials)
    assert {trial.state for trial in trials} == {State.SUCCEEDED}, loop.logs()
    best = max(trials, key=lambda trial: trial.fitness or ())
    assert replayed(tmp_path, best.id) == best.checkpoint.sha256  # type: ignore[union-attr]
    print(f"{len(trials)} trials, killed: {dict(killed)}")


def wait_for_fitness(loop: Loop, deadline: float) -> None:
    """The workers do not wait for the last generation's fitness."""
    command = [sys.executable, "-m", "lobench.cli", "pbt", "export", "--store", "store"]
    while True:
        done = subprocess.run(command, cwd=loop.folder, capture_output=True, text=True, check=True)
        states = {trial["state"] for trial in json.loads(done.stdout)["trials"]}
        if states <= {"succeeded", "infeasible"}:
            return
        assert time.monotonic() < deadline, f"{states}\n{loop.logs()}"
        time.sleep(1.0)


def replayed(folder: Path, trial: int) -> str:
    """Trains a trial's history again and returns the digest of what comes of it."""
    command = [sys.executable, "-m", "lobench.cli", "pbt", "replay", str(trial), "--store", str(folder / "store")]
    document = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    state = replay(document, loop_trainer.train)
    assert state is not None
    np.savez(folder / "replayed.npz", **state)  # type: ignore[arg-type]
    return checkpoint_sha256(folder / "replayed.npz")
