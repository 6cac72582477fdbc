"""The test accuracies that MNIST-1D's authors publish, by the cases of `suites/mnist1d` with the authors' settings.

    python benchmarks/mnist1d.py [CASE ...]

Adam at 0.01, batches of 100, 6,000 inner steps. Ours are means over four seeds, at the last evaluation and at the best
one, on 2,000 draws of the 1,000 test examples each.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from harness import answer_help

import lobench

SUITE = Path(__file__).resolve().parents[1] / "suites" / "mnist1d" / "mnist1d.gin"
PUBLISHED = {"logistic": 32, "mlp": 68, "cnn": 94, "gru": 91}
SETTINGS = ("Case.num_inner_steps = 6000", "Case.eval_every = 250", "Case.eval_batches = 20")


def main() -> None:
    """Prints a line for each case."""
    print("| case | published | last | best | seconds |\n| --- | --- | --- | --- | --- |")
    for case in sys.argv[1:] or PUBLISHED:
        start = time.perf_counter()
        result = lobench.evaluate(SUITE, case=case, optimizer="adam(); adam.learning_rate = 0.01", gin_params=SETTINGS)
        accuracy = 100 * result.metrics["test/accuracy"]
        last, best = accuracy[:, -1].mean(), accuracy.max(axis=1).mean()
        seconds = time.perf_counter() - start
        print(f"| {case} | {PUBLISHED[case]} | {last:.1f} | {best:.1f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    answer_help(__doc__)
    main()
