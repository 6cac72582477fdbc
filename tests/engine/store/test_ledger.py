"""The ledger on a real disk: durable, idempotent, one writer."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import MISSING
from pathlib import Path

import numpy as np
import pytest
from case_infos import case_info
from shown import texts_of

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.errors import StoreBusy, StoreError
from lobench.core.planner import EvaluationId
from lobench.core.program import Program
from lobench.core.result import Curves, EvaluationKey, Outcome
from lobench.core.subject import Subject
from lobench.engine.store import database as store_database
from lobench.engine.store.ledger import Ledger
from lobench.hookspecs import CheckpointFinished, EvaluationFinished

SHOWN = texts_of("store")

pytestmark = pytest.mark.usefixtures("any_program_is_forked")

CASE = case_info("c", identity="i", node_id="n")
PROGRAM = Program(version="1").key
BLOCK = SeedBlock(start=0, size=1)
CURVES = Curves(
    seeds=(0,),
    metrics={"train/loss": memoryview(np.asarray([[2.0, 1.0]], np.float32))},
    eval_steps=(0, 1),
    diverged_at=(-1,),
    wall_seconds=3.0,
)


def key(sha256: str) -> EvaluationKey:
    return EvaluationKey(
        checkpoint_sha256=sha256, optimizer_hash="o", case_identity="i", seed_block=BLOCK, program_version=PROGRAM
    )


def sight(ledger: Ledger, sha256: str, step: int) -> int:
    position = ledger.record_sighting(Subject.of_checkpoint(Checkpoint(uri=f"c{step}", sha256=sha256, outer_step=step)))
    ledger.record_admission(position, "admitted")
    return position


def finish(ledger: Ledger, position: int) -> None:
    ledger.finish_checkpoint(position, programs=[PROGRAM], case_keys=[CASE.key])


def rows_of(ledger: Ledger) -> dict[str, CaseInfo]:
    return {row.key.checkpoint_sha256: row.case for row in ledger.evaluations()}


@pytest.mark.parametrize(
    "read",
    [
        Ledger.sightings,
        Ledger.finished_keys,
        Ledger.run_standings,
        Ledger.shared_runs,
        lambda ledger: ledger.first_deliveries(9),
    ],
)
def test_damaged_subject_is_an_error_of_the_store(tmp_path: Path, read: Callable[[Ledger], object]) -> None:
    with Ledger.open(tmp_path) as ledger:
        finish(ledger, sight(ledger, "x", 1))
        ledger.connection.execute("UPDATE subjects SET bindings = '['")
    with Ledger.open(tmp_path, read_only=True) as ledger, pytest.raises(StoreError):
        read(ledger)


def test_a_row_leaves_out_of_its_case_what_is_a_default_and_gives_it_back(tmp_path: Path) -> None:
    other = dataclasses.replace(CASE, num_cpus=2, minimum=0.0, block_sizes=(4, 6), role="meta_test", headline="speedup")
    with Ledger.open(tmp_path) as ledger:
        for sha256, case in (("x", CASE), ("y", other)):
            sight(ledger, sha256, 1)
            ledger.record_evaluation(key(sha256), case, Outcome.PASSED, curves=CURVES)
        (text,) = ledger.connection.execute("SELECT case_json FROM evaluations").fetchone()
        assert json.loads(text).keys() == {one.name for one in dataclasses.fields(CASE) if one.default is MISSING}
        assert rows_of(ledger) == {"x": CASE, "y": other}
        whole = json.dumps(dataclasses.asdict(other))  # as rows had it before
        ledger.connection.execute("UPDATE evaluations SET case_json = ?", (whole,))
        assert rows_of(ledger) == {"x": other, "y": other}


def test_the_defaults_that_rows_leave_out_are_those_of_ever() -> None:
    defaults = {one.name: one.default for one in dataclasses.fields(CaseInfo) if one.default is not MISSING}
    assert defaults.pop("places") == ()  # never in a row
    empty = dict.fromkeys(("problem", "program_hash", "role", "whole", "file", "own_name"), "")
    empty |= {"case_code": "", "subject_code": "", "task_code": "", "evaluator": ""}
    assert defaults == empty | {
        "primary_metric": "train/loss",
        "num_cpus": 1,
        "num_gpus": 0.0,
        "timeout_seconds": 3600.0,
        "first_seed": 0,
        "scale": None,
        "minimum": None,
        "block_sizes": (),
        "headline": "score",
        "fixed_seeds": False,
        "replicates": "seeds",
    }


def test_an_outcome_is_recorded_once_and_delivered_once_for_each_sighting(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    first = sight(ledger, "x", 1)
    assert sight(ledger, "x", 1) == first
    assert ledger.record_evaluation(key("x"), CASE, Outcome.PASSED, curves=CURVES)
    assert not ledger.record_evaluation(key("x"), CASE, Outcome.FAILED, curves=None)
    finish(ledger, first)
    finish(ledger, first)
    second = sight(ledger, "x", 2)
    finish(ledger, second)
    events = [delivery.event for delivery in ledger.deliveries_after(0)]
    assert [(type(e), e.checkpoint.outer_step) for e in events] == [
        (EvaluationFinished, 1),
        (CheckpointFinished, 1),
        (EvaluationFinished, 2),
        (CheckpointFinished, 2),
    ]
    assert isinstance(events[0], EvaluationFinished) and events[0].curves is not None
    assert events[0].curves.final("train/loss") == [1.0]
    (row,) = ledger.evaluations()
    assert row.outcome is Outcome.PASSED and [c.outer_step for c in row.recorded_sightings] == [1, 2]


def test_a_restart_knows_all_that_it_needs(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    done, skipped = sight(ledger, "x", 1), sight(ledger, "y", 2)
    waiting = ledger.record_sighting(Subject.of_checkpoint(Checkpoint(uri="c3", sha256="z", outer_step=3)))
    ledger.record_admission(skipped, "skipped")
    evaluation = EvaluationId("x", CASE.key, BLOCK)
    ledger.record_incident("death", evaluation)
    ledger.record_incident("split", EvaluationId("y", CASE.key, BLOCK))
    ledger.record_evaluation(key("x"), CASE, Outcome.PASSED, curves=CURVES)
    finish(ledger, done)
    ledger.advance_cursor("sink", 2)
    ledger.advance_cursor("sink", 1)
    ledger.close()
    ledger = Ledger.open(tmp_path)
    history = ledger.history([PROGRAM])
    assert history.recorded == {evaluation}
    assert history.deaths == {evaluation: 1}
    assert history.splits == {EvaluationId("y", CASE.key, BLOCK)}
    assert history.admissions == {done: "admitted", skipped: "skipped"}
    assert history.finished == {done}
    assert history.durations == {CASE.key: 3.0}
    assert ledger.history(["2-another"]).recorded == set()
    assert list(ledger.sightings()) == [done, skipped, waiting]
    assert ledger.sink_cursor("sink") == 2 and ledger.sink_cursor("other") == 0


def test_what_gave_no_curves_says_nothing_of_how_long_a_case_takes(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    for sha256 in ("x", "y"):
        ledger.record_evaluation(key(sha256), CASE, Outcome.ERROR, curves=None)
    assert ledger.history([PROGRAM]).durations == {}
    ledger.record_evaluation(key("z"), CASE, Outcome.PASSED, curves=CURVES)
    assert ledger.history([PROGRAM]).durations == {CASE.key: 3.0}
    ledger.close()


def test_a_message_that_is_no_text_is_recorded_escaped(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    name = os.fsdecode(b"\xff.npz")  # as a task's own FileNotFoundError has it
    ledger.record_evaluation(key("x"), CASE, Outcome.ERROR, curves=None, message=f"no file d/{name}")
    assert [row.message for row in ledger.evaluations()] == [SHOWN["no-file-d-dcff-npz"]]
    ledger.close()


def test_what_failed_inside_a_transaction_is_not_there(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    with pytest.raises(RuntimeError), ledger.transaction():
        sight(ledger, "x", 1)
        raise RuntimeError
    assert ledger.sightings() == {}


def test_a_finished_checkpoint_holds_what_made_it_so_and_no_other_program_or_optimizer(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    position = sight(ledger, "x", 1)
    other = dataclasses.replace(CASE, optimizer_hash="other")
    for version, case, outcome in (
        ("0-another", CASE, Outcome.ERROR),
        (PROGRAM, other, Outcome.FAILED),
        (PROGRAM, CASE, Outcome.PASSED),
    ):
        changed = dataclasses.replace(key("x"), program_version=version, optimizer_hash=case.optimizer_hash)
        ledger.record_evaluation(changed, case, outcome, curves=None)
    finish(ledger, position)
    for event in (ledger.deliveries_after(0)[-1].event, ledger.checkpoint_finished(position)):
        assert isinstance(event, CheckpointFinished)
        assert [evaluation.outcome for evaluation in event.evaluations] == [Outcome.PASSED]
    # A second sighting of the same theta is told of these alone, too.
    before = ledger.last_sequence()
    finish(ledger, sight(ledger, "x", 2))
    events = [delivery.event for delivery in ledger.deliveries_after(before)]
    assert [getattr(event, "outcome", "finished") for event in events] == [Outcome.PASSED, "finished"]


def test_errors_can_be_tried_again(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    position = sight(ledger, "x", 1)
    evaluation = EvaluationId("x", CASE.key, BLOCK)
    other = dataclasses.replace(key("x"), program_version="2-another")
    ledger.record_incident("death", evaluation)
    for each in (key("x"), other):
        ledger.record_evaluation(each, CASE, Outcome.TIMEOUT, curves=None)
    finish(ledger, position)
    assert ledger.history([PROGRAM], retried=[Outcome.ERROR]).retried == set()
    assert ledger.history([PROGRAM], retried=[Outcome.TIMEOUT]).retried == {evaluation}
    ledger.reopen_checkpoint(position)
    ledger.forget_evaluations([evaluation], programs=[PROGRAM])
    history = ledger.history([PROGRAM])
    assert history.recorded == history.finished == set() and history.deaths == {}
    assert [row.key for row in ledger.evaluations()] == [other], "what another program left stays"
    ledger.record_evaluation(key("x"), CASE, Outcome.PASSED, curves=CURVES)
    finish(ledger, position)
    last = ledger.deliveries_after(0)[-1].event
    assert isinstance(last, CheckpointFinished) and last.evaluations[0].outcome is Outcome.PASSED
    assert ledger.outcome_counts([PROGRAM], [CASE.key], ["x"]) == {Outcome.PASSED: 1}


def test_of_two_programs_that_count_the_last_result_completes_a_checkpoint(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    position = sight(ledger, "x", 1)
    for program, outcome in ((PROGRAM, Outcome.FAILED), ("1-together", Outcome.PASSED)):
        changed = dataclasses.replace(key("x"), program_version=program)
        ledger.record_evaluation(changed, CASE, outcome, curves=CURVES)
    ledger.finish_checkpoint(position, programs=[PROGRAM, "1-together"], case_keys=[CASE.key])
    assert [each.outcome for each in ledger.checkpoint_finished(position).evaluations] == [Outcome.PASSED]


@pytest.mark.parametrize("version", ["two", "", None])
def test_a_schema_version_that_is_no_number_is_one_line(tmp_path: Path, version: str | None) -> None:
    Ledger.open(tmp_path).close()
    with sqlite3.connect(tmp_path / "ledger.sqlite") as database:
        database.execute("DELETE FROM meta")
        if version is not None:
            database.execute("INSERT INTO meta VALUES ('schema_version', ?)", (version,))
    database.close()
    with pytest.raises(StoreError, match=SHOWN["schema-version-is-move-the"]):
        Ledger.open(tmp_path, read_only=True)


def test_a_lock_that_is_held_for_long_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_database, "_BUSY_SECONDS", 0.05)
    ledger = Ledger.open(tmp_path)
    other = sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=SHOWN["locked-sqlite3-backup-the-same"]):
        sight(ledger, "x", 1)
    other.execute("ROLLBACK")
    other.close()
    sight(ledger, "x", 1)
    ledger.close()


WRITER = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parents[1])]
from test_ledger import *
ledger = Ledger.open(Path(sys.argv[2]), name="writer")
for step in range(1000):
    with ledger.transaction():
        sight(ledger, str(step), step)
        ledger.record_evaluation(key(str(step)), CASE, Outcome.PASSED, curves=CURVES)
    print(step, flush=True)
"""


def test_killed_while_it_writes_it_keeps_what_it_acknowledged_and_frees_the_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(Path(__file__).parent), str(tmp_path)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(20)]
    with pytest.raises(StoreBusy, match=f"'writer', process {writer.pid}"):
        Ledger.open(tmp_path, name="second")
    reader = Ledger.open(tmp_path, read_only=True)
    assert len(list(reader.evaluations())) >= 20
    writer.kill()
    rest = writer.communicate()[0].split()
    acknowledged += [int(line) for line in rest]
    ledger = Ledger.open(tmp_path)
    stored = [row.recorded_sightings[0].outer_step for row in ledger.evaluations()]
    assert stored[: len(acknowledged)] == acknowledged
    assert len(stored) <= len(acknowledged) + 1


def test_stores_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=SHOWN["no-result-store-found"]):
        Ledger.open(tmp_path / "none", read_only=True)
    ledger = Ledger.open(tmp_path / "new")
    ledger._db.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    ledger.close()
    with pytest.raises(StoreError, match=SHOWN["newer-lobench-got-schema-version"]):
        Ledger.open(tmp_path / "new")
    if os.getuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
        with pytest.raises(StoreError, match=SHOWN["permission-denied"]):
            Ledger.open(tmp_path / "locked")


@pytest.mark.parametrize("network", ["0", "1"])
def test_an_emptied_ledger_is_said_and_begins_anew(
    tmp_path: Path, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOBENCH_NETWORK_STORE", network)
    monkeypatch.setenv("LOBENCH_LOCAL_DIR", str(tmp_path / "local"))
    store, output = tmp_path / "store", list[str]()
    Ledger.open(store, on_problem=output.append).close()
    (store / "spool").mkdir()
    Ledger.open(store, on_problem=output.append).close()
    assert not output, "a store that is fresh or as it was"
    (store / "ledger.sqlite").write_bytes(b"")
    with pytest.raises(StoreError, match=SHOWN["no-such-table-meta-start"]):
        Ledger.open(store, read_only=True)
    Ledger.open(store, on_problem=output.append).close()
    assert output == [SHOWN["was-empty-though-the-store"].format(ledger=store / "ledger.sqlite")]
    Ledger.open(store, read_only=True).close()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_store_that_is_removed_or_replaced_while_it_is_in_use(tmp_path: Path, is_replaced: bool) -> None:
    """The system would let it be written to the end, and nothing of that would be left."""
    store = tmp_path / "store"
    ledger = Ledger.open(store)
    sight(ledger, "x", 1)
    shutil.rmtree(store)
    if is_replaced:
        Ledger.open(store).close()
    with pytest.raises(StoreError, match=SHOWN["store-the-store-was-removed"]):
        sight(ledger, "y", 2)
