"""Benchmarks of the chief: evaluations that cost nothing through a real watch, slow disks, the wait of a checkpoint."""

from __future__ import annotations

import functools
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from harness import Benchmark, Rounds

__all__ = ["BENCHMARKS"]

_HERE = Path(__file__).parent
_NUM_CASES = 50
_CONFTEST = """
from lobench.hookspecs import Declaration, hookimpl

@hookimpl
def lobench_executors():
    return [Declaration(name="idle", factory="idle_worker:idle_pool", summary="workers that do no work")]
"""
_SLOW_FSYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
static int slow(const char *name, int fd) {
    usleep(3000);
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(fd);
}
int fsync(int fd) { return slow("fsync", fd); }
int fdatasync(int fd) { return slow("fdatasync", fd); }
"""


def _checkpoints(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for step in range(1, count + 1):
        np.savez(folder / f"theta_{step}.npz", w=np.full(4, step, np.float32))
        (folder / f"theta_{step}.npz.done").touch()


class _Run:
    """One `lobench watch --once` over evaluations that do no work.

    Attributes:
      rate: Evaluations a second from the first record to the end, when the sink has them all too.
      seconds: Of the whole command.
      megabytes: The most memory that the chief had.
      restart_seconds: Of the same command once more, which finds nothing new. 0 if it was not run.
    """

    def __init__(self, num_evaluations: int, *, slow_disk: bool = False, is_restarted: bool = False) -> None:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            suite, store = root / "idle", root / "store"
            suite.mkdir()
            (suite / "conftest.py").write_text(_CONFTEST)
            _checkpoints(root / "run", num_evaluations // _NUM_CASES)
            environment = {
                **os.environ,
                "PYTHONPATH": str(_HERE),
                "LOBENCH_IDLE_CASES": str(_NUM_CASES),
                **({"LD_PRELOAD": str(_slow_fsync(root))} if slow_disk else {}),
            }
            command = [sys.executable, "-m", "lobench.cli", "watch", str(root / "run"), "--suite", str(suite), "--once"]
            command += ["--executor", "idle", "--workers", "2", "--checkpoints", "all", "--sink", "tensorboard"]
            command += ["--store", str(store)]
            self.seconds, self.megabytes = _timed(command, environment)
            ended = time.time()
            self.restart_seconds = _timed(command, environment)[0] if is_restarted else 0.0
            with sqlite3.connect(store / "ledger.sqlite") as ledger:
                times = [row[0] for row in ledger.execute("SELECT recorded_at FROM evaluations ORDER BY recorded_at")]
            if len(times) != num_evaluations:
                raise SystemExit(f"{len(times)} evaluations in the ledger, expected {num_evaluations}")
            self.rate = (len(times) - 1) / (ended - times[0])


def _timed(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Runs a watch, and returns its seconds and the most memory that it had, in megabytes."""
    started = time.perf_counter()
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"lobench watch ended with status {status}")
    return time.perf_counter() - started, usage.ru_maxrss / 1024


def _slow_fsync(folder: Path) -> Path:
    """Compiles a library under which every fsync takes 3 ms."""
    source, library = folder / "slow_fsync.c", folder / "slow_fsync.so"
    source.write_text(_SLOW_FSYNC)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


def _rate(quick: bool, *, slow_disk: bool = False) -> Rounds:
    """Returns evaluations per second end to end: the whole command's, start and delivery to the sink included."""
    if slow_disk and shutil.which("cc") is None:
        raise SystemExit("a disk whose fsync is slow needs a C compiler (cc)")
    count = 2_000 if quick else 10_000
    ratios = [count / _Run(count, slow_disk=slow_disk).seconds for _ in range(1 if quick else 3)]
    where = ", where every fsync takes 3 ms" if slow_disk else ""
    what = f"evaluations a second, {count:,} that do no work through watch, TensorBoard included{where}"
    return Rounds(what=what, ratios=ratios)


def _growth(quick: bool, figure: str) -> Rounds:
    """Returns a figure at many evaluations over the same at 1,000."""
    many = 2_000 if quick else 10_000
    ratios = [getattr(_Run(many), figure) / getattr(_Run(1_000), figure) for _ in range(1 if quick else 3)]
    names = {"rate": "evaluations a second from the first record to the end", "megabytes": "most memory of the chief"}
    return Rounds(what=f"{names[figure]}: at {many:,} over at 1,000", ratios=ratios)


def _restart(quick: bool) -> Rounds:
    """Returns the seconds of a watch that is started again and finds nothing new."""
    count = 2_000 if quick else 100_000
    what = f"seconds of a watch that finds nothing new after {count:,} evaluations, TensorBoard included"
    return Rounds(what=what, ratios=[_Run(count, is_restarted=True).restart_seconds])


_LATENCY_CONFTEST = """
import os, time

def pytest_runtest_call(item):
    with open(os.environ["LOBENCH_LATENCY_LOG"], "a") as log:
        log.write(f"{time.time()}\\n")
"""
# `lobench` with the time of each poll in a file.
_POLLS = """
import os, sys, time
from lobench.engine.checkpoints import source
poll = source.DirectorySource.poll
def logged(self):
    with open(os.environ["LOBENCH_POLL_LOG"], "a") as log:
        log.write(f"{time.time()}\\n")
    return poll(self)
source.DirectorySource.poll = logged
from lobench.cli import main
sys.argv[0] = "lobench"
main()
"""
_LATENCY_GIN = """
import lobench.inner.tasks.quadratic
Case.num_inner_steps = 20
Case.num_seeds = 1
tiny/Case.task = @Quadratic()
Case.learned_optimizer = @LearnableSGD()
"""


def _latency(quick: bool) -> list[float]:
    """Returns seconds from the first poll after a checkpoint's rename to a worker computing on it."""
    from flax import serialization

    count = 5 if quick else 50
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        suite, run, log, polls = root / "tiny", root / "run", root / "log", root / "polls"
        suite.mkdir()
        run.mkdir()
        (suite / "conftest.py").write_text(_LATENCY_CONFTEST)
        (suite / "tiny.gin").write_text(_LATENCY_GIN)
        command = [sys.executable, "-c", _POLLS, "watch", str(run), "--suite", str(suite / "tiny.gin")]
        command += ["--workers", "1", "--store", str(root / "store"), "--until-step", str(count)]
        environment = {**os.environ, "LOBENCH_LATENCY_LOG": str(log), "LOBENCH_POLL_LOG": str(polls)}
        child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        waits, whole = [], []
        for step in range(count + 1):
            hidden = run / f"params_{step}_tmp"
            hidden.write_bytes(serialization.to_bytes({"log_lr": np.float32(-3 - step / 100)}))
            time.sleep(0.37)  # so that the renames fall anywhere between two polls
            hidden.rename(run / f"params_{step}")
            renamed = time.time()
            while not log.exists() or len(log.read_text().splitlines()) <= step:
                time.sleep(0.005)
                if child.poll() is not None:
                    raise SystemExit(f"lobench watch ended with code {child.returncode}")
            computing = float(log.read_text().splitlines()[step])
            whole.append(computing - renamed)
            waits.append(computing - min(poll for poll in map(float, polls.read_text().split()) if poll >= renamed))
        child.wait()
    print(f"  seconds from rename to computing: median {statistics.median(whole[1:]):.3f}, most {max(whole[1:]):.3f}")
    return waits[1:]  # the first one starts the worker


def _worst_latency(quick: bool) -> Rounds:
    waits = _latency(quick)
    what = "seconds from the first poll after a rename to a worker computing; the worst of "
    return Rounds(what=f"{what}{len(waits)} checkpoints", ratios=[max(waits)])


_TOGETHER_GIN = """
import lobench.inner.tasks.quadratic
import lobench.inner.tasks.image
Case.num_seeds = 1
Case.eval_every = 1000
Case.learned_optimizer = @AdafacMLPLOpt()
"""
_TOGETHER = {
    "quadratic": "one/Case.task = @Quadratic()\none/Case.num_inner_steps = 20000\n",
    "digits": "one/Case.task = @DigitsMLP()\none/Case.num_inner_steps = 2000\n",
}


def _backlog_seconds(root: Path, together: int) -> float:
    """Returns the seconds of eight checkpoints in a watch over sixteen; the first eight start and compile all."""
    store = root / f"store{together}"
    command = [sys.executable, "-m", "lobench.cli", "watch", str(root / "run"), "--suite", str(root / "one.gin")]
    command += ["--once", "--checkpoints", "all", "--workers", "1", "--together", str(together), "--store", str(store)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    with sqlite3.connect(store / "ledger.sqlite") as ledger:
        times = [row[0] for row in ledger.execute("SELECT recorded_at FROM evaluations ORDER BY recorded_at")]
    shutil.rmtree(store)
    if len(times) != 16:
        raise SystemExit(f"{len(times)} evaluations in the ledger, expected 16")
    return times[15] - times[7]


def _together(quick: bool, *, task: str) -> Rounds:
    """Returns the seconds of eight waiting checkpoints one by one over eight together, in a watch with one worker."""
    import jax
    from flax import serialization

    from lobench.inner.optimizers import AdafacMLPLOpt

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "one.gin").write_text(_TOGETHER_GIN + _TOGETHER[task])
        (root / "run").mkdir()
        for step in range(16):
            theta = AdafacMLPLOpt().init(jax.random.key(step))
            (root / "run" / f"params_{step}").write_bytes(serialization.to_bytes(jax.device_get(theta)))
        ratios = [_backlog_seconds(root, 1) / _backlog_seconds(root, 8) for _ in range(1 if quick else 3)]
    what = f"8 waiting checkpoints of {task} through watch, one worker: one by one over --together 8"
    return Rounds(what=what, ratios=ratios)


BENCHMARKS = (
    Benchmark(name="chief_rate", target=">= 500", measure=_rate),
    Benchmark(name="chief_rate_slow_disk", target=">= 500", measure=functools.partial(_rate, slow_disk=True)),
    Benchmark(name="chief_rate_growth", target=">= 0.8", measure=functools.partial(_growth, figure="rate")),
    Benchmark(name="chief_memory_growth", target="<= 1.2", measure=functools.partial(_growth, figure="megabytes")),
    Benchmark(name="restart_seconds", target="<= 3", measure=_restart),
    Benchmark(name="checkpoint_latency", target="<= 0.1", measure=_worst_latency),
    Benchmark(name="backlog_together_quadratic", target="", measure=functools.partial(_together, task="quadratic")),
    Benchmark(name="backlog_together_digits", target="", measure=functools.partial(_together, task="digits")),
)
