"""Paired comparison: is B better than A, by how much, and on which cases? Seeds are common, so differences pair."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lobench.analysis.intervals import Interval, stratified_t_mean
from lobench.analysis.student import t_isf, t_sf

__all__ = ["CaseEffect", "Comparison", "Effect", "PairedT", "compare_cases", "holm", "paired_t"]


class Effect(enum.StrEnum):
    """What the interval of a difference of scores says of B against A."""

    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedT:
    """A mean difference over paired seeds, with Student's interval.

    Attributes:
      mean: Of score(B) - score(A); above 0: B is better.
      lower, upper: NaN where one pair, or none, leaves nothing to say.
      sd: Standard deviation of the differences, ddof 1.
      p_value: Two-sided; 1 where every difference is 0, NaN below two pairs.
      note: Why nothing was decided, where that does not hang on the values.
    """

    num_seeds: int
    mean: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    sd: float = math.nan
    p_value: float = math.nan
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEffect:
    """One case of a comparison; `p_holm` is adjusted over the cases of the comparison, and the verdict is its."""

    case: str
    paired: PairedT
    p_holm: float
    verdict: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """B against A over cases.

    Attributes:
      cases: In the order given.
      overall: Mean over the cases of the mean difference over seeds, with its stratified t interval.
      p_value: Two-sided, of the overall difference.
      verdict: Of the overall difference at `alpha`.
      num_undecidable: Cases with fewer than two finite pairs: shown, and in no mean.
    """

    cases: tuple[CaseEffect, ...]
    overall: Interval
    p_value: float
    verdict: Effect
    alpha: float
    num_undecidable: int


def paired_t(differences: Sequence[float], confidence: float = 0.95) -> PairedT:
    """Returns the mean of paired differences with Student's t interval and two-sided p-value.

    Args:
      differences: score(B) - score(A) of each seed; a NaN (a case without a scale) makes the whole undecidable.
      confidence: Strictly between 0 and 1.
    """
    values = np.asarray(differences, np.float64)
    n = len(values)
    if n == 0 or not np.isfinite(values).all():
        note = "no common seed" if n == 0 else "no score: the case has no scale"
        return PairedT(num_seeds=n, note=note)
    mean = math.fsum(values) / n
    if n < 2:
        return PairedT(num_seeds=n, mean=mean, note="undecidable below n = 2")
    sd = float(values.std(ddof=1))
    # Differences of one value have no spread but their rounding: no t statistic must rise from that.
    if sd <= 1e-12 * float(np.abs(values).max(initial=0.0)):
        p_value = 1.0 if mean == 0 else 0.0
        return PairedT(num_seeds=n, mean=mean, lower=mean, upper=mean, sd=0.0, p_value=p_value)
    error = sd / math.sqrt(n)
    half = t_isf(0.5 - confidence / 2, n - 1) * error
    p_value = 2 * t_sf(abs(mean) / error, n - 1)
    return PairedT(num_seeds=n, mean=mean, lower=mean - half, upper=mean + half, sd=sd, p_value=p_value)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns Holm's step-down adjusted p-values, in the order given.

    A NaN stays NaN and counts as a hypothesis all the same: a case that could not be tested makes no other one easier.

    Source: Holm 1979.
    """
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values, kind="stable")  # NaN last
    adjusted = np.empty_like(values)
    highest = 0.0
    for rank, index in enumerate(order):
        if math.isnan(values[index]):
            adjusted[index] = math.nan
            continue
        highest = max(highest, min(1.0, float(values[index]) * (len(values) - rank)))
        adjusted[index] = highest
    return [float(value) for value in adjusted]


def compare_cases(differences: Mapping[str, Sequence[float]], *, alpha: float = 0.05) -> Comparison:
    """Compares B with A on every case and overall.

    Args:
      differences: score(B) - score(A) of each seed, by case.
      alpha: Level of the overall verdict, and of the cases' verdicts together (Holm).
    Raises:
      ValueError: no case.
    """
    if not differences:
        raise ValueError("compare_cases needs at least one case")
    found = {case: paired_t(values, 1 - alpha) for case, values in differences.items()}
    adjusted = holm([paired.p_value for paired in found.values()])
    cases = tuple(
        CaseEffect(case=case, paired=paired, p_holm=p_holm, verdict=_verdict(paired.mean, p_holm, alpha))
        for (case, paired), p_holm in zip(found.items(), adjusted, strict=True)
    )
    usable = [differences[case] for case, paired in found.items() if not math.isnan(paired.p_value)]
    overall = stratified_t_mean(usable, 1 - alpha) if usable else Interval()
    p_value = _two_sided_p(overall, alpha) if usable else math.nan
    return Comparison(
        cases=cases,
        overall=overall,
        p_value=p_value,
        verdict=_verdict(overall.mean, p_value, alpha),
        alpha=alpha,
        num_undecidable=len(found) - len(usable),
    )


def _two_sided_p(interval: Interval, alpha: float) -> float:
    """Returns the p-value of no difference from the interval that the same t distribution made."""
    half = interval.upper - interval.mean
    if half == 0:
        return 1.0 if interval.mean == 0 else 0.0
    error = half / t_isf(alpha / 2, interval.degrees)
    return 2 * t_sf(abs(interval.mean) / error, interval.degrees)


def _verdict(mean: float, p_value: float, alpha: float) -> Effect:
    if math.isnan(p_value) or p_value > alpha or mean == 0:
        return Effect.UNDECIDED
    return Effect.BETTER if mean > 0 else Effect.WORSE
