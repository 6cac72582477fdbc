"""How often the rank correlation that `lobench suite` states for a subset holds for methods that it never saw.

Usage:
  python benchmarks/suite_subsets.py [--splits 100]

Methods are halved; one half chooses a subset and states its interval, the other half is ranked by the subset and by all
cases. A row is a world: simulated skills, or the optimizers that were tuned on suites/quick.
"""

from __future__ import annotations

import sys

import numpy as np
from harness import answer_help
from scipy.stats import spearmanr

from lobench.engine.config.shipped import find_suite
from lobench.tools.suite.of_store import baseline_scores
from lobench.tools.suite.worth import choose_subsets


def _share(means: np.ndarray, rng: np.random.Generator, num_splits: int) -> float:
    """Returns the share of splits in which the interval of the subset of half the cases holds."""
    size, held = means.shape[1] // 2, 0
    for _ in range(num_splits):
        order = rng.permutation(len(means))
        half = len(means) // 2
        stated, others = choose_subsets(means[order[:half]], num_splits=200)[size - 1], means[order[half:]]
        found = spearmanr(others[:, list(stated.cases)].mean(axis=1), others.mean(axis=1)).statistic
        held += stated.lower - 1e-9 <= found <= stated.upper + 1e-9
    return held / num_splits


def main() -> None:
    num_splits = int(sys.argv[sys.argv.index("--splits") + 1]) if "--splits" in sys.argv else 100
    rng = np.random.default_rng(0)
    print("| methods | cases | kinds of skill | interval holds |", "| ---: | ---: | ---: | ---: |", sep="\n")
    for num_methods, num_cases, num_skills in ((12, 6, 2), (18, 6, 3), (18, 12, 3), (40, 16, 4)):
        skill = rng.standard_normal((num_methods, num_skills)) @ rng.standard_normal((num_skills, num_cases))
        means = 0.3 * skill + 0.05 * rng.standard_normal((num_methods, num_cases))
        print(f"| {num_methods} | {num_cases} | {num_skills} | {_share(means, rng, num_splits):.2f} |", flush=True)
    judged = baseline_scores(find_suite("quick"))
    means = judged.means()
    print(f"| {len(judged.methods)}, tuned | {len(judged.cases)}, quick | | {_share(means, rng, num_splits):.2f} |")


if __name__ == "__main__":
    answer_help(__doc__)
    main()
