"""How often a gate alarms falsely, and what it finds; `python benchmarks/gate_rates.py [EXPERIMENTS]` prints tables.


A false alarm is REGRESSED where the true harm is exactly the margin, the worst place for it; over 26 cases it is any
of them. The power is that of the number of seeds that the gate names from a pilot, averaged over pilots.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy import stats
from simulated_seeds import Population

from lobench.analysis.gates import GateResult, GateRules, Verdict, gate_cases, seeds_to_decide
from lobench.analysis.spending import Looks

__all__ = ["false_alarms", "main", "power_of_named_seeds"]

LOOKS = Looks(sizes=(4, 8, 12))


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
        cells = {str(case): differences[case, :n].tolist() for case, n in num_seeds.items()}
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


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
