"""How well initial parameters adapt: evolved ones, MAML's, and the task's own.

    python examples/evolve/few_shot.py GA=runs/sinusoid/checkpoints MAML=runs/maml --cases shots1 shots5 shots10

Prints, for each case of `few_shot.gin`, the loss before adaptation, after one step, five and the last, with the 95%
interval of the last over 4 x 50 tasks. The task's own parameters adapt at the best of several rates.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from lobench import Result, evaluate, stratified_t_mean

SUITE = Path(__file__).resolve().parent / "few_shot.gin"
RATES = (0.003, 0.01, 0.03, 0.1, 0.3)


def row(name: str, result: Result) -> str:
    losses = np.asarray(result.metrics["train/loss"])
    shown = [f"{losses[:, step].mean():8.3f}" for step in (0, 1, 5, -1)]
    interval = stratified_t_mean([losses[:, -1].tolist()])
    return f"{name:24}" + "".join(shown) + f"   [{interval.lower:.3f}, {interval.upper:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=FOLDER", help="Checkpoints; the last by name is taken.")
    parser.add_argument("--cases", nargs="+", default=["shots1", "shots5", "shots10"])
    parser.add_argument("--gin-param", action="append", default=[])
    arguments = parser.parse_args()
    for case in arguments.cases:
        print(f"{case:24}  before  1 step 5 steps    last   interval of the last")
        for text in arguments.runs:
            name, _, folder = text.partition("=")
            last = max(Path(folder).glob("*.npz"))
            print(row(name, evaluate(SUITE, case=case, checkpoint=last, gin_params=arguments.gin_param)), flush=True)
        scratch = {
            rate: evaluate(
                SUITE, case=case, optimizer=f"sgd(); sgd.learning_rate = {rate}", gin_params=arguments.gin_param
            )
            for rate in RATES
        }
        best = min(RATES, key=lambda rate: float(np.nan_to_num(scratch[rate].final("train/loss"), nan=np.inf).mean()))
        print(row(f"from scratch, rate {best}", scratch[best]), flush=True)


if __name__ == "__main__":
    main()
