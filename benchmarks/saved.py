"""What saving a training's state costs: the same training saved ten times, and not at all.

`saved` is what the saves themselves take, on the training's own clock, over the rest of the same run: other work on the
machine makes both longer. `saved_seconds` is a run with saves over one without, in turns; of 2% it can say something on
cores alone that nobody else has a part in.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import jax
from harness import Benchmark, Rounds, interleaved, seconds_of

from lobench.core.case import Case, SeedBlock
from lobench.engine.store.states import BlockStates
from lobench.inner.adapters import as_stepper
from lobench.inner.backend import claim_backend
from lobench.inner.optimizers import Celo
from lobench.inner.tasks.image import DigitsMLP
from lobench.inner.training.checkpointing import SavePoints
from lobench.inner.training.train import TrainingProgram

__all__ = ["BENCHMARKS"]

_NUM_SAVES = 10


def _of_seconds(quick: bool) -> Rounds:
    """Returns seconds with saves over seconds without; a training of a minute pays for as many, over a longer time."""
    return _rounds(quick, is_against_none=True)


def _of_saves(quick: bool) -> Rounds:
    """Returns the seconds of a run with saves over those of the same run without what its saves took."""
    return _rounds(quick, is_against_none=False)


def _rounds(quick: bool, *, is_against_none: bool) -> Rounds:
    assert claim_backend(1)
    num_steps, num_seeds = (200 if quick else 400_000), 4  # a minute and more on a core
    learned, block = Celo(), SeedBlock(start=0, size=num_seeds)
    theta = learned.init(jax.random.key(7))
    case = Case(
        num_inner_steps=num_steps, num_seeds=num_seeds, eval_every=num_steps // 20, save_every=num_steps // _NUM_SAVES
    )
    make = lambda theta: as_stepper(learned.opt_fn(theta, num_steps), num_steps)  # noqa: E731
    program = TrainingProgram(case, DigitsMLP(hidden_sizes=(32,), batch_size=64), make, num_seeds)
    num_bytes, saves, shares = 0, list[float](), list[float]()
    took = SavePoints.took

    def counted(points: SavePoints, seconds: float) -> None:
        saves.append(seconds)
        took(points, seconds)

    SavePoints.took = counted  # type: ignore[method-assign]

    def with_saves() -> None:
        nonlocal num_bytes
        with tempfile.TemporaryDirectory() as folder:
            states = BlockStates(
                folder=Path(folder), prefixes=["p"], block=block, owner="o", program="", where="", log=print
            )
            saves.clear()
            seconds = seconds_of(lambda: program.run(theta, block, saves=states))
            assert len(saves) == _NUM_SAVES - 1, saves
            shares.append(seconds / (seconds - sum(saves)))
            (left,) = Path(folder).iterdir()
            num_bytes = left.stat().st_size

    num_rounds = 1 if quick else 5
    if is_against_none:
        found = interleaved("", with_saves, lambda: program.run(theta, block), num_rounds)
    else:
        for _ in range(num_rounds + 1):
            with_saves()
        found = Rounds(what="", ratios=shares[1:])
    what = (
        f"{num_steps:,} steps of Celo on the digits MLP, 4 seeds, saved {_NUM_SAVES - 1} times "
        f"({num_bytes / 1e6:.1f} MB each) over the same without"
    )
    return dataclasses.replace(found, what=what)


BENCHMARKS = (
    Benchmark(name="saved", target="<= 1.02", measure=_of_saves),
    Benchmark(name="saved_seconds", target="", measure=_of_seconds),
)
