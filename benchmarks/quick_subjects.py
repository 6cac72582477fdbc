"""Ten subjects on suites/quick: what gates are tried on; `python benchmarks/quick_subjects.py` writes the file.

Adam and SGD at five learning rates each, from ones that do nothing to ones that explode: by case the metrics' values
of four seeds at step 0 and at the end, NaN (null) where a seed diverged.
"""

from __future__ import annotations

import json
import math

import numpy as np
from gate_rates import SUBJECTS, SUITE

from lobench.analysis.grids import Grid
from lobench.cli.baseline_setup import default_layers
from lobench.engine.suite import specs_in
from lobench.evaluation.tuning import run_points

RATES = {"adam": (1e-4, 1e-3, 1e-2, 1e-1, 1.0), "sgd": (1e-3, 1e-2, 1e-1, 1.0, 10.0)}
METRICS = ("train/loss", "test/loss")


def _numbers(values: np.ndarray) -> list[float | None]:
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values.tolist()]


def main() -> None:
    found: dict[str, dict[str, dict[str, dict[str, list[float | None]]]]] = {}
    for optimizer, rates in RATES.items():
        grid = Grid(name="rates", points=tuple({"learning_rate": r} for r in rates), studies=(0,) * len(rates))
        for spec in specs_in(SUITE):
            many = run_points(spec, default_layers(), optimizer, grid, num_seeds=4)
            for rate, curves in zip(rates, many, strict=True):
                cell = found.setdefault(f"{optimizer} {rate:g}", {}).setdefault(spec.scope, {})
                for metric in METRICS:
                    if metric in curves.metrics:
                        values = np.asarray(curves.metrics[metric])
                        cell[metric] = {"starts": _numbers(values[:, 0]), "finals": _numbers(values[:, -1])}
            print(optimizer, spec.scope, flush=True)
    lines = [
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f"  {json.dumps(case)}: {json.dumps(cell)}" for case, cell in cells.items())
        + "\n }"
        for name, cells in found.items()
    ]
    SUBJECTS.write_text("{\n " + ",\n ".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
