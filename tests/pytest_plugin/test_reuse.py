"""`pytest --lobench-reuse` into a store that holds all: nothing is bound, so neither jax nor a task is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from shown import texts_of
from tiny import PATIENCE, make_run, make_suite

from lobench.api.evaluate import evaluate_into

SHOWN = texts_of("pytest")

GIN = """
import tiny_tasks
Case.num_inner_steps = 10
Case.num_seeds = 2
a/Case.task = @Bowl()
"""
BARE = """
import tiny_tasks
Case.num_inner_steps = 10
Case.num_seeds = 2
bare/Case.task = @Bowl()
bare/expect.max_final_loss = %bound
bound = 1e9
failing/Case.task = @Bowl()
failing/expect.max_final_loss = -1.0
"""
TEST = """
import os
from lobench import cases

@cases("tiny.gin")
def test_loss(case, evaluate):
    assert evaluate(case).final("train/loss").mean() < 1e9

@cases("tiny.gin")
def test_budget(case, evaluate):
    result = evaluate(case)
    assert "LOOKS" not in os.environ or result.case.num_inner_steps == 10
"""
# A session of pytest, and which of these it has imported.
SESSION = """
import sys
import pytest
code = pytest.main(sys.argv[1:])
print("imported:", *sorted({"hypothesis", "jax", "tiny_tasks"} & sys.modules.keys()))
sys.exit(code)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite, a run of one checkpoint, and a store with that checkpoint and an optimizer."""
    folder = tmp_path_factory.mktemp("made")
    suite, run = make_suite(folder, GIN), make_run(folder, -3.0)
    (suite / "test_tiny.py").write_text(TEST)
    (suite / "bare.gin").write_text(BARE)
    (suite / "numbers.csv").write_text("1")
    evaluate_into(folder / "store", [run / "theta_1.npz", "sgd(); sgd.learning_rate = 0.1"], suite, workers=1)
    return folder


def session(folder: Path, *options: str) -> str:
    command = [sys.executable, "-c", SESSION, "tiny", "-p", "no:cacheprovider", "--lobench-store", "store"]
    words = [*command, "--lobench-reuse", *options]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.stdout + done.stderr


CHECKPOINT = ("--lobench-checkpoint", "run/theta_1.npz")
OPTIMIZER = ("--lobench-optimizer", "sgd(); sgd.learning_rate = 0.1")


@pytest.mark.parametrize("subject", [CHECKPOINT, OPTIMIZER], ids=["checkpoint", "optimizer"])
def test_what_the_store_remembers_is_tested_anew_without_jax(made: Path, subject: tuple[str, str]) -> None:
    output = session(made, *subject)
    assert "1 failed, 3 passed" in output, output
    assert "expect.max_final_loss = -1" in output and SHOWN["failed-tiny-bare-gin-failing"] in output
    assert output.splitlines()[-1] == "imported:", output


def test_who_looks_at_the_case_has_it_bound(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOKS", "1")
    output = session(made, *CHECKPOINT, "-k", "test_budget")
    assert "1 passed" in output and SHOWN["imported-jax-tiny-tasks"] in output, output


def test_cases_are_bound_where_a_file_has_changed(made: Path) -> None:
    file = made / "tiny" / "bare.gin"
    file.write_text(BARE.replace("1e9", "-1e9"))
    output = session(made, *CHECKPOINT, "-k", "bare and not failing")
    assert "1 failed" in output and "expect.max_final_loss = -1e+09" in output, output
    assert SHOWN["imported-jax-tiny-tasks"] in output, output


def test_session_after_change_of_a_data_file_prints_a_line_once(made: Path) -> None:
    (made / "tiny" / "numbers.csv").write_text("2")
    assert SHOWN["data-file-changed"] in (output := session(made, *OPTIMIZER)) and "(tiny/numbers.csv)" in output, (
        output
    )
    assert SHOWN["data-file"] not in (output := session(made, *OPTIMIZER)), output
