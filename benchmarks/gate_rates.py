"""How often a gate alarms falsely, and what it finds; `python benchmarks/gate_rates.py [EXPERIMENTS]` prints tables.

A false alarm is REGRESSED where the true harm is exactly the margin, the worst place for it; over 26 cases it is any
of them. The power is that of the number of seeds that the gate names from a pilot, averaged over pilots.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from simulated_seeds import Losses, Population

from lobench.analysis.baseline_file import Baseline
from lobench.analysis.gate_looks import decide
from lobench.analysis.gates import GateReport, GateResult, GateRules, Verdict, gate_cases, seeds_to_decide
from lobench.analysis.paired_values import scored
from lobench.analysis.samples import Samples
from lobench.analysis.score_scale import ScaleKind, ScoreScale
from lobench.analysis.spending import Looks

__all__ = [
    "false_alarms",
    "false_alarms_on_losses",
    "main",
    "passed_regressions",
    "power_of_named_seeds",
    "seeds_to_pass",
]

LOOKS = Looks(sizes=(4, 8, 12))
SUITE = Path(__file__).parents[1] / "suites" / "quick" / "quick.gin"
SUBJECTS = Path(__file__).parents[1] / "tests" / "analysis" / "quick_subjects.json"  # by `quick_subjects.py`


def false_alarms(kind: str, num_cases: int, looks: Looks | None, num_experiments: int, seed: int = 0) -> float:
    """Returns the share of gates that say REGRESSED of anything, all true harms being the margin.

    Two subjects of the same population are compared, one of them lowered by the margin.
    """
    generator, alarms = np.random.default_rng(seed), 0
    rules = GateRules(looks=looks)
    population = Population(kind=kind, num_cases=num_cases)
    most = looks.sizes[-1] if looks else 4
    for _ in range(num_experiments):
        ours, theirs = (population.draw(generator, most) for _ in range(2))
        alarms += _gate(ours - theirs - rules.margin, rules) is Verdict.REGRESSED
    return alarms / num_experiments


def _gate(differences: np.ndarray, rules: GateRules) -> Verdict:
    """Plays a gate as the command does: undecided cases alone get the seeds of the next look."""
    sizes = rules.looks.sizes if rules.looks else (differences.shape[1],)
    num_seeds = dict.fromkeys(range(len(differences)), sizes[0])
    previous: dict[str, GateResult] = {}
    while True:
        cells = {str(case): Samples.of_differences(differences[case, :n].tolist()) for case, n in num_seeds.items()}
        report = gate_cases(cells, rules, previous=previous)
        undecided = [int(found.case) for found in report.cases if found.verdict is Verdict.INCONCLUSIVE]
        open_cases = [case for case in undecided if num_seeds[case] < sizes[-1]]
        if report.verdict is Verdict.REGRESSED or not open_cases:
            return report.verdict
        previous = {found.case: found for found in report.cases}
        if len(report.cases) > 1:
            previous[""] = report.overall
        for case in open_cases:
            num_seeds[case] = sizes[sizes.index(num_seeds[case]) + 1]


def power_of_named_seeds(sd: float, num_pilot: int, num_pilots: int, seed: int = 0) -> tuple[float, float, int]:
    """Returns the mean power at the named seeds, their median, and the oracle's, for a true harm of margin + .05."""
    generator = np.random.default_rng(seed)
    pilots = sd * np.sqrt(generator.chisquare(num_pilot - 1, num_pilots) / (num_pilot - 1))
    named = np.array([max(num_pilot, seeds_to_decide(float(pilot), num_pilot) or 0) for pilot in pilots])
    oracle = 2
    while _power(oracle, sd) < 0.9:
        oracle += 1
    return float(_power(named, sd).mean()), float(np.median(named)), oracle


def _power(num_seeds: np.ndarray | int, sd: float) -> np.ndarray:
    n = np.asarray(num_seeds)
    return np.asarray(stats.nct.sf(stats.t.isf(0.05, n - 1), n - 1, 0.05 / sd * np.sqrt(n)))


def false_alarms_on_losses(sigma: float, num_cases: int, num_experiments: int, untrained: float = 1e6) -> float:
    """Returns the share of gates that say REGRESSED where each loss of B is higher by just the tolerated ratio."""
    population, rules = Losses(sigma=sigma, num_cases=num_cases, untrained=untrained), GateRules()
    ratio, generator, alarms = population.scale.tolerated_ratio(rules.margin), np.random.default_rng(0), 0
    for _ in range(num_experiments):
        a, b = population.draw(generator, 4), population.draw(generator, 4, ratio)
        alarms += _gate(b - a, rules) is Verdict.REGRESSED
    return alarms / num_experiments


def seeds_to_pass(sd: float, margin: float, power: float = 0.9) -> int:
    """Returns the seeds with which a case of no harm passes with that power; `sd` is of a seed's difference."""
    n = 2
    while stats.nct.sf(stats.t.isf(0.05, n - 1), n - 1, margin / sd * math.sqrt(n)) < power:
        n += 1
    return n


def passed_regressions(kind: ScaleKind) -> dict[str, tuple[int, int]]:
    """Returns how many clear regressions among ordered pairs of ten subjects on suites/quick pass, and how many are.

    A case is clear where on every seed B's loss is beyond the tolerated ratio times A's, and a pair where that is so on
    three cases more than the other way round.

    Returns:
      For the whole gate and its mean, of clear pairs; and for the clear cases of all pairs.
    """
    subjects, scales = json.loads(SUBJECTS.read_text(encoding="utf-8")), _scales(kind)
    found = [_gate_pair(a, b, scales) for a, b in itertools.permutations(subjects.values(), 2)]
    clear = [report for worse, _, report in found if worse >= 3]
    cases = [one.verdict for _, beyond, report in found for one in report.cases if one.case in beyond]
    return {
        "gate": ([report.verdict for report in clear].count(Verdict.PASS), len(clear)),
        "mean": ([report.overall.verdict for report in clear].count(Verdict.PASS), len(clear)),
        "case": (cases.count(Verdict.PASS), len(cases)),
    }


def _scales(kind: ScaleKind) -> dict[str, tuple[ScoreScale, float]]:
    """Returns by case the scale of its training loss, and the ratio that a log scale tolerates there."""
    baseline = Baseline.load(SUITE.parent / "baselines" / "adam-velo.json")
    found = {}
    for key, case in baseline.cases.items():
        log = ScoreScale.of_baseline(
            "train/loss",
            untrained=case.untrained["train/loss"],
            tuned=case.tuned["train/loss"],
            starts=case.starts["train/loss"],
        )
        ratio = log.tolerated_ratio(log.default_margin)
        found[key.partition(":")[2]] = (log if kind is ScaleKind.LOG else log.linear(), ratio)
    return found


def _gate_pair(
    a: Mapping[str, Any], b: Mapping[str, Any], scales: Mapping[str, tuple[ScoreScale, float]]
) -> tuple[int, set[str], GateReport]:
    """Returns on how many cases more B is beyond the tolerated ratio than A, on which ones it is, and the gate."""
    worse, beyond, differences, margins = 0, set(), {}, {}
    for case, (scale, ratio) in scales.items():
        before, after = (
            np.array([math.inf if value is None else value for value in side[case]["train/loss"]["finals"]])
            for side in (a, b)
        )
        starts = a[case]["train/loss"]["starts"]
        if (after > ratio * before).all():
            beyond.add(case)
        worse += int(case in beyond) - int((before > ratio * after).all())
        sides = [dict(enumerate(side.tolist())) for side in (before, after)]
        differences[case] = scored(sides[0], sides[1], dict(enumerate(starts)), scale)
        margins[case] = scale.default_margin
    return worse, beyond, decide(differences, GateRules(), margins)


def main(num_experiments: int) -> None:
    print(f"| seeds are | cases | at 4 seeds | looks at 4, 8, 12 | ({num_experiments} gates each)")
    print("| --- | --- | --- | --- |")
    for num_cases in (1, 26):
        for kind in ("normal", "skewed", "diverged", "very skewed"):
            rates = [false_alarms(kind, num_cases, looks, num_experiments) for looks in (None, LOOKS)]
            print(f"| {kind} | {num_cases} | {rates[0]:.3f} | {rates[1]:.3f} |", flush=True)
    print("\n| sd of a difference | pilot | mean power | median seeds named | oracle | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for num_pilot in (4, 5, 8):
        for sd in (0.05, 0.1, 0.2, 0.4):
            power, median, oracle = power_of_named_seeds(sd, num_pilot, num_experiments)
            print(f"| {sd} | {num_pilot} | {power:.3f} | {median:g} | {oracle} | {median / oracle:.2f} |", flush=True)
    print("\n| losses are log-normal, sigma | cases | false alarms at the tolerated ratio, 4 seeds |")
    print("| --- | --- | --- |")
    for sigma, num_cases in ((1.0, 1), (3.0, 1), (1.0, 6), (3.0, 6)):
        rate = false_alarms_on_losses(sigma, num_cases, num_experiments)
        print(f"| {sigma:g} | {num_cases} | {rate:.3f} |", flush=True)
    print("\n| margin | seeds for PASS at no harm, sd .06 | sd .08 |")
    print("| --- | --- | --- |")
    for margin in (0.02, 0.05, 0.1):
        print(f"| {margin} | {seeds_to_pass(0.06, margin)} | {seeds_to_pass(0.08, margin)} |", flush=True)
    print("\n| scale | clear pairs that pass | whose mean passes | clear cases that pass |")
    print("| --- | --- | --- | --- |")
    for kind in ScaleKind:
        shares = " | ".join(f"{passed} of {of}" for passed, of in passed_regressions(kind).values())
        print(f"| {kind} | {shares} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
