"""pytest's output for a session that cannot run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from commands import pytest_session
from reference import ROOT
from shown import texts_of
from tiny import PATIENCE, make_suite

SHOWN = texts_of("pytest")

SUITE = """
from lobench import cases

@cases("tiny.gin")
def test_tiny(case, evaluate):
    evaluate(case)  # the line to be shown
"""
# As where `pip install -e .` was all: without what only tests of lobench itself need.
README_INSTALL = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("hypothesis", "pytest_timeout"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import pytest
sys.exit(pytest.main(["suites/quick", "--collect-only", "-q", "-p", "no:timeout", "-p", "no:hypothesispytest"]))
"""


def run(folder: Path, *words: str) -> str:
    done = pytest_session(*words, cwd=folder)
    return done.stdout + done.stderr


def test_after_the_installation_of_the_readme_there_is_no_warning() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-c", README_INSTALL]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    output = done.stdout + done.stderr
    assert SHOWN["tests-collected"] in output and "arning" not in output, output


def test_a_second_optimizer_does_not_replace_the_first(tmp_path: Path) -> None:
    make_suite(tmp_path)
    twice = ("--lobench-optimizer", "sgd()", "--lobench-optimizer=adam()")
    output = run(tmp_path, "tiny", *twice)
    assert SHOWN["lobench-optimizer-is-given-2"] in output, output
    assert "Traceback" not in output and "passed" not in output


def test_without_an_optimizer_a_suite_of_functions_shows_its_own_line_and_nothing_of_lobench(tmp_path: Path) -> None:
    suite = make_suite(tmp_path)
    (suite / "test_tiny.py").write_text(SUITE)
    np.savez(tmp_path / "theta.npz", x=np.ones(1))
    output = run(tmp_path, "tiny", "--lobench-checkpoint", "theta.npz")
    assert "the line to be shown" in output and SHOWN["no-optimizer-put-case-learned"] in output, output
    assert (
        "lobench/engine" not in output and "lobench/pytest_plugin" not in output and "require_optimizer" not in output
    )
