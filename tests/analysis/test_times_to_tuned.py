"""Inner steps to the tuned baseline's final loss: the baseline itself gets there, whatever the sign of the loss."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from report_store import make_baseline, make_store

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.scores.baseline_file import Baseline


@pytest.mark.parametrize("shift", [0.0, -5.0])
def test_a_baseline_reaches_its_own_final_loss(tmp_path: Path, shift: float) -> None:
    store = make_store(tmp_path)
    suite = make_baseline(tmp_path)
    path = suite / "baselines" / "adam-velo.json"
    baseline = Baseline.load(path)
    cases = {}
    for name, case in baseline.cases.items():
        finals = np.float32(case.tuned["train/loss"]) + np.float32(shift)
        curve = case.curves.means["train/loss"] + np.float32(shift)
        at = list(case.curves.steps).index(case.training.num_inner_steps)
        curve[at] = np.nextafter(finals[0], np.float32(np.inf))  # a mean of float32 is off by a bit
        tuned = {**case.tuned, "train/loss": tuple(finals.astype(float).tolist())}
        curves = dataclasses.replace(case.curves, means={**case.curves.means, "train/loss": curve})
        cases[name] = dataclasses.replace(case, tuned=tuned, curves=curves)
    dataclasses.replace(baseline, cases=cases).save(path)
    found = summary_of(store, [suite])
    own = found.times_to_tuned([0])[-1]
    assert own.tolist() == [next(iter(cases.values())).training.num_inner_steps] * len(own) and len(own)
