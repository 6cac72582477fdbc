"""How often the interval of `lobench budget` holds the expected best of k trials, in simulated searches.

Usage:
  python benchmarks/expected_best.py [--searches 2000]
"""

from __future__ import annotations

import sys

import numpy as np
from harness import answer_help

from lobench.analysis.stats.expected_best import expected_best


def _draw(distribution: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    if distribution == "normal":
        return rng.standard_normal(shape)
    if distribution == "a ceiling, beta(5, 1)":
        return rng.beta(5, 1, shape)
    if distribution == "a long lower tail":
        return -np.exp(rng.standard_normal(shape))
    if distribution == "40% fail":
        return np.where(rng.random(shape) < 0.4, -1.0, rng.beta(2, 4, shape))
    return np.exp(rng.standard_normal(shape))


def main() -> None:
    """Prints a row for each law and number of trials: k = 1, a tenth and a fifth of them."""
    num_searches = int(sys.argv[sys.argv.index("--searches") + 1]) if "--searches" in sys.argv else 2000
    rng = np.random.default_rng(0)
    print(
        "| fitness of a trial | trials | k = 1 | a tenth | a fifth |", "| --- | ---: | ---: | ---: | ---: |", sep="\n"
    )
    for distribution in ("normal", "a ceiling, beta(5, 1)", "a long lower tail", "40% fail", "a long upper tail"):
        for count in (20, 60):
            many = _draw(distribution, (20_000, count), rng)
            found = [expected_best(row) for row in _draw(distribution, (num_searches, count), rng)]
            shares = []
            for k in (1, count // 10, count // 5):
                truth = many[:, :k].max(axis=1).mean()
                shares.append(np.mean([one[k - 1].lower <= truth <= one[k - 1].upper for one in found]))
            print(f"| {distribution} | {count} | " + " | ".join(f"{share:.3f}" for share in shares) + " |", flush=True)


if __name__ == "__main__":
    answer_help(__doc__)
    main()
