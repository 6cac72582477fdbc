"""Error rates of comparisons by item: python benchmarks/item_rates.py --worlds 2000

In each world, two models answer the same items, whose difficulties differ. Binary values have McNemar's exact test,
other values a paired t test. Printed per kind of values and number of items:

- a difference: verdicts in worlds without a difference, at level .05;
- REGRESSED and PASS: verdicts of the gate where the true harm is its margin, at level .05 each;
- coverage: how often the 95% interval contains the true difference, which is then the margin.

"2" cases are the verdict on the mean over two data sets, and REGRESSED on any of them. In rows "2, half common" the
cases have half of their items in common, on which 70% of the second case's values are those of the first.
"""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.comparisons.gates import GateRules, Verdict, gate_cases
from lobench.analysis.stats.comparison import Effect, compare_cases
from lobench.analysis.stats.paired_samples import Samples
from lobench.report.tables.text import text_table

MARGIN = 0.05  # at which gates are tried
LEVEL, ALLOWED = 0.05, 1.25
KINDS = ("binary, 50% right", "binary, 95% right", "normal", "t3")
HALF_COMMON = "2, half common"
CASES = ("1", "2", HALF_COMMON)
FloatArray = NDArray[np.float64]


def drawn(kind: str, num_items: int, harm: float, rng: np.random.Generator) -> Samples:
    """Returns the values of both models on the items. B's mean is lower by `harm`."""
    if kind.startswith("binary"):
        share = float(kind.partition(",")[2].strip().partition("%")[0]) / 100
        easy = rng.beta(4 * share, 4 * (1 - share), num_items)  # probability that a model is right
        a = rng.random(num_items) < easy
        # B loses each right answer with the probability that makes its share lower by `harm`.
        b = (rng.random(num_items) < easy) & (rng.random(num_items) >= harm / share)
        sides = [tuple(side.astype(float).tolist()) for side in (a, b)]
        return Samples(a=sides[0], b=sides[1], binary_unit=1.0, step=1.0)
    noise: FloatArray = rng.normal(size=(2, num_items)) if kind == "normal" else rng.standard_t(3, (2, num_items))
    values = rng.normal(size=num_items) + noise - np.asarray([[0.0], [harm]])
    return Samples.of(values[0].tolist(), values[1].tolist())


def cases_of(kind: str, num_items: int, cases: str, harm: float, rng: np.random.Generator) -> dict[str, Samples]:
    """Returns the cases of a world: "1", "2", or "2, half common"."""
    if cases != HALF_COMMON:
        return {f"{case}": drawn(kind, num_items, harm, rng) for case in range(int(cases))}
    every, others = (drawn(kind, num_items + num_items // 2, harm, rng) for _ in range(2))
    is_same = rng.random(len(every)) < 0.7
    found = {}
    for case, items in enumerate((range(num_items), range(len(every) - num_items, len(every)))):
        sides = [
            tuple(one[item] if is_same[item] or not case else other[item] for item in items)
            for one, other in ((every.a, others.a), (every.b, others.b))
        ]
        found[f"{case}"] = dataclasses.replace(
            every,
            a=sides[0],
            b=sides[1],
            seeds=(tuple(items), tuple(items)),
            shared_trainings=frozenset(f"item {item}" for item in items),
            replicate="item",
        )
    return found


def rates(kind: str, num_items: int, cases: str, num_worlds: int) -> list[float]:
    """Returns the rates of a row of the table."""
    rng = np.random.default_rng([KINDS.index(kind), num_items, CASES.index(cases) + 1])
    counts = np.zeros(4)
    for _ in range(num_worlds):
        equal = compare_cases(cases_of(kind, num_items, cases, 0.0, rng), alpha=LEVEL)
        worse = cases_of(kind, num_items, cases, MARGIN, rng)
        judged = gate_cases(worse, dataclasses.replace(GateRules(), margin=MARGIN, alpha=LEVEL))
        interval = compare_cases(worse, alpha=LEVEL).overall
        counts += [
            equal.verdict is not Effect.UNDECIDED,
            judged.verdict is Verdict.REGRESSED,
            judged.overall.verdict is Verdict.PASS,
            interval.lower <= -MARGIN <= interval.upper,
        ]
    return list(counts / num_worlds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=2000, help="worlds per row")
    parser.add_argument("--items", type=int, nargs="+", default=[20, 100, 500], help="numbers of items")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    arguments = parser.parse_args()
    table, highest = [["values", "items", "cases", "a difference", "REGRESSED", "PASS", "coverage"]], 0.0
    for kind in arguments.kinds:
        for num_items in arguments.items:
            for cases in CASES:
                found = rates(kind, num_items, cases, arguments.worlds)
                highest = max(highest, found[0])
                table.append([kind, f"{num_items}", cases, *(f"{rate:.3f}" for rate in found)])
    print(text_table(table))
    print(
        f"highest rate of a difference: {highest:.3f}, {highest / LEVEL:.2f} of the level (at most {ALLOWED} allowed)"
    )


if __name__ == "__main__":
    main()
