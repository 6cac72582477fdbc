"""`lobench evolve --executor ray`: the same workers, on two nodes."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from shown import texts_of
from tiny import until
from two_nodes import PATIENT, Cluster, Held, signal_all

SHOWN = texts_of("ray")

CONFIG = """
Case.learned_optimizer = @LearnableAdam()
Evolve.num_generations = 4
Evolve.checkpoint_every = 2
Evolve.members_per_program = 2
TruncationGA.population_size = 4
TruncationGA.num_parents = 2
TruncationGA.num_candidates = 2
"""


def start(config: Path, store: Path, *options: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lobench.cli", "evolve", str(config), "--store", str(store), *options]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def output(process: subprocess.Popen[str]) -> str:
    text, _ = process.communicate(timeout=PATIENT)
    assert process.returncode == 0, text
    return text


def results(store: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(f"file:{store / 'evolve.sqlite'}?mode=ro", uri=True) as database:
        return database.execute("SELECT generation, phase, block, fitness FROM results ORDER BY 1, 2, 3").fetchall()


def checkpoints(store: Path) -> dict[str, str]:
    files = sorted((store / "checkpoints").glob("*.npz"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_an_evolution_that_loses_a_slot_ends_with_the_bits_of_the_local_pool(cluster: Cluster, tmp_path: Path) -> None:
    held = Held(tmp_path, num_starts=8)
    config = held.suite / "evolve.gin"
    config.write_text(held.gin + CONFIG)
    local, store = tmp_path / "local", tmp_path / "ray"
    output(start(config, local, "--workers", "1"))
    second = cluster.second
    held.hold()
    options = ("--executor", "ray", "--ray-address", cluster.address, "--workers", "2")
    process = start(config, store, *options, environment=cluster.environment)
    try:
        until(lambda: held.num_waiting() == 2, "each node evaluates in the middle of the evolution")
        signal_all(second.workers(), signal.SIGKILL)
        held.release()
        assert SHOWN["worker-was-lost"] in output(process)
    finally:
        process.kill()
        process.wait()
    assert results(store) == results(local)
    assert checkpoints(store) == checkpoints(local) != {}
