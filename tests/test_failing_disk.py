"""A watch whose disk fails for a second: every checkpoint is evaluated in the end, and no error is recorded."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import pytest
from failing_disk import COMPILING, failing_disk
from tiny import PATIENCE, make_run, make_suite, results, watch_command

pytestmark = COMPILING
NUMBERS = (errno.ESTALE, errno.EIO, errno.ETIMEDOUT)


def params(**usual: int) -> list[object]:
    """Returns each call with each number; all but the usual ones are long."""
    return [
        pytest.param(call, number, marks=[] if usual[call] == number else [pytest.mark.long])
        for call in usual
        for number in NUMBERS
    ]


@pytest.mark.parametrize(
    ("call", "number"), params(open=errno.ESTALE, read=errno.EIO, fsync=errno.ETIMEDOUT, rename=errno.ESTALE)
)
def test_watch_on_a_disk_that_fails_for_a_second_evaluates_everything(tmp_path: Path, call: str, number: int) -> None:
    suite, run, store = make_suite(tmp_path), make_run(tmp_path, -3.0, -2.0), tmp_path / "store"
    environment = failing_disk(tmp_path, call, paths=(f"{run}/theta_", f"{store}/spool/"), number=number)
    command = watch_command(run, suite, "--once", "--checkpoints", "all", "--workers", "1", "--store", str(store))
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(record["outcome"] for record in results(store)) == ["passed"] * 4
    faults = [line.split() for line in (tmp_path / "faults.log").read_text().splitlines()]
    processes = {fault[0] for fault in faults}
    assert faults and len(processes) == (2 if call in ("open", "read") else 1), "the chief, and the worker that reads"
    lines = (done.stdout + done.stderr).splitlines()
    assert len([line for line in lines if "trying again" in line]) <= 1, "one line of one outage"
    assert not any("unreadable" in line or "Traceback" in line for line in lines)


@pytest.mark.parametrize(
    ("call", "number"), params(open=errno.ESTALE, read=errno.EIO, fsync=errno.EIO, rename=errno.ETIMEDOUT)
)
def test_watch_whose_store_is_on_a_network_disk_that_fails_for_a_second_evaluates_everything(
    tmp_path: Path, call: str, number: int
) -> None:
    suite, run, store = make_suite(tmp_path), make_run(tmp_path, -3.0), tmp_path / "store"
    environment = failing_disk(tmp_path, call, paths=(str(run), str(store)), number=number)
    environment |= {"LOBENCH_NETWORK_STORE": "1", "LOBENCH_LOCAL_DIR": str(tmp_path / "local")}
    command = watch_command(run, suite, "--once", "--executor", "inline", "--store", str(store))
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(record["outcome"] for record in results(store)) == ["passed"] * 2
    assert (tmp_path / "faults.log").exists()
