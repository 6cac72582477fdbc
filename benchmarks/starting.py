"""Benchmarks of a fresh process: from its start to its first result."""

from __future__ import annotations

import functools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import Benchmark, Rounds, interleaved, seconds_of

__all__ = ["BENCHMARKS"]

_STEPS = 1000
_GIN = f"""
import lobench.inner.tasks.image
Case.num_inner_steps = {_STEPS}
Case.num_seeds = 1
Case.eval_every = 10
digits/Case.task = @DigitsMLP()
digits/DigitsMLP.hidden_sizes = (32,)
"""
_CHECKPOINT = """
import sys
import jax, numpy as np
from lobench.inner.optimizers import AdafacMLPLOpt
from lobench.inner.theta import leaf_paths
theta = AdafacMLPLOpt().init(jax.random.key(7))
np.savez(sys.argv[1], **{name: np.asarray(leaf) for name, leaf in leaf_paths(theta).items()})
"""
_PLAIN = f"""
import inner
from plain_loop import PlainLoop
optimizer = inner._LEARNED["adafac"][1](inner._theta("adafac"), {_STEPS})
splits = ("train", "outer_valid", "test")
PlainLoop(inner._digits(), optimizer, num_steps={_STEPS}, eval_every=10, eval_batches=5, splits=splits).run(0)
"""


def _environment() -> dict[str, str]:
    """Returns this process's environment without a say in where jax keeps programs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION_CACHE")}


def _plain() -> None:
    """The plain loop, as its author starts it: nothing is kept from one process to the next."""
    subprocess.run([sys.executable, "-c", _PLAIN], check=True, env=_environment(), cwd=Path(__file__).parent)


def _pytest(folder: Path, *options: str, **environment: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "digits.gin", "--lobench-checkpoint=theta_1.npz"]
    command += ["--lobench-store=s", "--lobench-gin-param=Case.learned_optimizer = @AdafacMLPLOpt()", *options]
    subprocess.run(command, check=True, env=_environment() | environment, cwd=folder, stdout=subprocess.DEVNULL)


@contextmanager
def _evaluated_folder() -> Iterator[Path]:
    """Yields a folder with a case, a checkpoint, and a store in which the case was evaluated once."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        (folder / "digits.gin").write_text(_GIN)
        subprocess.run([sys.executable, "-c", _CHECKPOINT, str(folder / "theta_1.npz")], check=True)
        _pytest(folder)
        yield folder


def _to_first_result(is_warm: bool, quick: bool) -> Rounds:
    with _evaluated_folder() as folder:
        ratios, seconds = [], []
        for _ in range(1 if quick else 5):
            if not is_warm:
                shutil.rmtree(folder / "s")
            ours = seconds_of(functools.partial(_pytest, folder))
            seconds.append(ours)
            ratios.append(seconds_of(_plain) / ours)
    cache = "with a warm compilation cache" if is_warm else "with nothing compiled before"
    what = f"digits MLP, AdafacMLPLOpt, {_STEPS:,} steps: a fresh process of the plain loop over `pytest SUITE` {cache}"
    what += f", which takes {statistics.median(seconds):.1f} s"
    return Rounds(what=what, ratios=ratios)


def _kept_executables(quick: bool) -> Rounds:
    """Returns the seconds of a fresh process that reads a kept executable over those of one that may not."""
    what = (
        "digits MLP, AdafacMLPLOpt: a fresh `pytest SUITE` with kept executables over one without, all compiled before"
    )
    with _evaluated_folder() as folder:
        # A hit that is checked is traced all the same: here it would be one run in sixteen.
        kept = functools.partial(_pytest, folder, LOBENCH_EXECUTABLES="unchecked")
        traced = functools.partial(_pytest, folder, "--lobench-no-executables")
        found = interleaved(what, kept, traced, 1 if quick else 7)
    return Rounds(what=what, ratios=found.ratios)


BENCHMARKS = (
    Benchmark(name="first_result_warm", target="", measure=functools.partial(_to_first_result, True)),
    Benchmark(name="first_result_cold", target="", measure=functools.partial(_to_first_result, False)),
    Benchmark(name="kept_executables", target="", measure=_kept_executables),
)
