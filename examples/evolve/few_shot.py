"""How well initial parameters adapt: evolved ones, MAML's, and the task's own.

    python examples/evolve/few_shot.py GA=runs/sinusoid/checkpoints MAML=runs/maml --cases shots1 shots5 shots10

Prints, for each case of `few_shot.gin`, the loss before adaptation, after one step, five and the last, the mean over 50
tasks. The task's own parameters, four draws of them for each task, adapt at the best of several rates.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np

from lobench import Result, evaluate

SUITE = Path(__file__).resolve().parent / "few_shot.gin"
RATES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def row(name: str, result: Result) -> str:
    losses = np.asarray(result.metrics["train/loss"])
    shown = [f"{losses[:, step].mean():8.3f}" for step in (0, 1, 5, -1)]
    return f"{name:24}" + "".join(shown)


def write_rates(folder: Path) -> dict[float, Path]:
    """Writes SGD at each rate as a theta, so that all rates share one program."""
    (folder / "config.gin").write_text("Case.learned_optimizer = @LearnableSGD()\n")
    paths = {rate: folder / f"rate_{rate}.npz" for rate in RATES}
    for rate, path in paths.items():
        np.savez(path, log_lr=np.float32(math.log(rate)))
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", metavar="NAME=PATH", help="A checkpoint, or a folder's last by name.")
    parser.add_argument("--cases", nargs="+", default=["shots1", "shots5", "shots10"])
    arguments = parser.parse_args()
    lines: dict[str, list[str]] = {case: [] for case in arguments.cases}
    for text in arguments.runs:  # a run's cases one after another: their worker stays warm
        name, _, path = text.partition("=")
        checkpoint = max(Path(path).glob("*.npz"), default=Path(path))
        for case, shown in lines.items():
            shown.append(row(name, evaluate(SUITE, case=case, checkpoint=checkpoint)))
    with tempfile.TemporaryDirectory() as folder:
        rates = write_rates(Path(folder))
        for case, shown in lines.items():
            scratch = {rate: evaluate(SUITE, case=case, checkpoint=path) for rate, path in rates.items()}
            ends = {
                rate: float(np.nan_to_num(found.final("train/loss"), nan=np.inf).mean())
                for rate, found in scratch.items()
            }
            best = min(ends, key=lambda rate: ends[rate])
            shown.append(row(f"from scratch, rate {best}", scratch[best]))
    for case, shown in lines.items():
        print(f"{case:24}  before  1 step 5 steps    last", *shown, sep="\n")


if __name__ == "__main__":
    main()
