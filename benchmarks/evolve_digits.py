"""What digits optimizers that `lobench evolve` meta-trained are worth on cases that they were not meta-trained on.

    for seed in 0 1 2; do
      lobench evolve examples/evolve/digits_es.gin --store runs/digits/$seed --workers 2 --seed $seed
    done
    python benchmarks/evolve_digits.py runs/compared runs/digits/0 runs/digits/1 runs/digits/2

Each is compared with its own initial theta at several step multiples, with SGD and with Adam, the rates of both chosen
per case on these very cases and seeds. The loss is that of an evaluation after the last step, at most a uniform
guess's, so that what diverges costs its owner no more than that. A negative difference is in favour of the
meta-trained theta; intervals are stratified t over cases, the unit within a case being the meta-training run.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np

from lobench.extend import stratified_t_mean

SUITE = Path(__file__).resolve().parents[1] / "suites" / "demo"
CASES = ("relu32", "tanh32", "relu32x2", "batch16", "gelu48")
PARAMS = ("Case.num_seeds = 8", "Case.eval_every = 5")
MULTIPLES = (1, 3, 10, 30)
SGD_RATES = (0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
ADAM_RATES = (0.003, 0.01, 0.02, 0.03, 0.05, 0.1)
GUESS = math.log(10)

Curves = dict[str, np.ndarray]  # by case: float[num_evals], the mean over seeds


def curves(folder: Path) -> dict[str, Curves]:
    """Evaluates a folder's checkpoints on all cases with `lobench watch`; returns them by the file's name."""
    lobench = [sys.executable, "-m", "lobench.cli"]
    watch = [*lobench, "watch", str(folder), "--suite", str(SUITE), "--once", "--checkpoints", "all"]
    for param in PARAMS:
        watch += ["--gin-param", param]
    subprocess.run(
        [*watch, "--name", "compared", "--workers", "1"], check=False
    )  # a verdict may fail; results are there
    shown = [
        *lobench,
        "results",
        "--store",
        str(folder / "lobench_results" / "compared"),
        "--format",
        "json",
        "--curves",
    ]
    found: dict[str, Curves] = {}
    for record in json.loads(subprocess.run(shown, check=True, capture_output=True, text=True).stdout):
        losses = np.asarray(record["curves"]["train/loss"], float)  # None is NaN
        losses = np.minimum(np.where(np.isfinite(losses), losses, GUESS), GUESS).mean(axis=0)
        found.setdefault(Path(record["checkpoint"]["uri"]).stem, {})[record["case"]["name"]] = losses
    return found


def write_thetas(runs: list[Path], folder: Path) -> Path:
    """Writes each run's initial theta at larger steps and its last theta, all beside one config, for one program.

    The network's first output is the direction that `step_mult` multiplies: scaling its weights is the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.gin").write_bytes((runs[0] / "checkpoints" / "config.gin").read_bytes())
    for index, run in enumerate(runs):
        with np.load(run / "checkpoints" / "generation_000000.npz") as file:
            leaves = {name: file[name] for name in file.files if name != "outer_step"}
        for multiple in MULTIPLES:
            scale = np.asarray([multiple, 1.0], np.float32)
            scaled = {name: leaves[name] * scale for name in ("theta/nn/~/w2", "theta/nn/~/b2")}
            np.savez(folder / f"run{index}_x{multiple}.npz", **{**leaves, **scaled})
        last = max((run / "checkpoints").glob("*.npz"))
        (folder / f"run{index}_trained.npz").write_bytes(last.read_bytes())
    return folder


def write_rates(optimizer: str, rates: tuple[float, ...], leaves: dict[str, float], folder: Path) -> Path:
    """Writes a baseline at each rate as a theta, so that all rates share one program."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.gin").write_text(f"Case.learned_optimizer = @{optimizer}()\n")
    for index, rate in enumerate(rates):
        values = {name: np.float32(value) for name, value in {"log_lr": math.log(rate), **leaves}.items()}
        np.savez(folder / f"rate{index}.npz", allow_pickle=False, **values)
    return folder


def best_of(found: dict[str, Curves], rates: tuple[float, ...]) -> Curves:
    """Returns each case's curve at the rate that ends lowest there."""
    best: Curves = {}
    for case in CASES:
        index = min(range(len(rates)), key=lambda index: float(found[f"rate{index}"][case][-1]))
        best[case] = found[f"rate{index}"][case]
        print(f"  {case}: best rate {rates[index]}, ends at {best[case][-1]:.4f}")
    return best


def speed(theirs: np.ndarray, ours: np.ndarray) -> float:
    """Returns the share of the steps that theirs needs for the loss that ours ends at; 1 where it takes all of them."""
    reached = np.flatnonzero(theirs <= ours[-1])
    return float(reached[0]) / (len(ours) - 1) if len(reached) else 1.0


def report(name: str, trained: list[Curves], other: list[Curves]) -> None:
    """Prints the difference of the final losses; `other` has one entry a meta-training run."""
    cells = [[a[case][-1] - b[case][-1] for a, b in zip(trained, other, strict=True)] for case in CASES]
    interval = stratified_t_mean(cells)
    verdict = "better" if interval.upper < 0 else "worse" if interval.lower > 0 else "undecided"
    ends = np.mean([[curve[case][-1] for case in CASES] for curve in other])
    print(f"{name:24} {ends:.4f}  {interval.mean:+.4f} [{interval.lower:+.4f}, {interval.upper:+.4f}]  {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="Where what is compared goes; the same command goes on from there.")
    parser.add_argument("runs", type=Path, nargs="+", help="Stores of `lobench evolve`, a meta-training run each.")
    parser.add_argument("--quick", action="store_true", help="A few steps: nothing is measured by them.")
    arguments = parser.parse_args()
    global SUITE, CASES, PARAMS, SGD_RATES, ADAM_RATES
    folder, runs = arguments.folder, arguments.runs
    if arguments.quick:
        PARAMS, SGD_RATES, ADAM_RATES = ("Case.num_inner_steps = 5", *PARAMS), SGD_RATES[:1], ADAM_RATES[:1]
        folder.mkdir(parents=True, exist_ok=True)
        SUITE, CASES = folder / "one.gin", CASES[:1]
        SUITE.write_text("import lobench.inner.tasks.image\nrelu32/Case.task = @DigitsMLP()\n")
    adam_leaves = {"one_minus_beta1": math.log(0.1), "one_minus_beta2": math.log(0.001), "log_epsilon": math.log(1e-8)}
    evolved = curves(write_thetas(runs, folder / "evolved"))
    sgd_curves = curves(write_rates("LearnableSGD", SGD_RATES, {}, folder / "sgd"))
    adam_curves = curves(write_rates("LearnableAdam", ADAM_RATES, adam_leaves, folder / "adam"))
    multiples = [[evolved[f"run{index}_x{multiple}"] for multiple in MULTIPLES] for index in range(len(runs))]
    trained = [evolved[f"run{index}_trained"] for index in range(len(runs))]
    print("SGD")
    sgd = best_of(sgd_curves, SGD_RATES)
    print("Adam")
    adam = best_of(adam_curves, ADAM_RATES)
    ends = np.mean([[curve[case][-1] for case in CASES] for curve in trained])
    print(f"\n{'compared with':24} ends at  difference of the meta-trained, which end at {ends:.4f}")
    for index, multiple in enumerate(MULTIPLES):
        report(f"initial theta x {multiple}", trained, [each[index] for each in multiples])
    report("SGD, best rate per case", trained, [sgd] * len(runs))
    report("Adam, best rate per case", trained, [adam] * len(runs))
    shares = [speed(adam[case], curve[case]) for curve in trained for case in CASES]
    print(
        f"tuned Adam needs {100 * float(np.mean(shares)):.0f}% of the steps (a case: {[round(s, 2) for s in shares]})"
    )


if __name__ == "__main__":
    main()
