"""Kills for want of memory: counted by a cgroup, and split instead of poisoned."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny import PATIENCE, TASKS, make_run, make_suite, results, watch_command

from lobench.engine.workers import oom_kills
from lobench.engine.workers.oom_kills import OomKills


@pytest.mark.parametrize(
    ("own", "file", "text"),
    [
        ("0::/job\n", "job/memory.events", "low 0\noom 1\noom_kill {}\n"),
        ("0::/not/visible/here\n", "memory.events", "oom_kill {}\n"),
        ("4:memory:/job\n0::/\n", "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"),
        ("4:cpu,memory:/hidden\n", "memory/memory.oom_control", "oom_kill {}\n"),
    ],
)
def test_oom_kills_counts_what_the_cgroup_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, file: str, text: str
) -> None:
    monkeypatch.setattr(oom_kills, "_CGROUPS", tmp_path)
    monkeypatch.setattr(oom_kills, "_OWN", tmp_path / "own")
    (tmp_path / "own").write_text(own)
    counted = tmp_path / file
    counted.parent.mkdir(parents=True, exist_ok=True)
    counted.write_text(text.format(3))
    kills = OomKills()
    assert not kills.claim_kill(), "kills of before are no worker's"
    counted.write_text(text.format(5))
    assert [kills.claim_kill(), kills.claim_kill(), kills.claim_kill()] == [True, True, False]


def test_oom_kills_without_a_cgroup_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oom_kills, "_OWN", tmp_path / "none")
    assert not OomKills().claim_kill()


EATER = '''
import numpy as np

@configurable
class Eater(Bowl):
    """Asks for memory until the system kills its process."""
    def init(self, key):
        held = []
        while True:
            held.append(np.ones(1 << 22))
'''
GIN = """
import tiny_tasks
Case.num_inner_steps = 10
Case.num_seeds = 2
Case.eval_every = 5
a/Case.task = @Eater()
"""


@contextlib.contextmanager
def small_cgroup(limit: int) -> Iterator[Callable[[], None]]:
    """Yields a function by which a process enters a cgroup with a limit of memory."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    top, name = (
        (Path("/sys/fs/cgroup"), "memory.max") if unified else (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes")
    )
    group = top / f"lobench-{uuid.uuid4().hex}"
    try:
        group.mkdir()
        (group / name).write_text(str(limit))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"needs a machine that lets this user make a cgroup: {error}")
    try:
        yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        group.rmdir()


def test_watch_worker_that_its_cgroup_kills_halves_the_block_and_is_oom(tmp_path: Path) -> None:
    suite, run, store = make_suite(tmp_path, GIN), make_run(tmp_path, -3.0), tmp_path / "store"
    (suite / "tiny_tasks.py").write_text(TASKS + EATER)
    command = watch_command(run, suite, "--once", "--workers", "1", "--store", str(store))
    with small_cgroup(1500 << 20) as enter:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=tmp_path, preexec_fn=enter
        )
    assert done.returncode == 3, done.stdout + done.stderr
    found = results(store)
    assert sorted((tuple(record["seeds"]), record["outcome"]) for record in found) == [((0,), "oom"), ((1,), "oom")]
