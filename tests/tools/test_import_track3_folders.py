"""All results of modded-nanogpt's optimizer track, from a checkout: each is imported as its table links it.

LOBENCH_MODDED_NANOGPT=PATH pytest tests/tools/test_import_track3_folders.py, after
git clone --depth 1 https://github.com/KellerJordan/modded-nanogpt PATH
"""

from __future__ import annotations

import os
import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import numpy as np
import pytest

from lobench import open_results
from lobench.tools.curve_import.imports import import_curves

CHECKOUT = os.environ.get("LOBENCH_MODDED_NANOGPT", "")
HOME = Path(CHECKOUT) / "records" / "track_3_optimization"
pytestmark = pytest.mark.skipif(not CHECKOUT, reason="no checkout of modded-nanogpt in $LOBENCH_MODDED_NANOGPT")

_ROW = re.compile(r"^\| (\d+) \| (\d+)(?:\(!\))? \| ([\d.]+) \(n=(\d+)\).*?\[log\]\((results/[^)]+)\)", re.MULTILINE)

# Results that the linked folder contains beside others: the files of the result, or the metric of its mean.
PARTS = {23: "a26c8aa2-993d-443f-b931-845724d07015.txt", 44: "H100_*.txt"}
METRICS = {46: "val_ema_loss"}
# Results whose published mean is not the rounded mean of the logged values, with that of the logs.
OTHERWISE = {6: ("3.2789", 20), 8: ("3.2780", 10), 17: ("3.2788", 20), 41: ("3.2791", 1)}


def published() -> list[tuple[int, int, str, int, str]]:
    """Returns number, step, mean, number of runs and link of each result."""
    rows = _ROW.findall((HOME / "README.md").read_text())
    return [(int(number), int(step), mean, int(count), link) for number, step, mean, count, link in rows]


def test_there_are_46_results() -> None:
    assert len(published()) >= 46


@pytest.mark.parametrize("result", published() if CHECKOUT else [], ids=lambda result: f"result{result[0]}")
def test_a_result_is_imported_with_the_mean_that_was_published(
    tmp_path: Path, result: tuple[int, int, str, int, str]
) -> None:
    number, step, mean, count, link = result
    mean, count = OTHERWISE.get(number, (mean, count))
    place = HOME / Path(*Path(link).parts[:2])
    files = place / PARTS[number] if number in PARTS else place
    metric = METRICS.get(number, "val_loss")
    options = {"metrics": [metric]} if number in METRICS else {}
    import_curves(files, store=tmp_path / "store", method="one" if number in PARTS else "", **options)
    finals: dict[str, list[str]] = {}
    for row in open_results(tmp_path / "store").rows:
        (values,) = row.curves.metrics[row.case.primary_metric].tolist()
        if step in row.curves.eval_steps:
            value = values[list(row.curves.eval_steps).index(step)]
            finals.setdefault(row.recorded_sightings[0].name, []).append(str(np.float32(value)))
    means = {
        name: (sum(map(Decimal, found)) / len(found)).quantize(Decimal("0.0001"), ROUND_HALF_UP)
        for name, found in finals.items()
    }
    assert [(str(means[name]), len(found)) for name, found in finals.items()].count((mean, count)) == 1
