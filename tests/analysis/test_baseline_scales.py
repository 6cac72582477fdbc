"""Comparisons on the scale of a tuned baseline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from report_store import NASTY, make_baseline, make_store

from lobench.analysis.baseline_scales import baseline_scales
from lobench.analysis.subjects import Subject, subjects_of
from lobench.engine.ledger import Ledger


def subjects(store: Path) -> list[Subject]:
    ledger = Ledger.open(store, read_only=True)
    try:
        return subjects_of(ledger.evaluations())
    finally:
        ledger.close()


def test_every_case_that_a_baseline_knows_has_its_scale(tmp_path: Path) -> None:
    scales, label, count = baseline_scales(subjects(make_store(tmp_path)), [make_baseline(tmp_path)])
    assert (label, count) == ("tuned adam", 2)
    assert sorted(scales) == ["primary", "test/loss", "train/loss"]
    assert f"identity of {NASTY}" not in scales["train/loss"]
    scale = scales["train/loss"]["identity of case0"]
    assert (scale.untrained, scale.tuned) == (pytest.approx(2.3), pytest.approx(0.2))
    assert scales["primary"] == scales["train/loss"]


def test_without_a_baseline_there_is_no_scale(tmp_path: Path) -> None:
    assert baseline_scales(subjects(make_store(tmp_path)), [tmp_path]) == ({}, "", 0)


def test_compare_says_what_its_scale_is(tmp_path: Path) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path)
    command = [sys.executable, "-m", "lobench.cli", "compare", f"{store}@0", f"{store}@2"]
    tuned = subprocess.run([*command, "--baseline", str(suite)], capture_output=True, text=True, check=False)
    assert "1 tuned adam on 2 of 3 cases, the best of the compared on the others" in tuned.stdout, tuned.stderr
    among = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "1 the best of the compared on each case" in among.stdout, among.stderr
