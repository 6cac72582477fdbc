"""pytest-forked beside lobench: one line instead of a status without a reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from shown import texts_of
from tiny import make_suite

SHOWN = texts_of("pytest")

# What matters of pytest-forked, which need not be installed: its option and its marker.
FORKED = """
import pytest

def pytest_addoption(parser):
    parser.addoption("--forked", action="store_true")

def pytest_configure(config):
    config.addinivalue_line("markers", "forked: in a process of its own")
"""


@pytest.mark.parametrize("how", ["option", "marker"])
def test_pytest_with_forked_cases_is_refused_in_one_line(tmp_path: Path, how: str) -> None:
    suite = make_suite(tmp_path)
    (tmp_path / "pytest_forked.py").write_text(FORKED)
    if how == "marker":
        test = suite / "test_tiny.py"
        test.write_text("import pytest\n" + test.read_text().replace("@cases", "@pytest.mark.forked\n@cases"))
    command = [sys.executable, "-m", "pytest", "-p", "pytest_forked", str(suite), "--lobench-optimizer", "adam()"]
    command += ["--forked"] if how == "option" else []
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    assert len(lines) == 1 and SHOWN["forked-process-cannot-use-jax"] in lines[0] and "tiny/a, tiny/b" in lines[0]
