"""`pytest quadratic`: lobench's own suites by name; root, ini file and store are the working directory's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import pytest_session
from shown import texts_of
from tiny import PATIENCE, make_suite, results

SHOWN = texts_of("pytest")

ADAM = ("--lobench-optimizer", "adam(); adam.learning_rate = 0.1")


def run_pytest(folder: Path, *arguments: str) -> str:
    if "-n" not in arguments:
        here = pytest_session(*arguments, cwd=folder)
        return here.stdout + here.stderr
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["here", "xdist"])
def test_a_shipped_suite_runs_by_name_and_its_results_stay_here(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nlobench_gin_param = Case.num_inner_steps = 3\n")
    output = run_pytest(
        tmp_path, "quadratic", "-k", "condition1 or quadratic", "-k", "diagonal100",
        "--lobench-store", ".lobench/mine", *ADAM, *workers,
    )  # fmt: skip
    assert SHOWN["rootdir-configfile-pytest-ini"].format(folder=tmp_path) in output and "1 passed" in output, output
    (found,) = results(tmp_path / ".lobench" / "mine")
    assert found["case"]["suite"] == "quadratic" and found["eval_steps"] == [0, 3]


def test_a_folder_of_that_name_wins_and_a_name_that_is_none_is_told(tmp_path: Path) -> None:
    make_suite(tmp_path).rename(tmp_path / "quick")
    collected = run_pytest(tmp_path, "quick", "digits/mlp.gin::batch8", "--collect-only", "-q")
    assert "quick/test_tiny.py" in collected and "relu32" not in collected and "batch8" in collected, collected
    unknown = run_pytest(tmp_path, "quadratik", *ADAM)
    assert SHOWN["quadratik-no-such-suite"] in unknown and SHOWN["did-you-mean-quadratic"] in unknown
    assert SHOWN["file-or-directory-not-found"] in run_pytest(tmp_path, "quadratik")
