"""Learned optimizers of other authors, evaluated for real: comparisons whose outcome is known.

The reference task is `suites/reference`, on seeds of lobench's own and not the two of the recorded curves.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import lobench
from reference import ROOT, reference_data
from shown import texts_of

SHOWN = texts_of("lobench")

SUITE = "suites/reference"


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_celos_train_and_test_loss_tell_different_stories_and_every_headline_shows_both(tmp_path: Path) -> None:
    celo = f"{reference_data() / 'checkpoints' / 'celo.msgpack'}; Case.learned_optimizer = @Celo()"
    adam = "adam(); adam.learning_rate = 0.01"  # as in the recorded curves
    done = lobench("compare", adam, celo, "--suite", SUITE, "--store", tmp_path, "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert re.search(SHOWN["is-better-than-on-train"], done.stdout, re.DOTALL)
    assert re.search(SHOWN["test-loss-worse"], done.stdout, re.MULTILINE)
    assert SHOWN["metrics-tell-different-stories"] in done.stdout and SHOWN["tuned-adam"] in done.stdout

    store, named = tmp_path, "celo.msgpack; Case.learned_optimizer = @Celo()"
    text = lobench("report", "--store", store, "--format", "text").stdout
    assert lobench("report", "--store", store, "--output", tmp_path / "report.html").returncode == 0
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", (tmp_path / "report.html").read_text()))
    for name, side in (("train/loss", "above"), ("test/loss", "below")):
        (score,) = re.findall(rf"^Score on {name}, {re.escape(named)}: (\S+) ", text, re.MULTILINE)
        assert SHOWN["score-on-95"].format(name=name, named=named, score=score) in page
        assert SHOWN["is-tuned-adam-on-difference"].format(named=named, side=side, name=name) in text
        assert SHOWN["is-tuned-adam-on-difference"].format(named=named, side=side, name=name) in page

    header, row, *_ = lobench("results", "--store", store, "--evaluations").stdout.splitlines()
    assert SHOWN["train-final-test-final"] in header and row.startswith("reference/digits_ref")
    runs = lobench("results", "--store", store, "--history").stdout.splitlines()
    assert "train/loss" in runs[0] and "test/loss" in runs[0]
