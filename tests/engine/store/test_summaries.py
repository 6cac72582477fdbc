"""Summaries of a store: beside every payload, whoever wrote it, and never of another one."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import lobench
from shown import texts_of
from stores import add, case_info, curves

from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import _values_of_blocks
from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.curve_summary import CurveSummary, summarize
from lobench.core.errors import StoreError
from lobench.core.program import PROGRAM_VERSION, Program
from lobench.core.result import Curves, EvaluationKey, Outcome
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.merge import merge_stores
from lobench.engine.store.reader import EVALUATION_COLUMNS
from lobench.engine.store.summaries import StoredSummaries

SHOWN = texts_of("store")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    add(store, 1, {"a": {"train/loss": [1.0, np.nan], "test/loss": [1.5, 5.0]}, "b": Outcome.ERROR})
    add(store, 2, {"a": {"train/loss": [0.5, 9.0], "test/loss": [0.75, np.inf]}})
    return store


@contextlib.contextmanager
def database(store: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(store / "ledger.sqlite")) as db, db:
        yield db


def test_an_evaluation_recorded_while_a_reading_begins_is_read_whole(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a metric that none had before, and a program of its own."""
    begin = StoredSummaries.__init__

    def begin_and_record(self: StoredSummaries, *arguments: Any) -> None:
        monkeypatch.undo()
        begin(self, *arguments)
        subject, program = Subject.of_optimizer("adam()"), Program(jax="0.7.9", jaxlib="0.7.9", device="cpu: odd")
        with Ledger.open(store, name="test") as ledger:
            ledger.record_sighting(subject)
            case = case_info("c", 1)
            key = EvaluationKey.of(subject.sha256, case, case.blocks()[0], program.key)
            found = curves({"odd/loss": [1.0]})
            ledger.record_evaluation(key, case, Outcome.PASSED, curves=found, program=program)

    monkeypatch.setattr(StoredSummaries, "__init__", begin_and_record)
    with database(store) as other:
        other.execute("SELECT * FROM meta").fetchall()  # keeps the files open, as a watch does
        with Ledger.open(store, read_only=True) as ledger:
            last_row = [*ledger.evaluations(summarized=True)][-1]
    assert last_row.curves_or_summary is not None and "odd/loss" in last_row.curves_or_summary.metrics
    assert last_row.program.jax == "0.7.9"


def make_old(store: Path) -> None:
    """Makes a store as a lobench without summaries wrote it."""
    with database(store) as db:
        for name in ("payload_recorded", "payload_replaced", "payload_dropped"):
            db.execute(f"DROP TRIGGER {name}")
        db.execute("DROP TABLE summaries")
        db.execute("DROP TABLE summary_heads")
        db.execute("DELETE FROM meta WHERE key = 'summary_version'")


def is_right(store: Path) -> bool:
    """Says whether each payload has the summary that is computed of it, and nothing else has one."""
    with database(store) as db:
        query = "SELECT evaluation, text, numbers FROM summaries LEFT JOIN summary_heads ON id = head"
        found = {evaluation: (text, numbers) for evaluation, text, numbers in db.execute(query)}
    with Ledger.open(store, read_only=True) as ledger:
        rows = [row for row in ledger.evaluations() if row.payload is not None]
        expected = {row.id: summarize(one, row.case.primary_metric) for row in rows if (one := row.curves) is not None}
    return found == expected and len(found) > 0


def forbid_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Curves, "from_payload", None)


def record(store: Path, final: float, *, replace: bool = False) -> None:
    case, sha256 = case_info("a", 1), f"{1:064x}"
    key = EvaluationKey(
        checkpoint_sha256=sha256, optimizer_hash="o", case_identity=case.identity,
        seed_block=SeedBlock(start=0, size=1), program_version=PROGRAM_VERSION,
    )  # fmt: skip
    with Ledger.open(store) as ledger:
        checkpoint = Checkpoint(uri="run/theta_1.npz", sha256=sha256, outer_step=1)
        ledger.record_admission(ledger.record_sighting(Subject.of_checkpoint(checkpoint)), "admitted")
        made = curves({"train/loss": [final]})
        ledger.record_evaluation(key, case, Outcome.PASSED, curves=made, replace=replace)


def test_store_has_a_summary_of_each_payload(store: Path) -> None:
    assert is_right(store)
    with Ledger.open(store, read_only=True) as ledger:
        rows = list(ledger.evaluations(summarized=True))
    assert [type(row.attached_curves) for row in rows] == [CurveSummary, type(None), CurveSummary]
    assert all(row.payload is None for row in rows)


def test_result_that_is_replaced_has_the_summary_of_the_new_one(tmp_path: Path) -> None:
    record(tmp_path, 1.0)
    record(tmp_path, 0.25, replace=True)
    assert is_right(tmp_path)
    (subject,) = read_store(tmp_path, summarized=True).subjects
    assert subject.cells["s/a"].finals("train/loss") == {0: 0.25}


def test_older_store_gets_its_summaries_when_it_is_written_and_not_when_it_is_read(store: Path) -> None:
    make_old(store)
    before = hashlib.sha256((store / "ledger.sqlite").read_bytes()).digest()
    expected = lobench("results", "--store", store, "--by", "method").stdout
    assert hashlib.sha256((store / "ledger.sqlite").read_bytes()).digest() == before
    assert sorted(path.name for path in store.iterdir()) == ["chief.lock", "ledger.sqlite"]
    Ledger.open(store).close()
    assert is_right(store)
    assert lobench("results", "--store", store, "--by", "method").stdout == expected


def test_older_lobench_writes_a_result_that_gets_its_summary_later(store: Path) -> None:
    columns = EVALUATION_COLUMNS
    with database(store) as db:
        db.execute(
            f"INSERT INTO evaluations ({columns}) SELECT "
            f"{columns.replace('seed_start', 'seed_start + 2')} FROM evaluations WHERE id = 1"
        )
        db.execute("UPDATE evaluations SET payload = (SELECT payload FROM evaluations WHERE id = 3) WHERE id = 1")
    finals = [
        [cell.finals("train/loss") for one in read_store(store, summarized=it).subjects for cell in one.cells.values()]
        for it in (False, True)
    ]
    assert repr(finals[0]) == repr(finals[1])
    Ledger.open(store).close()
    assert is_right(store)


def test_damaged_payload_keeps_nobody_from_writing_the_store(store: Path) -> None:
    with database(store) as db:
        db.execute("UPDATE evaluations SET payload = substr(payload, 1, 40) WHERE id = 1")
    Ledger.open(store).close()
    with pytest.raises(StoreError, match=SHOWN["row-of-the-ledger-is"]):
        read_store(store, summarized=True)


def test_merge_keeps_summaries_and_computes_those_of_an_older_store(store: Path, tmp_path: Path) -> None:
    older = tmp_path / "older"
    add(older, 3, {"a": {"train/loss": [0.125, 0.25], "test/loss": [1.0, 2.0]}})
    make_old(older)
    merge_stores([store, older], tmp_path / "both")
    assert is_right(tmp_path / "both")


def test_merge_of_a_store_with_summaries_decodes_nothing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_decoding(monkeypatch)
    merge_stores([store], tmp_path / "other")
    monkeypatch.undo()
    assert is_right(tmp_path / "other")


@pytest.mark.parametrize("arguments", [("results",), ("results", "--sort", "case"), ("results", "--by", "method")])
def test_tables_decode_no_curves(store: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    make_old(store)
    expected = lobench(*arguments, "--store", store).stdout
    Ledger.open(store).close()
    forbid_decoding(monkeypatch)
    assert lobench(*arguments, "--store", store).stdout == expected != ""


def test_curves_of_a_summary_are_those_of_the_store_or_an_error(store: Path) -> None:
    with Ledger.open(store, read_only=True) as ledger:
        whole, here, late = (list(ledger.evaluations(summarized=it))[-1] for it in (False, True, True))
    assert here.curves is not None and here.curves.to_payload() == whole.payload
    with database(store) as db:
        db.execute("UPDATE evaluations SET recorded_at = recorded_at + 1")
    with pytest.raises(StoreError, match=SHOWN["replaced-while-the-store-was"]):
        assert late.curves


def test_curves_of_seeds_are_read_once_for_all_seeds_of_a_block(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read_store(store).subjects[0].cells["s/a"].curves_of_seeds("test/loss")
    reads, whole = list[CurveSummary](), CurveSummary.metrics.fget
    assert whole is not None
    monkeypatch.setattr(CurveSummary, "metrics", property(lambda self: reads.append(self) or whole(self)))
    found = read_store(store, summarized=True).subjects[0].cells["s/a"].curves_of_seeds("test/loss")
    assert np.array_equal(found, expected, equal_nan=True) and len(found) == 2 and len(reads) == 1


def test_cell_of_one_block_has_the_values_of_the_general_way(store: Path) -> None:
    for cell in (cell for subject in read_store(store, summarized=True).subjects for cell in subject.cells.values()):
        final, untrained = _values_of_blocks(cell.blocks, cell.curves_by_seed)
        assert repr(final) == repr(dict(cell.final_values)) and repr(untrained) == repr(dict(cell.untrained_values))
