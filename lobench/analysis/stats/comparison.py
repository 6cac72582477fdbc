"""Paired comparison of two samples over cases: differences of converged seeds, and rates of divergence."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lobench.analysis.stats.intervals import Interval
from lobench.analysis.stats.location import LEAST_P, Location, LocationTest, locate
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.stats.proportions import Counts, p_fewer, p_more, two_sided
from lobench.analysis.stats.seed_groups import counts_of, group_counts, mean_over_cases, seed_means_ratio

__all__ = [
    "CaseEffect",
    "Effect",
    "MeanDifference",
    "MeanEffect",
    "MeanParts",
    "PairComparison",
    "compare_cases",
    "comparison_words",
    "counts_of",
    "effect_words",
    "holm",
    "limit_verdict",
    "mean_difference",
    "simultaneous_differences",
    "with_simultaneous_bounds",
]


class Effect(enum.StrEnum):
    """Verdict of a comparison of B with A."""

    BETTER = "better"
    WORSE = "worse"
    MIXED = "mixed"  # better on the seeds that converge, but fewer of them do; or the reverse
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanDifference:
    """Mean difference over the seeds that converge, with the numbers of seeds that diverge.

    Its fields are keys of JSON documents, such as the one of `lobench compare`.

    Attributes:
      num_seeds: Number of pairs; for two samples, the size of the smaller one. Includes seeds that diverged.
      mean: Mean of b - a over the pairs in which both sides converged, or over the converged seeds of two samples. For
        scores, B is better if it is above 0.
      lower, upper: Confidence bounds by test inversion. NaN without an interval.
      sd: Standard deviation per seed: the standard error times sqrt(`num_converged`). For pairs this is the standard
        deviation of the differences (ddof 1), but at least the floor set by rounding.
      p_value: Two-sided p-value of no difference. If a seed diverged, min(1, 2 min(p_converged, p_diverged)). NaN if
        nothing can be tested, and never 0.
      degrees: Degrees of freedom; Satterthwaite's for two samples.
      method: "paired"; "mcnemar" for binary values of items; for sides whose seeds are not the same draws "welch", or
        "permutation" if one side has at least twice the seeds of the other. The p-value is then the larger one of
        Welch's test and a permutation test.
      num_converged: Number of pairs in which both sides converged, or of converged seeds of the side with fewer.
      p_converged: p-value of the mean alone.
      p_diverged: Two-sided p-value of the counts of diverged seeds. NaN if none diverged.
      num_a, num_b: Number of seeds of each side.
      diverged_a, diverged_b: Number of diverged seeds of each side.
      note: Reason why no test was possible, if the reason is not the values themselves.
    """

    num_seeds: int
    mean: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    sd: float = math.nan
    p_value: float = math.nan
    degrees: float = math.nan
    method: LocationTest = "paired"
    num_converged: int = 0
    p_converged: float = math.nan
    p_diverged: float = math.nan
    num_a: int = 0
    num_b: int = 0
    diverged_a: int = 0
    diverged_b: int = 0
    note: str = ""

    @property
    def is_paired(self) -> bool:
        return self.method in ("paired", "mcnemar")

    @property
    def has_diverged(self) -> bool:
        return self.diverged_a + self.diverged_b > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEffect:
    """Comparison on one case.

    Attributes:
      case: Name of the case.
      paired: Difference on the case. Its bounds hold for all cases of the comparison together (Bonferroni), like the
        verdicts, and are those of `with_simultaneous_bounds`. Its p-value is for this case alone.
      p_holm: p-value adjusted by Holm over the cases of the comparison.
      verdict: Verdict by `p_holm`.
    """

    case: str
    paired: MeanDifference
    p_holm: float
    verdict: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class PairComparison:
    """Comparison of B with A over several cases.

    Attributes:
      cases: Comparisons on each case, in the order given.
      overall: Mean over cases of the mean difference over converged seeds, with its stratified t interval over groups
        of cases.
      p_value: Two-sided p-value of no overall difference. If a seed diverged, min(1, 2 min(p_converged, p_diverged)).
      p_converged, p_diverged: Parts of the p-value, as for a case. p_diverged is stratified by group of cases.
      verdict: Verdict on the overall difference at level `alpha`.
      alpha: Level of the verdict.
      num_undecidable: Number of cases with fewer than two seeds that converge on both sides. They are shown, but
        excluded from all means.
      groups: Names of the cases in the mean, by group. Cases of one group share the randomness of their seeds.
      num_incomplete: Number of seeds that lack a case of their group; they are excluded from all means.
      seeds_ratio: Variance of the seeds' means, divided by the variance that they would have if the groups were
        independent. NaN with fewer than eight seeds.
      p_seeds_ratio: p-value of the ratio being above 1. No verdict depends on it.
    """

    cases: tuple[CaseEffect, ...]
    overall: Interval
    p_value: float
    p_converged: float
    p_diverged: float
    verdict: Effect
    alpha: float
    num_undecidable: int
    groups: tuple[tuple[str, ...], ...] = ()
    num_incomplete: int = 0
    seeds_ratio: float = math.nan
    p_seeds_ratio: float = math.nan

    @property
    def is_capped(self) -> bool:
        """Whether the verdict is undecided only because seeds are missing; see `limit_verdict`."""
        return self.verdict is Effect.UNDECIDED and self.p_value <= self.alpha

    @property
    def diverged(self) -> Counts:
        """Numbers of diverged seeds, summed over the cases."""
        cases = [case.paired for case in self.cases]
        return Counts(*(sum(getattr(case, name) for case in cases) for name in _COUNTS))


class MeanEffect(NamedTuple):
    """Overall part of a comparison.

    Attributes:
      mean: Mean over the tested cases. None if no case can be tested.
      p_value, p_converged, p_diverged: p-values, as in `PairComparison`.
      verdict: Verdict on the mean.
      groups: Indices of the tested cases, by group.
      num_incomplete: Number of seeds that lack a case of their group.
    """

    mean: Location | None
    p_value: float
    p_converged: float
    p_diverged: float
    verdict: Effect
    groups: tuple[tuple[int, ...], ...] = ()
    num_incomplete: int = 0


_COUNTS = ("diverged_a", "num_a", "diverged_b", "num_b")


def mean_difference(samples: Samples, confidence: float = 0.95) -> MeanDifference:
    """Returns the difference of B and A on one case. All p-values of pairs come from here.

    The test has two parts, and either may reject: the mean over converged seeds, and the number of diverged seeds. If a
    seed diverged, each part has half of the level, and the interval has the level of that half. Including diverged
    seeds in the mean as a constant would give a mixture in which one lost seed outweighs all others.

    Args:
      samples: Values of both sides. A NaN (a case without a scale) makes the case undecidable.
      confidence: Confidence level, strictly between 0 and 1.

    Source: Student 1908; Welch 1947; Janssen 1997; Boschloo 1970.
    """
    num_seeds = len(samples)
    counts = counts_of(samples)
    count_fields = dict(zip(_COUNTS, counts, strict=True))
    default_method: LocationTest = "paired" if samples.is_paired else "welch"
    if num_seeds == 0 or not samples.has_scale:
        missing_text = f"no common {samples.replicate}" if samples.is_paired else f"no {samples.replicate}"
        all_diverged = num_seeds > 0 and counts.a == counts.num_a and counts.b == counts.num_b
        reason = "every seed diverged" if all_diverged else "no method improves on step 0"
        note = missing_text if num_seeds == 0 else f"no score: {reason}"
        return MeanDifference(num_seeds=num_seeds, method=default_method, note=note, **count_fields)
    location = locate(samples)
    converged = samples.converged()
    p_diverged = _p_diverged([counts])
    level = 1 - confidence if math.isnan(p_diverged) else (1 - confidence) / 2
    note = _too_few_reason(location, converged, num_seeds, level)
    if num_seeds < 2:
        return MeanDifference(
            num_seeds=num_seeds, mean=location.estimate.mean, method=location.method, note=note, **count_fields
        )
    lower, upper = (math.nan, math.nan) if note and location.permutation is None else location.bounds(level / 2)
    p_converged = math.nan if note and location.permutation is None else location.p_value()
    return MeanDifference(
        num_seeds=num_seeds,
        mean=location.estimate.mean,
        lower=lower,
        upper=upper,
        sd=location.error * math.sqrt(len(converged)) if not math.isnan(p_converged) else math.nan,
        p_value=_combined_p_value(p_converged, p_diverged),
        degrees=location.estimate.degrees,
        method=location.method,
        num_converged=len(converged),
        p_converged=p_converged,
        p_diverged=p_diverged,
        note=note,
        **count_fields,
    )


def _too_few_reason(location: Location, converged: Samples, num_seeds: int, level: float) -> str:
    """Returns a note if there are too few converged seeds for a decision, whatever their values; else ""."""
    if num_seeds < 2:
        return "undecidable below n = 2"
    if len(converged) < 2:
        return f"too few seeds: {len(converged) or 'none'} converged on both sides"
    if len(converged) == 2 and location.estimate.mean != 0 and not converged.has_spread:
        return "too few seeds: two without spread"
    if location.permutation is not None and 2 * location.permutation.least_p_value > level:
        return f"too few seeds: a permutation test has no p below {2 * location.permutation.least_p_value:.2g} here"
    return ""


def _p_diverged(counts: Sequence[Counts]) -> float:
    """Returns the two-sided p-value of equal shares of diverged seeds; NaN if none diverged."""
    if not any(case_counts.a + case_counts.b for case_counts in counts):
        return math.nan
    return max(LEAST_P, two_sided(p_more(counts), p_fewer(counts)))


def _combined_p_value(p_converged: float, p_diverged: float) -> float:
    """Returns the p-value of mean and divergence together, or of the mean alone if no seed diverged."""
    if math.isnan(p_diverged):
        return p_converged
    return two_sided(p_diverged, 1.0 if math.isnan(p_converged) else p_converged)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns Holm's step-down adjusted p-values, in the order given.

    A NaN stays NaN, but counts as a hypothesis: a case that could not be tested does not relax the others.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]

    Source: Holm 1979.
    """
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values, kind="stable")  # NaN last
    adjusted_p_values = np.empty_like(values)
    highest = 0.0
    for rank, index in enumerate(order):
        if math.isnan(values[index]):
            adjusted_p_values[index] = math.nan
            continue
        highest = max(highest, min(1.0, float(values[index]) * (len(values) - rank)))
        adjusted_p_values[index] = highest
    return [float(value) for value in adjusted_p_values]


def compare_cases(samples: Mapping[str, Samples], *, alpha: float = 0.05) -> PairComparison:
    """Compares B with A on every case and overall.

    Args:
      samples: Scores of both sides, by case.
      alpha: Level of the overall verdict, and of the verdicts on all cases together (Holm).

    Raises:
      ValueError: `samples` is empty.
    """
    if not samples:
        raise ValueError("compare_cases needs at least one case")
    differences = {case: mean_difference(sample, 1 - alpha) for case, sample in samples.items()}
    adjusted_p_values = holm([paired.p_value for paired in differences.values()])
    cases = tuple(
        CaseEffect(
            case=case,
            paired=with_simultaneous_bounds(samples[case], paired, p_holm, alpha=alpha, num_cases=len(samples)),
            p_holm=p_holm,
            verdict=limit_verdict(_case_verdict(paired, p_holm, alpha), samples[case].num_missing),
        )
        for (case, paired), p_holm in zip(differences.items(), adjusted_p_values, strict=True)
    )
    mean_parts = MeanParts()
    for case, paired in differences.items():
        mean_parts.add(samples[case], paired)
    overall = mean_parts.effect(alpha)
    level = alpha if math.isnan(overall.p_diverged) else alpha / 2
    tested_cases = [case for case, paired in differences.items() if not math.isnan(paired.p_converged)]
    groups = tuple(tuple(tested_cases[index] for index in indices) for indices in overall.groups)
    ratio, p_ratio = seed_means_ratio(mean_parts.tested_cases)
    return PairComparison(
        cases=cases,
        overall=_interval(overall.mean, level) if overall.mean else Interval(),
        p_value=overall.p_value,
        p_converged=overall.p_converged,
        p_diverged=overall.p_diverged,
        verdict=overall.verdict,
        alpha=alpha,
        num_undecidable=len(differences) - sum(map(len, groups)),
        groups=groups,
        num_incomplete=overall.num_incomplete,
        seeds_ratio=ratio,
        p_seeds_ratio=p_ratio,
    )


def limit_verdict(verdict: Effect, missing: tuple[int, int]) -> Effect:
    """Returns a verdict after accounting for planned seeds without a value.

    A side that lacks a seed is never better, because a crash counts for more than the seeds that are left. It may be
    worse, because the seed that it lacks could only have been a loss.

    Args:
      verdict: Verdict on the existing values.
      missing: Numbers of missing seeds of A and of B.
    """
    missing_a, missing_b = missing
    if (verdict is Effect.BETTER and any(missing)) or (verdict is Effect.WORSE and missing_a):
        return Effect.UNDECIDED
    return Effect.UNDECIDED if verdict is Effect.MIXED and missing_a + missing_b else verdict


def _num_missing(samples: Iterable[Samples]) -> tuple[int, int]:
    missing = [sample.num_missing for sample in samples]
    return sum(a for a, _ in missing), sum(b for _, b in missing)


def with_simultaneous_bounds(
    samples: Samples, paired: MeanDifference, p_holm: float, *, alpha: float, num_cases: int
) -> MeanDifference:
    """Returns a case's difference with bounds that hold for all cases together, at the level of Holm's verdicts.

    The bounds are Bonferroni's: all of them hold with a probability of at least 1 - alpha. Holm's procedure decides
    some cases that Bonferroni's leaves open. For these the bound between the mean and 0 is taken at the level of Holm's
    step, so that the interval of a better or worse case never contains 0.
    """
    if num_cases == 1 or math.isnan(paired.lower):
        return paired
    strict_difference = mean_difference(samples, 1 - alpha / num_cases)
    lower, upper = strict_difference.lower, strict_difference.upper
    level = alpha * paired.p_value / p_holm if p_holm > 0 else alpha / num_cases
    is_decided = p_holm <= alpha and paired.p_converged <= level / (1 if math.isnan(paired.p_diverged) else 2)
    if is_decided and not (lower > 0 or upper < 0):
        step_difference = mean_difference(samples, 1 - level)
        lower, upper = (step_difference.lower, upper) if paired.mean > 0 else (lower, step_difference.upper)
    return dataclasses.replace(paired, lower=lower, upper=upper)


def simultaneous_differences(samples: Mapping[str, Samples], *, alpha: float) -> dict[str, MeanDifference]:
    """Returns the difference on each case, with the bounds of `with_simultaneous_bounds`."""
    differences = {case: mean_difference(sample, 1 - alpha) for case, sample in samples.items()}
    adjusted_p_values = holm([paired.p_value for paired in differences.values()])
    return {
        case: with_simultaneous_bounds(samples[case], paired, p_holm, alpha=alpha, num_cases=len(samples))
        for (case, paired), p_holm in zip(differences.items(), adjusted_p_values, strict=True)
    }


@dataclass(frozen=True, slots=True)
class MeanParts:
    """Parts of a mean over cases.

    Attributes:
      locations: Tests of cases that are their own group and come without samples.
      counts: Diverged seeds of these cases.
      tested_cases: Other cases that can be tested.
      counted_cases: Cases with a scale and at least two seeds, whose diverged seeds are counted.
      incomplete_cases: Cases with planned seeds that have no value.
    """

    locations: list[Location] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=list)
    tested_cases: list[Samples] = field(default_factory=list)
    counted_cases: list[Samples] = field(default_factory=list)
    incomplete_cases: list[Samples] = field(default_factory=list)

    def add(self, samples: Samples, paired: MeanDifference) -> None:
        """Adds the samples of a case. A case without a p-value or scale does not enter the tests that need one."""
        if any(samples.num_missing):
            self.incomplete_cases.append(samples)
        if not math.isnan(paired.p_converged):
            self.tested_cases.append(samples)
        if samples.has_scale and len(samples) > 1:
            self.counted_cases.append(samples)

    def effect(self, alpha: float) -> MeanEffect:
        """Returns the mean over the cases and its verdict."""
        counts = [*self.counts, *group_counts(self.counted_cases)]
        p_diverged = _p_diverged(counts)
        mean_over_all = mean_over_cases(self.tested_cases, self.locations)
        mean = mean_over_all.location
        p_converged = mean.p_value() if mean else math.nan
        p_value = _combined_p_value(p_converged, p_diverged)
        is_fewer = sum(case_counts.b for case_counts in counts) < sum(case_counts.a for case_counts in counts)
        verdict = _verdict(mean.estimate.mean if mean else 0.0, p_converged, p_diverged, is_fewer, p_value, alpha)
        verdict = limit_verdict(verdict, _num_missing(self.incomplete_cases))
        return MeanEffect(
            mean, p_value, p_converged, p_diverged, verdict, mean_over_all.groups, mean_over_all.num_incomplete
        )


def _interval(mean: Location, level: float) -> Interval:
    lower, upper = mean.bounds(level / 2)
    return Interval(mean=mean.estimate.mean, lower=lower, upper=upper, degrees=mean.estimate.degrees)


def _case_verdict(paired: MeanDifference, p_holm: float, alpha: float) -> Effect:
    share_a = paired.diverged_a * paired.num_b
    share_b = paired.diverged_b * paired.num_a
    return _verdict(paired.mean, paired.p_converged, paired.p_diverged, share_b < share_a, p_holm, alpha)


def _verdict(
    mean: float, p_converged: float, p_diverged: float, is_fewer: bool, adjusted_p_value: float, alpha: float
) -> Effect:
    """Returns the verdict that follows from the significant parts.

    Args:
      mean: Mean of b - a.
      p_converged, p_diverged: p-values of the mean and of the counts of diverged seeds.
      is_fewer: Whether a smaller share of B diverged.
      adjusted_p_value: p-value of both parts, adjusted by Holm if there are several cases.
      alpha: Level of the verdict.
    """
    p_value = _combined_p_value(p_converged, p_diverged)
    if math.isnan(adjusted_p_value) or adjusted_p_value > alpha or not p_value > 0:
        return Effect.UNDECIDED
    level = alpha * p_value / adjusted_p_value / (1 if math.isnan(p_diverged) else 2)  # level of each part
    directions = set()
    if p_converged <= level and mean != 0:
        directions.add(Effect.BETTER if mean > 0 else Effect.WORSE)
    if p_diverged <= level:
        directions.add(Effect.BETTER if is_fewer else Effect.WORSE)
    return Effect.UNDECIDED if not directions else directions.pop() if len(directions) == 1 else Effect.MIXED


def effect_words(difference: MeanDifference, p_holm: float = math.nan, alpha: float = 0.05) -> str:
    """Returns a description of a difference's parts (mean and divergence) if a seed diverged, else "".

    Example: "better on the 7 seeds that converge (p .01); diverged or exploded 0 of 8 against 1 of 8".

    Args:
      difference: Difference on a case.
      p_holm: p-value adjusted over the cases of a comparison, as for the verdict of the case. NaN: the case is the only
        one.
      alpha: Level of the verdicts on all cases together.
    """
    counts = Counts(difference.diverged_a, difference.num_a, difference.diverged_b, difference.num_b)
    seeds_text = f"{difference.num_converged} seeds" if difference.method == "paired" else "seeds"
    level = alpha * difference.p_value / p_holm if p_holm > 0 else alpha
    return _effect_text(difference.mean, difference.p_converged, seeds_text, counts, difference.p_diverged, level)


def comparison_words(pair: PairComparison) -> str:
    """Returns the text of `effect_words` for the mean over the cases."""
    return _effect_text(pair.overall.mean, pair.p_converged, "seeds", pair.diverged, pair.p_diverged, pair.alpha)


def _effect_text(
    mean: float, p_converged: float, seeds_text: str, counts: Counts, p_diverged: float, alpha: float
) -> str:
    if not counts.a + counts.b:
        return ""
    divergence_text = f"diverged or exploded {counts.b} of {counts.num_b} against {counts.a} of {counts.num_a}"
    divergence_text += f" ({_p_text(p_diverged)})" if 2 * p_diverged <= alpha else ""
    if math.isnan(p_converged):
        return divergence_text
    outcome = ("better" if mean > 0 else "worse") if 2 * p_converged <= alpha else "no difference"
    is_close = p_converged <= 0.05 and outcome == "no difference"
    level = f", level {f'{alpha / 2:.2g}'.removeprefix('0')}" if is_close else ""  # the other half is for the counts
    return f"{outcome} on the {seeds_text} that converge ({_p_text(p_converged)}{level}); {divergence_text}"


def _p_text(value: float) -> str:
    return "p < .001" if value < 0.001 else "p " + f"{value:.2g}".removeprefix("0")
