"""Ordinary tests as pytest and a watch select, mix, repeat and refuse them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import lobench, lobench_here, pytest_session
from test_tests_of_checkpoints import write_suite
from tiny import GIN, make_run, make_suite, results

TESTS = """
import json
import pytest
from lm_data import OFFSET

@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("corpus", ["short", pytest.param("long", marks=pytest.mark.slow)])
def test_loss(checkpoint, record, corpus, width):
    loss = json.loads((checkpoint.path / "model.json").read_text())["loss"]
    record("valid/loss", loss + OFFSET + width * len(corpus))

@pytest.mark.slow
def test_slow(checkpoint):
    pass

@pytest.mark.skipif(True, reason="no such device")
def test_of_device(checkpoint):
    pass
"""


def write_checkpoint(run: Path, step: int, loss: float) -> Path:
    folder = run / f"checkpoint-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.json").write_text(json.dumps({"loss": loss}))
    (folder / "trainer_state.json").write_text("{}")
    return folder


def watched(run: Path, suite: Path, code: int = 0) -> set[tuple[int, str, float]]:
    """Returns the values of `valid/loss` in the store of a run, after a watch: step, test and value."""
    done = lobench_here("watch", run, "--suite", suite, "--once", "--checkpoints", "all")
    assert done.returncode == code, done.stdout + done.stderr
    found = [one for one in results(run / "lobench_results" / suite.name, "--curves") if "loss" in one["case"]["name"]]
    assert len({(one["checkpoint"]["sha256"], one["case"]["name"]) for one in found}) == len(found)  # each once
    return {(one["checkpoint"]["outer_step"], one["case"]["name"], one["curves"]["valid/loss"][0][0]) for one in found}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("-k", "loss and short-3"), {"test_loss[short-3]": "passed"}),
        (("-k", "3 and not short"), {"test_loss[long-3]": "passed"}),
        (("-m", "slow", "-k", "not loss"), {"test_slow": "passed"}),
        (("-m", "slow"), {"test_loss[long-2]": "passed", "test_loss[long-3]": "passed", "test_slow": "passed"}),
        (("-k", "device"), {"test_of_device": "skipped"}),
    ],
)
def test_session_stores_the_tests_that_options_select(tmp_path: Path, options: tuple[str, ...], expected: dict) -> None:
    suite, store = write_suite(tmp_path, TESTS), tmp_path / "store"
    path = write_checkpoint(tmp_path / "run", 1, 1.0)
    done = pytest_session(suite, "--lobench-checkpoint", path, "--lobench-store", store, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert {one["case"]["name"]: one["outcome"] for one in results(store)} == expected


def test_watch_after_an_edit_of_a_helper_module_evaluates_again(tmp_path: Path) -> None:
    suite, run = write_suite(tmp_path, TESTS), tmp_path / "run"
    write_checkpoint(run, 1, 1.0)
    assert (1, "test_loss[short-2]", 11.0) in watched(run, suite)
    (suite / "lm_data.py").write_text("OFFSET = 100\n")
    write_checkpoint(run, 2, 2.0)
    found = watched(run, suite)
    assert {(1, "test_loss[short-2]", 111.0), (2, "test_loss[long-3]", 114.0)} <= found
    assert all(value > 100 for _, _, value in found)


def test_watch_waits_for_the_end_of_a_checkpoint_and_takes_a_rewritten_one_again(tmp_path: Path) -> None:
    suite, run = write_suite(tmp_path, TESTS), tmp_path / "run"
    write_checkpoint(run, 1, 1.0)
    (write_checkpoint(run, 2, 2.0) / "model.json").write_text('{"loss": 2')
    assert {step for step, _, _ in watched(run, suite, code=3)} == {1}
    write_checkpoint(run, 2, 2.0)
    assert (2, "test_loss[short-2]", 12.0) in watched(run, suite)
    write_checkpoint(run, 2, 3.0)
    assert (2, "test_loss[short-2]", 13.0) in watched(run, suite)


def test_checkpoint_that_its_trainer_rewrites_during_a_test_is_expired(tmp_path: Path) -> None:
    tests = """
def test_rewritten(checkpoint, record):
    record("valid/loss", 1.0)
    (checkpoint.path / "model.json").write_text("{}")  # as a trainer does to a linked file
"""
    suite, run = write_suite(tmp_path, tests), tmp_path / "run"
    write_checkpoint(run, 1, 1.0)
    done = lobench("watch", run, "--suite", suite, "--once", "--checkpoints", "latest")
    found = results(run / "lobench_results/lm")
    assert "expired" in [one["outcome"] for one in found], (done, found)


MIXED = """
import numpy as np

def test_theta(checkpoint, record):
    theta = checkpoint.theta()
    kept = np.load(checkpoint.path)
    record("norm/loss", float(sum(np.abs(value).sum() for value in theta.values())))
    record("leaves/loss", len(theta))
    assert theta and kept.files
"""


def test_suite_of_tests_and_trainings_has_both(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, GIN), make_run(tmp_path, -3.0, -1.5)
    (suite / "test_theta.py").write_text(MIXED)
    done = lobench("watch", run, "--suite", suite, "--once", "--checkpoints", "all")
    assert done.returncode == 0, done.stdout + done.stderr
    found = results(run / "lobench_results" / suite.name, "--curves")
    by_case = {(one["checkpoint"]["outer_step"], one["case"]["name"]): one for one in found}
    steps = sorted({step for step, _ in by_case})
    assert {name for _, name in by_case} == {"a", "b", "test_theta"} and len(by_case) == len(found) == 3 * len(steps)
    norms = [by_case[step, "test_theta"]["curves"]["norm/loss"][0][0] for step in steps]
    assert np.allclose(norms, [3.0, 1.5])
