"""Results of several codes in one ledger: which of them count, and ledgers of before there were codes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import stores

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.history import EvaluationId
from lobench.core.planner import Plan
from lobench.core.program import Program
from lobench.core.result import EvaluationKey, Outcome
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.merge import merge_stores
from lobench.engine.store.plans import suite_plan

PROGRAM = Program(version="1").key
CASE = stores.case_info("c", 1)
BLOCK = SeedBlock(start=0, size=1)
SUBJECT = Subject.of_optimizer("adam()")
PART = EvaluationId(SUBJECT.sha256, CASE.key, BLOCK)

pytestmark = pytest.mark.usefixtures("any_program_is_forked")


def of_code(code: str) -> CaseInfo:
    case, _, subject = code.partition(":")
    return dataclasses.replace(CASE, case_code=case, subject_code=subject)


def record(
    ledger: Ledger, code: str, value: float, *, outcome: Outcome = Outcome.PASSED, replace: bool = False
) -> bool:
    case = of_code(code)
    position = ledger.record_sighting(SUBJECT)
    ledger.record_admission(position, "admitted")
    curves = stores.curves({"train/loss": [value]}) if outcome is Outcome.PASSED else None
    key = EvaluationKey.of(SUBJECT.sha256, case, BLOCK, PROGRAM)
    return ledger.record_evaluation(key, case, outcome, curves=curves, replace=replace)


def finals(ledger: Ledger, *, all_codes: bool = False) -> list[tuple[str, float]]:
    rows = ledger.evaluations(all_codes=all_codes)
    return [(row.key.code, row.curves.final("train/loss")[0]) for row in rows if row.curves is not None]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "store") as opened:
        yield opened


def test_code_that_takes_the_id_of_a_rolled_back_evaluation_counts(ledger: Ledger) -> None:
    record(ledger, "a:a", 1.0)
    with contextlib.suppress(KeyError), ledger.transaction():
        record(ledger, "b:b", 2.0)
        record(ledger, "c:c", 3.0)
        assert len(ledger.counting_codes("")) == 3
        raise KeyError("rolled back")
    record(ledger, "d:d", 4.0)
    record(ledger, "e:e", 5.0)
    assert set(ledger.counting_codes("")) >= {"a:a", "d:d", "e:e"}


def test_result_of_other_code_lies_beside_the_first_and_the_last_is_read(ledger: Ledger) -> None:
    assert record(ledger, "a:b", 1.0) and record(ledger, "a:c", 2.0) and not record(ledger, "a:c", 3.0)
    assert finals(ledger) == [("a:c", 2.0)]
    assert finals(ledger, all_codes=True) == [("a:b", 1.0), ("a:c", 2.0)]


def test_result_of_the_code_that_was_planned_last_is_read(ledger: Ledger) -> None:
    assert record(ledger, "a:b", 1.0) and record(ledger, "a:c", 2.0)
    ledger.record_plan(SUBJECT, suite_plan([of_code("a:b")], {}))
    assert finals(ledger) == [("a:b", 1.0)]


def test_replaced_result_of_unknown_code_gets_todays(ledger: Ledger) -> None:
    assert record(ledger, "", 1.0) and record(ledger, "a:b", 2.0, replace=True)
    assert finals(ledger, all_codes=True) == [("a:b", 2.0)]


@pytest.mark.parametrize(
    ("stored", "todays", "is_missing"),
    [("a:b", "a:b", False), ("a:b", "a:c", True), ("", "a:b", False), ("a:b", "", False), ("a:", "a:b", False)],
)
def test_plan_asks_for_results_of_other_code(ledger: Ledger, stored: str, todays: str, is_missing: bool) -> None:
    record(ledger, stored, 1.0)
    plan = Plan(ledger.history([PROGRAM]))
    assert [part for part, _ in plan.missing_evaluations(SUBJECT.sha256, [of_code(todays)])] == [PART] * is_missing
    assert plan.outdated_evaluations(SUBJECT.sha256, [of_code(todays)]) == [(PART, stored, todays)] * is_missing
    kept = Plan(ledger.history([PROGRAM], keeps_code=True))
    assert not list(kept.missing_evaluations(SUBJECT.sha256, [of_code(todays)]))


def test_plan_of_returned_code_takes_its_results(ledger: Ledger) -> None:
    record(ledger, "a:b", 1.0)
    record(ledger, "a:c", 2.0)
    plan = Plan(ledger.history([PROGRAM]))
    assert not list(plan.missing_evaluations(SUBJECT.sha256, [of_code("a:b")]))
    assert list(plan.missing_evaluations(SUBJECT.sha256, [of_code("a:d")]))
    plan.record(PART, of_code("a:d"))
    assert not list(plan.missing_evaluations(SUBJECT.sha256, [of_code("a:d")]))


def test_accepted_code_counts_from_then_on(ledger: Ledger) -> None:
    record(ledger, "a:b", 1.0)
    ledger.accept_code([("a:b", "a:c"), ("a:c", "a:d")])
    with contextlib.closing(ledger.open_reader()) as again:
        plan = Plan(again.history([PROGRAM]))
        assert not list(plan.missing_evaluations(SUBJECT.sha256, [of_code("a:d")]))
        assert list(plan.missing_evaluations(SUBJECT.sha256, [of_code("a:e")]))
    events = len(ledger.events("same_code"))
    ledger.accept_code([("a:b", "a:d")])
    assert len(ledger.events("same_code")) == events == 2


def test_error_of_other_code_is_no_error_of_todays(ledger: Ledger) -> None:
    record(ledger, "a:b", 1.0, outcome=Outcome.ERROR)
    record(ledger, "a:c", 2.0)
    case = of_code("a:c")
    plan = Plan(ledger.history([PROGRAM], retried=[Outcome.ERROR]))
    assert not plan.evaluations_to_retry(SUBJECT.sha256, [case]) and plan.evaluations_to_retry(
        SUBJECT.sha256, [of_code("a:b")]
    )
    counted = ledger.outcome_counts([PROGRAM], [case.key], [SUBJECT.sha256], {case.key: case.code})
    assert counted == {Outcome.PASSED: 1}
    ledger.forget_evaluations([PART], programs=[PROGRAM], codes={case.key: "a:b"})
    assert finals(ledger, all_codes=True) == [("a:c", 2.0)]


def test_finished_checkpoint_is_of_todays_code(ledger: Ledger) -> None:
    record(ledger, "a:b", 1.0)
    record(ledger, "a:c", 2.0)
    ledger.finish_checkpoint(0, programs=[PROGRAM], case_keys=[CASE.key], codes={CASE.key: "a:b"})
    (done,) = ledger.checkpoint_finished(0).evaluations
    assert done.curves is not None and done.curves.final("train/loss") == [1.0]


def test_parts_of_code_are_recorded_once(ledger: Ledger) -> None:
    ledger.record_code({"b": {"signs.py": "1"}})
    ledger.record_code({"b": {"signs.py": "1"}, "c": {"signs.py": "2"}})
    with contextlib.closing(ledger.open_reader()) as again:
        assert again.code_parts("c") == {"signs.py": "2"} and again.code_parts("d") is None
    assert len(ledger.events("code")) == 2


def test_merge_takes_results_of_each_code_once(ledger: Ledger, tmp_path: Path) -> None:
    record(ledger, "a:b", 1.0)
    for name, code, value in (("other", "a:c", 2.0), ("unknown", "", 1.0), ("same", "a:b", 3.0)):
        with Ledger.open(tmp_path / name) as more:
            record(more, code, value)
    ledger.close()
    merged = merge_stores([tmp_path / name for name in ("other", "unknown", "same")], tmp_path / "store")
    assert [(one.taken, one.known, len(one.conflicts)) for one in merged] == [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
    with Ledger.open(tmp_path / "store", read_only=True) as both:
        assert finals(both, all_codes=True) == [("a:b", 1.0), ("a:c", 2.0)]


# Ledgers of schema 2, whose evaluations have no code.


@pytest.fixture
def old_store(tmp_path: Path) -> Path:
    store = tmp_path / "old"
    with Ledger.open(store) as made:
        record(made, "", 1.0)
        made.finish_checkpoint(0, programs=[PROGRAM], case_keys=[CASE.key])
    with contextlib.closing(sqlite3.connect(store / "ledger.sqlite")) as db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(evaluations)") if row[1] != "code"]
        db.execute("ALTER TABLE evaluations RENAME TO new")
        work = ", ".join(columns[1:7])
        db.execute(f"CREATE TABLE evaluations (id INTEGER PRIMARY KEY, {', '.join(columns[1:])}, UNIQUE ({work}))")
        db.execute(f"INSERT INTO evaluations SELECT {', '.join(columns)} FROM new")
        db.execute("DROP TABLE new")
        db.execute("UPDATE meta SET value = '2' WHERE key = 'schema_version'")
        db.commit()
    return store


def schema_of(store: Path) -> str:
    with contextlib.closing(sqlite3.connect(store / "ledger.sqlite")) as db:
        return str(db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()[0])


def test_old_store_is_read_as_it_is(old_store: Path, tmp_path: Path) -> None:
    before = (old_store / "ledger.sqlite").read_bytes()
    with Ledger.open(old_store, read_only=True) as ledger:
        assert finals(ledger) == [("", 1.0)]
        assert not list(Plan(ledger.history([PROGRAM])).missing_evaluations(SUBJECT.sha256, [of_code("a:b")]))
    (merged,) = merge_stores([old_store], tmp_path / "both")
    assert merged.taken == 1 and (old_store / "ledger.sqlite").read_bytes() == before


def test_old_store_that_is_written_keeps_its_results(old_store: Path) -> None:
    with Ledger.open(old_store) as ledger:
        assert finals(ledger) == [("", 1.0)]
        assert record(ledger, "a:b", 2.0)
        assert finals(ledger, all_codes=True) == [("", 1.0), ("a:b", 2.0)]
        (done,) = ledger.checkpoint_finished(0).evaluations
        assert done.curves is not None and done.curves.final("train/loss") == [1.0]
    assert schema_of(old_store) == "3"


_KILLED_AT = """
import os, signal, sqlite3, sys
from pathlib import Path
left, connect = int(sys.argv[2]), sqlite3.connect

class Counting(sqlite3.Connection):
    def execute(self, *arguments):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(*arguments)

sqlite3.connect = lambda *arguments, **options: connect(*arguments, factory=Counting, **options)
from lobench.engine.store.ledger import Ledger
Ledger.open(Path(sys.argv[1])).close()
"""


@pytest.mark.parametrize("number", [8, 12, 16, 30])
def test_old_store_whose_writer_is_killed_has_its_results(old_store: Path, number: int) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED_AT, str(old_store), str(number)])
    assert done.returncode in (0, -signal.SIGKILL), os.fspath(old_store)
    with Ledger.open(old_store) as ledger:
        assert finals(ledger) == [("", 1.0)]
    assert schema_of(old_store) == "3"


@pytest.mark.parametrize("seed", range(3))
def test_outdated_results_are_found_among_new_ones_as_among_all(ledger: Ledger, seed: int) -> None:
    """Each new result may be of another code, so that results of its seeds or of other seeds count again."""
    draw = random.Random(seed)
    known_ids, last_id = frozenset[int](), 0
    found_sizes = set[int]()
    work = [(subject, block, code) for subject in (1, 2, 3) for block in range(5) for code in "xy"]
    for subject, block, code in draw.sample(work, len(work)):
        key = dataclasses.replace(
            EvaluationKey.of(SUBJECT.sha256, of_code(code), SeedBlock(start=block, size=1), PROGRAM),
            checkpoint_sha256=f"{subject}",
        )
        ledger.record_evaluation(key, of_code(code), Outcome.PASSED, curves=stores.curves({"train/loss": [1.0]}))
        if draw.random() < 0.3:
            continue
        known_ids = ledger.outdated_ids(after=last_id, known_ids=known_ids)
        ((last_id,),) = ledger.connection.execute("SELECT MAX(id) FROM evaluations").fetchall()
        assert known_ids == ledger.outdated_ids()
        found_sizes.add(len(known_ids))
    assert len(found_sizes) > 3
