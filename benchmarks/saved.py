"""What saving a training's state costs: the same training saved ten times, and not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
from harness import Benchmark, Rounds, interleaved

from lobench.core.case import Case, SeedBlock
from lobench.engine.store.states import BlockStates
from lobench.inner.adapters import as_stepper
from lobench.inner.backend import claim_backend
from lobench.inner.optimizers import Celo
from lobench.inner.tasks.image import DigitsMLP
from lobench.inner.train import Program

__all__ = ["BENCHMARKS"]

_NUM_SAVES = 10


def _saved(quick: bool) -> Rounds:
    """Returns seconds with saves over seconds without; a training of a minute pays for as many, over a longer time."""
    assert claim_backend(1)
    num_steps, num_seeds = (100_000 if quick else 400_000), 4  # a minute and more on a core
    learned, block = Celo(), SeedBlock(start=0, size=num_seeds)
    theta = learned.init(jax.random.key(7))
    case = Case(
        num_inner_steps=num_steps, num_seeds=num_seeds, eval_every=num_steps // 20, save_every=num_steps // _NUM_SAVES
    )
    make = lambda theta: as_stepper(learned.opt_fn(theta, num_steps), num_steps)  # noqa: E731
    program = Program(case, DigitsMLP(hidden_sizes=(32,), batch_size=64), make, num_seeds)
    num_bytes = 0

    def with_saves() -> None:
        nonlocal num_bytes
        with tempfile.TemporaryDirectory() as folder:
            states = BlockStates(
                folder=Path(folder), prefixes=["p"], block=block, owner="o", program="", where="", say=print
            )
            program.run(theta, block, saves=states)
            (left,) = Path(folder).iterdir()
            num_bytes = left.stat().st_size

    rounds = interleaved("", with_saves, lambda: program.run(theta, block), 3 if quick else 5)
    what = (
        f"{num_steps:,} steps of Celo on the digits MLP, 4 seeds, saved {_NUM_SAVES - 1} times "
        f"({num_bytes / 1e6:.1f} MB each) over the same without"
    )
    return Rounds(what=what, ratios=rounds.ratios, cores=rounds.cores)


BENCHMARKS = (Benchmark(name="saved", target="<= 1.02", measure=_saved),)
