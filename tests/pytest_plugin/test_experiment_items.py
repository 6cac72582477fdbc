"""`pytest experiment.gin`: an item for each method, case and session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tiny import make_suite

EXPERIMENT = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
adam/Method.optimizer = @adam()
sgd/Method.optimizer = @sgd()
sgd/sgd.learning_rate = 0.1
"""


def run_pytest(folder: Path, *arguments: str) -> str:
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_suite(tmp_path)
    (tmp_path / "x.gin").write_text(EXPERIMENT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def collected(folder: Path, *arguments: str) -> list[str]:
    lines = run_pytest(folder, *arguments, "--collect-only", "-q").splitlines()
    return [line for line in lines if "::" in line]


def test_ids_are_of_case_method_and_session(folder: Path) -> None:
    expected = [f"x.gin::tiny/{case}[{member}]" for case in "ab" for member in ("adam-0", "adam-1", "sgd-0", "sgd-1")]
    assert sorted(collected(folder, "x.gin")) == expected
    assert collected(folder, "x.gin", "-k", "sgd and tiny/b") == ["x.gin::tiny/b[sgd-0]", "x.gin::tiny/b[sgd-1]"]
    assert collected(folder, "x.gin::tiny/a[sgd-1]") == ["x.gin::tiny/a[sgd-1]"]
    assert "not found: x.gin::tiny/a[sgd-7]" in run_pytest(folder, "x.gin::tiny/a[sgd-7]", "--collect-only")


def test_a_gin_parameter_is_the_experiments_too(folder: Path) -> None:
    found = collected(folder, "x.gin", "--lobench-gin-param", "Experiment.num_sessions = 3", "-k", "tiny/a and adam")
    assert found == [f"x.gin::tiny/a[adam-{session}]" for session in range(3)]


def test_cases_of_the_very_file_have_their_own_number_of_seeds(folder: Path) -> None:
    case = "import nothing_of_that_name\nown/Case.task = @Bowl()\nCase.num_seeds = %n\nn = 2\n"
    (folder / "y.gin").write_text(case + "sgd/Method.optimizer = @sgd()\n")
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = tiny\n")
    name = folder.name  # a bare file's suite is named by the folder that it lies in
    assert collected(folder, "y.gin") == [f"y.gin::{name}/own[sgd-0]", f"y.gin::{name}/own[sgd-1]"]


def test_pytest_says_who_runs_an_experiment(folder: Path) -> None:
    assert "`lobench run x.gin` runs it" in run_pytest(folder, "x.gin")


def test_what_is_wrong_is_one_line(folder: Path) -> None:
    output = run_pytest(folder, "x.gin", "--collect-only", "--lobench-gin-param", "sgd/Case.num_inner_steps = 3")
    assert "method 'sgd' binds Case.num_inner_steps, which must be equal for all methods" in output
    assert "Traceback" not in output


def test_a_folders_run_takes_no_experiment_that_nobody_named(folder: Path) -> None:
    (folder / "x.gin").rename(folder / "tiny" / "x.gin")
    assert sorted(collected(folder, "tiny")) == ["tiny/test_tiny.py::test_tiny[a]", "tiny/test_tiny.py::test_tiny[b]"]
