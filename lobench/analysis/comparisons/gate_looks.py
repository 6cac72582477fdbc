"""Looks of a sequential gate: the numbers of seeds at which undecided cases are tested, and the final verdict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

from lobench.analysis.comparisons.gates import GateReport, GateResult, GateRules, gate, gate_cases
from lobench.analysis.stats.paired_samples import Samples

__all__ = ["decide", "is_settled", "look_sizes", "usable", "with_margin"]


def look_sizes(num_seeds: int, step: int, maximum: int) -> tuple[int, ...]:
    """Returns the numbers of seeds at which a case is looked at: its own, then about twice as many each time.

    Doubling keeps the looks few, so that little of alpha goes to each.

    Args:
      num_seeds: The case's own seeds, the first look.
      step: Seeds are added in blocks of so many, the width of the compiled program.
      maximum: Seeds at most; below `num_seeds` there is one look.
    """
    sizes = [num_seeds]
    most = num_seeds + max(0, maximum - num_seeds) // step * step
    while sizes[-1] < most:
        blocks = -(-sizes[-1] // step)
        sizes.append(min(most, sizes[-1] + blocks * step))
    return tuple(sizes)


def is_settled(samples: Samples, rules: GateRules, num_cases: int) -> bool:
    """Returns whether more seeds of this case can be spared, before the other cases are known.

    REGRESSED at the strictest level that Holm can ask of it, or PASS; the p-values hold whenever one stops, so that a
    case that gets more seeds than it needed costs time and nothing else.
    """
    result = gate(samples, rules)
    strictest = rules.alpha / (2 * num_cases) if num_cases > 1 else rules.alpha
    return result.p_regressed <= strictest or result.p_pass <= rules.alpha


def usable(num_common: int, rules: GateRules) -> int:
    """Returns how many of the common seeds count: all, or with looks as many as the largest look that they fill."""
    if rules.looks is None:
        return num_common
    return max((size for size in rules.looks.sizes if size <= num_common), default=0)


def decide(samples: Mapping[str, Samples], rules: GateRules, margins: Mapping[str, float] | None = None) -> GateReport:
    """Returns the verdicts; with looks by replaying them, so that what was rejected at one look stays rejected.

    Args:
      samples: Both sides' scores by case, in the order of the seeds; as many as `usable` says.
      margins: Of cases that have one of their own. The mean's is then the mean of the margins of the cases in it.
    """
    own = {case: (margins or {}).get(case, rules.margin) for case in samples}
    with_own = {case: with_margin(values, own[case], rules) for case, values in samples.items()}
    report = _replay(with_own, rules)
    cases = tuple(_unshifted(result, own[result.case] - rules.margin) for result in report.cases)
    measured = [case for group in report.groups for case in group] or list(own)
    mean_margin = math.fsum(own[case] for case in measured) / len(measured)
    return dataclasses.replace(report, cases=cases, overall=_unshifted(report.overall, mean_margin - rules.margin))


def with_margin(samples: Samples, margin: float, rules: GateRules) -> Samples:
    """Returns samples that are to `rules.margin` what the given ones are to a margin of their own."""
    return samples.shifted(margin - rules.margin)


def _unshifted(result: GateResult, shift: float) -> GateResult:
    return dataclasses.replace(result, harm=result.harm + shift, lower=result.lower + shift, upper=result.upper + shift)


def _replay(samples: Mapping[str, Samples], rules: GateRules) -> GateReport:
    if rules.looks is None:
        return gate_cases(samples, rules)
    most = max(len(values) for values in samples.values())
    sizes: Iterable[int] = [size for size in rules.looks.sizes if size <= most] or [most]
    previous: dict[str, GateResult] = {}
    for size in sizes:
        seen = {case: values.first(usable(min(size, len(values)), rules)) for case, values in samples.items()}
        report = gate_cases(seen, rules, previous=previous)
        previous = {result.case: result for result in report.cases}
        if len(samples) > 1:
            previous[""] = report.overall
    return report
