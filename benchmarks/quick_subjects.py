"""Writes the trainings on suites/quick that other benchmarks replay.

Usage:
  python benchmarks/quick_subjects.py factors [--file FILE] [--case CASE]
  python benchmarks/quick_subjects.py tuned [--file FILE] [--case CASE]

`factors`: Adam at ten multiples of each case's tuned learning rate, four seeds (`gate_rates.py`). `tuned`: the
optimizers of suites/quick/baselines at their tuned settings, 24 seeds (`race_replay.py`); trainings that the file has
are not repeated. By optimizer or factor, case and metric: the values at step 0 and at the end, null if a seed diverged.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lobench.analysis.scores.baseline_file import Baseline, baseline_path, find_baselines
from lobench.analysis.scores.baseline_grids import BaselineGrid
from lobench.core.case import CaseSpec
from lobench.core.result import Curves
from lobench.engine.config.suite import specs_in
from lobench.evaluation.tuning import run_points
from lobench.experiments.baseline import case_key, default_layers

__all__ = ["FACTOR_FILE", "SUITE", "TUNED_FILE", "TUNED_SEEDS"]

ROOT = Path(__file__).parents[1]
SUITE = ROOT / "suites" / "quick" / "quick.gin"
FACTOR_FILE = ROOT / "tests" / "analysis" / "quick_subjects.json"
TUNED_FILE = Path(__file__).with_name("race_quick.json")
FACTORS = (0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
FACTOR_SEEDS, TUNED_SEEDS = 4, 24


def _trained(spec: CaseSpec, optimizer: str, points: Sequence[Mapping[str, Any]], num_seeds: int) -> Sequence[Curves]:
    grid = BaselineGrid(name="benchmark", points=tuple(points), studies=(0,) * len(points))
    return run_points(spec, default_layers(), optimizer, grid, num_seeds=num_seeds)


def _ends(curves: Curves, metric: str, digits: int) -> dict[str, list[float | None]]:
    values = np.asarray(curves.metrics[metric])

    def rounded(column: np.ndarray) -> list[float | None]:
        return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in column.tolist()]

    return {"starts": rounded(values[:, 0]), "finals": rounded(values[:, -1])}


def _write(file: Path, trainings: Mapping[str, Mapping[str, object]]) -> None:
    """Writes the trainings as JSON, a case on each line."""
    parts = []
    for name, cells in trainings.items():
        lines = [f"  {json.dumps(case)}: {json.dumps(cell)}" for case, cell in cells.items()]
        if lines:
            parts.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    file.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def write_factors(file: Path, specs: Sequence[CaseSpec]) -> None:
    baseline = Baseline.load(baseline_path(SUITE, "adam", "velo"))
    trainings: dict[str, dict[str, object]] = {f"{factor:g}": {} for factor in FACTORS}
    for spec in specs:
        case = baseline.cases[case_key(spec, SUITE)]
        rate = case.grid[case.best[0]].values["learning_rate"]
        points = [{"learning_rate": rate * factor} for factor in FACTORS]
        for cells, curves in zip(trainings.values(), _trained(spec, "adam", points, FACTOR_SEEDS), strict=True):
            metrics = [metric for metric in ("train/loss", "test/loss") if metric in curves.metrics]
            cells[spec.scope] = {metric: _ends(curves, metric, 7) for metric in metrics}
        print(spec.scope, flush=True)
    _write(file, trainings)


def write_tuned(file: Path, specs: Sequence[CaseSpec]) -> None:
    trainings = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for path in find_baselines(SUITE.parent):
        baseline = Baseline.load(path)
        cells = trainings.setdefault(path.stem, {})
        for spec in specs:
            if spec.scope not in cells:
                case = baseline.cases[case_key(spec, SUITE)]
                point = dict(case.grid[case.best[0]].values)
                (curves,) = _trained(spec, baseline.optimizer, [point], TUNED_SEEDS)
                cells[spec.scope] = _ends(curves, "train/loss", 6)
                _write(file, trainings)
                print(path.stem, spec.scope, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["factors", "tuned"])
    parser.add_argument("--file", type=Path, help="File to write (default: the one that is read).")
    parser.add_argument("--case", help="One case alone.")
    options = parser.parse_args()
    specs = [spec for spec in specs_in(SUITE) if options.case in (None, spec.scope)]
    if options.which == "factors":
        write_factors(options.file or FACTOR_FILE, specs)
    else:
        write_tuned(options.file or TUNED_FILE, specs)


if __name__ == "__main__":
    main()
