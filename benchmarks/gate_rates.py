"""How often comparisons, gates and bold alarm falsely, and what they find.

Usage: python benchmarks/gate_rates.py [EXPERIMENTS] [--quick] [--only PART]...

`pairs`, `samples`, `power` and `bold` draw worlds of two sides (few seeds, ties, heavy tails, seeds that diverge,
samples of unequal sizes) and ask the product's own functions: what is simulated is what `lobench compare`, a gate and a
table do. Level .05 throughout. `gates` has the tables of one gate beside it. --quick is 40 experiments of each.

A false alarm is REGRESSED where the true harm is exactly the margin, the worst place for it; over 26 cases it is any
of them. The power is that of the number of seeds that the gate names from a pilot, averaged over pilots.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from quick_subjects import FACTOR_FILE, SUITE
from scipy import optimize, stats
from simulated_seeds import Losses, Population, noise

from lobench.analysis.comparisons.best_group import bold_cells
from lobench.analysis.comparisons.gate_looks import decide_gate
from lobench.analysis.comparisons.gates import GateReport, GateResult, GateRules, Verdict, gate_cases, seeds_to_decide
from lobench.analysis.comparisons.paired_values import scored_samples
from lobench.analysis.scores.baseline_file import Baseline
from lobench.analysis.scores.scales import Scales
from lobench.analysis.scores.score_scale import ScaleKind, ScoreScale
from lobench.analysis.stats.alpha_spending import Looks
from lobench.analysis.stats.comparison import Effect, compare_cases
from lobench.analysis.stats.paired_samples import DIVERGED, Samples
from lobench.analysis.store.subjects import Cell
from lobench.core.case import CaseInfo

__all__ = [
    "World",
    "false_alarms",
    "false_alarms_of",
    "false_alarms_on_losses",
    "left_out_of_bold",
    "main",
    "passed_regressions",
    "power_of_named_seeds",
    "seeds_to_pass",
]

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
        cells = {str(case): Samples.of_differences(differences[case, :n].tolist()) for case, n in num_seeds.items()}
        report = gate_cases(cells, rules, previous_results=previous)
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
    subjects, scales = json.loads(FACTOR_FILE.read_text(encoding="utf-8")), _scales(kind)
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
        found[key.partition(":")[2]] = (log if kind is ScaleKind.LOG else log.as_linear(), ratio)
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
        differences[case] = scored_samples(sides[0], sides[1], dict(enumerate(starts)), scale)
        margins[case] = scale.default_margin
    return worse, beyond, decide_gate(differences, GateRules(), margins)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Two sides on some cases, of one law but for a shift of B.

    Attributes:
      distribution: Of a value: `normal`, `t3`, `lognormal` (sigma 1), each with sd .1.
      sizes: Seeds of A and of B.
      step: In which values are rounded; 0: they are not.
      lost: Share of A's and of B's seeds that diverge.
      shift: B is better by so much.
    """

    distribution: str = "normal"
    sizes: tuple[int, int]
    is_paired: bool = True
    num_cases: int = 1
    step: float = 0.0
    lost: tuple[float, float] = (0.0, 0.0)
    shift: float = 0.0

    def draw(self, generator: np.random.Generator) -> dict[str, Samples]:
        sides = [self._side(generator, size, lost) for size, lost in zip(self.sizes, self.lost, strict=True)]
        sides[1] += self.shift  # what diverged stays so
        if self.step:
            sides = [np.round(side / self.step) * self.step for side in sides]
        pairs = zip(sides[0].tolist(), sides[1].tolist(), strict=True)
        return {str(case): Samples.of(a, b, is_paired=self.is_paired) for case, (a, b) in enumerate(pairs)}

    def _side(self, generator: np.random.Generator, size: int, lost: float) -> np.ndarray:
        shape = (self.num_cases, size)
        values = 0.5 + _SD * noise(self.distribution, shape, generator)
        return np.where(generator.random(shape) < lost, DIVERGED, values)


_SD = 0.1
WORLDS: dict[str, dict[str, Any]] = {
    "normal": {},
    "t3": {"distribution": "t3"},
    "lognormal": {"distribution": "lognormal"},
    "ties, step sd": {"step": _SD},
    "ties, step 2.5 sd": {"step": 2.5 * _SD},
    "ties, step .15 sd": {"step": 0.15 * _SD},
    "2% diverge": {"lost": (0.02, 0.02)},
    "10% diverge": {"lost": (0.1, 0.1)},
    "30% diverge": {"lost": (0.3, 0.3)},
    "30% diverge, lognormal": {"lost": (0.3, 0.3), "distribution": "lognormal"},
}
PAIRED = (2, 3, 4, 8, 24)
APART = ((3, 3), (5, 5), (4, 8), (2, 5), (3, 10), (4, 20))


def false_alarms_of(world: World, num_experiments: int, seed: int = 0) -> dict[str, float]:
    """Returns shares of worlds without a difference in which something is said all the same.

    Returns:
      `case`: of single tests with p at most .05; `any`: any case after Holm; `mean`: the mean over the cases; `gate`:
      REGRESSED of anything where the harm is the margin; `pass`: PASS of the mean there; `few`: of single tests that
      say "too few seeds".
    """
    generator, rules = np.random.default_rng(seed), GateRules()
    at_margin = dataclasses.replace(world, shift=-_shift_for(rules.margin, world.step))
    counts = dict.fromkeys(("case", "any", "mean", "gate", "pass", "few"), 0.0)
    for _ in range(num_experiments):
        found = compare_cases(world.draw(generator))
        counts["case"] += sum(one.paired.p_value <= 0.05 for one in found.cases) / len(found.cases)
        counts["few"] += sum("too few" in one.paired.note for one in found.cases) / len(found.cases)
        counts["any"] += any(one.verdict is not Effect.UNDECIDED for one in found.cases)
        counts["mean"] += found.verdict is not Effect.UNDECIDED
        report = gate_cases(at_margin.draw(generator), rules)
        counts["gate"] += report.verdict is Verdict.REGRESSED
        counts["pass"] += report.overall.verdict is Verdict.PASS
    return {name: count / num_experiments for name, count in counts.items()}


def _shift_for(harm: float, step: float) -> float:
    """Returns how far values are to be lowered before they are rounded to the step, for a mean harm after it."""
    if not step:
        return harm
    grid = step * np.arange(math.floor(-1 / step), math.ceil(2 / step) + 1)

    def mean(shift: float) -> float:
        edges = np.append(-np.inf, np.append((grid[1:] + grid[:-1]) / 2, np.inf))
        return float(grid @ np.diff(stats.norm.cdf(edges, 0.5 - shift, _SD)))

    return float(optimize.brentq(lambda shift: mean(0.0) - mean(shift) - harm, 0.0, 1.0))


def power_of(world: World, num_experiments: int, seed: int = 0) -> tuple[float, float]:
    """Returns the shares of single cases, and of means over the cases, that are found to be better."""
    generator, cases, means = np.random.default_rng(seed), 0.0, 0
    for _ in range(num_experiments):
        found = compare_cases(world.draw(generator))
        cases += sum(one.verdict is Effect.BETTER for one in found.cases) / len(found.cases)
        means += found.verdict is Effect.BETTER
    return cases / num_experiments, means / num_experiments


def left_out_of_bold(world: World, num_methods: int, num_experiments: int, seed: int = 0) -> tuple[float, float]:
    """Returns how often a method, and how often any, of several that are all alike is not in bold on a case."""
    generator, one, several = np.random.default_rng(seed), 0, 0
    case = CaseInfo(
        identity="c",
        optimizer_hash="",
        suite="s",
        name="c",
        node_id="",
        num_inner_steps=1,
        num_seeds=1,
        seed_block=None,
    )
    for _ in range(num_experiments):
        sides = []
        while len(sides) < num_methods:
            drawn = world.draw(generator)["0"]
            sides += [drawn.a, drawn.b]
        cells = [_cell(case, side) for side in sides[:num_methods]]
        bold = bold_cells(cells, _METRIC, Scales(all_cells={"c": cells}, cases={"c": case}))
        left_out = {place for place, cell in enumerate(cells) if not cell.diverged_at} - bold.indices
        one += 0 in left_out
        several += bool(left_out)
    return one / num_experiments, several / num_experiments


_METRIC = "test/accuracy"


def _cell(case: CaseInfo, values: Sequence[float]) -> Cell:
    lost = {seed: 1 for seed, value in enumerate(values) if value == DIVERGED}
    return Cell(case=case, final_values={_METRIC: dict(enumerate(values))}, untrained_values={}, diverged_at=lost)


def _print_pairs(num_experiments: int) -> None:
    _print_rates(num_experiments, [(n, n) for n in PAIRED], is_paired=True)


def _print_samples(num_experiments: int) -> None:
    _print_rates(num_experiments, APART, is_paired=False)


def _print_rates(num_experiments: int, sizes: Sequence[tuple[int, int]], *, is_paired: bool) -> None:
    what = "common seeds" if is_paired else "no common seeds"
    print(f"\n{what}, {num_experiments} worlds a row\n")
    header = ("law", "seeds", "cases", "a case", "any, Holm", "the mean", "gate", "false PASS", "too few seeds")
    print("| " + " | ".join(header) + " |\n" + "| --- " * len(header) + "|")
    for (name, options), num_cases, size in itertools.product(WORLDS.items(), (1, 6), sizes):
        world = World(sizes=size, is_paired=is_paired, num_cases=num_cases, **options)
        found = false_alarms_of(world, num_experiments)
        shown = f"{size[0]}" if is_paired else f"{size[0]} against {size[1]}"
        cells = " | ".join(f"{found[key]:.3f}" for key in ("case", "any", "mean", "gate", "pass", "few"))
        print(f"| {name} | {shown} | {num_cases} | {cells} |", flush=True)


def _print_power(num_experiments: int) -> None:
    print(f"\n| B is better by two sd, diverge | seeds | one case | the mean of six | ({num_experiments} worlds)")
    print("| --- | --- | --- | --- |")
    for lost, n in itertools.product(((0.0, 0.0), (0.1, 0.1), (0.3, 0.3)), PAIRED):
        world = World(sizes=(n, n), lost=lost, shift=2 * _SD)
        one = power_of(world, num_experiments)[0]
        mean = power_of(dataclasses.replace(world, num_cases=6), num_experiments)[1]
        print(f"| {lost[0]:.0%} | {n} | {one:.2f} | {mean:.2f} |", flush=True)
    print(
        "\n| of A, of B diverge, no shift | seeds | called worse on one case | regressed |\n| --- | --- | --- | --- |"
    )
    for lost, n in itertools.product(((0.0, 0.5), (0.0, 1.0)), PAIRED):
        world, generator = World(sizes=(n, n), lost=lost), np.random.default_rng(0)
        worse = regressed = 0
        for _ in range(num_experiments):
            samples = world.draw(generator)
            worse += compare_cases(samples).verdict is Effect.WORSE
            regressed += gate_cases(samples).verdict is Verdict.REGRESSED
        print(f"| {lost[0]:g}, {lost[1]:g} | {n} | {worse / num_experiments:.2f} | {regressed / num_experiments:.2f} |")


def _print_bold(num_experiments: int) -> None:
    print("\n| law | seeds | methods, all alike | one of them is left out of bold | any is |")
    print("| --- | --- | --- | --- | --- |")
    for name, n, methods in itertools.product(
        ("normal", "lognormal", "ties, step sd", "10% diverge"), (3, 5, 8), (2, 6)
    ):
        rates = left_out_of_bold(World(sizes=(n, n), **WORLDS[name]), methods, num_experiments)
        print(f"| {name} | {n} | {methods} | {rates[0]:.3f} | {rates[1]:.3f} |", flush=True)


def _print_gates(num_experiments: int) -> None:
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


_PARTS = {
    "pairs": _print_pairs,
    "samples": _print_samples,
    "power": _print_power,
    "bold": _print_bold,
    "gates": _print_gates,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiments", nargs="?", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="40 experiments of each")
    parser.add_argument("--only", action="append", choices=_PARTS, help="a part; may be repeated")
    options = parser.parse_args()
    for name, part in _PARTS.items():
        if name in (options.only or _PARTS):
            part(40 if options.quick else options.experiments)


if __name__ == "__main__":
    main()
