"""How often the interval of `lobench budget` holds in real searches: four optimizers, two cases, 60 trials each.

Usage:
  python benchmarks/budget_optuna.py [--searches 20] [--case digits] [--workers 1] [--store DIR]

Each optimizer is searched many times on each case, by optuna's TPE and by random draws; the searches differ in their
seeds alone. The truth is the mean over all searches of the expected best of k trials; a row says in what share of the
searches the interval holds it. Random trials are independent, as the interval takes them to be. TPE's are not: each one
knows those before it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import lobench
from lobench.tools.budget.budget import budgets_of

_CASES = {
    "digits": "import lobench.inner.tasks.image\none/Case.task = @DigitsMLP()\none/DigitsMLP.hidden_sizes = (16,)\n",
    "quadratic": "import lobench.inner.tasks.quadratic\none/Case.task = @Quadratic()\none/Quadratic.dim = 20\n",
}
_OPTIMIZERS = {
    "adam": ("adam", "b1"),
    "momentum": ("momentum", "decay"),
    "lion": ("lion", "b1"),
    "rmsprop": ("optax.rmsprop", "decay"),
}
_SEARCHES = {"tpe": "optuna", "random": "random"}


def _experiment(case: str, searches: int, trials: int) -> str:
    lines = ["Experiment.num_sessions = 2", "Case.num_inner_steps = 100", "Case.eval_every = 50", _CASES[case]]
    for kind, search in _SEARCHES.items():
        for name, (optimizer, second) in _OPTIMIZERS.items():
            for number in range(searches):
                scope = f"{kind}_{name}_{number:02d}"
                lines += [
                    f"{scope}/Method.optimizer = @{optimizer}()",
                    f"{scope}/{optimizer}.learning_rate = @rate/Real()",
                    f"{scope}/{optimizer}.{second} = @decay/Real()",
                    f"{scope}/Method.search = @{search}()",
                    f"{scope}/Method.num_trials = {trials}",
                    f"{scope}/Method.wave = 4",
                    f"{scope}/Method.report_sessions = 0",
                ]
    lines += [
        "rate/Real.low = 1e-5",
        "rate/Real.high = 1.0",
        'rate/Real.scale = "log"',
        "decay/Real.low = 0.5",
        "decay/Real.high = 0.99",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Prints a row for each case, search and optimizer: k = 1, a tenth and a fifth of the trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=20)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--case", choices=sorted(_CASES), help="One of the two alone.")
    parser.add_argument("--workers", default="1")
    parser.add_argument("--store", type=Path, help="Where the trials are kept (default: a temporary folder).")
    asked = parser.parse_args()
    places = (1, max(1, asked.trials // 10), max(1, asked.trials // 5))
    folder = asked.store or Path(tempfile.mkdtemp())
    print("| case | search | optimizer | searches | " + " | ".join(f"k = {k}" for k in places) + " |")
    print("| --- | --- | --- | ---: |" + " ---: |" * len(places))
    for case in [asked.case] if asked.case else _CASES:
        file = folder / f"{case}.gin"
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(_experiment(case, asked.searches, asked.trials))
        lobench.run(file, store=folder / case, workers=asked.workers)
        found = {one.method: one.expected_best for one in budgets_of(folder / case).searches}
        for kind in _SEARCHES:
            shares = []
            for name in _OPTIMIZERS:
                ours = [best for method, best in found.items() if method.startswith(f"{kind}_{name}_")]
                row = []
                for k in places:
                    truth = np.mean([best[k - 1].mean for best in ours])
                    row.append(np.mean([best[k - 1].lower <= truth <= best[k - 1].upper for best in ours]))
                shares.append(row)
                print(
                    f"| {case} | {kind} | {name} | {len(ours)} | " + " | ".join(f"{one:.2f}" for one in row) + " |",
                    flush=True,
                )
            print(
                f"| {case} | {kind} | all | | " + " | ".join(f"{one:.3f}" for one in np.mean(shares, axis=0)) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()
