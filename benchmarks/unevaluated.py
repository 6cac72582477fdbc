"""A case without evaluations against the same with them: its time falls by the evaluations' share."""

from __future__ import annotations

import itertools

import jax
from harness import Benchmark, Rounds, seconds_of

from lobench.core.case import Case, SeedBlock
from lobench.inner.adapters import as_stepper
from lobench.inner.backend import claim_backend
from lobench.inner.optimizers import Celo
from lobench.inner.tasks.image import DigitsMLP
from lobench.inner.training.train import TrainingProgram

__all__ = ["BENCHMARKS"]

_EVERY = 5


def _share(quick: bool) -> Rounds:
    """Returns the time without evaluations over what is left of the time with them when their own is taken off.

    Their own is measured apart: what the same steps take with many evaluations less what they take with two, for each
    evaluation more. All three programs run in turns.
    """
    assert claim_backend(1)
    num_steps, num_seeds = (100 if quick else 2_000), 4
    learned = Celo()
    theta = learned.init(jax.random.key(7))
    block = SeedBlock(start=0, size=num_seeds)

    def program(eval_every: int, eval_batches: int) -> TrainingProgram:
        case = Case(num_inner_steps=num_steps, num_seeds=num_seeds, eval_every=eval_every, eval_batches=eval_batches)
        make = lambda theta: as_stepper(learned.opt_fn(theta, num_steps), num_steps)  # noqa: E731
        return TrainingProgram(case, DigitsMLP(hidden_sizes=(32,), batch_size=64), make, num_seeds)

    programs = {"many": program(_EVERY, 5), "two": program(num_steps, 5), "none": program(_EVERY, 0)}
    rounds: list[dict[str, float]] = []
    for turn in itertools.count():
        found = {name: seconds_of(lambda: one.run(theta, block)) for name, one in programs.items()}  # noqa: B023
        rounds += [found] if turn else []  # the first compiles
        if len(rounds) == (1 if quick else 9):
            break
    more = num_steps // _EVERY - 1  # evaluations that the first program has above the second's two
    share, ratios = [], []
    for found in rounds:
        evaluations = (found["many"] - found["two"]) / more * (more + 2)
        share.append(evaluations / found["many"])
        ratios.append(found["none"] / (found["many"] - evaluations))
    what = (
        f"{num_steps:,} steps of Celo on the digits MLP, 4 seeds, `Case.eval_batches = 0` over the same less its "
        f"{more + 2} evaluations, which are {sum(share) / len(share):.0%} of its time"
    )
    return Rounds(what=what, ratios=ratios)


BENCHMARKS = (Benchmark(name="unevaluated", target="<= 1.1", measure=_share),)
