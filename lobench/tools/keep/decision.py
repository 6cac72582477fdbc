"""Decision about a candidate from its pairs of seeds: pure functions of sums, for one decision or arrays of them.

There are two kinds of pairs. Pairs of the *screen* use seeds that all candidates of a store share, so that the
incumbent runs on them once. A candidate may have been chosen because of luck on these seeds, so they can only discard
it. Pairs of the *test* use seeds that no earlier decision has used. Only they can keep a candidate.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.racing import LEAST_SEEDS, PairSums

__all__ = ["DecisionRules", "KeepAnswer", "chance_to_keep", "decide", "log_evidence"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_LOG_PARTS = math.log(2)  # the evidence is the mean of two parts, so their sum is halved


class KeepAnswer(enum.StrEnum):
    """Answer to whether a changed script should be kept."""

    KEEP = "keep"
    DISCARD = "discard"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRules:
    """Rules of one decision.

    Attributes:
      level: Level of the decision; see `e_lond_level`.
      max_seeds: Largest number of pairs of the test.
      num_screened: Number of pairs of the screen.
      futility: Chance of KEEP below which a decision ends.
      promising: Probability of an improvement from which on a decision that ends early is undecided, not discarded.
    """

    level: float
    max_seeds: int
    num_screened: int = LEAST_SEEDS
    futility: float = 0.05
    promising: float = 0.9

    @property
    def log_threshold(self) -> float:
        """Smallest log evidence for which a candidate is kept."""
        return -math.log(self.level)


def log_evidence(test: PairSums) -> FloatArray:
    """Returns the log e-value of a test: candidate (`a`) better than incumbent (`b`) in mean, or diverging less often.

    The mean of two e-processes is an e-process, so it may be looked at after each pair.
    """
    return np.logaddexp(test.log_evidence_of_mean(), test.log_evidence_of_divergence()) - _LOG_PARTS


def decide(screen: PairSums, test: PairSums, rules: DecisionRules) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Returns three flags: keep, discard, end undecided. If none is set, more pairs are needed.

    Args:
      screen: Sums of the shared seeds, with the candidate as `a`.
      test: Sums of the seeds that only this decision uses.
      rules: Rules of the decision.
    """
    sums = screen + test
    is_kept = log_evidence(test) >= rules.log_threshold
    diverges = sums.probability_of_more_divergence() > 1 - rules.futility
    is_worse = np.isfinite(test.log_evidence_of_divergence()) & (sums.probability_of_better_mean() < rules.futility)
    is_kept &= ~diverges & ~is_worse
    is_hopeless = chance_to_keep(screen, test, rules) < rules.futility
    # Each test makes later tests stricter, so none begins for a candidate that is not even better on shared seeds.
    is_screened_out = (
        (test.num_seeds == 0) & (screen.num_seeds >= rules.num_screened) & ~(screen.probability_of_better_mean() > 0.5)
    )
    is_hopeless |= is_screened_out & ~(screen.lost_by_b > screen.lost_by_a)
    is_promising = (sums.probability_of_better_mean() >= rules.promising) & ~diverges
    has_spent_seeds = test.num_seeds >= rules.max_seeds
    is_discarded = ~is_kept & (is_hopeless | diverges) & ~is_promising
    is_undecided = ~is_kept & ~is_discarded & (is_hopeless | has_spent_seeds)
    return np.asarray(is_kept), np.asarray(is_discarded), np.asarray(is_undecided)


def chance_to_keep(screen: PairSums, test: PairSums, rules: DecisionRules) -> FloatArray:
    """Returns the predictive probability that the test keeps the candidate at its last seed.

    All pairs so far, including the screen, predict the mean of the remaining pairs by a t distribution. The result is 1
    if there are fewer than three pairs, or if the candidate has diverged on fewer seeds than the incumbent.
    """
    from scipy.special import stdtr

    sums = screen + test
    num_pairs = np.maximum(sums.num_converged, 2.0)
    mean = np.nan_to_num(sums.mean)
    variance = np.maximum(sums.square_sum - sums.num_converged * mean**2, 0.0) / (num_pairs - 1)
    num_left = np.maximum(rules.max_seeds - test.num_seeds, 0.0)
    all_pairs = test.num_converged + num_left
    last_test = PairSums(
        num_seeds=all_pairs,
        num_converged=all_pairs,
        difference_sum=np.zeros_like(all_pairs),
        square_sum=variance * all_pairs,
        lost_by_a=np.zeros_like(all_pairs),
        lost_by_b=np.zeros_like(all_pairs),
    )
    # One log 2 cancels the one that `half_width` adds; the other is needed because the evidence is a mean of two parts.
    needed_half_width = last_test.half_width(rules.log_threshold + 2 * _LOG_PARTS)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed_mean = (needed_half_width * all_pairs - test.difference_sum) / num_left
        spread = np.sqrt(variance * (1 / num_left + 1 / num_pairs))
        probability = 1 - stdtr(num_pairs - 1, (needed_mean - mean) / spread)
    probability = np.where(num_left > 0, np.nan_to_num(probability), 0.0)
    is_open = (sums.num_seeds < LEAST_SEEDS) | ((sums.lost_by_b > sums.lost_by_a) & (num_left > 0))
    return np.where(is_open, 1.0, probability)
