"""pytest-xdist with a suite: workers, order, options of its own, and a worker that crashes."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

from shown import texts_of
from tiny import GIN, make_run, make_suite, results

from lobench.pytest_plugin.parallel import longest_first_order

SHOWN = texts_of("pytest")


def run_pytest(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "tiny", "-p", "no:cacheprovider", "-v"]
    command += ["--lobench-checkpoint", "run/theta_1.npz", "--lobench-store", "store", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_longest_goes_first_and_what_is_handed_out_in_pairs_is_balanced() -> None:
    durations = {"a": 1.0, "b": 5.0, "c": 3.0, "d": 2.0}
    names = ["a", "b", "c", "d", "new"]
    assert [names[index] for index in longest_first_order(names, durations)] == ["b", "c", "new", "d", "a"]
    assert [names[index] for index in longest_first_order(names, durations, num_workers=2)] == [
        "b",
        "d",
        "c",
        "new",
        "a",
    ]
    assert [names[index] for index in longest_first_order(names, durations, num_workers=3)] == [
        "b",
        "c",
        "new",
        "d",
        "a",
    ]


def test_auto_means_the_cores_and_the_recorded_longest_goes_first(tmp_path: Path) -> None:
    gin = GIN + "c/Case.task = @Bowl()\nc/Bowl.dim = 7\n"
    make_suite(tmp_path, gin=gin), make_run(tmp_path, -3.0)
    first = run_pytest(tmp_path, "-n", "auto", "--maxprocesses", "1")
    assert "1 worker" in first, first  # xdist's own options keep their meaning
    assert "3 passed" in first
    with sqlite3.connect(tmp_path / "store" / "ledger.sqlite") as database:
        for name, seconds in (("a", 2.0), ("b", 9.0), ("c", 5.0)):
            where = f'%"name": "{name}"%'
            database.execute("UPDATE evaluations SET seconds = ? WHERE case_json LIKE ?", (seconds, where))
    second = run_pytest(tmp_path, "-n", "1", "--dist", "worksteal")
    assert re.findall(r"PASSED \S*\[(\w)\]", second) == ["b", "c", "a"], second
    assert len(results(tmp_path / "store")) == 3


def test_a_case_that_kills_its_worker_is_reported_once_and_the_rest_is_done(tmp_path: Path) -> None:
    gin = GIN + f"k/Case.task = @Killer()\nk/Killer.counter = '{tmp_path / 'count'}'\nk/Killer.times = 9\n"
    make_suite(tmp_path, gin=gin), make_run(tmp_path, -3.0)
    output = run_pytest(tmp_path, "-n", "auto")
    assert f"{len(os.sched_getaffinity(0))} workers" in output
    assert "1 failed, 2 passed" in output, output
    assert output.count(SHOWN["crashed-while-running"]) >= 1
    assert len(re.findall(r"^FAILED .*\[k\]", output, re.MULTILINE)) == 1
    assert (tmp_path / "count").stat().st_size == 1
    assert len(results(tmp_path / "store")) == 2
