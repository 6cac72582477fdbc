"""Races replayed on recorded trainings: who wins, and what they cost.

Usage:
  python benchmarks/race_replay.py [--orders 200] [--track3 track3_val_loss.csv.gz] [--algoperf LOG.csv.gz TARGETS.json]

`race_quick.json` has optimizers of suites/quick/baselines at their tuned settings, 24 seeds a case; `quick_subjects.py
tuned` makes it. Their scores are on tuned Adam's scale. --track3 takes the steps to a validation loss of 3.28 of
those results of modded-nanogpt's optimizer track that have ten runs: their logarithms, one case, runs in any order,
since they share no draws. --algoperf takes the log of AlgoPerf's external tuning and its targets: the logarithm of the
time to the target on the base workloads, of each of 25 trials, or of the best trial of each of 5 studies; a workload
without a trial, or one that does not come to the target, is lost. Seeds are played in random orders, one a round. The
best on all seeds has the best mean there, where what diverged, or did not come to the target, has -1.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import json
import math
from pathlib import Path

import numpy as np
from quick_subjects import SUITE, TUNED_FILE, TUNED_SEEDS
from race_rates import play

from lobench.analysis.scores.algoperf_files import read_log, read_targets
from lobench.analysis.scores.baseline_file import Baseline, find_baselines
from lobench.analysis.scores.scales import seed_scores
from lobench.analysis.scores.score_scale import ScoreScale
from lobench.core.metric import Direction
from lobench.engine.config.suite import specs_in
from lobench.experiments.baseline import case_key

TARGET, RUNS = 3.28, 10


def _quick() -> tuple[list[str], np.ndarray]:
    """Returns the optimizers and their scores by case and seed, -inf of what diverged."""
    found = json.loads(TUNED_FILE.read_text(encoding="utf-8"))
    adam = Baseline.load(find_baselines(SUITE.parent)[0])
    names = [name for name, cells in found.items() if len(cells) == len(adam.cases)]
    values = np.full((len(names), len(adam.cases), TUNED_SEEDS), -np.inf)
    for place, spec in enumerate(specs_in(SUITE)):
        case = adam.cases[case_key(spec, SUITE)]
        scale = ScoreScale.of_baseline(
            "train/loss",
            Direction.MIN,
            untrained=case.untrained["train/loss"],
            tuned=case.tuned["train/loss"],
            starts=case.starts["train/loss"],
            curve=case.curves.means["train/loss"],
            declared=case.scale or "",
            minimum=case.minimum,
        )
        for row, name in enumerate(names):
            cell = found[name][spec.scope]
            finals = {seed: value for seed, value in enumerate(cell["finals"]) if value is not None}
            scores = seed_scores(finals, dict(enumerate(cell["starts"])), (), scale)
            values[row, place, list(scores)] = list(scores.values())
    return names, values


def _track3(file: Path) -> tuple[list[str], np.ndarray]:
    """Returns results and the logarithm of how much fewer steps than the slowest each run takes to the target.

    A run that does not come there has -inf.
    """
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            curve = curves.setdefault(row["record"], {}).setdefault(row["run"], [])
            curve.append((int(row["step"]), float(row["val_loss"])))
    whole = {name: [curve for curve in runs.values() if len(curve) > 1] for name, runs in curves.items()}
    many = {name: runs for name, runs in whole.items() if len(runs) >= RUNS}
    values = [[_steps(sorted(curve)) for curve in runs[:RUNS]] for runs in many.values()]
    found = np.array(values)[:, None]
    return list(many), found - found[np.isfinite(found)].min()


def _algoperf(log: Path, targets: Path, *, best_of_study: bool) -> tuple[list[str], np.ndarray]:
    """Returns submissions and the logarithm of how much sooner than the latest each trial is at the target."""
    known = read_targets(targets)
    found = read_log(log, known)
    found = found[found["workload"].isin(known.base_workloads)]
    times: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for (name, workload, study, trial), rows in found.groupby(["submission", "workload", "study", "trial"]):
        target, values = known.targets[workload], rows["val_metric"]
        there = rows["time"][values >= target.value if target.higher_is_better else values <= target.value]
        key = (study, "" if best_of_study else trial)
        cell = times.setdefault((name, workload), {})
        cell[key] = min(cell.get(key, math.inf), float(there.min()) if len(there) else math.inf)
    names, width = sorted({name for name, _ in times}), 5 if best_of_study else 25
    values = np.full((len(names), len(known.base_workloads), width), -np.inf)
    for (name, workload), cell in times.items():
        own = -np.log(np.array(list(cell.values())))
        values[names.index(name), known.base_workloads.index(workload), : len(own)] = own
    least = np.where(np.isfinite(values), values, np.inf).min(axis=(0, 2), keepdims=True)
    return names, values - least


def _steps(curve: list[tuple[int, float]]) -> float:
    for (step, loss), (later, lower) in itertools.pairwise(curve):
        if lower <= TARGET < loss:
            return -math.log(step + (later - step) * (loss - TARGET) / (loss - lower))
    return -math.inf


def _replay(name: str, names: list[str], values: np.ndarray, num_orders: int, margins: tuple[float, ...]) -> None:
    rng, means = np.random.default_rng(0), np.where(np.isfinite(values), values, -1).mean(axis=(1, 2))
    orders = [rng.permutation(values.shape[-1]) for _ in range(num_orders)]
    best = int(np.argmax(means))
    for margin in margins:
        parts = [play(values[None, ..., order], margin=margin) for order in orders]
        out, cost, leader, _ = (np.concatenate([part[place] for part in parts]) for place in range(4))
        output = (
            f"{margin:g}",
            f"{len(names)}",
            f"{values.shape[2]}",
            names[best],
            f"{1 - out[:, best].mean():.3f}",
            f"{(leader == best).mean():.2f}",
            f"{(means[best] - means[leader]).mean():.3f}",
            f"{(~out).sum(axis=1).mean():.1f}",
            f"{1 / cost.mean():.2f}x",
        )
        print(f"| {name} | {' | '.join(output)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=200)
    parser.add_argument("--track3", type=Path)
    parser.add_argument("--algoperf", type=Path, nargs=2)
    asked = parser.parse_args()
    print("| trainings | margin | methods | seeds | best | stays in | leads | leader is worse by | left | fewer |")
    print("| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    _replay("quick, tuned", *_quick(), asked.orders, (0.0, 0.02, 0.05, 0.1))
    if asked.track3:
        _replay("track 3, steps to 3.28", *_track3(asked.track3), asked.orders, (0.0, 0.01))
    if asked.algoperf:
        for name, best_of_study in (("AlgoPerf, trials", False), ("AlgoPerf, best of a study", True)):
            _replay(name, *_algoperf(*asked.algoperf, best_of_study=best_of_study), asked.orders, (0.0, 0.05))


if __name__ == "__main__":
    main()
