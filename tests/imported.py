"""Files of curves for tests, and what a store holds of them."""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lobench import open_results

HEADER = ("method", "case", "seed", "step", "metric", "value")


def write_csv(path: Path, rows: Iterable[Sequence[object]], header: Sequence[str] = HEADER) -> Path:
    """Writes a csv; gzipped where its name ends so."""
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def curve(method: str, seed: object, values: Sequence[float], *, case: str = "mnist", metric: str = "val_loss") -> list:
    """Rows of a run that is evaluated every 100 steps."""
    return [(method, case, seed, 100 * place, metric, value) for place, value in enumerate(values)]


def held(store: Path) -> dict[tuple[str, str, int], dict[str, list[tuple[int, float]]]]:
    """Returns what a store holds of imports: by method, case and seed the points of each metric, to six digits."""
    found = {}
    for row in open_results(store).rows:
        if row.recorded_sightings[0].kind == "imported":
            key = (row.recorded_sightings[0].name, f"{row.case.suite}/{row.case.name}", row.key.seed_block.start)
            values = {name: [float(f"{v:.6g}") for v in view.tolist()[0]] for name, view in row.curves.metrics.items()}
            found[key] = {
                name: list(zip(row.curves.eval_steps, own, strict=True)) for name, own in sorted(values.items())
            }
    return found


def wandb_for(patched: pytest.MonkeyPatch) -> Any:
    """Returns W&B's package, whose hooks of this process go with the patch; skips where there is none."""
    patched.setenv("WANDB_ERROR_REPORTING", "false")
    patched.setattr(sys, "excepthook", sys.excepthook)
    patched.setattr(sys, "exit", sys.exit)
    return pytest.importorskip("wandb")


def offline_settings(wandb: Any, **more: Any) -> Any:
    """Returns settings of a run of W&B that says and measures nothing.

    Without `x_save_requirements=True` it does not list all installed packages, which takes as long as all else.
    """
    settings = {"console": "off", "x_disable_stats": True, "x_disable_meta": True, "x_save_requirements": False}
    return wandb.Settings(silent=True, reinit="create_new", **{**settings, **more})
