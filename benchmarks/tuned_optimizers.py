"""Prints the optimizers that were tuned on a suite, by mean rank: a row of docs/which-suite.md each.

Usage:
  python benchmarks/tuned_optimizers.py [SUITE]     # quick
"""

from __future__ import annotations

import sys

from harness import answer_help

from lobench.analysis.scores.baseline_file import Baseline, find_baselines
from lobench.analysis.scores.scales import seed_scores
from lobench.analysis.stats.intervals import stratified_t_mean
from lobench.analysis.stats.mean_ranks import mean_ranks
from lobench.core.metric import Direction
from lobench.engine.config.shipped import find_suite

_METRIC = "train/loss"


def main() -> None:
    """Prints the table: scores of the seeds that all files have, on the scale of the first file, tuned Adam's."""
    loaded = [Baseline.load(path) for path in find_baselines(find_suite(sys.argv[1] if len(sys.argv) > 1 else "quick"))]
    adam, scores = loaded[0].cases, list[dict[str, dict[int, float]]]()
    for baseline in loaded:
        found = {}
        for name, case in baseline.cases.items():
            common = set.intersection(*(set(one.cases[name].seeds) for one in loaded))
            tuned = zip(case.seeds, case.tuned[_METRIC], strict=True)
            finals = {seed: value for seed, value in tuned if seed in common}
            starts = dict(zip(adam[name].seeds, adam[name].starts[_METRIC], strict=True))
            scale = adam[name].score_scale(_METRIC, Direction.MIN, is_primary=True)
            found[name] = seed_scores(finals, starts, (), scale)
        scores.append(found)
    ranks, num_cases = mean_ranks(scores)
    cases = list(adam)
    print(
        f"| tuned | rank of {len(loaded)}, {num_cases} cases | score |",
        *(f"{name.partition(':')[2]} |" for name in cases),
    )
    print("| --- " * (3 + len(cases)) + "|")
    for rank, baseline, found in sorted(zip(ranks, loaded, scores, strict=True), key=lambda row: row[0].mean):
        mean = stratified_t_mean([list(found[name].values()) for name in cases])
        means = (f"{sum(found[name].values()) / len(found[name]):.2f}" for name in cases)
        texts = [f"{one.mean:.{n}f} [{one.lower:.{n}f}, {one.upper:.{n}f}]" for one, n in ((rank, 1), (mean, 2))]
        print(f"| `{baseline.optimizer}` |", *(f"{text} |" for text in (*texts, *means)))


if __name__ == "__main__":
    answer_help(__doc__)
    main()
