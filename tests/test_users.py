"""Two users, one group, one store: each works, or a line names the reason."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from stores import case_info
from tiny import make_run, make_suite, write_checkpoint
from users import ALICE, BOB, GROUP, USERS, run_as

from lobench.analysis.scores.baseline_places import baselines_of_cases
from lobench.core.suite_place import SuitePlace

pytestmark = USERS


@pytest.fixture
def lab() -> Iterator[Path]:
    """A folder of Alice's with a run and a suite, in which the group may write; new files in it are the group's."""
    with TemporaryDirectory() as folder:  # pytest's own are closed to others
        Path(folder).chmod(0o755)
        lab = Path(folder) / "lab"
        make_suite(lab)
        make_run(lab, -3.0)
        subprocess.run(["chown", "-R", f"{ALICE}:{GROUP}", lab], check=True)
        subprocess.run(["chmod", "-R", "g+rwX", lab], check=True)
        lab.chmod(0o2775)
        yield lab


def watch(lab: Path, user: int, umask: int) -> subprocess.CompletedProcess[str]:
    options = ["--suite", lab / "tiny", "--once", "--executor", "inline", "--store", lab / "store"]
    return run_as(user, "watch", lab / "run", *options, umask=umask, cwd=lab)


def results(lab: Path, user: int, umask: int) -> subprocess.CompletedProcess[str]:
    return run_as(user, "results", "--store", lab / "store", umask=umask, cwd=lab)


@pytest.mark.parametrize(
    ("writer", "reader"), [(ALICE, BOB), pytest.param(BOB, ALICE, marks=pytest.mark.long)], ids=["owner", "other"]
)
def test_store_with_a_group_umask_is_read_and_continued_by_both_users(lab: Path, writer: int, reader: int) -> None:
    first = watch(lab, writer, 0o002)
    assert first.returncode == 0, first.stdout + first.stderr
    store = lab / "store"
    for name in ("chief.lock", "ledger.sqlite"):
        found = (store / name).stat()
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o664, GROUP)
    files = sorted(os.listdir(store))
    assert results(lab, reader, 0o002).returncode == 0
    assert sorted(os.listdir(store)) == files, "a reader leaves nothing"
    (lab / "tiny").chmod(0o700)
    assert results(lab, reader, 0o002).returncode == 0, "a reader needs no suite"
    (lab / "tiny").chmod(0o2775)
    write_checkpoint(lab / "run" / "theta_2.npz", -2.0)
    second = watch(lab, reader, 0o002)
    assert second.returncode == 0 and "2 passed" in second.stdout, second.stdout + second.stderr
    third = watch(lab, writer, 0o002)
    assert third.returncode == 0 and "nothing new" in third.stdout, third.stdout + third.stderr


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_store_of_one_user_locks_nobody_out_but_others_by_a_line(lab: Path, umask: int) -> None:
    assert watch(lab, ALICE, umask).returncode == 0
    read = results(lab, BOB, umask)
    assert read.returncode == (0 if umask == 0o022 else 2)
    assert umask == 0o022 or "not readable" in read.stderr
    refused = watch(lab, BOB, umask)
    lines = refused.stderr.splitlines()
    assert refused.returncode == 2 and len(lines) == 1 and f"this is user {BOB}" in lines[0], refused.stderr
    again = watch(lab, ALICE, umask)
    assert again.returncode == 0 and "nothing new" in again.stdout, again.stdout + again.stderr


def test_baselines_of_a_suite_that_may_not_be_read_are_reported_in_a_line(lab: Path) -> None:
    (suite := lab / "tiny").joinpath("baselines").mkdir()
    (suite / "baselines" / "adam-velo.json").write_text("{}")
    place = SuitePlace(suite="tiny", path=str(suite), baselines=(("adam-velo.json", "1f"),), store=str(lab / "store"))
    case = dataclasses.replace(case_info("a", suite="tiny"), node_id="tiny/test_tiny.py::test[a]", places=(place,))
    suite.chmod(0o700)
    os.seteuid(BOB)
    try:
        found = baselines_of_cases([case])
    finally:
        os.seteuid(0)
    (note,) = found.notes
    assert "of suite 'tiny' that the store was scored by (adam-velo.json) may not be read by this user" in note
