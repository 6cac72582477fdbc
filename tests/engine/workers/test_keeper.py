"""The process that ends what workers started: stopped itself, it outlives neither its watch nor a killed one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from tiny import is_alive

from lobench.engine.workers import keeper
from lobench.engine.workers.keeper import Keeper

CHIEF = """
import subprocess, sys, time
from lobench.engine.workers.keeper import Keeper
keeper = Keeper()
child = subprocess.Popen(["sleep", "600"], process_group=0)
keeper.add_group(child.pid)
print(keeper._child.pid, child.pid, flush=True)
time.sleep(600)
"""


def _is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def _has_begun(pid: int) -> bool:
    """Says whether it ignores SIGINT and reads its pipe: the last thing that it does before it waits."""
    with open(f"/proc/{pid}/status") as file:
        fields = dict(line.split(":\t") for line in file.read().splitlines() if ":\t" in line)
    return bool(int(fields["SigIgn"], 16) & 1 << (signal.SIGHUP - 1)) and fields["State"].startswith("S")


def _stop(pid: int) -> None:
    while not _has_begun(pid):
        time.sleep(0.01)
    os.kill(pid, signal.SIGSTOP)
    while not _is_stopped(pid):
        time.sleep(0.01)


def test_a_stopped_keeper_ends_with_its_watch_and_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "_CLOSE_SECONDS", 0.1)
    for num_words in (1, 20_000):  # more than a pipe holds
        kept = Keeper()
        assert kept._child is not None
        pid = kept._child.pid
        _stop(pid)
        for _ in range(num_words):
            kept.remove_group(1 << 30)
        kept.close()
        assert not is_alive(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux says that a parent died")
def test_a_stopped_keeper_ends_what_a_killed_chief_left() -> None:
    chief = subprocess.Popen([sys.executable, "-c", CHIEF], stdout=subprocess.PIPE, text=True)
    assert chief.stdout is not None
    with chief.stdout:
        pids = [int(word) for word in chief.stdout.readline().split()]
    _stop(pids[0])
    chief.kill()
    chief.wait()
    while any(map(is_alive, pids)):
        time.sleep(0.01)


def test_detached_keeper_whose_starter_is_killed_at_once_ends_its_groups() -> None:
    """Ray kills the children of an actor when it ends the actor."""
    kept = Keeper(is_detached=True)
    with subprocess.Popen(["sleep", "600"], process_group=0) as worker:
        kept.add_group(worker.pid)
        assert kept._child is not None
        kept._child.kill()
        kept.close()
        try:
            assert worker.wait(100) == -signal.SIGKILL
        finally:
            worker.kill()
