"""Levels of a sequence of tests that hold the false discovery rate together, whatever their number."""

from __future__ import annotations

__all__ = ["e_lond_level"]

_EXPONENT = 1.3  # later tests get more than with 2, and the first one still a quarter
_SUM = 3.93194921180954  # of n**-1.3 over all n >= 1: Riemann's zeta(1.3)


def e_lond_level(rate: float, position: int, num_discoveries: int) -> float:
    """Returns the level of a test: it discovers something if its e-value is at least the inverse of the level.

    The false discovery rate of all tests is then at most `rate`, for e-values that depend on each other in any way,
    as long as each has an expectation of at most 1 under its null hypothesis, given the results before its start.

    Example: the first test of a sequence with a rate of 0.1 has the level 0.0254, and so needs an e-value of 39.3.

    Args:
      rate: Bound of the false discovery rate.
      position: Number of the test in the sequence, from 1 on.
      num_discoveries: Number of discoveries before the start of the test.

    Source: Xu and Ramdas 2024, "Online multiple testing with e-values" (e-LOND).
    """
    share: float = position**-_EXPONENT / _SUM
    return rate * share * (num_discoveries + 1)
