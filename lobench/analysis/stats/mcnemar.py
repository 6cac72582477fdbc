"""McNemar's exact test for pairs of binary values, with bounds of the difference of the two shares."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from lobench.analysis.stats.proportions import least_share

__all__ = ["McNemar"]


@dataclass(frozen=True, slots=True, kw_only=True)
class McNemar:
    """Tests of the share of successes of B less that of A, on the same items.

    Only items with a success on one side count: without a difference, each is a gain with probability 1/2. The number
    of these items is taken as given. At a shift other than 0, Tango's score test, which allows for the randomness of
    that number, must reject too. Bounds invert both tests.

    Attributes:
      gains, losses: Numbers of items with a success of B alone, and of A alone.
      num_items: Number of all items.

    Source: McNemar 1947; Clopper and Pearson 1934; Tango 1998.
    """

    gains: int
    losses: int
    num_items: int

    @property
    def mean(self) -> float:
        return (self.gains - self.losses) / self.num_items

    @property
    def reversed(self) -> McNemar:
        return McNemar(gains=self.losses, losses=self.gains, num_items=self.num_items)

    def p_above(self, shift: float = 0.0) -> float:
        """Returns the p-value of "the difference is at most `shift`".

        >>> McNemar(gains=9, losses=1, num_items=50).p_above() == 11 / 1024
        True
        """
        if shift >= 1:
            return 1.0
        conditional = self._conditional_p_value(shift)
        return conditional if shift == 0 else max(conditional, self._score_p_value(shift))

    def p_below(self, shift: float = 0.0) -> float:
        """Returns the p-value of "the difference is at least `shift`"."""
        return self.reversed.p_above(-shift)

    def bounds(self, tail_level: float) -> tuple[float, float]:
        """Returns the interval of differences that neither tail rejects. It excludes 0 exactly if the test does."""
        return self._lower_bound(tail_level), -self.reversed._lower_bound(tail_level)

    def _conditional_p_value(self, shift: float) -> float:
        from scipy.stats import binom  # slow to import, and seldom needed

        discordant = self.gains + self.losses
        shifted_items = shift * self.num_items
        # The difference is at most `discordant` items, so beyond that the p-value is 0 or 1.
        if not -discordant <= shifted_items < discordant:
            return 1.0 if shifted_items >= discordant else 0.0
        share = (1 + shifted_items / discordant) / 2
        return float(binom.sf(self.gains - 1, discordant, share))

    def _score_p_value(self, shift: float) -> float:
        """Returns the p-value of Tango's score test."""
        if shift <= -1:
            return 0.0
        num_items = self.num_items
        a = 2 * num_items
        b = -self.gains - self.losses + (2 * num_items - self.gains + self.losses) * shift
        c = -self.losses * shift * (1 - shift)
        # Share of losses that is most likely at this difference.
        share = (math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
        variance = num_items * (2 * share + shift * (1 - shift))
        distance = self.gains - self.losses - num_items * shift
        if variance <= 0:
            return 0.0 if distance > 0 else 1.0
        return math.erfc(distance / math.sqrt(2 * variance)) / 2

    def _lower_bound(self, tail_level: float) -> float:
        return _lower_bound(self.gains, self.losses, self.num_items, tail_level)


@functools.lru_cache(maxsize=256)
def _lower_bound(gains: int, losses: int, num_items: int, tail_level: float) -> float:
    from scipy.optimize import brentq  # slow to import, and seldom needed

    test = McNemar(gains=gains, losses=losses, num_items=num_items)
    discordant = gains + losses
    conditional = 0.0
    if discordant:
        conditional = (2 * least_share(gains, discordant, tail_level) - 1) * discordant / num_items
    score = -1.0
    if test._score_p_value(-1 + 1e-9) < tail_level:
        score = float(brentq(lambda shift: test._score_p_value(shift) - tail_level, -1 + 1e-9, test.mean, xtol=1e-9))
    return conditional if score <= 0 < conditional else min(score, conditional)
