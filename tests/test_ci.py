"""The scripts of ci/: what `ci/test` asks of pytest."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from reference import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose set-up is done and whose python says what it is asked."""
    (tmp_path / "ci").mkdir()
    shutil.copy(ROOT / "ci" / "test", tmp_path / "ci" / "test")
    (tmp_path / "ci" / "setup.sh").write_text(f"set -euo pipefail\nexport PATH={tmp_path}/bin:$PATH\n")
    (tmp_path / "bin").mkdir()
    for name, script in {
        "nproc": "echo $CORES",
        "python": 'echo "$PYTEST_XDIST_AUTO_NUM_WORKERS: $(printf "[%s]" "$@")"',
    }.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def ci_test(checkout: Path, *arguments: str, cores: int = 2) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        ["bash", checkout / "ci" / "test", *arguments],
        env={**environment, "CORES": str(cores)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(("cores", "processes"), [(1, 2), (2, 3), (15, 16), (200, 16)])
def test_it_runs_one_process_more_than_there_are_cores(checkout: Path, cores: int, processes: int) -> None:
    assert ci_test(checkout, cores=cores) == f"{processes}: [-m][pytest][-n][auto][--dist][loadfile]"


def test_arguments_of_its_user_come_last_and_win(checkout: Path) -> None:
    said = ci_test(checkout, "-n", "0", "tests/core", "-k", "one or other")
    assert said == "3: [-m][pytest][-n][auto][--dist][loadfile][-n][0][tests/core][-k][one or other]"
