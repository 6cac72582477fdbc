"""`lobench evolve --executor ray`: the same workers, on two nodes."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from shown import texts_of
from tiny import make_suite, until
from two_nodes import PATIENT, Cluster

SHOWN = texts_of("ray")

CONFIG = """
import tiny_tasks
Case.learned_optimizer = @LearnableAdam()
Case.num_inner_steps = 10
Case.num_seeds = 2
a/Case.task = @Bowl()
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


def has_begun(store: Path) -> bool:
    try:
        return bool(results(store))
    except sqlite3.OperationalError:  # no file yet, or no table in it
        return False


def checkpoints(store: Path) -> dict[str, str]:
    files = sorted((store / "checkpoints").glob("*.npz"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_an_evolution_that_loses_a_node_ends_with_the_bits_of_the_local_pool(cluster: Cluster, tmp_path: Path) -> None:
    config = make_suite(tmp_path) / "evolve.gin"
    config.write_text(CONFIG)
    local, store = tmp_path / "local", tmp_path / "ray"
    output(start(config, local, "--workers", "1"))
    second = cluster.second
    options = ("--executor", "ray", "--ray-address", cluster.address, "--workers", "2")
    process = start(config, store, *options, environment=cluster.environment)
    try:
        until(lambda: has_begun(store), "the evolution begins")
        until(lambda: second.workers(), "a worker of it on the second node")
        second.kill()
        assert SHOWN["worker-was-lost"] in output(process)
    finally:
        process.kill()
        process.wait()
    assert results(store) == results(local)
    assert checkpoints(store) == checkpoints(local) != {}
