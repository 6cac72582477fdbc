"""The end of a session: nobody looks for garbage among what jax made, where a suite was all that the process ran."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GIN = """
Case.num_inner_steps = 2
Case.num_seeds = 1
a/Case.task = @Quadratic()
"""
# A test's process is forked from one that had frozen what it imported.
CONFTEST = """
import gc

gc.unfreeze()

def pytest_unconfigure():
    print(f"frozen: {gc.get_freeze_count() > 0}")
"""


@pytest.mark.parametrize("has_other_tests", [False, True])
def test_what_a_suite_leaves_is_not_looked_through_but_what_other_tests_leave_is(
    has_other_tests: bool, tmp_path: Path
) -> None:
    (tmp_path / "tiny.gin").write_text(GIN)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    if has_other_tests:
        (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ".", "--lobench-optimizer=sgd()"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"frozen: {not has_other_tests}" in done.stdout
