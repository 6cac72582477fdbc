"""Sinks have each scalar of commands and ordinary tests once, also after kills of a watch and its workers."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from test_tests_of_checkpoints import write_suite
from tiny import PATIENCE, results

pytest.importorskip("lobench_tensorboard")
pytest.importorskip("lobench_mlflow")

KILLED = """
import os
import pytest

@pytest.mark.parametrize("number", range(3))
def test_counted(checkpoint, record, number):
    with open(os.environ["EVALUATED"], "a") as file:
        print(os.getpid(), file=file)  # one line for each start of an evaluation
    record("valid/loss", checkpoint.outer_step + number)
"""


def wait_for_starts(file: Path, count: int, watch: subprocess.Popen[bytes]) -> list[int]:
    """Returns the processes of the evaluations that have begun, once there are enough or the watch has ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = [int(line) for line in file.read_text().splitlines()] if file.exists() else []
        if len(found) >= count or watch.poll() is not None:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.005)


def num_evaluations_that_lost_a_worker(store: Path) -> int:
    """Returns how many unfinished evaluations have lost a worker. One that loses a second worker is poisoned."""
    with contextlib.closing(sqlite3.connect(store / "ledger.sqlite", timeout=PATIENCE)) as ledger:
        return ledger.execute(
            "SELECT count(*) FROM incidents WHERE kind = 'death' AND NOT EXISTS (SELECT 1 FROM evaluations WHERE "
            "checkpoint_sha256 = incidents.checkpoint_sha256 AND seed_start = incidents.seed_start "
            "AND case_identity || ':' || optimizer_hash = incidents.case_key)"
        ).fetchone()[0]


EVAL = """
import json, os, pathlib, sys
step, seed, out, _ = sys.argv[1:]
with open(os.environ["EVALUATED"], "a") as file:
    print(os.getppid(), file=file)
(pathlib.Path(out) / "metrics.json").write_text(json.dumps({"valid/loss": int(step) + int(seed) / 10}))
"""
GIN = """
command/Case.command = "python evaluate.py {step} {seed} {out} {checkpoint}"
command/Case.curves = "{out}/metrics.json"
command/Case.primary_metric = "valid/loss"
command/Case.num_seeds = 2
"""
NUM_KILLS = 4


def of_tensorboard(store: Path) -> Counter[tuple[str, int]]:
    """Returns how often each scalar is in the event files."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    files = [str(file) for file in (store / "tensorboard").rglob("events.*")]
    events = [event for file in files for event in EventFileLoader(file).Load()]
    return Counter((value.tag, event.step) for event in events for value in event.summary.value)


def of_mlflow(store: Path) -> Counter[tuple[str, int]]:
    """Returns how often each scalar is in the file store."""
    found: Counter[tuple[str, int]] = Counter()
    for file in (store / "mlruns").glob("*/*/metrics/**/*"):
        if file.is_file():
            name = file.relative_to(next(one for one in file.parents if one.name == "metrics")).as_posix()
            found.update((name, int(line.split()[2])) for line in file.read_text().splitlines())
    return found


def test_watch_killed_many_times_delivers_each_scalar_once(tmp_path: Path) -> None:
    suite, run, store, starts = write_suite(tmp_path, KILLED), tmp_path / "run", tmp_path / "store", tmp_path / "starts"
    (suite / "evaluate.py").write_text(EVAL)
    (suite / "eval.gin").write_text(GIN)
    steps = range(1, 5)
    for step in steps:
        (run / f"checkpoint-{step}").mkdir(parents=True)
        (run / f"checkpoint-{step}/model.json").write_text(f'{{"loss": {step}}}')
        (run / f"checkpoint-{step}/trainer_state.json").write_text("{}")
    words = [sys.executable, "-m", "lobench.cli", "watch", str(run), "--suite", str(suite), "--store", str(store)]
    words += ["--once", "--checkpoints", "all", "--workers", "2", "--sink", "tensorboard", "--sink", "mlflow"]
    environment = {**os.environ, "EVALUATED": str(starts), "MLFLOW_ALLOW_FILE_STORE": "true"}
    num_kills, goal, is_over = 0, 2, False
    while not is_over:
        watch = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            begun = wait_for_starts(starts, goal, watch)
            if watch.poll() is not None or num_kills >= NUM_KILLS:
                assert watch.wait(PATIENCE) == 0, num_kills
                is_over = True
                break
            kills_watch = num_kills % 2 == 0
            if not kills_watch and num_evaluations_that_lost_a_worker(store):
                time.sleep(0.005)
                continue
            goal = len(begun) + 3
            num_kills += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(watch.pid if kills_watch else begun[-1], signal.SIGKILL)
            if kills_watch:
                watch.wait()
                break
    found = results(store)
    evaluations = Counter((one["checkpoint"]["outer_step"], one["case"]["name"], tuple(one["seeds"])) for one in found)
    tests = {(step, f"test_counted[{number}]", (0,)) for step in steps for number in range(3)}
    assert set(evaluations) == tests | {(step, "command", (seed,)) for step in steps for seed in range(2)}
    assert set(evaluations.values()) == {1} and {one["outcome"] for one in found} == {"passed"}
    assert num_kills >= NUM_KILLS // 2, num_kills
    for scalars in (of_tensorboard(store), of_mlflow(store)):
        wanted = {(name, step) for name, step in scalars if "valid/loss" in name and "interval" not in name}
        assert len(wanted) == 4 * len(steps) and {step for _, step in wanted} == {*steps}, wanted
        assert {count for scalar, count in scalars.items() if "config" not in scalar[0]} == {1}, scalars
