"""The main job on an embedded default: a meta-training run, `lobench watch` beside it, and what came of it.

    python examples/demo.py demo_out

Ends with a table: is the median of the last three checkpoints better than the first, than the initial theta at larger
steps, than SGD at its best rate? The table says where it is not.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUITE = ROOT / "suites" / "demo"
OUTER_STEPS = 480
META_TRAINED_ON = "permuted"
STEP_MULT = 0.01
MULTIPLES = (3, 10, 30)
SGD_RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)

Finals = dict[str, dict[int, float]]


def comparators_gin(run: Path) -> Path:
    """Writes a gin file with the suite's cases, each also at larger steps and with SGD at six rates."""
    text = (SUITE / "demo.gin").read_text()
    lines = [f'include "{SUITE / "demo.gin"}"']
    for case, task in re.findall(r"^(\w+)/Case\.task = (.*)$", text, re.MULTILINE):
        for multiple in MULTIPLES:
            lines += [f"{case}/x{multiple}/Case.task = {task}"]
            lines += [f"{case}/x{multiple}/AdafacMLPLOpt.step_mult = {STEP_MULT * multiple}"]
        for index, rate in enumerate(SGD_RATES):
            lines += [f"{case}/sgd{index}/Case.task = {task}", f"{case}/sgd{index}/Case.optimizer = @sgd()"]
            lines += [f"{case}/sgd{index}/sgd.learning_rate = {rate}"]
    path = run / "comparators.gin"
    path.write_text("\n".join(lines) + "\n")
    return path


def finals(store: Path) -> Finals:
    """Returns the seed mean of the final training loss by case and outer step; a diverged case is infinite."""
    command = [sys.executable, "-m", "lobench.cli", "results", "--store", str(store), "--format", "json"]
    found: Finals = {}
    for record in json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout):
        value = record["metrics"].get("train/loss", {}).get("final")
        value = math.inf if value is None else value
        found.setdefault(record["case"]["name"], {})[record["checkpoint"]["outer_step"]] = value
    return found


def print_table(watched: Finals, compared: Finals) -> bool:
    """Prints the comparison and returns whether everything that it hopes for holds."""
    print(
        f"\n{'case':12}{'first':>10}{'last three':>12}{'initial x1-30':>15}{'best SGD':>10}   median of the last three"
    )
    good, unseen, beaten = True, 0, 0
    for case, by_step in watched.items():
        steps = sorted(by_step)
        last = statistics.median(by_step[step] for step in steps[-3:])
        initial = min(compared[name][0] for name in (case, *(f"{case}/x{multiple}" for multiple in MULTIPLES)))
        sgd = min(compared[f"{case}/sgd{index}"][0] for index in range(len(SGD_RATES)))
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
    watch = [sys.executable, "-m", "lobench.cli", "watch", str(run), "--suite", str(SUITE), "--checkpoints", "all"]
    watch += ["--sink", "tensorboard", "--until-step", str(OUTER_STEPS), "--name", "demo"]
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
    compared = run / "lobench" / "comparators"
    compare = [sys.executable, "-m", "pytest", "-q", "-n", "2", str(comparators_gin(run)), "--rootdir", str(run)]
    compare += ["--lobench-checkpoint", str(run / "0"), "--lobench-store", str(compared), "-p", "no:cacheprovider"]
    compare += ["--no-header", "--no-summary"]
    print("+", *compare, flush=True)
    subprocess.run(compare, check=True, cwd=ROOT)
    is_good = print_table(finals(run / "lobench" / "demo"), finals(compared))
    print(f"\nTensorBoard: tensorboard --logdir {run / 'lobench' / 'demo' / 'tensorboard'}")
    print(f"results:     lobench results --store {run / 'lobench' / 'demo'}")
    print(f"the demonstration took {time.perf_counter() - started:.0f} s")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
