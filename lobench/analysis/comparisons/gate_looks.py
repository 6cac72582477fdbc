"""Looks of a sequential gate: the numbers of seeds at which undecided cases are tested, and the final verdict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

from lobench.analysis.comparisons.gates import GateReport, GateResult, GateRules, gate, gate_cases
from lobench.analysis.stats.paired_samples import Samples

__all__ = ["decide_gate", "is_settled", "look_sizes", "num_usable_seeds", "shift_to_margin"]


def look_sizes(num_seeds: int, step: int, maximum: int) -> tuple[int, ...]:
    """Returns the numbers of seeds at which a case is tested: its own, then about twice as many each time.

    Doubling keeps the number of looks small, so that each gets a large part of alpha.

    Args:
      num_seeds: Number of the case's own seeds, which is the first look.
      step: Number of seeds that are added together, which is the width of the compiled program.
      maximum: Largest number of seeds. Below `num_seeds + step` there is a single look.
    """
    sizes = [num_seeds]
    largest = num_seeds + max(0, maximum - num_seeds) // step * step
    while sizes[-1] < largest:
        blocks = -(-sizes[-1] // step)
        sizes.append(min(largest, sizes[-1] + blocks * step))
    return tuple(sizes)


def is_settled(samples: Samples, rules: GateRules, num_cases: int) -> bool:
    """Returns True if this case needs no more seeds, whatever the other cases show.

    It needs none if it is PASS, or REGRESSED at the strictest level that Holm can require. The p-values are valid at
    any stopping time, so that more seeds than needed cost only time.
    """
    result = gate(samples, rules)
    strictest = rules.alpha / (2 * num_cases) if num_cases > 1 else rules.alpha
    return result.p_regressed <= strictest or result.p_pass <= rules.alpha


def num_usable_seeds(num_common: int, rules: GateRules) -> int:
    """Returns the number of common seeds to use: all of them, or with looks the largest look that is not above it."""
    if rules.looks is None:
        return num_common
    return max((size for size in rules.looks.sizes if size <= num_common), default=0)


def decide_gate(
    samples: Mapping[str, Samples], rules: GateRules, margins: Mapping[str, float] | None = None
) -> GateReport:
    """Returns the verdicts. Looks are replayed in order, so that a rejection at one look remains at later ones.

    Args:
      samples: Scores of both sides by case, in the order of the seeds; `num_usable_seeds` gives their number.
      rules: Rules of the gate.
      margins: Margins of cases that declare one. The margin of the mean is the mean of its cases' margins.
    """
    margin_by_case = {case: (margins or {}).get(case, rules.margin) for case in samples}
    shifted_samples = {case: shift_to_margin(values, margin_by_case[case], rules) for case, values in samples.items()}
    report = _replay_looks(shifted_samples, rules)
    cases = tuple(_shift_back(result, margin_by_case[result.case] - rules.margin) for result in report.cases)
    measured_cases = [case for group in report.groups for case in group] or list(margin_by_case)
    mean_margin = math.fsum(margin_by_case[case] for case in measured_cases) / len(measured_cases)
    return dataclasses.replace(report, cases=cases, overall=_shift_back(report.overall, mean_margin - rules.margin))


def shift_to_margin(samples: Samples, margin: float, rules: GateRules) -> Samples:
    """Returns shifted samples. Testing them at `rules.margin` equals testing the given samples at `margin`."""
    return samples.shifted(margin - rules.margin)


def _shift_back(result: GateResult, shift: float) -> GateResult:
    return dataclasses.replace(result, harm=result.harm + shift, lower=result.lower + shift, upper=result.upper + shift)


def _replay_looks(samples: Mapping[str, Samples], rules: GateRules) -> GateReport:
    if rules.looks is None:
        return gate_cases(samples, rules)
    max_seeds = max(len(values) for values in samples.values())
    sizes: Iterable[int] = [size for size in rules.looks.sizes if size <= max_seeds] or [max_seeds]
    previous_results: dict[str, GateResult] = {}
    for size in sizes:
        seen_samples = {
            case: values.first_seeds(num_usable_seeds(min(size, len(values)), rules))
            for case, values in samples.items()
        }
        report = gate_cases(seen_samples, rules, previous_results=previous_results)
        previous_results = {result.case: result for result in report.cases}
        if len(samples) > 1:
            previous_results[""] = report.overall
    return report
