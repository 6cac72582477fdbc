"""Track 3's acceptance rule: one-sided z-tests of mean losses, with a standard deviation that is assumed.

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
NEEDED = 0.004  # 3.08 SIGMA: an error of .00105, where the text says .001 and 3.09
LOSS_PER_STEP = 0.0045 / 100  # what a step less costs
_ROUNDING = 1e-9  # logs have five digits: what they meet exactly is met


@dataclass(frozen=True, slots=True, kw_only=True)
class ZTest:
    """A test of a mean difference with a known standard deviation.

    Attributes:
      difference: By which a loss is lower than what it is held against.
      statistic: The difference over its standard error in units of SIGMA; at least NEEDED where the test is passed.
      p_value: One-sided, were every run normal with SIGMA, and their number planned.
    """

    difference: float
    statistic: float
    p_value: float

    @property
    def is_passed(self) -> bool:
        return self.statistic >= NEEDED - _ROUNDING

    @classmethod
    def of(cls, difference: float, inverse_runs: float) -> ZTest:
        """Makes it from a difference whose variance is SIGMA**2 * `inverse_runs`."""
        statistic = difference / math.sqrt(inverse_runs)
        return cls(difference=difference, statistic=statistic, p_value=float(special.ndtr(-statistic / SIGMA)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """What the runs themselves say about their noise; NaN of a single run.

    Attributes:
      value: The standard deviation of the runs.
      p_larger: The chance of so large a one, or a larger, were it SIGMA.
      p_t_test: The p-value of the t-test against the target, which takes the runs' own deviation.
    """

    value: float
    p_larger: float
    p_t_test: float

    @classmethod
    def of(cls, losses: Sequence[float], target: float) -> Deviation:
        free = len(losses) - 1
        if free < 1:
            return cls(value=math.nan, p_larger=math.nan, p_t_test=math.nan)
        value = float(np.std(losses, ddof=1))
        below = target - float(np.mean(losses))
        t = below * math.sqrt(len(losses)) / value if value else math.copysign(math.inf, below)
        return cls(
            value=value,
            p_larger=float(special.chdtrc(free, free * (value / SIGMA) ** 2)),
            p_t_test=float(special.stdtr(free, -t)),
        )


def below_target(losses: Sequence[float], target: float = TARGET) -> ZTest:
    """Tests that runs have a mean loss below a target; a run without a finite loss passes nothing."""
    return ZTest.of(target - float(np.mean(losses)), 1 / len(losses))


def better_than(old: Sequence[float], new: Sequence[float], steps_saved: float) -> ZTest:
    """Tests that new runs beat old ones, each at the last step of its own, a step less for LOSS_PER_STEP."""
    difference = float(np.mean(old)) - float(np.mean(new)) + steps_saved * LOSS_PER_STEP
    return ZTest.of(difference, 1 / len(old) + 1 / len(new))
