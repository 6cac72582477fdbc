"""Alpha-spending boundaries for planned looks, applied through t quantiles.

With looks at 4, 8 and 12 seeds, normal bounds on t statistics give twice the nominal rate of false alarms. The same
nominal levels through Student's quantiles keep the nominal rate.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.distributions import norm_isf, norm_pdf, norm_sf

__all__ = ["Looks", "e_lond_level"]


_EXPONENT = 1.3  # later tests get more than with 2, and the first one still a quarter
_SUM = 3.93194921180954  # sum of n**-1.3 over all n >= 1: Riemann's zeta(1.3)


def e_lond_level(rate: float, position: int, num_discoveries: int) -> float:
    """Returns the level of a test: it discovers something if its e-value is at least the inverse of the level.

    The false discovery rate of all tests is then at most `rate`. The e-values may depend on each other in any way. Each
    must have an expectation of at most 1 under its null hypothesis, given the results before its start.

    Example: the first test of a sequence with a rate of 0.1 has the level 0.0254, and so needs an e-value of 39.3.

    Args:
      rate: Bound of the false discovery rate.
      position: Number of the test in the sequence, from 1 on.
      num_discoveries: Number of discoveries before the start of the test.

    Source: Xu and Ramdas 2024, "Online multiple testing with e-values" (e-LOND).
    """
    share: float = position**-_EXPONENT / _SUM
    return rate * share * (num_discoveries + 1)


_POINTS = 301

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """Planned numbers of seeds at which a gate is evaluated, increasing.

    Alpha is spent in proportion to the seeds (a spending function linear in information): the probability of any false
    alarm up to look k is alpha * sizes[k] / sizes[-1].

    Example:
      >>> [round(Looks(sizes=(4, 8)).level(seeds, 0.05), 3) for seeds in (4, 8)]
      [0.025, 0.035]

    Source: Lan and DeMets 1983; Kim and DeMets 1987 for the linear function; Maurer and Bretz 2013 for sequential
    p-values under Holm.
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.sizes or self.sizes[0] < 2 or any(a >= b for a, b in itertools.pairwise(self.sizes)):
            raise ValueError(f"looks at {self.sizes}: expected increasing numbers of seeds, the first at least 2")

    def level(self, num_seeds: int, alpha: float) -> float:
        """Returns the nominal one-sided level of the look at `num_seeds`, for the overall level `alpha`."""
        return nominal_levels(self.sizes, alpha)[self._index(num_seeds)]

    def p_value(self, num_seeds: int, nominal: float) -> float:
        """Returns the smallest overall alpha at which the look at `num_seeds` rejects, given its nominal p-value."""
        index = self._index(num_seeds)
        alphas, levels = _table(self.sizes)
        if nominal <= 0 or math.isnan(nominal):
            return nominal
        if nominal <= levels[0, index]:  # below the table, level and alpha are proportional
            return float(nominal * alphas[0] / levels[0, index])
        if nominal > levels[-1, index]:
            return 1.0
        return float(np.exp(np.interp(np.log(nominal), np.log(levels[:, index]), np.log(alphas))))

    def _index(self, num_seeds: int) -> int:
        if num_seeds not in self.sizes:
            raise ValueError(f"{num_seeds} seeds are not a planned look; planned are {self.sizes}")
        return self.sizes.index(num_seeds)


@functools.lru_cache(maxsize=256)
def nominal_levels(sizes: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """Returns the nominal one-sided level of each look, from the joint normal law of the looks' statistics.

    Args:
      sizes: Seeds at each look.
      alpha: Overall one-sided level, strictly between 0 and 1.
    Source: Armitage, McPherson and Rowe 1969, the recursion.
    """
    last_size = sizes[-1]
    levels = [alpha * sizes[0] / last_size]
    if len(sizes) == 1:
        return tuple(levels)
    bound = float(norm_isf(levels[0])) * math.sqrt(sizes[0])  # bound of the sum of differences with sd 1
    low = -8 * math.sqrt(last_size)
    grid = np.linspace(low, bound, _POINTS)
    density = norm_pdf(grid / math.sqrt(sizes[0])) / math.sqrt(sizes[0])
    for previous, size in itertools.pairwise(sizes):
        share = alpha * (size - previous) / last_size
        step = math.sqrt(size - previous)
        weights = density * np.gradient(grid)
        weights[[0, -1]] /= 2  # weights of the trapezoid rule
        z = _bound(grid, weights, step, math.sqrt(size), share)
        levels.append(float(norm_sf(z)))
        new_grid = np.linspace(low, z * math.sqrt(size), _POINTS)
        density = norm_pdf((new_grid[:, None] - grid[None, :]) / step) / step @ weights
        grid = new_grid
    return tuple(levels)


def _bound(grid: FloatArray, weights: FloatArray, step: float, scale: float, share: float) -> float:
    """Returns the z above which a look rejects with probability `share`, given that no earlier look rejected."""

    def excess(z: float) -> float:
        return float(weights @ norm_sf((z * scale - grid) / step)) - share

    from scipy import optimize  # slow to import, and seldom needed

    return float(optimize.brentq(excess, -5, 12, xtol=1e-6))


@functools.lru_cache(maxsize=64)
def _table(sizes: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Returns a table of overall alphas [rows] and each look's nominal level at them [rows, looks]."""
    alphas = np.concatenate([np.geomspace(1e-6, 0.2, 24), [0.3, 0.5, 0.7, 0.9]])
    return alphas, np.array([nominal_levels(sizes, float(alpha)) for alpha in alphas])
