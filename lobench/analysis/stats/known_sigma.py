"""Track 3's acceptance rule: one-sided z-tests of mean losses, with an assumed standard deviation.

Source: modded-nanogpt, records/track_3_optimization/README.md of commit f411b3d3 (August 2026), rules 3 and 5 and
"Pairwise statistical significance".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

__all__ = ["LOSS_PER_STEP", "NEEDED", "SIGMA", "TARGET", "Deviation", "ZTest", "below_target", "better_than"]

TARGET = 3.28  # validation loss
SIGMA = 0.0013  # standard deviation of a run's loss
NEEDED = 0.004  # 3.08 SIGMA, p = .00105; the source states .001 and 3.09
LOSS_PER_STEP = 0.0045 / 100  # loss that one step less is worth
_ROUNDING = 1e-9  # logs have five digits, so that equality counts as passed


@dataclass(frozen=True, slots=True, kw_only=True)
class ZTest:
    """Test of a mean difference with a known standard deviation.

    Attributes:
      difference: Amount by which the loss is below its reference.
      statistic: Difference divided by its standard error in units of SIGMA. The test passes at NEEDED or more.
      p_value: One-sided p-value, under the assumption that runs are normal with SIGMA and their number was planned.
    """

    difference: float
    statistic: float
    p_value: float

    @property
    def is_passed(self) -> bool:
        return self.statistic >= NEEDED - _ROUNDING

    @classmethod
    def of(cls, difference: float, inverse_runs: float) -> ZTest:
        """Returns the test of a difference whose variance is SIGMA**2 * `inverse_runs`."""
        statistic = difference / math.sqrt(inverse_runs)
        return cls(difference=difference, statistic=statistic, p_value=float(special.ndtr(-statistic / SIGMA)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """Noise estimated from the runs themselves. All values are NaN for a single run.

    Attributes:
      value: Standard deviation of the runs.
      p_larger: Probability of a standard deviation at least this large if the true one were SIGMA.
      p_t_test: p-value of the t-test against the target, which uses the runs' own standard deviation.
    """

    value: float
    p_larger: float
    p_t_test: float

    @classmethod
    def of(cls, losses: Sequence[float], target: float) -> Deviation:
        degrees = len(losses) - 1
        if degrees < 1:
            return cls(value=math.nan, p_larger=math.nan, p_t_test=math.nan)
        value = float(np.std(losses, ddof=1))
        distance = target - float(np.mean(losses))
        t = distance * math.sqrt(len(losses)) / value if value else math.copysign(math.inf, distance)
        return cls(
            value=value,
            p_larger=float(special.chdtrc(degrees, degrees * (value / SIGMA) ** 2)),
            p_t_test=float(special.stdtr(degrees, -t)),
        )


def below_target(losses: Sequence[float], target: float = TARGET) -> ZTest:
    """Tests whether runs have a mean loss below a target. A run without a finite loss fails the test."""
    return ZTest.of(target - float(np.mean(losses)), 1 / len(losses))


def better_than(old: Sequence[float], new: Sequence[float], steps_saved: float) -> ZTest:
    """Tests whether new runs beat old ones at their last steps; each step saved counts as LOSS_PER_STEP."""
    difference = float(np.mean(old)) - float(np.mean(new)) + steps_saved * LOSS_PER_STEP
    return ZTest.of(difference, 1 / len(old) + 1 / len(new))
