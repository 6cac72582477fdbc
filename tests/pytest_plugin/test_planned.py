"""A session writes what it is going to evaluate before its first result, as a watch does."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

from commands import pytest_session
from tampered import published
from tiny import GIN, ONE_CASE, make_run, make_suite

from lobench.analysis.store.snapshot import read_store
from lobench.engine.store.ledger import Ledger
from lobench.tools.audit.audit import audit


def test_a_session_writes_its_plan_first_and_a_dropped_seed_contradicts_it(tmp_path: Path) -> None:
    gin = GIN.replace("Case.num_seeds = 2", "Case.num_seeds = 4\nCase.seed_block = 2")
    suite, run, store = make_suite(tmp_path, gin), make_run(tmp_path, -3.0), tmp_path / "store"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tiny", f"--lobench-store={store}"]
    command += [f"--lobench-checkpoint={run / 'theta_1.npz'}", "-n", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    with Ledger.open(store, read_only=True) as ledger:
        (own,) = ledger.planned_subjects()
        files = {name for plan in ledger.planned_files() for name in plan}
        rows = list(ledger.evaluations())
    assert [(one.name, len(one.blocks)) for one in own.cases] == [("tiny/a", 2), ("tiny/b", 2)]
    assert sorted(files) == ["tiny/test_tiny.py", "tiny/tiny.gin", "tiny/tiny_tasks.py"]
    assert len(rows) == 4 and own.problem == ""
    assert own.at <= min(row.recorded_at for row in rows)
    honest = audit(published(store, tmp_path / "honest.lobench", suite), sample="0")
    assert honest.is_passed and not any("plan" in note for note in honest.notes), honest
    with sqlite3.connect(store / "ledger.sqlite") as database:
        database.execute("DELETE FROM evaluations WHERE id = (SELECT MIN(id) FROM evaluations)")
    found = audit(published(store, tmp_path / "dropped.lobench", suite), sample="0")
    # The records of the delivery still name the evaluation.
    assert [one.kind for one in found.contradictions] == ["absent", "record", "record"], found.contradictions


def test_a_session_of_the_whole_suite_ends_deleted_cases_and_one_of_a_part_does_not(tmp_path: Path) -> None:
    suite, run, store = make_suite(tmp_path), make_run(tmp_path, -3.0), tmp_path / "store"

    def current(*options: str) -> list[str]:
        subject = f"--lobench-checkpoint={run / 'theta_1.npz'}"
        done = pytest_session(*options, f"--lobench-store={store}", subject, "--lobench-reuse", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return [case.name for case in read_store(store).cases]

    assert [current("tiny"), current("tiny", "-k", "[a]")] == [["a", "b"]] * 2
    (suite / "tiny.gin").write_text(ONE_CASE)
    assert current("tiny/test_tiny.py::test_tiny[a]") == ["a", "b"]
    assert current("tiny") == ["a"] and read_store(store).left_out.removed_cases == (("tiny/b", 1),)
