"""How well the scheduler fills its workers: makespans over the bound that no order can beat."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from harness import Benchmark, Rounds

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from makespan_world import MakespanWorld, lower_bound

__all__ = ["BENCHMARKS", "recorded"]

_WORKERS = 2
_SUITE = Path(__file__).parent.parent / "suites" / "digits"
_STEPS = 300


def simulated_makespan(seconds: Sequence[float]) -> float:
    """Returns the makespan of a second checkpoint, whose cases' durations the first one has shown."""
    world = MakespanWorld(seconds, num_workers=_WORKERS)
    world.run([0])
    return world.run([1])


def _simulated(quick: bool) -> Rounds:
    """The worst over suites of 8 to 40 cases whose durations spread as recorded ones do, and evener and wider ones."""
    rng = random.Random(0)
    worst = []
    for spread in (0.3, 0.7, 1.2):
        for _ in range(20 if quick else 200):
            seconds = [rng.lognormvariate(0.0, spread) for _ in range(rng.randint(8, 40))]
            worst.append(simulated_makespan(seconds) / lower_bound(seconds, _WORKERS))
    what = f"{len(worst)} suites of 8 to 40 cases on {_WORKERS} workers, simulated: the worst makespan over the bound"
    return Rounds(what=f"{what}, max(longest, total / {_WORKERS})", ratios=[max(worst)])


def recorded(store: Path) -> dict[str, list[tuple[float, float]]]:
    """Returns (seconds, end) of each evaluation by checkpoint."""
    found: dict[str, list[tuple[float, float]]] = {}
    with sqlite3.connect(store / "ledger.sqlite") as ledger:
        for sha256, seconds, end in ledger.execute("SELECT checkpoint_sha256, seconds, recorded_at FROM evaluations"):
            found.setdefault(sha256, []).append((seconds, end))
    return found


def _real(quick: bool) -> Rounds:
    """A real watch over the digits suite: the last of its checkpoints, when programs and durations are known."""
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        run, store = root / "run", root / "store"
        run.mkdir()
        (run / "config.gin").write_text("Case.learned_optimizer = @LearnableAdam()\n")
        command = [sys.executable, "-m", "lobench.cli", "watch", str(run), "--suite", str(_SUITE), "--once"]
        command += ["--workers", str(_WORKERS), "--checkpoints", "all", "--store", str(store)]
        command += ["--gin-param", f"Case.num_inner_steps = {_STEPS}"]
        known: set[str] = set()
        for step in range(2 if quick else 4):
            names = ("log_lr", "one_minus_beta1", "one_minus_beta2", "log_epsilon")
            theta = dict(zip(names, (-6.0 - step / 10, -2.0, -5.0, -18.0), strict=True))
            np.savez(run / f"theta_{step}.npz", **{key: np.float32(value) for key, value in theta.items()})
            (run / f"theta_{step}.npz.done").touch()
            code = subprocess.run(command, env=dict(os.environ), stdout=subprocess.DEVNULL, check=False).returncode
            if code not in (0, 1):
                raise SystemExit(f"lobench watch ended with code {code}")
            found = recorded(store)
            (new,) = set(found) - known
            known.add(new)
            if step:
                seconds = [value for value, _ in found[new]]
                begin = min(end - value for value, end in found[new])
                ratios.append((max(end for _, end in found[new]) - begin) / lower_bound(seconds, _WORKERS))
    what = f"the digits suite, {_STEPS} steps, on {_WORKERS} real workers, durations recorded before: makespan over"
    return Rounds(what=f"{what} max(longest, total / {_WORKERS})", ratios=ratios)


BENCHMARKS = (
    Benchmark(
        name="makespan_simulated",
        target="<= 1.1",
        measure=_simulated,
    ),
    Benchmark(
        name="makespan_real",
        target="<= 1.1",
        measure=_real,
    ),
)
