"""Gates: does B harm by more than a margin? PASS, REGRESSED or INCONCLUSIVE, and how many seeds would decide.

The harm is score(A) - score(B). Two one-sided tests, each at level alpha: PASS rejects "the harm is at least the
margin", REGRESSED rejects "the harm is at most the margin". Over the cases of one checkpoint REGRESSED is controlled
by Holm, so that the chance of any false alarm stays below alpha; "all cases pass" needs no correction, since one case
that does not is enough to refuse it.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass

from lobench.analysis.comparison import holm, mean_difference
from lobench.analysis.intervals import stratified_t
from lobench.analysis.laws import chi2_ppf, nct_sf, norm_isf, norm_sf
from lobench.analysis.samples import Differences, are_finite, estimate
from lobench.analysis.score_scale import DEFAULT_MARGINS, ScaleKind
from lobench.analysis.spending import Looks
from lobench.analysis.student import t_isf, t_sf
from lobench.core.headline import counted

__all__ = ["GateReport", "GateResult", "GateRules", "Verdict", "gate", "gate_cases", "seeds_to_decide"]

_MAX_SEEDS = 100_000


class Verdict(enum.StrEnum):
    """What a gate says."""

    PASS = "PASS"
    REGRESSED = "REGRESSED"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """How a gate decides.

    Attributes:
      margin: Harm that is tolerated, on the normalised score; what a log scale's default is.
      alpha: Level of each of the two one-sided tests.
      looks: Where seeds are added and looked at again: the planned looks, over which alpha is spent. The number of
        seeds of a case must then be one of its sizes.
      resolution, power: `seeds_to_decide` is for finding a true harm of margin + resolution with this power.
    """

    margin: float = DEFAULT_MARGINS[ScaleKind.LOG]
    alpha: float = 0.05
    looks: Looks | None = None
    resolution: float = 0.05
    power: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The verdict on one case, or on the mean over the cases.

    Attributes:
      num_seeds: Common seeds; for the mean, of the case that has fewest.
      harm: Mean of score(A) - score(B); above 0: B is worse.
      lower, upper: One-sided confidence bounds of the harm at this look's alpha, before Holm; NaN below two seeds.
      p_regressed, p_pass: One-sided p-values of "harm <= margin" and of "harm >= margin"; with looks, the smallest
        overall alpha at which this look rejects.
      p_holm: `p_regressed`, adjusted over the cases of the gate; the verdict is its.
      sd, degrees: Standard deviation of one seed's part in the harm, and the degrees of freedom of its estimate.
      seeds_to_decide: Total seeds a case, more than there are; None where the verdict stands already, nothing can be
        said, or the harm is so near the margin that the seeds which find margin + resolution are there and do not tell.
      note: Why nothing can be said.
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
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """All cases of a gate, their mean, and one verdict.

    REGRESSED where the mean or a case regressed; PASS where the mean and every case passed. The mean has one half of
    alpha, the cases together (by Holm) the other, so that the chance that any of it alarms falsely is below alpha; a
    gate of a single case is that case, with all of alpha.
    """

    cases: tuple[GateResult, ...]
    overall: GateResult
    verdict: Verdict
    rules: GateRules


def gate(differences: Differences, rules: GateRules | None = None, *, case: str = "") -> GateResult:
    """Returns the verdict on one case by itself; for several cases call `gate_cases`.

    Args:
      differences: score(B) - score(A) of each common seed, or both sides' scores; a NaN (a case without a scale) leaves
        nothing to say.
    Raises:
      ValueError: a number of seeds that is no planned look.
    """
    rules = rules or GateRules()
    return _settle(_decide(_measure(differences, case), rules), rules, alpha=rules.alpha, num_tests=1)


def gate_cases(
    differences: Mapping[str, Differences],
    rules: GateRules | None = None,
    *,
    previous: Mapping[str, GateResult] | None = None,
) -> GateReport:
    """Returns the verdicts on all cases of one checkpoint, and on their mean.

    Args:
      differences: score(B) - score(A) of each common seed, by case. With looks, cases may stand at different ones,
        since only undecided cases get more seeds.
      previous: With looks, the results of the look before, by case (the mean's under ""): what was rejected at one look
        stays rejected.
    Raises:
      ValueError: no case; a number of seeds that is no planned look.
    """
    if not differences:
        raise ValueError("gate_cases needs at least one case")
    rules = rules or GateRules()
    several = len(differences) > 1
    half = rules.alpha / 2 if several else rules.alpha
    measured = {case: _measure(values, case) for case, values in differences.items()}
    alone = [_decide(found, rules) for found in measured.values()]
    alone = [_remember(result, (previous or {}).get(result.case)) for result in alone]
    adjusted = holm([result.p_regressed for result in alone])
    cases = tuple(
        _settle(dataclasses.replace(result, p_holm=p_holm), rules, alpha=half, num_tests=len(differences))
        for result, p_holm in zip(alone, adjusted, strict=True)
    )
    overall = cases[0]
    if several:
        mean = _remember(_decide(_measure_mean(differences), rules), (previous or {}).get(""))
        overall = _settle(mean, rules, alpha=half, num_tests=1)
    verdicts = {overall.verdict, *(case.verdict for case in cases)}
    worst = next(v for v in (Verdict.REGRESSED, Verdict.INCONCLUSIVE, Verdict.PASS) if v in verdicts)
    return GateReport(cases=cases, overall=overall, verdict=worst, rules=rules)


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
    """Returns the seeds with which a one-sided t test at alpha finds an effect of `resolution` with the asked power.

    A pilot's own standard deviation is too small as often as not, and the power falls short (.77 where .9 was asked,
    at 4 seeds); hence its upper confidence limit.

    Args:
      sd: Standard deviation of one seed's difference in the pilot.
      num_pilot: The pilot's seeds.
      confidence: Of the upper limit of the standard deviation.
      strata: Degrees of freedom for each seed beyond the first; 1 for one case.
    Returns:
      A number of seeds >= 2, or None where more than 100,000 would be needed, or the pilot says nothing.
    Source: Browne 1995 on upper confidence limits of a pilot's variance; power by the noncentral t distribution.
    """
    if num_pilot < 2 or not math.isfinite(sd):
        return None
    degrees = strata * (num_pilot - 1)
    limit = sd * math.sqrt(degrees / float(chi2_ppf(1 - confidence, degrees)))
    if limit == 0:
        return 2

    def found(n: int) -> float:
        quantile = t_isf(alpha, strata * (n - 1))
        shift = resolution / limit * math.sqrt(n)
        # Far from both the noncentral t has no digits left, and is normal for all that matters.
        if shift > 30:
            return float(norm_sf(quantile - shift))
        return float(nct_sf(quantile, strata * (n - 1), shift))

    # The normal law's answer is a little too small, so that a few steps up from it are the shortest way.
    quantiles = float(norm_isf(alpha)) + float(norm_isf(1 - power))
    n = max(2, math.ceil((quantiles * limit / resolution) ** 2))
    if n > _MAX_SEEDS:
        return None
    while found(n) < power:
        n += 1
    return n


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """A mean harm: its standard error, degrees of freedom, and the standard deviation of one seed's part in it."""

    case: str
    num_seeds: int
    harm: float = math.nan
    error: float = math.nan
    degrees: float = math.nan
    note: str = ""

    @property
    def sd(self) -> float:
        return self.error * math.sqrt(self.num_seeds)


def _measure(differences: Differences, case: str) -> _Measured:
    found = mean_difference(differences)
    n, harm, note = found.num_seeds, 0.0 - found.mean, found.note.partition(":")[0]
    if math.isnan(found.sd):
        return _Measured(case=case, num_seeds=n, harm=harm, note=note)
    return _Measured(case=case, num_seeds=n, harm=harm, error=found.sd / math.sqrt(n), degrees=found.degrees)


def _measure_mean(differences: Mapping[str, Differences]) -> _Measured:
    """Returns the mean over the cases that can be measured, by the stratified t."""
    cells = [values for values in differences.values() if len(values) > 1 and are_finite(values)]
    if not cells:
        return _Measured(case="", num_seeds=0, note="no case can be measured")
    interval = stratified_t([estimate(cell) for cell in cells], 0.95)
    missing = len(differences) - len(cells)
    return _Measured(
        case="",
        num_seeds=min(len(cell) for cell in cells),
        harm=0.0 - interval.mean,
        error=interval.error(),
        degrees=interval.degrees,
        note=f"without {counted(missing, 'case')} that cannot be measured" if missing else "",
    )


def _decide(found: _Measured, rules: GateRules) -> GateResult:
    """Returns the result without its verdict and its number of seeds."""
    looks, verdict = rules.looks, Verdict.INCONCLUSIVE
    nothing = GateResult(case=found.case, verdict=verdict, num_seeds=found.num_seeds, harm=found.harm, note=found.note)
    if math.isnan(found.error):
        return nothing
    p_regressed, p_pass = _one_sided(found, rules.margin)
    alpha = rules.alpha
    if looks is not None:
        alpha = looks.level(found.num_seeds, alpha)
        p_regressed, p_pass = (looks.p_value(found.num_seeds, p) for p in (p_regressed, p_pass))
    half = t_isf(alpha, found.degrees) * found.error if found.error > 0 else 0.0
    return dataclasses.replace(
        nothing,
        lower=found.harm - half,
        upper=found.harm + half,
        p_regressed=p_regressed,
        p_pass=p_pass,
        p_holm=p_regressed,
        sd=found.sd,
        degrees=found.degrees,
    )


def _one_sided(found: _Measured, margin: float) -> tuple[float, float]:
    """Returns the p-values of "harm <= margin" and of "harm >= margin"."""
    if found.error == 0:
        return (0.0 if found.harm > margin else 1.0), (0.0 if found.harm < margin else 1.0)
    statistic = (found.harm - margin) / found.error
    return t_sf(statistic, found.degrees), t_sf(-statistic, found.degrees)


def _remember(result: GateResult, previous: GateResult | None) -> GateResult:
    """Keeps the smaller p-value of two looks."""
    if previous is None or math.isnan(previous.p_regressed):
        return result
    p_regressed = min(result.p_regressed, previous.p_regressed)
    p_pass = min(result.p_pass, previous.p_pass)
    return dataclasses.replace(result, p_regressed=p_regressed, p_pass=p_pass, p_holm=p_regressed)


def _settle(result: GateResult, rules: GateRules, *, alpha: float, num_tests: int) -> GateResult:
    """Returns the result with its verdict, and with the seeds that would decide it where it is undecided.

    Args:
      alpha: Of REGRESSED, which `p_holm` is held against; PASS has `rules.alpha`.
      num_tests: Among how many Holm divided it: the seeds are for the level that it leaves to the smallest p-value.
    """
    if result.p_holm <= alpha:
        return dataclasses.replace(result, verdict=Verdict.REGRESSED)
    if result.p_pass <= rules.alpha:
        return dataclasses.replace(result, verdict=Verdict.PASS)
    if math.isnan(result.sd):
        return result
    level = alpha / num_tests
    needed = seeds_to_decide(
        result.sd,
        result.num_seeds,
        resolution=rules.resolution,
        alpha=level if rules.looks is None else rules.looks.level(rules.looks.sizes[-1], level),
        power=rules.power,
        strata=1.0 if math.isinf(result.degrees) else result.degrees / (result.num_seeds - 1),
    )
    if needed is not None and needed <= result.num_seeds:
        note = "; ".join(filter(None, (result.note, "the harm is too near the margin to tell")))
        return dataclasses.replace(result, note=note)
    return dataclasses.replace(result, seeds_to_decide=needed)
