"""How often the 95% intervals hold the truth; `python benchmarks/coverage.py [EXPERIMENTS]` prints the table.

The estimand of the mean is the expectation of the normalised score, a diverged seed counting -1, averaged over the
cases; that of the IQM is the interquartile mean of all cases' populations together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from scipy import stats
from simulated_seeds import KINDS, Population

from lobench.analysis.aggregates import iqm_interval
from lobench.analysis.intervals import Interval, stratified_t_mean

__all__ = ["coverage", "main"]


def coverage(
    population: Population,
    num_seeds: int,
    truth: float,
    interval: Callable[[list[list[float]]], Interval],
    num_experiments: int,
    seed: int = 0,
) -> float:
    """Returns the share of experiments whose interval holds the truth."""
    generator = np.random.default_rng(seed)
    held = 0
    for _ in range(num_experiments):
        found = interval(population.draw(generator, num_seeds).tolist())
        held += found.lower <= truth <= found.upper
    return held / num_experiments


def main(num_experiments: int) -> None:
    print(f"| seeds are | cases x seeds | mean, stratified t | IQM, bootstrap | ({num_experiments} experiments each)")
    print("| --- | --- | --- | --- |")
    for num_cases, num_seeds in ((10, 5), (26, 5), (1, 4), (1, 5)):
        for kind in KINDS:
            population = Population(kind=kind, num_cases=num_cases)
            many = population.many()
            mean = coverage(population, num_seeds, many.mean(), stratified_t_mean, num_experiments)
            middle = "-"
            if num_cases > 1:
                truth = float(stats.trim_mean(many.ravel(), 0.25))
                held = coverage(population, num_seeds, truth, _iqm_interval, num_experiments)
                middle = f"{100 * held:.1f} %"
            print(f"| {kind} | {num_cases} x {num_seeds} | {100 * mean:.1f} % | {middle} |", flush=True)


def _iqm_interval(cells: list[list[float]]) -> Interval:
    return iqm_interval(cells, num_resamples=1000)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
