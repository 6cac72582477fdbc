"""False alarms of a gate that adds seeds to undecided cases, as `--lobench-adaptive-seeds` does it.

Usage: python benchmarks/gate_added_seeds.py [EXPERIMENTS] [CASES]

Every case's true harm is the margin, the worst that is no regression; seeds are normal, 4 at first, 32 at most. An
alarm is any REGRESSED, of a case or of the mean. Printed beside it: the share of seeds that were needed.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from harness import answer_help

from lobench.analysis.comparisons.gate_looks import decide, is_settled, look_sizes
from lobench.analysis.comparisons.gates import GateRules, Verdict
from lobench.analysis.stats.alpha_spending import Looks
from lobench.analysis.stats.paired_samples import Samples


def one_experiment(rng: np.random.Generator, rules: GateRules, num_cases: int) -> tuple[bool, float]:
    assert rules.looks is not None
    samples: dict[str, Samples] = {}
    for case in range(num_cases):
        values = rng.normal(-rules.margin, 0.1, rules.looks.sizes[-1]).tolist()
        for size in rules.looks.sizes:
            samples[str(case)] = Samples.of_differences(values[:size])
            if is_settled(samples[str(case)], rules, num_cases):
                break
    used = sum(len(values) for values in samples.values()) / (num_cases * rules.looks.sizes[-1])
    return decide(samples, rules).verdict is Verdict.REGRESSED, used


def main() -> None:
    experiments = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    num_cases = int(sys.argv[2]) if len(sys.argv) > 2 else 26
    rules = GateRules(looks=Looks(sizes=look_sizes(4, 4, 32)))
    rng = np.random.default_rng(0)
    found = [one_experiment(rng, rules, num_cases) for _ in range(experiments)]
    rate = sum(alarm for alarm, _ in found) / experiments
    error = math.sqrt(rate * (1 - rate) / experiments)
    used = float(np.mean([share for _, share in found]))
    alarms = f"false alarms {rate:.3f} +- {error:.3f}"
    print(f"{num_cases} cases, {experiments} experiments: {alarms}, {used:.0%} of the seeds used")


if __name__ == "__main__":
    answer_help(__doc__)
    main()
