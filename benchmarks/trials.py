"""Trials of real numbers against evaluations whose programs are warm: another value of a setting costs no program."""

from __future__ import annotations

import itertools
from pathlib import Path

import jax
from harness import Benchmark, Rounds, seconds_of

from lobench.core.subject import Subject
from lobench.engine.config.bound import bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.evaluation.programs import Programs
from lobench.evaluation.request import ThetaLeaves
from lobench.evaluation.runner import BlockRunner
from lobench.plugins import load_plugins

__all__ = ["BENCHMARKS"]

_SUITE = Path(__file__).parents[1] / "suites" / "quick" / "quick.gin"
_NO_THETA = ThetaLeaves(leaves=None, where="benchmark")


def _trials(quick: bool) -> Rounds:
    """Returns the seconds of a trial over those of the same evaluations once more, in turns, in one process.

    A trial does all that a worker does for a variant: its cases are bound to be described, and again to be trained.
    """
    jax.config.update("jax_enable_compilation_cache", False)  # what a cache on disk has is not counted
    specs, programs, num_compilations = specs_in(_SUITE)[: 1 if quick else None], Programs(), 0
    modules = tuple(load_plugins().gin_modules())

    def evaluate(runner: BlockRunner) -> None:
        nonlocal num_compilations
        for spec in specs:
            bound = runner.bind(spec, "test_quick")
            for block in bound.info.blocks():
                curves = runner.run(spec, "test_quick", _NO_THETA, block)
                num_compilations += curves.num_compilations

    def trial(number: int) -> BlockRunner:
        text = f"adam(); adam.learning_rate = {10 ** (-4 + number / 8)}; adam.b1 = {0.8 + number / 120}"
        layers = Layers(gin_modules=modules, variant=Subject.of_optimizer(text).variant)
        for spec in specs:
            bind_case(spec, layers, test="test_quick", build=False)
        runner = BlockRunner(layers, programs)
        evaluate(runner)
        return runner

    plain = trial(0)
    ratios = []
    for number in itertools.count(1):
        seconds = {"plain": 0.0, "trial": 0.0}
        for side in sorted(seconds, reverse=bool(number % 2)):
            seconds[side] = seconds_of(lambda: evaluate(plain) if side == "plain" else trial(number))  # noqa: B023
        ratios.append(seconds["trial"] / seconds["plain"])
        if number == (1 if quick else 19):
            break
    what = (
        f"{number + 1} trials of two real numbers on {len(specs)} cases of quick, {num_compilations} compilations: a "
        "trial after the first over the same evaluations with warm programs"
    )
    return Rounds(what=what, ratios=ratios)


BENCHMARKS = (Benchmark(name="trials", target="<= 1.05", measure=_trials),)
