"""Non-inferiority gates: PASS, REGRESSED or INCONCLUSIVE within a margin, and the number of seeds that would decide.

The harm is score(A) - score(B) over the seeds that converge on both sides. There are two one-sided tests, each at level
alpha: PASS rejects "the harm is at least the margin", REGRESSED rejects "the harm is at most the margin". B is also
REGRESSED if it diverges more often than A, and does not pass if that test alone rejects at alpha. If a seed diverged,
each of these two tests has half of alpha. Over the cases of one checkpoint REGRESSED is controlled by Holm, so that the
probability of any false alarm is below alpha. "All cases pass" needs no correction, because a single case that does not
pass prevents it.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lobench.analysis.scores.score_scale import DEFAULT_MARGINS, ScaleKind
from lobench.analysis.stats.alpha_spending import Looks
from lobench.analysis.stats.comparison import counts_of, holm, mean_difference
from lobench.analysis.stats.distributions import chi2_ppf, nct_sf, norm_isf, norm_sf
from lobench.analysis.stats.location import LEAST_P, Location, locate
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.stats.proportions import Counts, most_share, p_more, two_sided
from lobench.analysis.stats.seed_groups import (
    are_compared_by_items,
    group_counts,
    group_indices,
    join_cases,
    mean_over_cases,
    num_missing_in_group,
)
from lobench.analysis.stats.t_distribution import t_isf
from lobench.core.wording import counted

__all__ = ["GateReport", "GateResult", "GateRules", "Verdict", "gate", "gate_cases", "seeds_to_decide"]

_MAX_SEEDS = 100_000
# If all seeds of both sides have one value, its step size is unknown. A seed with another value is assumed to lose this
# much of the score: a quarter of the way from untrained to tuned, which is more than most metrics' steps.
_UNSEEN_STEP = 0.25


class Verdict(enum.StrEnum):
    """Verdict of a gate: B is not worse, B is worse, or more seeds are needed."""

    PASS = "PASS"
    REGRESSED = "REGRESSED"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """Rules by which a gate decides: tolerated harm, significance levels, and numbers of seeds.

    Attributes:
      margin: Tolerated harm on the normalised score. The default is that of a log scale.
      alpha: Level of each of the two one-sided tests.
      looks: Planned looks, over which alpha is spent, if seeds are added in steps. The number of seeds of a case must
        then be one of their sizes. None: a single test.
      resolution, power: `seeds_to_decide` is the number of seeds that finds a true harm of margin + resolution with
        this power. A harm that is farther from the margin takes fewer. The measured harm is not used, since that of a
        few seeds is mostly noise.
      max_diverged: Share of diverged seeds that PASS must rule out; 1 rules out nothing. A bound of .1 takes 29 seeds
        without a divergence, which is more than most cases have. By default the bound is only printed.
    """

    margin: float = DEFAULT_MARGINS[ScaleKind.LOG]
    alpha: float = 0.05
    looks: Looks | None = None
    resolution: float = 0.05
    power: float = 0.9
    max_diverged: float = 1.0

    @property
    def decided_harm(self) -> str:
        """Harm that `seeds_to_decide` is for, as a phrase after "seeds would decide"."""
        return f"a harm {self.resolution:g} from the margin"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """Verdict on one case, or on the mean over the cases. Its fields are keys of JSON documents.

    Attributes:
      case: Name of the case; "" for the mean.
      verdict: The verdict.
      num_seeds: Number of common seeds; for the mean, of the case with the fewest.
      harm: Mean of score(A) - score(B) over the seeds that converge on both sides. If it is above 0, B is worse.
      lower: Lower confidence bound of the harm, at the level of REGRESSED. The gate has half of alpha for all of its
        cases together, and divides it between its looks. If A lacks seeds, the bound assumes that they are its worst.
        NaN below two seeds.
      upper: Upper confidence bound of the harm at the level of PASS: this look's share of alpha, for each case alone.
      p_regressed: One-sided p-value of "harm <= margin and B diverges no more often". With looks, the smallest overall
        alpha at which this look rejects.
      p_pass: One-sided p-value of "harm >= margin". With looks, the smallest overall alpha at which this look rejects.
      p_holm: `p_regressed` adjusted over the cases of the gate, which determines the verdict.
      sd, degrees: Standard deviation of the harm per seed, and the degrees of freedom of its estimate.
      seeds_to_decide: Total number of seeds per case, above `num_seeds`, that would decide a harm that is
        `GateRules.resolution` from the margin. None if the verdict is decided, if it cannot be computed, or if that
        many seeds exist and the harm is too near the margin.
      num_converged: Number of seeds in the harm.
      p_diverged: One-sided p-value of "B diverges no more often", a part of p_regressed. NaN if no seed diverged.
      num_a, num_b: Number of seeds of each side; for the mean, sums over the cases.
      diverged_a, diverged_b: Number of diverged or exploded seeds of each side; for the mean, sums over the cases.
      most_diverged: Exact upper confidence bound, at level alpha, of the share of B's seeds that diverge.
      missing_a, missing_b: Number of planned seeds of each side without a value. The gate passes only if both are 0.
      note: Reason for a missing verdict, or a limitation of the verdict.
    """

    case: str
    verdict: Verdict
    num_seeds: int
    harm: float
    lower: float = math.nan
    upper: float = math.nan
    p_regressed: float = math.nan
    p_pass: float = math.nan
    p_holm: float = math.nan
    sd: float = math.nan
    degrees: float = math.nan
    seeds_to_decide: int | None = None
    num_converged: int = 0
    p_diverged: float = math.nan
    num_a: int = 0
    num_b: int = 0
    diverged_a: int = 0
    diverged_b: int = 0
    most_diverged: float = math.nan
    missing_a: int = 0
    missing_b: int = 0
    note: str = ""

    @property
    def divergence(self) -> str:
        """Counts of B's lost seeds, such as "0 of 4 diverged or exploded, at most 53%", and of A's if there are any."""
        if not self.num_b:
            return ""
        text = f"{self.diverged_b} of {self.num_b} diverged or exploded, at most {100 * self.most_diverged:.0f}%"
        return text + (f" (against {self.diverged_a} of {self.num_a})" if self.diverged_a or self.diverged_b else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """Verdicts of a gate on all cases and on their mean, and the overall verdict.

    The overall verdict is REGRESSED if the mean or a case regressed, and PASS if the mean and every case passed. The
    mean has one half of alpha and the cases together (by Holm) the other, so that the probability of any false alarm is
    below alpha. A gate of a single case is that case, with all of alpha.

    Attributes:
      cases: Verdicts on the cases.
      overall: Verdict on the mean.
      verdict: Overall verdict.
      rules: Rules of the gate.
      groups: Names of the cases in the mean, by group. Cases of one group share the randomness of their seeds.
    """

    cases: tuple[GateResult, ...]
    overall: GateResult
    verdict: Verdict
    rules: GateRules
    groups: tuple[tuple[str, ...], ...] = ()

    @property
    def compared_nothing(self) -> bool:
        """Whether no case has a common seed. The verdict is then meaningless and not a pass."""
        return all(case.num_seeds == 0 for case in self.cases)


def gate(samples: Samples, rules: GateRules | None = None, *, case: str = "") -> GateResult:
    """Returns the verdict on a single case. Use `gate_cases` for several cases.

    Args:
      samples: Scores of both sides. A NaN (a case without a scale) makes the verdict INCONCLUSIVE.
      rules: Rules of the gate. None: the defaults.
      case: Name of the case.

    Raises:
      ValueError: The number of seeds is not a planned look.
    """
    rules = rules or GateRules()
    measured_case = _measure_case(samples, case)
    result = _with_verdict(_test_measurement(measured_case, rules), rules, alpha=rules.alpha, num_tests=1)
    return _with_bounds(result, measured_case, rules, alpha=rules.alpha, num_tests=1)


def gate_cases(
    samples: Mapping[str, Samples],
    rules: GateRules | None = None,
    *,
    previous_results: Mapping[str, GateResult] | None = None,
) -> GateReport:
    """Returns the verdicts on all cases of one checkpoint, and on their mean.

    Args:
      samples: Scores of both sides, by case. With looks, cases may be at different looks, because only undecided cases
        get more seeds.
      rules: Rules of the gate. None: the defaults.
      previous_results: With looks, the results of the previous look by case (the mean's under ""). A rejection at one
        look remains at later ones.

    Raises:
      ValueError: `cases` is empty, or a number of seeds is not a planned look.
    """
    if not samples:
        raise ValueError("gate_cases needs at least one case")
    rules = rules or GateRules()
    has_several_cases = len(samples) > 1
    half_alpha = rules.alpha / 2 if has_several_cases else rules.alpha
    measured_cases = {case: _measure_case(values, case) for case, values in samples.items()}
    case_results = [_test_measurement(measured_case, rules) for measured_case in measured_cases.values()]
    case_results = [_with_previous(result, (previous_results or {}).get(result.case)) for result in case_results]
    adjusted_p_values = holm([result.p_regressed for result in case_results])
    cases = tuple(
        _with_bounds(
            _with_verdict(dataclasses.replace(result, p_holm=p_holm), rules, alpha=half_alpha, num_tests=len(samples)),
            measured_cases[result.case],
            rules,
            alpha=half_alpha,
            num_tests=len(samples),
            previous_result=(previous_results or {}).get(result.case),
        )
        for result, p_holm in zip(case_results, adjusted_p_values, strict=True)
    )
    overall = cases[0]
    groups = tuple[tuple[str, ...], ...]()
    if has_several_cases:
        measured_mean, groups = _measure_mean(measured_cases.values())
        previous_mean = (previous_results or {}).get("")
        mean = _with_verdict(
            _with_previous(_test_measurement(measured_mean, rules), previous_mean), rules, alpha=half_alpha, num_tests=1
        )
        overall = _with_bounds(mean, measured_mean, rules, alpha=half_alpha, num_tests=1, previous_result=previous_mean)
    verdicts = {overall.verdict, *(case.verdict for case in cases)}
    worst_verdict = next(v for v in (Verdict.REGRESSED, Verdict.INCONCLUSIVE, Verdict.PASS) if v in verdicts)
    return GateReport(cases=cases, overall=overall, verdict=worst_verdict, rules=rules, groups=groups)


def seeds_to_decide(
    sd: float,
    num_pilot: int,
    *,
    resolution: float = 0.05,
    alpha: float = 0.05,
    power: float = 0.9,
    confidence: float = 0.8,
    strata: float = 1.0,
) -> int | None:
    """Returns the number of seeds with which a one-sided t test at alpha finds an effect of `resolution` with `power`.

    The standard deviation of a pilot is too small in half of all pilots, and the power falls short (.77 for a requested
    .9, with 4 seeds). Therefore this uses its upper confidence limit.

    Args:
      sd: Standard deviation of one seed's difference in the pilot.
      num_pilot: Number of seeds in the pilot.
      resolution: Effect to find.
      alpha: Level of the test.
      power: Probability of finding the effect.
      confidence: Confidence level of the upper limit of the standard deviation.
      strata: Degrees of freedom for each seed beyond the first; 1 for one case.

    Returns:
      Number of seeds >= 2. None if it is above 100,000, or the pilot has fewer than two seeds or no finite deviation.

    Source: Browne 1995 on upper confidence limits of a pilot's variance; power by the noncentral t distribution.
    """
    if num_pilot < 2 or not math.isfinite(sd):
        return None
    degrees = strata * (num_pilot - 1)
    sd_limit = sd * math.sqrt(degrees / float(chi2_ppf(1 - confidence, degrees)))
    if sd_limit == 0:
        return 2

    def power_with(num_seeds: int) -> float:
        quantile = t_isf(alpha, strata * (num_seeds - 1))
        shift = resolution / sd_limit * math.sqrt(num_seeds)
        # Far from both, the noncentral t has no precision left, and is practically normal.
        if shift > 30:
            return float(norm_sf(quantile - shift))
        return float(nct_sf(quantile, strata * (num_seeds - 1), shift))

    # The normal approximation is slightly too small, so a few steps up from it suffice.
    quantiles = float(norm_isf(alpha)) + float(norm_isf(1 - power))
    num_seeds = max(2, math.ceil((quantiles * sd_limit / resolution) ** 2))
    if num_seeds > _MAX_SEEDS:
        return None
    while power_with(num_seeds) < power:
        num_seeds += 1
    return num_seeds


class _LostSeeds(NamedTuple):
    """Counts of diverged seeds, and the number of planned seeds of A without a value."""

    counts: Counts
    missing_a: int

    @property
    def worst_counts(self) -> Counts:
        """The counts under the assumption that all missing seeds of A diverged."""
        a, num_a, b, num_b = self.counts
        return Counts(a + self.missing_a, num_a + self.missing_a, b, num_b)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measurement:
    """Difference on one case, or the mean over the cases.

    Attributes:
      case: Name of the case; "" for the mean.
      num_seeds: Number of seeds, including those that diverged.
      num_converged: Number of pairs in which both sides converged.
      difference: Difference over these. None if it cannot be tested.
      harm: Mean of score(A) - score(B).
      lost_seeds: Diverged and missing seeds; for the mean, one for each group of cases.
      has_one_value: Whether all seeds of both sides have one value; for the mean, whether this holds for all cases.
      extra_margin: Amount by which the case's own margin is above the rules' margin; for the mean, the mean over cases.
      note: Reason why the difference cannot be tested, or a limitation of the test.
      samples: Scores of the case.
      num_missing: Number of planned seeds of either side without a value; for the mean, sums over the groups of cases.
      hidden_harm: Upper bound of the harm that appears only because seeds of A are missing; see `_largest_hidden_harm`.
    """

    case: str
    num_seeds: int
    num_converged: int = 0
    difference: Location | None = None
    harm: float = math.nan
    lost_seeds: tuple[_LostSeeds, ...] = ()
    has_one_value: bool = False
    extra_margin: float = 0.0
    note: str = ""
    samples: Samples = field(default=Samples(), repr=False)
    num_missing: tuple[int, int] = (0, 0)
    hidden_harm: float = 0.0


def _largest_hidden_harm(samples: Samples, num_missing: int) -> float:
    """Returns an upper bound of the expected harm that appears only because seeds of A are missing.

    If a share p of the seeds is missing, the mean of the present seeds exceeds the mean of all seeds by at most
    sd sqrt(p / (1 - p)), for any distribution and any missing seeds. B's missing seeds need no bound, because they
    could only have increased the harm.
    """
    converged = samples.converged()
    if not num_missing or len(converged) < 2:
        return 0.0
    values = np.asarray(converged.b) - np.asarray(converged.a) if converged.is_paired else np.asarray(converged.a)
    return float(np.std(values, ddof=1)) * math.sqrt(num_missing / len(samples))


def _hidden_harm_of_group(cases: Sequence[Samples]) -> float:
    """Returns the largest harm that missing seeds may hide, summed over the cases of a group."""
    if are_compared_by_items(cases):
        return math.fsum(_largest_hidden_harm(case, case.num_missing[0]) for case in cases)
    return len(cases) * _largest_hidden_harm(join_cases(cases), num_missing_in_group(cases)[0])


def _measure_case(samples: Samples, case: str) -> _Measurement:
    difference = mean_difference(samples)
    has_losses = samples.has_scale and len(samples) > 1
    return _Measurement(
        case=case,
        num_seeds=difference.num_seeds,
        num_converged=difference.num_converged,
        difference=None if math.isnan(difference.sd) else locate(samples),
        harm=0.0 - difference.mean,
        lost_seeds=(_LostSeeds(counts_of(samples), samples.num_missing[0]),) if has_losses else (),
        hidden_harm=_largest_hidden_harm(samples, samples.num_missing[0]) if samples.has_scale else 0.0,
        has_one_value=samples.has_scale and samples.has_one_value,
        extra_margin=samples.added_shift,
        note=difference.note.partition(":")[0] if not samples.has_scale else difference.note,
        samples=samples,
        num_missing=samples.num_missing,
    )


def _measure_mean(cases: Collection[_Measurement]) -> tuple[_Measurement, tuple[tuple[str, ...], ...]]:
    """Returns the mean over the cases that can be tested, by the stratified t over groups, and these groups."""
    counted_cases = [case.samples for case in cases if case.lost_seeds]
    missing_a = [
        num_missing_in_group([counted_cases[index] for index in indices])[0]
        for indices in group_indices([case.shared_trainings for case in counted_cases])
    ]
    losses = tuple(map(_LostSeeds, group_counts(counted_cases), missing_a))
    samples = [case.samples for case in cases]
    missing_by_group = [
        num_missing_in_group([samples[index] for index in indices])
        for indices in group_indices([sample.shared_trainings for sample in samples])
    ]
    num_missing = (sum(a for a, _ in missing_by_group), sum(b for _, b in missing_by_group))
    usable_cases = [case for case in cases if case.difference is not None]
    mean = mean_over_cases([case.samples for case in usable_cases])
    if mean.location is None:
        empty_mean = _Measurement(
            case="", num_seeds=0, lost_seeds=losses, note="no case can be measured", num_missing=num_missing
        )
        return empty_mean, ()
    hidden_harm = math.fsum(
        _hidden_harm_of_group(members)
        for indices in mean.groups
        if (members := [usable_cases[index].samples for index in indices])
    ) / len(usable_cases)
    groups = tuple(tuple(usable_cases[index].case for index in indices) for indices in mean.groups)
    usable_cases = [usable_cases[index] for indices in mean.groups for index in indices]
    num_unmeasured = len(cases) - len(usable_cases)
    note = f"without {counted(num_unmeasured, 'case')} that cannot be measured" if num_unmeasured else ""
    measured_mean = _Measurement(
        case="",
        num_seeds=min(case.num_seeds for case in usable_cases),
        num_converged=mean.num_converged,
        difference=mean.location,
        harm=0.0 - mean.location.estimate.mean,
        lost_seeds=losses,
        has_one_value=all(case.has_one_value for case in usable_cases),
        extra_margin=math.fsum(case.extra_margin for case in usable_cases) / len(usable_cases),
        note=note,
        num_missing=num_missing,
        hidden_harm=hidden_harm,
    )
    return measured_mean, groups


def _test_measurement(measurement: _Measurement, rules: GateRules) -> GateResult:
    """Returns the p-values and bounds of a test. `_with_verdict` adds the verdict and the number of seeds to decide."""
    sequential_looks = rules.looks
    alpha = rules.alpha
    difference = measurement.difference
    counts = [lost.counts for lost in measurement.lost_seeds]
    lost_a, num_a, lost_b, num_b = (sum(side) for side in zip(*counts, strict=True)) if counts else (0, 0, 0, 0)
    result = GateResult(
        case=measurement.case,
        verdict=Verdict.INCONCLUSIVE,
        num_seeds=measurement.num_seeds,
        num_converged=measurement.num_converged,
        harm=measurement.harm,
        num_a=num_a,
        num_b=num_b,
        diverged_a=lost_a,
        diverged_b=lost_b,
        most_diverged=most_share(lost_b, num_b, alpha) if num_b else math.nan,
        missing_a=measurement.num_missing[0],
        missing_b=measurement.num_missing[1],
        note=measurement.note,
    )
    p_diverged = (
        max(LEAST_P, p_more([lost.worst_counts for lost in measurement.lost_seeds])) if lost_a + lost_b else math.nan
    )
    if difference is None and math.isnan(p_diverged):
        return result
    # The harm is -(b - a), so it is above the margin if b - a is below -margin.
    p_regressed = difference.p_below(-rules.margin - measurement.hidden_harm) if difference else 1.0
    p_pass = difference.p_above(-rules.margin) if difference else 1.0
    # Smallest share of equal seeds if the harm is the case's margin.
    equal_share = 1.0 - (rules.margin + measurement.extra_margin) / _UNSEEN_STEP
    if difference and measurement.has_one_value and 0 < equal_share < 1:
        p_pass = max(p_pass, equal_share**measurement.num_converged)
        needed_seeds = math.ceil(math.log(alpha) / math.log(equal_share))
        if p_pass > alpha:
            note = f"too few seeds: all {measurement.num_converged} have one value; {needed_seeds} are needed"
            result = dataclasses.replace(_with_note(result, note), seeds_to_decide=needed_seeds)
    if not math.isnan(p_diverged):
        p_regressed = two_sided(p_regressed, p_diverged)
    if sequential_looks is not None and measurement.num_seeds:
        alpha = sequential_looks.level(measurement.num_seeds, alpha)
        p_regressed, p_pass = (sequential_looks.p_value(measurement.num_seeds, p) for p in (p_regressed, p_pass))
    low, high = difference.bounds(alpha) if difference else (math.nan, math.nan)
    if difference and measurement.has_one_value:
        low = min(low, measurement.extra_margin - _UNSEEN_STEP * (1.0 - alpha ** (1.0 / measurement.num_converged)))
    degrees = difference.estimate.degrees if difference else math.nan
    return dataclasses.replace(
        result,
        lower=0.0 - high - measurement.hidden_harm,
        upper=0.0 - low,
        p_regressed=p_regressed,
        p_pass=p_pass,
        p_holm=p_regressed,
        p_diverged=p_diverged,
        sd=difference.error * math.sqrt(measurement.num_converged) if difference else math.nan,
        degrees=degrees,
    )


def _with_bounds(
    result: GateResult,
    measurement: _Measurement,
    rules: GateRules,
    *,
    alpha: float,
    num_tests: int,
    previous_result: GateResult | None = None,
) -> GateResult:
    """Returns a result whose bounds have the levels of its verdict.

    REGRESSED has the level `alpha` for all tests together (Holm), and so has the lower bound (Bonferroni). If Holm's
    steps decide a case that Bonferroni's bound leaves open, the bound is taken at the level of Holm's step. A verdict
    of an earlier look keeps the bound of that look. `alpha` is the level of REGRESSED for all `num_tests` tests
    together.
    """
    difference = measurement.difference
    if difference is None:
        return result
    num_tests_of_case = 1 if math.isnan(result.p_diverged) else 2  # harm and divergence have half of the level each

    def lower_bound(level: float) -> float:
        nominal = rules.looks.level(measurement.num_seeds, level) if rules.looks is not None else level
        return 0.0 - difference.bounds(nominal / num_tests_of_case)[1] - measurement.hidden_harm

    lower = lower_bound(alpha / num_tests)
    upper = result.upper
    is_decided = result.verdict is Verdict.REGRESSED and result.p_holm > 0
    if is_decided and not lower > rules.margin:
        lower = max(lower, lower_bound(alpha * result.p_regressed / result.p_holm))
    if previous_result is not None and previous_result.p_regressed <= result.p_regressed and is_decided:
        lower = max(lower, previous_result.lower)
    if previous_result is not None and previous_result.p_pass <= result.p_pass and result.verdict is Verdict.PASS:
        upper = min(upper, previous_result.upper)
    return dataclasses.replace(result, lower=lower, upper=upper)


def _with_previous(result: GateResult, previous_result: GateResult | None) -> GateResult:
    """Returns a result with the smaller p-values of two looks."""
    if previous_result is None or math.isnan(previous_result.p_regressed):
        return result
    p_regressed = min(result.p_regressed, previous_result.p_regressed)
    p_pass = min(result.p_pass, previous_result.p_pass)
    return dataclasses.replace(result, p_regressed=p_regressed, p_pass=p_pass, p_holm=p_regressed)


def _with_note(result: GateResult, note: str) -> GateResult:
    """Returns a result with a further note."""
    return dataclasses.replace(result, note="; ".join(filter(None, (result.note, note))))


def _with_verdict(result: GateResult, rules: GateRules, *, alpha: float, num_tests: int) -> GateResult:
    """Returns a result with its verdict, or with the number of seeds that would decide it.

    Args:
      alpha: Level of REGRESSED, to which `p_holm` is compared. PASS has `rules.alpha`.
      num_tests: Number of tests in Holm's correction. The number of seeds is computed for the level `alpha /
        num_tests`.
      result, rules: The result without a verdict, and the rules of the gate.
    """
    if result.p_holm <= alpha:
        return dataclasses.replace(result, verdict=Verdict.REGRESSED)
    if result.missing_a or result.missing_b:
        missing_by_side = {"A": result.missing_a, "B": result.missing_b}
        missing_text = ", ".join(f"{side_name} lacks {count}" for side_name, count in missing_by_side.items() if count)
        return _with_note(result, f"no PASS without all planned seeds: {missing_text}")
    if result.p_pass <= rules.alpha:
        if result.p_diverged <= rules.alpha:
            return _with_note(result, f"no PASS: B diverges or explodes more often (p {result.p_diverged:.2g})")
        if rules.max_diverged >= 1 or result.most_diverged <= rules.max_diverged:
            return dataclasses.replace(result, verdict=Verdict.PASS)
        return _with_note(result, f"the share that diverges may be above {rules.max_diverged:g}")
    if math.isnan(result.sd) or result.seeds_to_decide is not None:
        return result
    level = alpha / num_tests
    needed_seeds = seeds_to_decide(
        result.sd,
        result.num_converged,
        resolution=rules.resolution,
        alpha=level if rules.looks is None else rules.looks.level(rules.looks.sizes[-1], level),
        power=rules.power,
        strata=1.0 if math.isinf(result.degrees) else result.degrees / (result.num_converged - 1),
    )
    if needed_seeds is not None:  # scaled up by the seeds that do not converge
        needed_seeds = math.ceil(needed_seeds * result.num_seeds / result.num_converged)
    if needed_seeds is not None and needed_seeds <= result.num_seeds:
        return _with_note(result, "the harm is too near the margin to tell")
    return dataclasses.replace(result, seeds_to_decide=needed_seeds)
