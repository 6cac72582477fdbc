"""Ordinary tests as cases of the commands that evaluate checkpoints again: compare, bisect, best and alarm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import lobench
from tiny import results

TESTS = """
import json
import pytest

def loss_of(checkpoint):
    return json.loads((checkpoint.path / "model.json").read_text())["loss"]

@pytest.mark.lobench(num_seeds=4)
@pytest.mark.parametrize("corpus", ["short", "long"])
def test_loss(checkpoint, record, corpus):
    for seed in range(4):
        record("valid/loss", loss_of(checkpoint) * len(corpus) + seed % 2 / 10, seed=seed)

class TestGroup:
    def test_inside(self, checkpoint, record):
        record("valid/loss", loss_of(checkpoint))
"""
LOSSES = (1.0, 0.9, 0.8, 3.0, 3.1, 3.0)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    suite = tmp_path / "lm"
    suite.mkdir()
    (suite / "test_lm.py").write_text(TESTS)
    return suite


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step, loss in enumerate(LOSSES, 1):
        folder = tmp_path / f"run/checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "model.json").write_text(json.dumps({"loss": loss, "step": step}))
        (folder / "trainer_state.json").write_text("{}")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("test_loss[long]", {"test_loss[long]"}),
        ("test_loss", {"test_loss[long]", "test_loss[short]"}),
        ("lm/test_lm.py::test_loss[short]", {"test_loss[short]"}),
        ("test_lm.TestGroup::test_inside", {"TestGroup::test_inside"}),
    ],
)
def test_compare_of_one_test_evaluates_it_alone(
    tmp_path: Path, suite: Path, run: Path, name: str, cases: set[str]
) -> None:
    paths = [run / f"checkpoint-{step}" for step in (4, 3)]
    done = lobench("compare", *paths, "--suite", suite, "--store", tmp_path / "store", "--case", name, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {one["case"]["name"] for one in results(tmp_path / "store")} == cases
    assert {one["case"]["name"] for one in results(tmp_path / "store", "--case", name)} == cases


def test_bisect_of_a_test_finds_the_broken_checkpoint(tmp_path: Path, suite: Path, run: Path) -> None:
    options = ("--suite", suite, "--store", tmp_path / "store", "--case", "test_loss[long]", "--format", "json")
    done = lobench("bisect", run, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["status"] == "found" and found["broken"]["outer_step"] == 4


def test_commands_with_an_unknown_test_name_the_known_ones(tmp_path: Path, suite: Path, run: Path) -> None:
    done = lobench("bisect", run, "--suite", suite, "--case", "test_los", cwd=tmp_path)
    assert done.returncode == 2 and "expected one of test_loss, TestGroup::test_inside" in done.stderr
