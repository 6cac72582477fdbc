"""Is B better than A, by how much, and on which cases? Common seeds make pairs; of others Welch's t test tells."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lobench.analysis.intervals import Interval, stratified_t
from lobench.analysis.samples import Apart, Differences, are_finite, estimate
from lobench.analysis.student import t_isf, t_sf

__all__ = ["CaseEffect", "Comparison", "Effect", "MeanDifference", "compare_cases", "holm", "mean_difference"]


class Effect(enum.StrEnum):
    """What the interval of a difference of scores says of B against A."""

    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanDifference:
    """A mean difference, with Student's interval over paired seeds or Welch's over two samples.

    Attributes:
      num_seeds: Pairs; of two samples the size of the smaller one.
      mean: Of b - a; of scores: above 0, B is better.
      lower, upper: NaN where one pair, or none, leaves nothing to say.
      sd: Of one seed's part: the standard error times the root of `num_seeds`. Of pairs that is the standard deviation
        of the differences, ddof 1.
      p_value: Two-sided; 1 where every difference is 0, NaN below two pairs.
      degrees: Of freedom; Satterthwaite's of two samples.
      method: "paired", or "welch" of sides whose seeds are not the same draws.
      note: Why nothing was decided, where that does not hang on the values.
    """

    num_seeds: int
    mean: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    sd: float = math.nan
    p_value: float = math.nan
    degrees: float = math.nan
    method: Literal["paired", "welch"] = "paired"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEffect:
    """One case of a comparison; `p_holm` is adjusted over the cases of the comparison, and the verdict is its."""

    case: str
    paired: MeanDifference
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


def mean_difference(differences: Differences, confidence: float = 0.95) -> MeanDifference:
    """Returns the mean of differences with its t interval and two-sided p-value.

    Args:
      differences: b - a of each common seed, or both samples; of scores a NaN (a case without a scale) makes the whole
        undecidable.
      confidence: Strictly between 0 and 1.
    Source: Student 1908; Welch 1947.
    """
    n = len(differences)
    method: Literal["paired", "welch"] = "welch" if isinstance(differences, Apart) else "paired"
    if n == 0 or not are_finite(differences):
        none = "no seed" if method == "welch" else "no common seed"
        note = none if n == 0 else "no score: the case has no scale"
        return MeanDifference(num_seeds=n, method=method, note=note)
    found = estimate(differences)
    mean, degrees = found.mean, found.degrees
    if n < 2:
        return MeanDifference(num_seeds=n, mean=mean, method=method, note="undecidable below n = 2")
    if found.variance == 0:
        p_value, half = (1.0 if mean == 0 else 0.0), 0.0
    else:
        error = math.sqrt(found.variance)
        half = t_isf(0.5 - confidence / 2, degrees) * error
        p_value = 2 * t_sf(abs(mean) / error, degrees)
    return MeanDifference(
        num_seeds=n,
        mean=mean,
        lower=mean - half,
        upper=mean + half,
        sd=math.sqrt(found.variance * n),
        p_value=p_value,
        degrees=degrees,
        method=method,
    )


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


def compare_cases(differences: Mapping[str, Differences], *, alpha: float = 0.05) -> Comparison:
    """Compares B with A on every case and overall.

    Args:
      differences: score(B) - score(A) of each seed, or the scores of both, by case.
      alpha: Level of the overall verdict, and of the cases' verdicts together (Holm).
    Raises:
      ValueError: no case.
    """
    if not differences:
        raise ValueError("compare_cases needs at least one case")
    found = {case: mean_difference(values, 1 - alpha) for case, values in differences.items()}
    adjusted = holm([paired.p_value for paired in found.values()])
    cases = tuple(
        CaseEffect(case=case, paired=paired, p_holm=p_holm, verdict=_verdict(paired.mean, p_holm, alpha))
        for (case, paired), p_holm in zip(found.items(), adjusted, strict=True)
    )
    usable = [estimate(differences[case]) for case, paired in found.items() if not math.isnan(paired.p_value)]
    overall = stratified_t(usable, 1 - alpha) if usable else Interval()
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
    error = interval.error(alpha)
    if error == 0:
        return 1.0 if interval.mean == 0 else 0.0
    return 2 * t_sf(abs(interval.mean) / error, interval.degrees)


def _verdict(mean: float, p_value: float, alpha: float) -> Effect:
    if math.isnan(p_value) or p_value > alpha or mean == 0:
        return Effect.UNDECIDED
    return Effect.BETTER if mean > 0 else Effect.WORSE
