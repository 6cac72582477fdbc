"""The main job on an embedded default: a meta-training run, `lobench watch` beside it, and what came of it.

    python examples/demo.py demo_out

Ends with a table (the first, the best and the last checkpoint beside tuned SGD and tuned Adam), one finding that only
continuous evaluation shows, and commands to go on with. The exit code is 0 where everything ran, whatever the numbers.
"""

from __future__ import annotations

import argparse
import csv
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import lobench
from lobench.analysis.scores.baseline_file import Baseline

ROOT = Path(__file__).resolve().parents[1]
SUITE = ROOT / "suites" / "demo"
OUTER_STEPS = 240
META_TRAINED_ON = "permuted"

Finals = dict[str, dict[int, float]]  # seed mean of the final training loss by case and outer step


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A case that got worse between two checkpoints while the meta-loss fell."""

    case: str
    best_step: int
    best: float
    last_step: int
    last: float
    meta_before: float
    meta_after: float

    def __str__(self) -> str:
        return (
            f"A lead that only continuous evaluation gives: {self.case} was at {self.best:.4f} at outer step "
            f"{self.best_step} and got worse, to {self.last:.4f} at {self.last_step},\nwhile the meta-loss (mean of 20 "
            f"steps around) fell from {self.meta_before:.3f} to {self.meta_after:.3f}. The case was picked afterwards, "
            "on 4 seeds:\nmore seeds tell whether it is so."
        )


def say(source: str, line: str) -> None:
    print(f"[{source}] {line}", flush=True)


def started(source: str, command: list[str]) -> tuple[subprocess.Popen[str], threading.Thread]:
    """Starts a command whose lines are shown as they come, each with its source before it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")

    def show(lines: TextIO) -> None:
        for line in lines:
            say(source, line.rstrip())

    assert process.stdout is not None
    thread = threading.Thread(target=show, args=(process.stdout,), daemon=True)
    thread.start()
    return process, thread


def run_both(run: Path, store: Path) -> int:
    """Meta-trains, with a watch beside it; returns 0 where both ran to their ends."""
    watch = [sys.executable, "-m", "lobench.cli", "watch", str(run), "--suite", str(SUITE), "--store", str(store)]
    watch += ["--name", "demo", "--checkpoints", "all", "--quiet", "--report", "--sink", "tensorboard"]
    watching, shown = started("watch", [*watch, "--until-step", str(OUTER_STEPS)])
    train = [sys.executable, str(ROOT / "examples" / "meta_train.py"), str(run), "--outer-steps", str(OUTER_STEPS)]
    training, trained = started("train", train)
    try:
        if code := training.wait():
            say("train", f"ended with exit code {code}")
            return code
        trained.join()
        code = watching.wait()
        shown.join()
    finally:
        for process in (training, watching):
            if process.poll() is None:
                process.terminate()
                process.wait()
    # 1: a case failed its verdict, which is a result like any other.
    return 0 if code == 1 else code


def finals(store: Path) -> Finals:
    frame = lobench.open_results(store).frame()
    frame = frame[frame["metric"] == "train/loss"]
    means = frame.groupby(["case", "outer_step"])["value"].mean()
    found: Finals = {}
    for (case, step), value in means.items():
        found.setdefault(str(case), {})[int(step)] = float(value)
    return found


def tuned(optimizer: str) -> dict[str, float]:
    """Returns the seed mean of the final training loss by case, from the baseline that the suite ships."""
    baseline = Baseline.load(SUITE / "baselines" / f"{optimizer}-velo.json")
    return {key.partition(":")[2]: case.tuned_mean("train/loss") for key, case in baseline.cases.items()}


def print_table(watched: Finals) -> None:
    """Prints where each case began, was best and ended, beside tuned SGD and Adam."""
    sgd, adam = tuned("sgd"), tuned("adam")
    print(f"\n{'train/loss at the end':22}{'first':>8}{'lowest (outer step)':>20}{'last':>9}{'SGD':>9}{'Adam':>9}")
    for case, by_step in sorted(watched.items()):
        best = min(by_step, key=lambda step: by_step[step])
        last = by_step[max(by_step)]
        row = f"{case:22}{by_step[min(by_step)]:8.4f}{by_step[best]:14.4f} ({best:3}){last:9.4f}"
        beaten = [name for name, value in (("SGD", sgd[case]), ("Adam", adam[case])) if last < value]
        note = f"   last is below {' and '.join(beaten)}" if beaten else ""
        trained = "; meta-trained on this family" if case == META_TRAINED_ON else ""
        print(f"{row}{sgd[case]:9.4f}{adam[case]:9.4f}{note}{trained}")
    unseen = [case for case in watched if case != META_TRAINED_ON]
    counts = [sum(watched[case][max(watched[case])] < of[case] for case in unseen) for of in (sgd, adam)]
    print(
        f"Of {len(unseen)} cases that it was not meta-trained on, the last checkpoint's mean of 4 seeds is below SGD's "
        f"on {counts[0]} and Adam's on {counts[1]},\neach at the best of 15 learning rates for that very case "
        "(suites/demo/baselines). How sure that is, the report says."
    )


def finding(watched: Finals, meta_losses: list[float]) -> Finding | None:
    """Returns the case that got worse by the largest factor since its best checkpoint while the meta-loss fell."""
    found: list[tuple[float, Finding]] = []
    for case, by_step in watched.items():
        last = max(by_step)
        best = min(by_step, key=lambda step: by_step[step])
        before, after = around(meta_losses, best), around(meta_losses, last)
        if 0 < best < last and after < before:
            one = Finding(
                case=case,
                best_step=best,
                best=by_step[best],
                last_step=last,
                last=by_step[last],
                meta_before=before,
                meta_after=after,
            )
            found.append((by_step[last] / by_step[best], one))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def around(meta_losses: list[float], step: int) -> float:
    """Returns the mean of the twenty meta-losses around a step: one alone is mostly noise."""
    last = max(len(meta_losses) - 20, 0)
    first = min(max(step - 10, 0), last)
    window = meta_losses[first : first + 20]
    return sum(window) / len(window)


def linked(path: Path) -> str:
    """Returns a file's URL, which terminals open; as a hyperlink where the output is one."""
    url = path.as_uri()
    return f"\033]8;;{url}\033\\{url}\033]8;;\033\\" if sys.stdout.isatty() else url


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="Folder of the run; must not exist.")
    run: Path = parser.parse_args().output.absolute()
    if run.exists():
        parser.error(f"{run} exists; choose another folder, or remove it")
    begun = time.perf_counter()
    store = run.parent / f"{run.name}_results"
    page = store / "report.html"
    print(
        f"A small learned optimizer is meta-trained for {OUTER_STEPS} outer steps, and meanwhile `lobench watch` "
        "evaluates its checkpoints\non six tasks, five of them with networks and batch sizes that it is not "
        "meta-trained on: one to two minutes on two\nquiet cores. Score: 0 is an untrained network, 1 is tuned Adam, "
        "higher is better; in brackets its 95% interval.\n"
        f"Open report.html now, it keeps itself current:\n  {linked(page)}\n",
        flush=True,
    )
    if code := run_both(run, store):
        return code
    watched = finals(store)
    print_table(watched)
    with (run / "meta_loss.csv").open() as file:
        meta_losses = [float(row["meta_loss"]) for row in csv.DictReader(file)]
    found = finding(watched, meta_losses)
    print(f"\n{found or 'No case got worse after its best checkpoint while the meta-loss fell.'}")
    programs = Path(sys.executable).parent
    here = programs.relative_to(Path.cwd()) if programs.is_relative_to(Path.cwd()) else programs
    print(f"\nThe report:   {linked(page)}")
    print(f"All results:  {shlex.join([str(here / 'lobench'), 'results', '--store', str(store)])}")
    print(f"TensorBoard:  {shlex.join([str(here / 'tensorboard'), '--logdir', str(store / 'tensorboard')])}")
    own = [str(here / "lobench"), "watch", "CKPT_DIR", "--suite", "suites/quick", "--report"]
    print(f"Your own run: {shlex.join(own)} (README.md: what its config.gin says)")
    print(f"The demonstration took {time.perf_counter() - begun:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
