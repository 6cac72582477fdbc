"""Student's t distribution without scipy, whose import would delay each table by half a second."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

__all__ = ["t_isf", "t_sf"]

_MANY = 1e5  # degrees of freedom from which three terms around the normal quantile are exact
_NORMAL = 1e9
_TINY = 1e-300


def t_sf(value: float, degrees: float) -> float:
    """Returns the probability of a larger value (the survival function)."""
    if math.isnan(value) or math.isnan(degrees):
        return math.nan
    upper_tail = _upper_tail(abs(value), degrees)
    return upper_tail if value >= 0 else 1 - upper_tail


@functools.lru_cache(maxsize=4096)  # a gate needs the same few quantiles for all of its cases
def t_isf(probability: float, degrees: float) -> float:
    """Returns the value that is exceeded with probability `probability` (the inverse survival function).

    >>> round(t_isf(0.025, 3), 3)  # half-width of a 95% interval of four seeds, in standard errors
    3.182

    Args:
      probability: Probability, strictly between 0 and 1; 0.025 for the upper end of a 95% interval.
      degrees: Degrees of freedom, > 0. Satterthwaite's may be fractional.

    Source: Newton's steps on the logarithm of the upper tail, starting from the series of Cornish and Fisher.
    """
    if math.isnan(degrees) or not 0 < probability <= 0.5:
        return math.nan if math.isnan(degrees) or not 0 < probability < 1 else -t_isf(1 - probability, degrees)
    z = -NormalDist().inv_cdf(probability)
    value = z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    if degrees > _MANY or probability == 0.5:
        return value
    low, high = 0.0, math.inf
    for _ in range(200):
        tail_at_value = _upper_tail(value, degrees)
        low, high = (value, high) if tail_at_value > probability else (low, value)
        step = (
            tail_at_value * math.log(tail_at_value / probability) / _density(value, degrees)
            if tail_at_value > 0
            else math.inf
        )
        # If a step would leave the bracket, bisect.
        inside = low < value + step < high
        following = value + step if inside else (2 * value if math.isinf(high) else (low + high) / 2)
        if abs(following - value) <= 1e-15 * value:
            return following
        value = following
    return value


def _density(value: float, degrees: float) -> float:
    scale = _gamma_ratio(degrees / 2) / math.sqrt(degrees * math.pi)
    return scale * math.exp(-(degrees + 1) / 2 * math.log1p(value * value / degrees))


def _gamma_ratio(x: float) -> float:
    """Returns gamma(x + 1/2) / gamma(x). Large x use the series, whose next term is below 1e-13."""
    if x < 150:
        return math.gamma(x + 0.5) / math.gamma(x)
    return math.sqrt(x) * (1 - (1 - (1 + (5 - 21 / (32 * x)) / (8 * x)) / (16 * x)) / (8 * x))


def _upper_tail(value: float, degrees: float) -> float:
    """Returns I_x(v/2, 1/2) / 2 at x = v / (v + t^2), by the continued fraction of the incomplete beta function."""
    if degrees > _NORMAL:
        return math.erfc(value / math.sqrt(2)) / 2
    a, b, square = degrees / 2, 0.5, value * value
    x = degrees / (degrees + square)
    y = square / (degrees + square)
    # x^a y^b / B(a, b), the factor of the continued fractions from both ends.
    factor = math.exp(-a * math.log1p(square / degrees)) * math.sqrt(y) * _gamma_ratio(a) / math.sqrt(math.pi)
    if x < (a + 1) / (a + b + 2):
        return factor * _fraction(a, b, x) / a / 2
    return (1 - factor * _fraction(b, a, y) / b) / 2


def _fraction(a: float, b: float, x: float) -> float:
    """Returns the continued fraction of I_x(a, b) by Lentz's method."""
    c = 1.0
    d = 1.0 / _not_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 100_000):
        start = a + 2 * m
        even = m * (b - m) * x / ((start - 1) * start)
        odd = -(a + m) * (a + b + m) * x / (start * (start + 1))
        for term in (even, odd):
            low, high = 1 + term * d, 1 + term / c
            d = 1.0 / (low if low > _TINY or low < -_TINY else _TINY)  # inline, because a page needs a million of these
            c = high if high > _TINY or high < -_TINY else _TINY
            fraction *= d * c
        if -1e-16 < d * c - 1 < 1e-16:
            break
    return fraction


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
