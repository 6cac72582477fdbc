"""Ten subjects on suites/quick: what gates are tried on; `python benchmarks/quick_subjects.py [FILE [CASE]]` writes it.

Adam at multiples of each case's tuned learning rate: by case the metrics' values of four seeds at step 0 and at the
end, null where a seed diverged.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
from gate_rates import SUBJECTS, SUITE
from harness import answer_help

from lobench.analysis.scores.baseline_file import Baseline, baseline_path
from lobench.analysis.scores.baseline_grids import BaselineGrid
from lobench.engine.config.suite import specs_in
from lobench.evaluation.tuning import run_points
from lobench.experiments.baseline import case_key, default_layers

FACTORS = (0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
METRICS = ("train/loss", "test/loss")


def _numbers(values: np.ndarray) -> list[float | None]:
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values.tolist()]


def main() -> None:
    found: dict[str, dict[str, dict[str, dict[str, list[float | None]]]]] = {}
    baseline = Baseline.load(baseline_path(SUITE, "adam", "velo"))
    file, *cases = sys.argv[1:] or [SUBJECTS]
    for spec in (one for one in specs_in(SUITE) if one.scope in (cases or [one.scope])):
        case = baseline.cases[case_key(spec, SUITE)]
        tuned = case.grid[case.best[0]].values["learning_rate"]
        points = tuple({"learning_rate": tuned * factor} for factor in FACTORS)
        grid = BaselineGrid(name="factors", points=points, studies=(0,) * len(points))
        many = run_points(spec, default_layers(), "adam", grid, num_seeds=4)
        for factor, curves in zip(FACTORS, many, strict=True):
            cell = found.setdefault(f"{factor:g}", {}).setdefault(spec.scope, {})
            for metric in METRICS:
                if metric in curves.metrics:
                    values = np.asarray(curves.metrics[metric])
                    cell[metric] = {"starts": _numbers(values[:, 0]), "finals": _numbers(values[:, -1])}
        print(spec.scope, flush=True)
    lines = [
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f"  {json.dumps(case)}: {json.dumps(cell)}" for case, cell in cells.items())
        + "\n }"
        for name, cells in found.items()
    ]
    Path(file).write_text("{\n " + ",\n ".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    answer_help(__doc__)
    main()
