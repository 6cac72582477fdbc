"""The main job on an embedded default: a meta-training run, `lobench watch` beside it, and what came of it.

    python examples/demo.py demo_out

Ends with a table: is the median of the last three checkpoints better than the first, than the initial theta at larger
steps, than SGD at its best rate? The table says where it is not.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from meta_train import CONFIG, STEP_MULT, initial_theta

from lobench.inner.optimizers import AdafacMLPLOpt
from lobench.inner.theta import leaf_paths

ROOT = Path(__file__).resolve().parents[1]
SUITE = ROOT / "suites" / "demo"
OUTER_STEPS = 480
META_TRAINED_ON = "permuted"
MULTIPLES = (1, 3, 10, 30)
SGD_RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)

Finals = dict[str, dict[int, float]]


def write_initial_thetas(folder: Path) -> None:
    """Writes the initial theta at larger steps, numbered by the multiple.

    The network's first output is the direction that `step_mult` multiplies: scaling its weights is the same, and needs
    no program of its own.
    """
    folder.mkdir()
    (folder / "config.gin").write_text(CONFIG)
    for multiple in MULTIPLES:
        theta = initial_theta(AdafacMLPLOpt(step_mult=STEP_MULT), seed=0)
        network = theta["nn"]["~"]
        scale = jnp.asarray([multiple, 1.0])
        network |= {"w2": network["w2"] * scale, "b2": network["b2"] * scale}
        np.savez(folder / f"x_{multiple}.npz", **leaf_arrays(theta))


def write_sgd_rates(folder: Path) -> None:
    """Writes SGD at each rate as a theta of LearnableSGD, numbered 0, 1, ..."""
    folder.mkdir()
    (folder / "config.gin").write_text("Case.learned_optimizer = @LearnableSGD()\n")
    for index, rate in enumerate(SGD_RATES):
        np.savez(folder / f"rate_{index}.npz", log_lr=np.float32(math.log(rate)))


def leaf_arrays(theta: object) -> dict[str, np.ndarray]:
    return {path: np.asarray(leaf) for path, leaf in leaf_paths(theta).items()}


def watch_command(folder: Path, *options: str) -> list[str]:
    command = [sys.executable, "-m", "lobench.cli", "watch", str(folder), "--suite", str(SUITE), "--name", "demo"]
    return [*command, "--checkpoints", "all", *options]


def finals(store: Path) -> Finals:
    """Returns the seed mean of the final training loss by case and outer step; a diverged case is infinite."""
    command = [sys.executable, "-m", "lobench.cli", "results", "--store", str(store), "--format", "json"]
    found: Finals = {}
    for record in json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout):
        value = record["metrics"].get("train/loss", {}).get("final")
        value = math.inf if value is None else value
        found.setdefault(record["case"]["name"], {})[record["checkpoint"]["outer_step"]] = value
    return found


def print_table(watched: Finals, initials: Finals, rates: Finals) -> bool:
    """Prints the comparison and returns whether everything that it hopes for holds."""
    print(
        f"\n{'case':12}{'first':>10}{'last three':>12}{'initial x1-30':>15}{'best SGD':>10}   median of the last three"
    )
    good, unseen, beaten = True, 0, 0
    for case, by_step in watched.items():
        steps = sorted(by_step)
        last = statistics.median(by_step[step] for step in steps[-3:])
        initial, sgd = min(initials[case].values()), min(rates[case].values())
        improved, best = last < by_step[steps[0]], last < initial and last < sgd
        good &= improved
        if case != META_TRAINED_ON:
            unseen, beaten = unseen + 1, beaten + best
        verdict = "better than the first" if improved else "NOT better than the first"
        verdict += ", than the initial theta and SGD" if best else ", NOT than the initial theta and SGD both"
        note = "  (meta-trained on)" if case == META_TRAINED_ON else ""
        print(f"{case:12}{by_step[steps[0]]:10.4f}{last:12.4f}{initial:15.4f}{sgd:10.4f}   {verdict}{note}")
    print(f"\nof {unseen} cases that it was not meta-trained on, it beats both on {beaten} (hoped for: two thirds)")
    return good and 3 * beaten >= 2 * unseen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="Folder of the run; must not exist.")
    run: Path = parser.parse_args().output.absolute()
    if run.exists():
        parser.error(f"{run} exists; choose another folder, or remove it")
    started = time.perf_counter()
    watch = watch_command(run, "--report", "--sink", "tensorboard", "--until-step", str(OUTER_STEPS))
    train = [sys.executable, str(ROOT / "examples" / "meta_train.py"), str(run), "--outer-steps", str(OUTER_STEPS)]
    print("+", *watch, "&\n+", *train, flush=True)
    watching = subprocess.Popen(watch)
    training = subprocess.run(train, check=False)
    if training.returncode:
        watching.terminate()
        return training.returncode
    code = watching.wait()
    print(f"watch ended with exit code {code} after {time.perf_counter() - started:.0f} s")
    if code:
        return code
    compared = run / "compared"
    compared.mkdir()
    write_initial_thetas(compared / "initial")
    write_sgd_rates(compared / "sgd")
    for folder in (compared / "initial", compared / "sgd"):
        command = watch_command(folder, "--once")
        print("+", *command, flush=True)
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)  # a rate that diverges fails its verdict
    stores = [folder / "lobench_results" / "demo" for folder in (run, compared / "initial", compared / "sgd")]
    is_good = print_table(*(finals(store) for store in stores))
    print(f"\nTensorBoard: tensorboard --logdir {run / 'lobench' / 'demo' / 'tensorboard'}")
    print(f"results:     lobench results --store {run / 'lobench' / 'demo'}")
    print(f"report:      {run / 'lobench' / 'demo' / 'report.html'}")
    print(f"the demonstration took {time.perf_counter() - started:.0f} s")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
