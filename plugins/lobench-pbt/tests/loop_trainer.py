"""A trainer for the closed loop: theta is a rate of `LearnableSGD`, and drifts as its seed and parameters say.

Run as a program (`loop_trainer.py ADDRESS POPULATION WORKER LAST_GENERATION`) it trains trials until the study is done;
those of the last generation wait for the file `all_killed`, so that the study is not over before everything was killed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gin
import lobench_pbt
import numpy as np

State = dict[str, np.ndarray]


@gin.configurable
def drift(speed: float = 0.1, kind: str = "up") -> tuple[float, str]:
    return speed, kind


def train(state: State | None, segment: Mapping[str, Any]) -> State:
    """Trains a segment; the same state, parameters and seed give the same bits."""
    generator = np.random.default_rng(segment["seed"])
    log_lr = np.float32(-6.0) if state is None else state["log_lr"]
    speed, kind = segment["params"]["drift.speed"], segment["params"]["drift.kind"]
    for _ in range(segment["n_steps"]):
        noise = np.float32(speed * generator.normal())
        log_lr = np.float32(log_lr + (abs(noise) if kind == "up" else noise))
    return {"log_lr": np.asarray(min(log_lr, np.float32(-1.0)))}


def publish(state: State, path: Path) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        np.savez(file, **state)  # type: ignore[arg-type]
    os.replace(temporary, path)
    path.with_name(path.name + ".done").touch()
    return path


def main(address: str, population: str, worker: str, last_generation: str) -> None:
    last, all_killed = int(last_generation), Path(population).parent / "all_killed"
    with lobench_pbt.client(address) as study:
        for trial in study.trials(worker):
            state = dict(np.load(trial.warm_checkpoint)) if trial.warm_checkpoint else None
            trial.restored()
            trial.apply()
            time.sleep(0.2)  # something to be killed in
            while trial.generation == last and not all_killed.exists():
                time.sleep(0.05)
            params = dict(zip(("drift.speed", "drift.kind"), drift(), strict=True))
            state = train(state, {"seed": trial.seed, "n_steps": trial.n_steps, "params": params})
            path = trial.folder(population) / f"theta_{trial.end_step}.npz"
            trial.complete(publish(state, path))


if __name__ == "__main__":
    main(*sys.argv[1:])
