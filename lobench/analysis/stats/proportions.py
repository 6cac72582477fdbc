"""Exact tests and bounds for proportions: Boschloo's test, Fisher's over cases, Clopper-Pearson bounds."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Counts", "escape_chance", "least_share", "most_share", "p_fewer", "p_more", "two_sided"]

_MOST_OUTCOMES = 20_000  # for Boschloo's test; larger tables use Fisher's p-value, which is a little larger
_NUM_SHARES = 257  # grid points of the unknown share

FloatArray = NDArray[np.float64]


class Counts(NamedTuple):
    """Numbers of diverged seeds and of all seeds of both sides."""

    a: int
    num_a: int
    b: int
    num_b: int

    @property
    def reversed(self) -> Counts:
        return Counts(self.b, self.num_b, self.a, self.num_a)


def p_more(strata: Sequence[Counts]) -> float:
    """Returns the one-sided p-value of "B diverges no more often than A"; 1 if no seed diverged.

    For one case it is Boschloo's exact test, unpaired: a paired test would be conservative, because seeds that diverge
    on both sides carry no information about a difference. For several cases it is Fisher's conditional test, stratified
    by case: the shares of cases may differ, and A's and B's are compared within each.

    Source: Boschloo 1970; Mehta, Patel and Gray 1985 for the strata.
    """
    strata = [stratum for stratum in strata if stratum.num_a and stratum.num_b and stratum.a + stratum.b]
    if not strata:
        return 1.0
    if len(strata) == 1:
        (stratum,) = strata
        return float(_boschloo(stratum.num_a, stratum.num_b)[stratum.a, stratum.b])
    distribution = np.ones(1)
    lowest = 0
    for stratum in strata:
        low, chances = _hypergeometric(stratum.a + stratum.b, stratum.num_a, stratum.num_b)
        distribution = np.convolve(distribution, chances)
        lowest = lowest + low
    return min(1.0, float(distribution[sum(stratum.b for stratum in strata) - lowest :].sum()))


def p_fewer(strata: Sequence[Counts]) -> float:
    """Returns the one-sided p-value of "B diverges no less often than A"."""
    return p_more([counts.reversed for counts in strata])


def two_sided(p_value: float, other_p_value: float) -> float:
    """Returns the p-value of the union of two tests, such as the two tails of one, by Bonferroni: twice the smaller."""
    return min(1.0, 2 * min(p_value, other_p_value))


@functools.lru_cache(maxsize=256)
def _boschloo(num_a: int, num_b: int) -> FloatArray:
    """Returns the p-value of each outcome, for B's share being above A's: float64[num_a + 1, num_b + 1].

    The outcomes are ordered by Fisher's p-value. The p-value of an outcome is the probability of this outcome and all
    outcomes before it, for the common share of A and B at which this probability is largest.
    """
    log_ways = [_log_ways(size) for size in (num_a, num_b)]
    fisher = np.ones((num_a + 1, num_b + 1))
    for total in range(num_a + num_b + 1):
        low, chances = _hypergeometric(total, num_a, num_b)
        tails = np.cumsum(chances[::-1])[::-1]
        for index, tail_probability in enumerate(tails):
            fisher[total - low - index, low + index] = min(1.0, float(tail_probability))
    if fisher.size > _MOST_OUTCOMES:
        return fisher
    shares = np.sin(np.linspace(0, math.pi / 2, _NUM_SHARES)[1:-1]) ** 2
    probabilities_of_sides = []
    for log_ways_of_side in log_ways:
        counts = np.arange(len(log_ways_of_side), dtype=np.float64)
        logs = log_ways_of_side + np.outer(np.log(shares), counts) + np.outer(np.log1p(-shares), counts[::-1])
        probabilities_of_sides.append(np.exp(logs))
    joint = (probabilities_of_sides[0][:, :, None] * probabilities_of_sides[1][:, None, :]).reshape(len(shares), -1)
    order = np.argsort(fisher.ravel(), kind="stable")
    sorted_p_values = fisher.ravel()[order]
    cumulated = np.cumsum(joint[:, order], axis=1).max(axis=0)
    # For each outcome, the last one that is equally extreme.
    last_equal = np.searchsorted(sorted_p_values, sorted_p_values * (1 + 1e-9), side="right") - 1
    p_values = np.empty(fisher.size)
    p_values[order] = np.minimum(1.0, cumulated[last_equal])
    return p_values.reshape(fisher.shape)


@functools.lru_cache(maxsize=1024)
def _log_ways(size: int) -> FloatArray:
    """Returns the logarithms of the binomial coefficients of `size`: float64[size + 1]."""
    logs = np.array([math.lgamma(k + 1) for k in range(size + 1)])
    return np.asarray(logs[-1] - logs - logs[::-1])


def _hypergeometric(total: int, num_a: int, num_b: int) -> tuple[int, FloatArray]:
    """Returns the smallest count of B if `total` seeds diverged, and the probabilities of it and larger counts."""
    low = max(0, total - num_a)
    high = min(num_b, total)
    ways_a = _log_ways(num_a)
    ways_b = _log_ways(num_b)
    logs = np.array([ways_b[b] + ways_a[total - b] for b in range(low, high + 1)])
    chances = np.exp(logs - logs.max())
    return low, chances / chances.sum()


@functools.lru_cache(maxsize=1024)
def least_share(count: int, trials: int, tail_level: float) -> float:
    """Returns the share at which `count` or more successes in `trials` trials have the probability `tail_level`.

    Source: Clopper and Pearson 1934.
    """
    low = 0.0
    high = 1.0
    log_ways = _log_ways(trials)
    for _ in range(60 if count else 0):
        midpoint = (low + high) / 2
        successes = np.arange(count, trials + 1)
        logs = log_ways[count:] + successes * math.log(midpoint) + (trials - successes) * math.log1p(-midpoint)
        low, high = (midpoint, high) if float(np.exp(logs).sum()) < tail_level else (low, midpoint)
    return low


def most_share(count: int, trials: int, tail_level: float) -> float:
    """Returns the share at which `count` or fewer successes in `trials` have this probability; 1 without trials.

    Example: none of four has an upper bound of .527 at tail .05, since .473^4 = .05; none of 29 has one below .1.
    """
    return 1 - least_share(trials - count, trials, tail_level) if trials else 1.0


def escape_chance(num_all: int, num_false: int, num_drawn: int) -> float:
    """Returns the probability that a draw without replacement contains no false item (hypergeometric).

    Args:
      num_all: Number of items.
      num_false: Number of false items.
      num_drawn: Number of items drawn.
    """
    return math.comb(num_all - num_false, num_drawn) / math.comb(num_all, num_drawn)
