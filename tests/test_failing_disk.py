"""A watch whose disk fails for a second: every checkpoint is evaluated in the end, and no error is recorded."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from failing_disk import ALL_CALLS, COMPILING, failing_disk
from forked import python
from shown import texts_of
from tiny import ONE_CASE, PATIENCE, make_run, make_suite, results, watch_command, watch_here, write_checkpoint

SHOWN = texts_of("lobench")

pytestmark = COMPILING
NUMBERS = (errno.ESTALE, errno.EIO, errno.ETIMEDOUT)
LONG_CALLS = [pytest.param(call, marks=pytest.mark.long) for call in ("read", "rename")]


@pytest.mark.parametrize("call", ["open", "fsync", "all", *LONG_CALLS])
def test_watch_on_a_disk_that_fails_for_a_second_evaluates_everything(tmp_path: Path, call: str) -> None:
    suite, run, store = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0, -2.0), tmp_path / "store"
    calls = ALL_CALLS if call == "all" else (call,)
    environment = failing_disk(tmp_path, *calls, paths=(f"{run}/theta_", f"{store}/spool/"), numbers=NUMBERS)
    does_worker_fail = call in ("open", "read", "all")
    executor = ("--executor", "local" if does_worker_fail else "inline")  # a worker only reads
    options = ("--once", "--checkpoints", "all", "--workers", "1", *executor)
    command = watch_command(run, suite, *options, "--store", str(store))
    done = python(*command[1:], timeout=PATIENCE, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(record["outcome"] for record in results(store)) == ["passed"] * 2
    faults = [line.split() for line in (tmp_path / "faults.log").read_text().splitlines()]
    processes = {fault[0] for fault in faults}
    assert faults and len(processes) == 1 + does_worker_fail, "the chief, and a worker that reads"
    lines = (done.stdout + done.stderr).splitlines()
    assert len([line for line in lines if SHOWN["trying-again"] in line]) <= 1, "one line of one outage"
    assert not any("unreadable" in line or "Traceback" in line for line in lines)


# In 25 calls all that is retried as a whole succeeds. Other shifts let other calls fail.
@pytest.mark.parametrize("shift", [3, pytest.param(15, marks=pytest.mark.long)])
@pytest.mark.parametrize("what", ["run", "suite"])
def test_watch_of_which_one_call_in_25_fails_evaluates_everything(tmp_path: Path, what: str, shift: int) -> None:
    suite, run, store = make_suite(tmp_path), make_run(tmp_path, -3.0, -2.0), tmp_path / "store"
    environment = failing_disk(
        tmp_path,
        *("open", "read", "stat", "list"),
        paths=(str(run if what == "run" else suite),),
        numbers=NUMBERS,
        every=(25, shift),
    )
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}  # with the files of bytecode, a collection takes more than 25 calls
    command = watch_command(run, suite, "--once", "--checkpoints", "all", "--workers", "1", "--store", str(store))
    done = python(*command[1:], timeout=PATIENCE, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(record["outcome"] for record in results(store)) == ["passed"] * 4
    assert (tmp_path / "faults.log").exists()


@pytest.mark.parametrize("call", ["open", "fsync", *LONG_CALLS])
def test_watch_whose_store_is_on_a_network_disk_that_fails_for_a_second_evaluates_everything(
    tmp_path: Path, call: str
) -> None:
    suite, run, store = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0), tmp_path / "store"
    environment = failing_disk(tmp_path, call, paths=(str(run), str(store)), numbers=NUMBERS)
    environment |= {"LOBENCH_NETWORK_STORE": "1", "LOBENCH_LOCAL_DIR": str(tmp_path / "local")}
    command = watch_command(run, suite, "--once", "--executor", "inline", "--store", str(store))
    done = python(*command[1:], timeout=PATIENCE, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(record["outcome"] for record in results(store)) == ["passed"]
    assert (tmp_path / "faults.log").exists()


LOOKING = """
import json, os, sys
from pathlib import Path
from lobench.engine.checkpoints.spool import Spool, checkpoint_sha256, holds_theta
from lobench.engine.config import user_code
from lobench.engine.config.command_files import CommandFiles
from lobench.engine.config.suite_files import SuiteFiles
from lobench.engine.paths import path_exists
from lobench.engine.store.data_files import changed_data
from lobench.engine.store.ledger import Ledger
from lobench.engine.whole_file import write_whole
suite, calls = Path(sys.argv[1]), sys.argv[2]
test = suite / "test_tiny.py"
def meanwhile(look):
    os.environ["FAULT_CALLS"] = calls
    try:
        return look()
    finally:
        del os.environ["FAULT_CALLS"]
        os.path.exists(suite)  # ends the outage
files, code = SuiteFiles([str(suite)]), user_code.code_fingerprint([test])
meanwhile(files.record_state)
found = {"remembered": len(files.digests()), "changed": meanwhile(files.changed_file)}
found["changed then"] = files.changed_file()
found["edited"] = meanwhile(lambda: user_code.edited_files(code))
user_code._cached_fingerprints.clear()
found["same code"] = meanwhile(lambda: user_code.code_fingerprint([test])) == code
command = CommandFiles(command="python test_tiny.py", folder=suite, files=["*.csv"])
script = command.fingerprint()
user_code._cached_fingerprints.clear()
found["same script"] = meanwhile(command.fingerprint) == script and len(script.files) > 1
with Ledger.open(suite.parent / "store") as ledger:
    changed_data(ledger, [str(suite)])
    found["data"] = meanwhile(lambda: changed_data(ledger, [str(suite)]))
meanwhile(lambda: write_whole(suite / "new" / "file", "text"))
theta, spool = suite / "theta.npz", Spool(suite / "spool")
sha256 = checkpoint_sha256(theta)
found["theta"] = meanwhile(lambda: holds_theta(theta, sha256))
found["theta is there"] = meanwhile(lambda: path_exists(theta))
Path(spool.copy_location(sha256)).touch()
found["copy"] = meanwhile(lambda: spool.has_copy(sha256))
print(json.dumps(found))
"""


def test_what_is_looked_at_while_a_disk_fails_is_the_same_as_before(tmp_path: Path) -> None:
    suite = make_suite(tmp_path)
    (suite / "numbers.csv").write_text("1, 2\n")
    write_checkpoint(suite / "theta.npz", -1.0)
    environment = failing_disk(tmp_path, paths=(str(suite),), numbers=(errno.ESTALE,), seconds=0.3)
    del environment["FAULT_CALLS"]
    done = python("-c", LOOKING, suite, " ".join(ALL_CALLS), timeout=PATIENCE, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "remembered": 3,
        "changed": None,
        "changed then": None,
        "edited": [],
        "same code": True,
        "same script": True,
        "data": "",
        "theta": True,
        "theta is there": True,
        "copy": True,
    }
    assert (suite / "new" / "file").read_text() == "text"
    assert (tmp_path / "faults.log").exists()


def test_ledger_whose_disk_fails_for_a_moment_was_not_removed(tmp_path: Path) -> None:
    code = "import os, sys; from pathlib import Path; from lobench.engine.store.ledger import Ledger\n"
    code += "with Ledger.open(Path(sys.argv[1])) as ledger:\n"
    code += "    os.environ['FAULT_CALLS'] = 'stat'\n    ledger.record_event('one')\n    del os.environ['FAULT_CALLS']"
    environment = failing_disk(tmp_path, paths=("ledger.sqlite",))
    del environment["FAULT_CALLS"]
    done = python("-c", code, tmp_path / "store", timeout=PATIENCE, env=environment)
    assert done.returncode == 0, done.stderr
    assert "stat" in (tmp_path / "faults.log").read_text()


STALE_TEST = """
from pathlib import Path
from lobench import cases

@cases("tiny.gin")
def test_tiny(case, evaluate):
    evaluate(case)
    if not (file := Path({file!r})).exists():
        file.touch()
        raise OSError(116, "Stale file handle")
"""
STALE_COLLECTION = """
begun = []

def pytest_collect_file(file_path):
    if not begun:
        begun.append(file_path)
        raise OSError(116, "Stale file handle")
"""


@pytest.mark.parametrize("what", ["collection", "evaluation"])
def test_worker_that_meets_a_disk_error_once_tries_again_and_records_no_error(tmp_path: Path, what: str) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0)
    if what == "evaluation":
        (suite / "test_tiny.py").write_text(STALE_TEST.format(file=str(tmp_path / "met")))
    else:
        (suite / "conftest.py").write_text(STALE_COLLECTION)
    done = watch_here(run, suite, "--once", "--executor", "inline", "--store", str(tmp_path / "store"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record["outcome"] for record in results(tmp_path / "store")] == ["passed"]
    assert what == "collection" or (tmp_path / "met").exists()
