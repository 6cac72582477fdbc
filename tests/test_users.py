"""Two users, one group, one store: each works, or a line names the reason."""

from __future__ import annotations

import dataclasses
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from shown import texts_of
from stores import case_info
from tiny import make_run, until, write_checkpoint
from users import ALICE, BOB, GROUP, IN_PROCESS, USERS, run_as, start_as

from lobench.analysis.scores.baseline_places import baselines_of_cases
from lobench.core.suite_place import SuitePlace

SHOWN = texts_of("lobench")

pytestmark = USERS

# Commands: the processes of these tests import no jax.
GIN = """
Case.num_seeds = 1
Case.primary_metric = "valid/loss"
Case.curves = "{out}/metrics.json"
a/Case.command = "python evaluate.py {checkpoint} {step} {out}"
"""
EVALUATE = """
import json, pathlib, sys
checkpoint, step, out = sys.argv[1:]
size = len(open(checkpoint, "rb").read())
pathlib.Path(out, "metrics.json").write_text(json.dumps({"valid/loss": 1 / int(step), "size": size}))
"""


@pytest.fixture
def lab() -> Iterator[Path]:
    """A folder of Alice's with a run and a suite, in which the group may write; new files in it are the group's."""
    with TemporaryDirectory() as folder:  # pytest's own are closed to others
        Path(folder).chmod(0o755)
        lab = Path(folder) / "lab"
        (lab / "tiny").mkdir(parents=True)
        (lab / "tiny" / "tiny.gin").write_text(GIN)
        (lab / "tiny" / "evaluate.py").write_text(EVALUATE)
        make_run(lab, -3.0)
        subprocess.run(["chown", "-R", f"{ALICE}:{GROUP}", lab], check=True)
        subprocess.run(["chmod", "-R", "g+rwX", lab], check=True)
        lab.chmod(0o2775)
        yield lab


def watch(lab: Path, user: int, umask: int, *more: str) -> subprocess.CompletedProcess[str]:
    options = [*more, "--suite", lab / "tiny", "--once", "--executor", "inline", "--store", lab / "store"]
    return run_as(user, "watch", lab / "run", *options, umask=umask, cwd=lab)


def results(lab: Path, user: int, umask: int) -> subprocess.CompletedProcess[str]:
    return run_as(user, "results", "--store", lab / "store", umask=umask, cwd=lab)


def test_store_with_a_group_umask_is_read_and_continued_by_both_users(lab: Path) -> None:
    first = watch(lab, ALICE, 0o002)
    assert first.returncode == 0, first.stdout + first.stderr
    store = lab / "store"
    for name in ("chief.lock", "ledger.sqlite"):
        found = (store / name).stat()
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o664, GROUP)
    files = sorted(os.listdir(store))
    assert results(lab, BOB, 0o002).returncode == 0
    assert sorted(os.listdir(store)) == files, "a reader leaves nothing"
    (lab / "tiny").chmod(0o700)
    assert results(lab, BOB, 0o002).returncode == 0, "a reader needs no suite"
    (lab / "tiny").chmod(0o2775)
    write_checkpoint(lab / "run" / "theta_2.npz", -2.0)
    second = watch(lab, BOB, 0o002)
    assert second.returncode == 0 and "1 passed" in second.stdout, second.stdout + second.stderr
    third = watch(lab, ALICE, 0o002)
    assert third.returncode == 0 and SHOWN["nothing-new"] in third.stdout, third.stdout + third.stderr


def assert_refused(refused: subprocess.CompletedProcess[str], lab: Path) -> None:
    lines = refused.stderr.splitlines()
    assert refused.returncode == 2 and len(lines) == 1 and SHOWN["this-is-user"].format(bob=BOB) in lines[0], (
        refused.stderr
    )
    assert SHOWN["its-owner-can-let-the"] in lines[0] and str(lab / "store") in lines[0]


@pytest.mark.parametrize(("first", "second"), [(0o002, 0o077), (0o077, 0o002)], ids=["group-first", "private-first"])
def test_store_of_users_with_different_umasks_is_continued_by_both(lab: Path, first: int, second: int) -> None:
    # Not --report: on a busy machine its last page may come after the end of the watch, with the umask's mode.
    store, sinks = lab / "store", ("--sink", "tensorboard")
    assert watch(lab, ALICE, first, *sinks).returncode == 0
    if first == 0o077:
        read = results(lab, BOB, second)
        assert read.returncode == 2 and SHOWN["not-readable"] in read.stderr
        refused = watch(lab, BOB, second)
        assert_refused(refused, lab)
        advice = f"chmod -R g+rwX {store}".split()
        subprocess.run(["setpriv", "--reuid", str(ALICE), "--regid", str(GROUP), "--clear-groups", *advice], check=True)
    for step, (user, umask) in enumerate(((BOB, second), (ALICE, first)), start=2):
        write_checkpoint(lab / "run" / f"theta_{step}.npz", -3.0 + step / 2)
        continued = watch(lab, user, umask, *sinks)
        assert continued.returncode == 0 and "1 passed" in continued.stdout, continued.stdout + continued.stderr
        assert SHOWN["still-lacks"] not in continued.stdout, "a sink could not go on with what the other user wrote"
        modes = {path: path.stat().st_mode & 0o060 for path in (store, *store.rglob("*"))}
        assert set(modes.values()) == {0o060}, modes


def test_store_of_a_killed_watch_with_a_private_umask_is_continued_by_the_other_user(lab: Path) -> None:
    store, more = lab / "store", ("--sink", "tensorboard", "--report")
    assert watch(lab, ALICE, 0o002).returncode == 0
    write_checkpoint(lab / "run" / "theta_2.npz", -2.0)
    options = ["--suite", lab / "tiny", "--executor", "inline", "--store", store, *more]
    with start_as(BOB, "watch", lab / "run", *options, umask=0o077, cwd=lab) as process:
        assert process.stdout is not None
        decisions, events = store / "decisions" / "000002.jsonl.gz", store / "tensorboard"
        # Bob's own files: a file that is killed with its process in the moment of its creation is closed.
        until(lambda: decisions.exists() and decisions.stat().st_size > 0, "the log of decisions")
        until(lambda: any(path.stat().st_uid == BOB for path in events.rglob("*tfevents*")), "the sink")
        os.kill(process.pid, signal.SIGKILL)
    closed = [path for path in (store, *store.rglob("*")) if path.stat().st_mode & 0o060 != 0o060]
    assert not closed
    write_checkpoint(lab / "run" / "theta_3.npz", -1.0)
    continued = watch(lab, ALICE, 0o002, *more)
    assert continued.returncode == 0 and " passed" in continued.stdout, continued.stdout + continued.stderr


def test_sink_that_another_user_has_closed_names_the_owner_and_what_to_type(lab: Path) -> None:
    (store := lab / "store").mkdir()
    (closed := store / "tensorboard").mkdir(mode=0o700)
    os.chown(closed, ALICE, GROUP)
    os.chown(store, BOB, GROUP)
    assert_refused(watch(lab, BOB, 0o002, "--sink", "tensorboard"), lab)


def test_store_that_becomes_read_only_ends_a_watch_with_a_line_and_loses_nothing(lab: Path) -> None:
    store, files = lab / "store", lab / "run"
    options = ["--suite", lab / "tiny", "--executor", "inline", "--store", store, "--checkpoints", "all"]
    options += ["--until-step", "2", "--report"]
    with start_as(ALICE, "watch", files, *options, cwd=lab) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if line.startswith("outer step 1:"):
                break
        for path in (store, *store.rglob("*")):
            path.chmod(path.stat().st_mode & ~0o222)
        write_checkpoint(files / "theta_2.npz", -2.0)
        said, errors = process.stdout.read(), process.stderr.read()
    assert process.returncode == 2 and "Traceback" not in said, said + errors
    (line,) = errors.splitlines()
    assert line.startswith(f"lobench: {store}") and SHOWN["permission-denied"] in line and f"user {ALICE}" in line, line
    subprocess.run(["chmod", "-R", "u+w", store], check=True)
    again = run_as(ALICE, "watch", files, *options, cwd=lab)
    assert again.returncode == 0 and "1 passed" in again.stdout, again.stdout + again.stderr


@IN_PROCESS
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
    assert SHOWN["of-suite-tiny-that-the"] in note
