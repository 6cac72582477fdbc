"""How often the 95% intervals hold the truth; `python benchmarks/coverage.py [EXPERIMENTS]` prints the table.

The estimand of the mean is the expectation of the normalised score, a diverged seed counting -1, averaged over the
cases; that of the IQM is the interquartile mean of all cases' populations together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from harness import answer_help
from scipy import stats
from simulated_seeds import KINDS, Losses, Population

from lobench.analysis.scores.score_scale import ScaleKind
from lobench.analysis.stats.aggregates import iqm_interval
from lobench.analysis.stats.intervals import Interval, stratified_t_mean

__all__ = ["coverage", "coverage_of_losses", "main"]


def coverage(
    population: Population | Losses,
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


# sigma, cases, untrained loss: seeds that differ by a factor, and seeds that differ by decades.
LOSSES = ((1.0, 1, 100.0), (1.0, 6, 100.0), (3.0, 1, 1e6), (3.0, 6, 1e6), (3.0, 6, 100.0))


def coverage_of_losses(sigma: float, num_cases: int, untrained: float, kind: ScaleKind, num_experiments: int) -> float:
    population = Losses(sigma=sigma, num_cases=num_cases, untrained=untrained, kind=kind)
    return coverage(population, 4, population.many().mean(), stratified_t_mean, num_experiments)


# Cases and seeds of the table of widths, and the coverage that it asks for.
WIDTHS, LEAST_COVERAGE = ((1, 4), (2, 4), (2, 8), (2, 20), (6, 4), (10, 5)), 0.93


def factor_of_width(population: Population, num_seeds: int, truth: float, num_experiments: int) -> float:
    """Returns the factor on the width of the t interval with which it holds the truth in 93% of the experiments."""
    generator = np.random.default_rng(1)
    needed = []
    for _ in range(num_experiments):
        found = stratified_t_mean(population.draw(generator, num_seeds).tolist())
        needed.append(2 * abs(found.mean - truth) / (found.upper - found.lower))
    return float(np.quantile(needed, LEAST_COVERAGE))


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
    print("\n| losses are log-normal, sigma | cases x seeds | L0 | log scale | linear scale |")
    print("| --- | --- | --- | --- | --- |")
    for sigma, num_cases, untrained in LOSSES:
        held = [coverage_of_losses(sigma, num_cases, untrained, kind, num_experiments) for kind in ScaleKind]
        shares = " | ".join(f"{100 * share:.1f} %" for share in held)
        print(f"| {sigma:g} | {num_cases} x 4 | {untrained:g} | {shares} |", flush=True)
    kinds = ("normal", "skewed", "very skewed")
    print(f"\n| cases x seeds | {' | '.join(kinds)} | (factor on the width of the t interval that holds 93%)")
    print("| --- | --- | --- | --- |")
    for num_cases, num_seeds in WIDTHS:
        populations = [Population(kind=kind, num_cases=num_cases) for kind in kinds]
        factors = [factor_of_width(one, num_seeds, one.many().mean(), num_experiments) for one in populations]
        print(f"| {num_cases} x {num_seeds} | {' | '.join(f'{factor:.2f}' for factor in factors)} |", flush=True)


def _iqm_interval(cells: list[list[float]]) -> Interval:
    return iqm_interval(cells, num_resamples=1000)


if __name__ == "__main__":
    answer_help(__doc__)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
