"""Anytime-valid evidence that one method is better than another, on paired seeds, at any number of looks.

A diverged seed has no value, so the evidence has two parts: the mean difference on seeds on which both methods
converge, and how often only one of them diverges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEAST_SEEDS", "PairSums", "eliminated_methods", "least_seeds", "log_threshold"]

LEAST_SEEDS = 3  # with fewer seeds nothing is decided
# Variance of a normal prior of the standardised mean. Few seeds can only show means of a few standard deviations.
_PRIOR = 20.0
_CONTRARY = 0.95  # probability from which on one part of the evidence contradicts the other

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSums:
    """Sums over the common seeds of pairs of methods. Add the sums of further seeds with `+`.

    Attributes:
      num_seeds: Number of common seeds: float64[...].
      num_converged: Number of seeds with a case on which both converge.
      difference_sum: Sum over these seeds of the amount by which `a` is better than `b`, averaged over the cases.
      square_sum: Sum of squares of these amounts, with the variance of rounding added.
      lost_by_a, lost_by_b: Number of seeds on which one side diverges on any case, and the other on none. A seed counts
        once, because it may diverge on all cases alike.
    """

    num_seeds: FloatArray
    num_converged: FloatArray
    difference_sum: FloatArray
    square_sum: FloatArray
    lost_by_a: FloatArray
    lost_by_b: FloatArray

    @classmethod
    def of(cls, a: FloatArray, b: FloatArray, steps: FloatArray | float = 0.0) -> PairSums:
        """Returns the sums of two sides, which broadcast.

        Args:
          a, b: Scores, higher is better: float64[..., num_cases, num_seeds]. -inf if a seed diverged, NaN if it has no
            value.
          steps: Rounding step of the scores of each case: float64[..., num_cases]. A difference of two rounded values
            has a variance of a sixth of its square.
        """
        ok_a = np.isfinite(a)
        ok_b = np.isfinite(b)
        have_both = ok_a & ok_b
        cases = have_both.sum(axis=-2)  # number of cases of each seed
        # A seed without a case has the mean 0, which adds 0 to every sum.
        per_seed = np.where(have_both, np.where(ok_a, a, 0.0) - np.where(ok_b, b, 0.0), 0.0).sum(axis=-2)
        per_seed = per_seed / np.maximum(cases, 1)
        rounding = (have_both * (np.asarray(steps, np.float64)[..., None] ** 2 / 6)).sum(axis=-2) / np.maximum(
            cases, 1
        ) ** 2
        diverged_a = np.isneginf(a)
        diverged_b = np.isneginf(b)
        # A case on which one side has no value counts for neither.
        lost_a = (diverged_a & (ok_b | diverged_b)).any(axis=-2)
        lost_b = (diverged_b & (ok_a | diverged_a)).any(axis=-2)
        return cls(
            num_seeds=(have_both | diverged_a | diverged_b).any(axis=-2).sum(axis=-1).astype(np.float64),
            num_converged=(cases > 0).sum(axis=-1).astype(np.float64),
            difference_sum=per_seed.sum(axis=-1),
            square_sum=(per_seed**2 + rounding).sum(axis=-1),
            lost_by_a=(lost_a & ~lost_b).sum(axis=-1).astype(np.float64),
            lost_by_b=(lost_b & ~lost_a).sum(axis=-1).astype(np.float64),
        )

    def __add__(self, other: PairSums) -> PairSums:
        return PairSums(**{name: getattr(self, name) + getattr(other, name) for name in PairSums.__slots__})

    @property
    def mean(self) -> FloatArray:
        """Mean amount by which `a` is better than `b`; NaN without a common seed."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.difference_sum / self.num_converged)

    def half_width(self, log_level: float) -> FloatArray:
        """Returns the half-width of an interval of the mean that holds at all looks at once; infinite for few seeds.

        A mean outside of the interval is excluded because its one-sided t Bayes factor (which adds log 2) is above the
        level. The prior of the standardised mean is normal. The factor is an e-process for any scale.

        Source: Wang and Ramdas 2023, arXiv 2310.03722; solved for the mean.
        """
        num_pairs = np.maximum(self.num_converged, 1.0)
        spread = np.maximum(self.square_sum - self.difference_sum**2 / num_pairs, 0.0)
        prior = num_pairs * _PRIOR
        # log E = -1/2 log(1 + n g) - n/2 log(1 - n g / (1 + n g) r), r the share of the squares that the mean explains.
        level = 2 / num_pairs * (log_level - math.log(2) + np.log1p(prior) / 2)
        share = -np.expm1(-level) * (1 + prior) / prior
        with np.errstate(divide="ignore", invalid="ignore"):
            width = np.sqrt(spread / num_pairs * share / (1 - share))
        return np.where((share < 1) & (self.num_seeds >= LEAST_SEEDS) & (self.num_converged > 1), width, np.inf)

    def log_evidence_of_mean(self) -> FloatArray:
        """Returns the log evidence that `a` has a higher mean than `b`; -infinity if it has none so far.

        This is the t Bayes factor without the factor 2 of a one-sided prior. So it is at most the one-sided factor,
        which is an e-process: at any look its expectation is at most 1 if `a` is not better.

        Source: Wang and Ramdas 2023, arXiv 2310.03722.
        """
        num_pairs = np.maximum(self.num_converged, 1.0)
        prior = num_pairs * _PRIOR
        with np.errstate(divide="ignore", invalid="ignore"):
            explained = self.difference_sum**2 / (
                num_pairs * self.square_sum
            )  # share of the squares that the mean explains
            log_evidence = -np.log1p(prior) / 2 - num_pairs / 2 * np.log1p(-prior / (1 + prior) * explained)
        return np.where(
            (self.difference_sum > 0) & (self.num_seeds >= LEAST_SEEDS) & (self.num_converged > 1),
            log_evidence,
            -np.inf,
        )

    def log_evidence_of_divergence(self) -> FloatArray:
        """Returns the log evidence that `b` diverges more often than `a`; -infinity if it has not done so.

        This is the beta-binomial Bayes factor against 1/2, with Jeffreys's prior.
        """
        from scipy.special import betaln  # takes half a second, so it is imported for races only

        a, b = self.lost_by_b, self.lost_by_a
        log_evidence = betaln(a + 0.5, b + 0.5) - betaln(0.5, 0.5) + (a + b) * math.log(2)
        return np.where((a > b) & (self.num_seeds >= LEAST_SEEDS), log_evidence, -np.inf)

    def probability_of_better_mean(self) -> FloatArray:
        """Returns the posterior probability that `a` has the higher mean, with a flat prior; 0.5 for a single seed."""
        from scipy.special import stdtr

        num_pairs = np.maximum(self.num_converged, 2.0)
        mean = np.nan_to_num(self.mean)
        variance = np.maximum(self.square_sum - self.num_converged * mean**2, 0.0) / (num_pairs - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            probability = stdtr(num_pairs - 1, mean / np.sqrt(variance / num_pairs))
        return np.where(self.num_converged > 1, np.nan_to_num(probability, nan=0.5), 0.5)

    def probability_of_more_divergence(self) -> FloatArray:
        """Returns the posterior probability that `a` diverges more often than `b`, with Jeffreys's prior."""
        from scipy.special import betainc

        return np.asarray(betainc(self.lost_by_b + 0.5, self.lost_by_a + 0.5, 0.5))


def log_threshold(num_methods: int, alpha: float) -> float:
    """Returns the log evidence that one method needs against another, by a union over pairs, directions and parts.

    In at least 1 - alpha of races, whenever they stop, no method is eliminated in favour of one that is not better. In
    each pair the means count twice, once for each direction, and the divergences once: they carry no log 2.
    """
    return math.log(max(3 * math.comb(num_methods, 2), 1) / alpha)


def eliminated_methods(
    sums: PairSums, log_level: float, is_racing: BoolArray | None = None
) -> tuple[BoolArray, BoolArray]:
    """Returns the methods that a look eliminates, bool[..., num_methods], and by which methods, [..., by, eliminated].

    There is a test of the mean and a test of diverged seeds. Neither eliminates a method if the other one contradicts
    it: a method that is better on the seeds that converge, and likely diverges more often, does not eliminate.

    Args:
      sums: Sums of all pairs; [..., j, i] has j as `a` and i as `b`.
      log_level: Threshold of the log evidence.
      is_racing: Methods still in the race, bool[..., num_methods]. None: all.

    Returns:
      out: bool[..., num_methods].
      beats: bool[..., num_methods, num_methods]; [..., j, i] if j is better than i.
    """
    beats = (sums.mean > sums.half_width(log_level)) & (sums.probability_of_more_divergence() < _CONTRARY)
    diverges_less = sums.log_evidence_of_divergence() > log_level
    beats |= diverges_less & (sums.probability_of_better_mean() > 1 - _CONTRARY)
    if is_racing is not None:
        beats &= is_racing[..., :, None] & is_racing[..., None, :]
    is_out: BoolArray = np.asarray(beats.any(axis=-2))
    is_left = ~is_out if is_racing is None else is_racing & ~is_out
    is_out &= is_left.any(axis=-1, keepdims=True)  # a cycle over both parts eliminates no method
    return is_out, beats


def least_seeds(num_methods: int, alpha: float) -> int:
    """Returns the smallest number of seeds with which a mean can exceed its bound at all."""
    level = log_threshold(num_methods, alpha)
    count = LEAST_SEEDS
    while np.isinf(PairSums.of(np.ones((1, count)), np.zeros((1, count))).half_width(level)):
        count += 1
    return count
