"""What `lobench run` costs over a watch of the same evaluations: experiment and members, its display, its table."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from harness import Benchmark, Rounds, interleaved

__all__ = ["BENCHMARKS"]

_CONFIG = "Case.learned_optimizer = @LearnableSGD()\n"
_CASES = """
import lobench.inner.tasks.image
Case.num_inner_steps = {steps}
Case.num_seeds = 4
Case.eval_every = 50
relu16/Case.task = @DigitsMLP()
relu16/DigitsMLP.hidden_sizes = (16,)
tanh32/Case.task = @DigitsMLP()
tanh32/DigitsMLP.activation = "tanh"
"""


def _lobench(*words: str) -> None:
    """Runs a command whose modules are compiled once, as anywhere where Python may write beside them."""
    command = [sys.executable, "-m", "lobench.cli", *words, "--workers", "2"]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=True)


def _overhead(quick: bool) -> Rounds:
    """Returns the time of a run over that of a watch, into a new store each."""
    num_checkpoints, steps = (2, 100) if quick else (16, 2_000)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        suite, run, stores = root / "suite", root / "run", (root / f"store{i}" for i in itertools.count())
        suite.mkdir()
        run.mkdir()
        (suite / "suite.gin").write_text(_CASES.format(steps=steps))
        (run / "config.gin").write_text(_CONFIG)
        experiment = 'Experiment.suites = ["suite"]\n'
        for step in range(num_checkpoints):
            np.savez(run / f"theta_{step}.npz", log_lr=np.float32(-3.0 - 0.1 * step))
            (run / f"theta_{step}.npz.done").touch()
            experiment += f'c{step}/Method.checkpoint = "run/theta_{step}.npz"\n'
        (root / "x.gin").write_text(experiment)
        watch = ("watch", str(run), "--suite", str(suite), "--once", "--checkpoints", "all")
        what = (
            f"`lobench run` of {num_checkpoints} checkpoints on 2 cases of 4 seeds, {steps:,} steps, 2 workers, over "
            "`lobench watch --once` of the same"
        )
        return interleaved(
            what,
            lambda: _lobench("run", str(root / "x.gin"), "--store", str(next(stores))),
            lambda: _lobench(*watch, "--store", str(next(stores))),
            1 if quick else 7,
        )


BENCHMARKS = (Benchmark(name="run_overhead", target="<= 1.05", measure=_overhead),)
