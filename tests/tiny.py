"""A tiny suite of tasks that compile in a moment, or misbehave, and what tests need to run a watch on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from commands import Done, lobench, lobench_here
from forked import python

PATIENCE = 900.0  # seconds until a wait for another process is a failure; a busy machine is none

TASKS = '''
import os, signal, time
import jax, jax.numpy as jnp
from lobench import Task, configurable

@configurable
class Bowl(Task):
    def __init__(self, *, dim=3):
        self.dim = dim
    def init(self, key):
        return jax.random.normal(key, (self.dim,))
    def loss(self, params, key, data):
        return jnp.sum(params**2)

@configurable
class Killer(Bowl):
    """Kills its worker at the first `times` attempts, counted in a file."""
    def __init__(self, *, counter, times):
        super().__init__()
        self.counter, self.times = counter, times
    def init(self, key):
        with open(self.counter, "a") as file:
            file.write("x")
        if os.path.getsize(self.counter) <= self.times:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().init(key)

@configurable
class Hang(Bowl):
    def init(self, key):
        time.sleep(600)

@configurable
class Hungry(Bowl):
    """Asks for more memory than any machine has."""
    def loss(self, params, key, data):
        return super().loss(params, key, data) + jnp.sort(jnp.broadcast_to(params[0], (1 << 44,)))[0]
'''

GIN = """
import tiny_tasks
Case.num_inner_steps = 10
Case.num_seeds = 2
Case.eval_every = 5
a/Case.task = @Bowl()
b/Case.task = @Bowl()
b/Bowl.dim = 5
"""
# For tests of which a second program shows no more.
ONE_CASE = GIN.partition("b/Case.task")[0]

# A watch that kills itself at its n-th commit, before or after it: `python -c KILLED_CHIEF N 0|1 watch ...`. It commits
# after every event, so that there are as many commits as can be.
KILLED_CHIEF = """
import os, signal, sys
from lobench.engine.chief import loop as watch
from lobench.engine.store import delivery, ledger
delivery._CURSOR_SECONDS = 0.0
handle_all = watch.Chief._handle_all
def one_by_one(self, events):
    for event in events:
        handle_all(self, [event])
        self._commit()
watch.Chief._handle_all = one_by_one
left, after = int(sys.argv.pop(1)), int(sys.argv.pop(1))
class Database:
    def __init__(self, wrapped):
        self.wrapped = wrapped
    def __getattr__(self, name):
        return getattr(self.wrapped, name)
    def execute(self, sql, *arguments):
        global left
        left -= sql == "COMMIT"
        if sql == "COMMIT" and left == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        found = self.wrapped.execute(sql, *arguments)
        if sql == "COMMIT" and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
init = ledger.Ledger.__init__
def patched(self, store, connection, lock=None, *rest):
    init(self, store, Database(connection) if lock else connection, lock, *rest)
ledger.Ledger.__init__ = patched
from lobench.cli import main
sys.argv[0] = "lobench"
main()
"""


def killed_chief(
    commit: int | str, after: int | str, *words: str | Path, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command of lobench that kills itself, see `KILLED_CHIEF`."""
    return python("-c", KILLED_CHIEF, str(commit), str(after), *words, cwd=cwd, timeout=PATIENCE)


CONFIG = "Case.learned_optimizer = @LearnableSGD()\n"


def make_suite(folder: Path, gin: str = GIN, extra: str = "") -> Path:
    """Writes a suite `tiny` with a test file, and returns its folder."""
    suite = folder / "tiny"
    suite.mkdir(parents=True)
    (suite / "tiny_tasks.py").write_text(TASKS)
    (suite / "tiny.gin").write_text(gin + extra)
    (suite / "test_tiny.py").write_text(
        "from lobench import cases\n\n@cases('tiny.gin')\ndef test_tiny(case, evaluate):\n    evaluate(case)\n"
    )
    return suite


def make_run(folder: Path, *log_lrs: float) -> Path:
    """Writes a run with a checkpoint for each log learning rate, numbered from 1, and a config.gin."""
    run = folder / "run"
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.gin").write_text(CONFIG)
    for index, log_lr in enumerate(log_lrs, 1):
        write_checkpoint(run / f"theta_{index}.npz", log_lr)
    return run


def write_checkpoint(path: Path, log_lr: float) -> None:
    np.savez(path, log_lr=np.float32(log_lr))
    path.with_name(path.name + ".done").touch()


def watch_command(run: Path, suite: Path, *options: str) -> list[str]:
    """Returns a watch that says each evaluation."""
    return [sys.executable, "-m", "lobench.cli", "watch", str(run), "--suite", str(suite), "--verbose", *options]


def watch(run: Path, suite: Path, *options: str) -> Done:
    """Runs a watch to its end. Its workers are processes; the chief is this one, which saves its start."""
    return lobench("watch", run, "--suite", suite, *options, cwd=suite.parent)


def watch_here(run: Path, suite: Path, *options: str) -> Done:
    """Runs a watch to its end, in this process, unless it names `--executor local` or several workers."""
    return lobench_here("watch", run, "--suite", suite, *options, cwd=suite.parent)


def watch_apart(run: Path, suite: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The same where the chief has to be a process of its own: one that takes its worker's work, say."""
    command = watch_command(run, suite, *options)
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=suite.parent)


def results(store: Path, *options: str) -> list[dict[str, Any]]:
    done = lobench("results", "--store", store, "--format", "json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def content(store: Path) -> list[tuple[Any, ...]]:
    """What must be equal between two ledgers of the same work: everything but times and places."""
    return sorted(
        (
            -1 if (step := record["checkpoint"]["outer_step"]) is None else step,  # an optimizer has none
            record["checkpoint"]["sha256"],
            record["case"]["identity"],
            tuple(record["seeds"]),
            record["outcome"],
            json.dumps(record.get("curves"), sort_keys=True),
        )
        for record in results(store, "--curves")
    )


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z" and os.path.exists(f"/proc/{pid}")


def until(condition: Callable[[], object], what: str) -> None:
    """Waits for another process; the only clock is how long a test may take."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)
