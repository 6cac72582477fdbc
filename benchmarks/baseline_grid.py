"""Tuning a baseline: the grid of a case in one program, against its points one by one.

Usage: python benchmarks/baseline_grid.py [SUITE] [--case SCOPE]... [--horizon-factor 1]

One by one is what a user does without `lobench baseline`: `lobench.evaluate` with one learning rate after another, the
seeds of each in one program ("15 programs"), or each seed by itself too ("75 programs", from the seconds of the first
`--sample` of them). The same machine, threads, steps and evaluations. One by one each point is given a runner, and so a
program, of its own, as in a process of its own; a runner that shares `Programs` compiles once for all points.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from lobench.analysis.scores.baseline_grids import velo_grid
from lobench.core.case import CaseSpec, SeedBlock
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.evaluation.runner import BlockRunner, ThetaLeaves
from lobench.evaluation.tuning import tune
from lobench.plugins import load_plugins


def one_run(spec: CaseSpec, modules: tuple[str, ...], rate: float, steps: int, block: SeedBlock) -> float:
    """Returns the seconds of one point by itself, in this warm process."""
    layers = Layers(
        optimizer=f"adam(); adam.learning_rate = {rate}",
        gin_params=(f"Case.num_inner_steps = {steps}", "Case.eval_every = 10"),
        gin_modules=modules,
    )
    started = time.perf_counter()
    BlockRunner(layers).run(spec, "", ThetaLeaves(leaves=None, where="benchmark"), block)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", type=Path, nargs="?", default=Path("suites/quick/quick.gin"))
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--horizon-factor", type=int, default=1)
    parser.add_argument("--sample", type=int, default=3, help="Points of the grid that are run one by one.")
    options = parser.parse_args()
    modules = tuple(load_plugins().gin_modules())
    layers, grid = Layers(gin_modules=modules), velo_grid()
    rates = [point["learning_rate"] for point in grid.points][:: len(grid.points) // options.sample][: options.sample]
    print(f"{'case':16}{'one program':>13}{'15 programs':>13}{'75 programs':>13}{'ratio 15':>10}{'ratio 75':>10}")
    totals = [0.0, 0.0, 0.0]
    for spec in specs_in(options.suite):
        if options.case and spec.scope not in options.case:
            continue
        started = time.perf_counter()
        case = tune(spec, layers, "adam", grid, num_seeds=5, horizon_factor=options.horizon_factor)
        whole = time.perf_counter() - started
        points = [one_run(spec, modules, rate, case.horizon, SeedBlock(start=0, size=5)) for rate in rates]
        single = [one_run(spec, modules, rate, case.horizon, SeedBlock(start=0, size=1)) for rate in rates]
        seconds = (whole, 15 * statistics.median(points), 75 * statistics.median(single))
        totals = [total + value for total, value in zip(totals, seconds, strict=True)]
        print_row(spec.scope, seconds)
    print_row("all", totals)


def print_row(name: str, seconds: list[float] | tuple[float, ...]) -> None:
    whole, by_rate, by_seed = seconds
    print(
        f"{name:16}{whole:11.1f} s{by_rate:11.1f} s{by_seed:11.1f} s{by_rate / whole:10.1f}{by_seed / whole:10.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
