"""`lobench compare` of curves that end at different steps, and of imported seeds that are labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of

SHOWN = texts_of("compare")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Runs that lose 1 in 100 steps, to different ends: at any common step B is .2 better."""
    rows = ["method,case,metric,seed,step,value"]
    for method, offset, ends in (("a", 0.0, (400, 700, 900)), ("b", -0.2, (300, 400, 500))):
        for seed, end in enumerate(ends):
            rows += [
                f"{method},c,train/loss,{seed},{step},{10 + offset + seed / 100 - step / 100}"
                for step in range(0, end + 1, 100)
            ]
    (tmp_path / "curves.csv").write_text("\n".join(rows) + "\n")
    done = lobench("import", "curves.csv", "--store", "store", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path / "store"


def test_finals_at_different_steps_are_said(store: Path) -> None:
    text = lobench("compare", "a", "b", "--store", store).stdout
    assert SHOWN["finals-at-different-steps-400"] in text and SHOWN["until-step-common"] in text, text


def test_until_step_common_compares_all_curves_at_one_step(store: Path) -> None:
    words = ("compare", "a", "b", "--store", store, "--format", "json")
    cut = json.loads(lobench(*words, "--until-step", "common").stdout)[0]["metrics"]
    whole = json.loads(lobench(*words).stdout)[0]["metrics"]
    (case,), (before,) = cut["train/loss"]["cases"].values(), whole["train/loss"]["cases"].values()
    assert case["values"]["mean"] == pytest.approx(-0.2, abs=1e-6) and before["values"]["mean"] > 1
    assert SHOWN["finals-at-different-steps"] not in case["note"]


def test_seeds_of_equal_numbers_that_are_labels_are_said(store: Path) -> None:
    assert SHOWN["imported-seeds-are-labels-lobench"] in lobench("compare", "a", "b", "--store", store).stdout
