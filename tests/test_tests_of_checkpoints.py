"""Ordinary tests that evaluate checkpoints: under pytest and by a watch, without jax in any process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from shown import texts_of
from test_command_cases import without_jax
from tiny import PATIENCE, results

SHOWN = texts_of("lobench")

TESTS = """
import contextlib
import json
import numpy as np
import pytest
from lm_data import OFFSET

@pytest.fixture(params=["short", "long"])
def corpus(request):
    return request.param

@pytest.fixture
def broken():
    raise RuntimeError("no such corpus")

def loss_of(path):
    return json.loads((path / "model.json").read_text())["loss"] + OFFSET

def test_loss(checkpoint, record):
    loss = loss_of(checkpoint.path)
    record("valid/loss", np.float32(loss))
    record("step", checkpoint.outer_step)
    assert loss < 1.0, "too large"

@pytest.mark.lobench(num_seeds=2)
def test_seeds(checkpoint, record):
    for seed in range(2):
        record("valid/loss", loss_of(checkpoint.path) + seed, seed=seed)

def test_of_corpus(corpus, checkpoint, record):
    record("valid/loss", loss_of(checkpoint.path) * len(corpus))

def test_neither():
    assert OFFSET == 0

class TestGroup:
    @pytest.mark.parametrize("width", [3])
    def test_inside(self, width, checkpoint):
        assert width == 4

def test_skipped(checkpoint):
    pytest.skip("no data here")

@pytest.mark.xfail(reason="known")
def test_known(checkpoint, record):
    record("valid/loss", 5)
    assert False

@pytest.mark.xfail(strict=True, reason="fixed?")
def test_strict(checkpoint):
    pass

def test_error(checkpoint):
    raise OSError("disk is gone")

def test_fixture(broken, checkpoint):
    pass

def test_diverged(checkpoint, record):
    record("valid/loss", float("nan"))

@pytest.mark.lobench(primary_metric="valid/loss")
def test_forgets(checkpoint, record):
    record("other", 1.0)

def test_twice(checkpoint, record):
    record("valid/loss", 1.0)
    record("valid/loss", 2.0)
"""
OUTCOMES = {
    "test_loss": ("failed", "too large"),
    "test_seeds": ("passed", ""),
    "test_of_corpus[short]": ("passed", ""),
    "test_of_corpus[long]": ("passed", ""),
    "test_neither": ("passed", ""),
    "TestGroup::test_inside[3]": ("failed", "assert 3 == 4"),
    "test_skipped": ("skipped", "no data here"),
    "test_known": ("skipped", "xfail: known"),
    "test_strict": ("failed", "[XPASS(strict)] fixed?"),
    "test_error": ("error", "disk is gone"),
    "test_fixture": ("error", "no such corpus"),
    "test_diverged": ("passed", ""),
    "test_forgets": ("error", "the test recorded no valid/loss for seed 0; got other; expected"),
    "test_twice": ("error", "valid/loss is recorded twice for seed 0"),
}
METRICS = {
    "test_loss": {"valid/loss": [[2.0]], "step": [[2.0]]},
    "test_seeds": {"valid/loss": [[2.0], [3.0]]},
    "test_of_corpus[short]": {"valid/loss": [[10.0]]},
    "test_of_corpus[long]": {"valid/loss": [[8.0]]},
    "test_neither": {"passed": [[1.0]]},
    "TestGroup::test_inside[3]": {"passed": [[0.0]]},
}


def write_suite(folder: Path, tests: str = TESTS) -> Path:
    suite = folder / "lm"
    suite.mkdir()
    (suite / "test_lm.py").write_text(tests)
    (suite / "lm_data.py").write_text("OFFSET = 0\n")
    return suite


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step, loss in ((1, 3.0), (2, 2.0)):
        folder = tmp_path / f"run/checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "model.json").write_text(json.dumps({"loss": loss}))
        (folder / "trainer_state.json").write_text("{}")
    return tmp_path / "run"


def check(store: Path) -> None:
    found = {one["case"]["name"]: one for one in results(store, "--curves")}
    assert {name: one["outcome"] for name, one in found.items()} == {name: one for name, (one, _) in OUTCOMES.items()}
    for name, (_, message) in OUTCOMES.items():
        assert message in found[name]["message"], (name, found[name]["message"])
    for name, curves in METRICS.items():
        assert found[name]["curves"] == curves and found[name]["eval_steps"] == [0], name
    assert found["test_diverged"]["diverged"] == 1
    assert {one["case"]["suite"] for one in found.values()} == {"lm"}


@pytest.mark.parametrize("parallel", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_session_with_a_checkpoint_stores_each_test_without_jax(tmp_path: Path, run: Path, parallel: tuple) -> None:
    suite, store = write_suite(tmp_path), tmp_path / "store"
    words = [sys.executable, "-m", "pytest", str(suite), "-p", "no:cacheprovider", *parallel]
    words += ["--lobench-checkpoint", str(run / "checkpoint-2"), "--lobench-store", str(store)]
    done = subprocess.run(
        words, env=without_jax(tmp_path), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 1 and SHOWN["not-stored"] not in done.stdout, done.stdout + done.stderr
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
    check(store)


OWN_FIXTURES = """
import unittest
import pytest

@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

@pytest.fixture
def record():
    return lambda event, user: None

def test_own_record(record):
    record("click", "somebody")

def test_path(checkpoint):
    assert (checkpoint.path / "model.json").is_file()

class TestGroup(unittest.TestCase):
    def test_parts(self):
        for number in range(2):
            with self.subTest(number=number):
                assert number < 2
"""


def test_session_with_fixtures_of_its_own_and_relative_paths_stores_each_test(tmp_path: Path, run: Path) -> None:
    write_suite(tmp_path, OWN_FIXTURES)
    words = [sys.executable, "-m", "pytest", "lm", "-p", "no:cacheprovider"]
    words += ["--lobench-checkpoint", "run/checkpoint-2", "--lobench-store", "store"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = sorted((one["case"]["name"], one["outcome"]) for one in results(tmp_path / "store"))
    assert found == [(name, "passed") for name in ("TestGroup::test_parts", "test_own_record", "test_path")]
    assert done.stdout.count("TestGroup::test_parts") == 1  # a line for the test, none for its parts


@pytest.mark.parametrize("executor", ["local", "inline"])
def test_watch_stores_each_test_without_jax(tmp_path: Path, run: Path, executor: str) -> None:
    suite, store = write_suite(tmp_path), tmp_path / "store"
    words = [sys.executable, "-m", "lobench.cli", "watch", str(run), "--suite", str(suite), "--store", str(store)]
    words += ["--once", "--checkpoints", "latest", "--executor", executor]
    done = subprocess.run(
        words, env=without_jax(tmp_path), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
    check(store)
