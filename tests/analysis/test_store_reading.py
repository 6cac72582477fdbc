"""A reading that is continued gives the snapshot of one that begins anew, whatever happens to the store between."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from store_histories import HISTORIES, Step, checkpoint, evaluate, finish, forget, join, leave, take
from stores import add

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.store.reading import StoreReading
from lobench.analysis.store.snapshot import Snapshot, read_store
from lobench.engine.store.bundle import write_bundle
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.ledger_tables import MEMBERSHIP_TRIGGER
from lobench.engine.store.merge import merge_stores


def content(snapshot: Snapshot) -> str:
    """Returns all of a snapshot as text, but for the objects that hold curves."""
    subjects = [
        [
            [
                one.subject,
                sorted(one.optimizer_hashes),
                sorted(one.repeated_identities),
                sorted(map(str, one.programs)),
                one.codes,
            ],
            [
                [
                    identity,
                    *(
                        getattr(cell, field.name)
                        for field in dataclasses.fields(cell)
                        if field.name != "curves_by_seed"
                    ),
                ]
                + [cell.seeds]
                for identity, cell in one.all_cells().items()
            ],
        ]
        for one in snapshot.subjects
    ]
    rows = [
        [
            row.id,
            row.key,
            row.outcome,
            row.recorded_sightings,
            row.superseded_sightings,
            row.labels,
            row.case,
            row.program,
            row.code,
            row.recorded_at,
        ]
        for row in snapshot.rows
    ]
    rest = dataclasses.replace(snapshot, subjects=(), rows=())
    summary = summary_of(snapshot.store, (), snapshot=snapshot)
    scores = [summary.mean_score(place, "primary").scores for place in range(len(snapshot.subjects))]
    current = sorted(snapshot.current.identities)
    return repr([subjects, rows, dataclasses.replace(rest, current=None), current, scores])  # type: ignore[arg-type]


@settings(deadline=None)
@given(HISTORIES)
def test_continued_reading_equals_one_of_the_whole_store(history: list[tuple[Step, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        Ledger.open(store).close()
        reading = StoreReading(store)
        for number, (step, is_read) in enumerate(history):
            take(store, step, number)
            if is_read or number == len(history) - 1:
                assert content(reading.read()) == content(read_store(store, summarized=True))


def test_evaluations_read_before_are_not_read_again(tmp_path: Path) -> None:
    reading = StoreReading(tmp_path)
    for step in range(3):
        evaluate(tmp_path, checkpoint(step), [1.0, 0.5], is_planned=True)
    first = reading.read()
    assert reading.num_read == 3
    evaluate(tmp_path, checkpoint(3), [0.25, 0.5], is_planned=True)
    second = reading.read()
    assert reading.num_read == 1 and len(second.rows) == 4
    assert all(one is other for one, other in zip(first.subjects, second.subjects, strict=False))
    assert reading.read().rows == second.rows and reading.num_read == 0


BINDINGS = ("Case.num_inner_steps = 5",)


@pytest.mark.parametrize(("trial", "bindings"), [("1", ()), ("", BINDINGS), ("1", BINDINGS)])
def test_results_with_labels_or_of_several_bindings_are_not_read_again(
    tmp_path: Path, trial: str, bindings: tuple[str, ...]
) -> None:
    def evaluate_both(step: int) -> None:
        for variant in {(), bindings}:
            optimizer = "p" if variant else "o"
            subject = checkpoint(step, bindings=variant)
            evaluate(tmp_path, subject, [1.0, 0.5], optimizer=optimizer, trial=trial, is_planned=True)
            finish(tmp_path, subject, "a", "1", optimizer)

    reading = StoreReading(tmp_path)
    for step in range(3):
        evaluate_both(step)
    num_rows = len(reading.read().rows)
    evaluate_both(3)
    found = reading.read()
    assert reading.num_read == num_rows / 3 and {row.labels.trial for row in found.rows} == {trial}
    assert content(found) == content(read_store(tmp_path, summarized=True))


def test_a_checkpoint_of_two_runs_follows_the_bindings_of_their_new_checkpoints(tmp_path: Path) -> None:
    reading, shared = StoreReading(tmp_path), 2
    for step, folder, optimizer in ((0, "run", "p"), (shared, "other_run", "p"), (shared, "run", "o")):
        is_planned = folder == "other_run"
        evaluate(tmp_path, checkpoint(step, folder=folder), [1.0, 0.5], optimizer=optimizer, is_planned=is_planned)
    before = reading.read()
    evaluate(tmp_path, checkpoint(0, folder="run"), [1.0, 0.5], optimizer="o")
    found = reading.read()
    assert content(found) == content(read_store(tmp_path, summarized=True))
    of_shared = [
        [one.optimizer_hashes for one in snapshot.subjects if one.subject == checkpoint(shared, folder="other_run")]
        for snapshot in (before, found)
    ]
    assert of_shared == [[{"o"}], [{"p"}]]


def test_results_that_join_an_experiment_later_get_its_labels(tmp_path: Path) -> None:
    """As sessions of `lobench run`, which join once their subject is through."""
    reading = StoreReading(tmp_path)
    for step in range(3):
        evaluate(tmp_path, checkpoint(step), [1.0, 0.5], is_planned=True)
    before = reading.read()
    join(tmp_path, 1)
    joined = reading.read()
    assert reading.num_read == 0, "one was read for its label alone"
    assert content(joined) == content(read_store(tmp_path, summarized=True)) != content(before)
    assert [row.labels.experiment for row in joined.rows] == ["", "methods", ""]
    leave(tmp_path)
    assert content(reading.read()) == content(before)


def test_results_whose_bindings_are_known_later_get_them(tmp_path: Path) -> None:
    reading = StoreReading(tmp_path)
    for variant in ((), BINDINGS):
        evaluate(tmp_path, checkpoint(0, bindings=variant), [1.0, 0.5], optimizer="p" if variant else "o")
    first, second = (checkpoint(0, bindings=variant) for variant in ((), BINDINGS))
    assert [row.recorded_sightings for row in reading.read().rows] == [(first,), ()]
    finish(tmp_path, second, "a", "1", "p")
    found = reading.read()
    assert [row.recorded_sightings for row in found.rows] == [(first,), (second,)]
    assert content(found) == content(read_store(tmp_path, summarized=True))


def test_an_older_lobenchs_experiments_are_read_as_a_whole(tmp_path: Path) -> None:
    evaluate(tmp_path, checkpoint(0), [1.0, 0.5], trial="1")
    with Ledger.open(tmp_path) as ledger:
        ledger.connection.execute(f"DROP TRIGGER {MEMBERSHIP_TRIGGER}")
    with Ledger.open(tmp_path, read_only=True) as ledger:
        assert ledger.change_marker() is None
    Ledger.open(tmp_path).close()
    with Ledger.open(tmp_path, read_only=True) as ledger:
        assert ledger.change_marker() is not None


@pytest.mark.parametrize("change", ["replaced", "forgotten", "restarted", "edited", "removed"])
def test_changed_store_is_read_again(tmp_path: Path, change: str) -> None:
    reading = StoreReading(tmp_path)
    for step in range(3):
        evaluate(tmp_path, checkpoint(step), [1.0, 0.5], is_planned=True)
    reading.read()
    if change == "replaced":
        evaluate(tmp_path, checkpoint(2), [0.25, 0.5])
    elif change == "forgotten":  # and recorded again under the number that became free
        forget(tmp_path, "a", "1", "o", checkpoint(2))
        evaluate(tmp_path, checkpoint(2), [0.25, 0.5])
    elif change == "restarted":
        evaluate(tmp_path, checkpoint(1, "b"), [1.0, 0.5], is_planned=True)
    elif change == "removed":
        evaluate(tmp_path, checkpoint(3), [1.0, 0.5], name="b", is_planned=True, is_whole=True)
    else:
        evaluate(tmp_path, checkpoint(2), [1.0, 0.5], form="2", is_planned=True)
    found = reading.read()
    assert reading.num_read == len(found.rows)
    assert content(found) == content(read_store(tmp_path, summarized=True))


@pytest.mark.parametrize("codes", ["xy", "xyx", "xxy", "xyxyz"])
def test_results_of_edited_code_leave_a_continued_reading(tmp_path: Path, codes: str) -> None:
    reading = StoreReading(tmp_path)
    for number, code in enumerate(codes):
        evaluate(tmp_path, checkpoint(0), [1.0, number / 8], code=code)
        evaluate(tmp_path, checkpoint(number + 1), [1.0, 0.5], code=code)
        found = reading.read()
        assert content(found) == content(read_store(tmp_path, summarized=True))
        assert len([row for row in found.rows if row.key.checkpoint_sha256 == checkpoint(0).sha256]) == 1
        with Ledger.open(tmp_path, read_only=True) as ledger:
            earlier = ledger.change_marker()
            assert earlier is not None and ledger.change_marker(earlier) == earlier


def test_code_that_an_earlier_plan_with_other_bindings_has_is_current_again(tmp_path: Path) -> None:
    """Its plan is recorded already, so that only the new subject shows that it was planned."""
    reading, shared = StoreReading(tmp_path), checkpoint(0)
    evaluate(tmp_path, shared, [1.0, 0.5], code="y", is_planned=True)
    evaluate(tmp_path, shared, [1.0, 0.25], code="x")
    evaluate(tmp_path, checkpoint(2, bindings=BINDINGS), [1.0, 0.5], code="x", is_planned=True)
    ids = [[row.id for row in reading.read().rows]]
    evaluate(tmp_path, checkpoint(1), [1.0, 0.5], code="y", is_planned=True)
    found = reading.read()
    ids.append([row.id for row in found.rows])
    assert ids == [[2, 3], [1, 3, 4]]
    assert content(found) == content(read_store(tmp_path, summarized=True))


def test_another_bundle_at_the_same_place_is_read_again(tmp_path: Path) -> None:
    store, bundle = tmp_path / "store", tmp_path / "results.lobench"

    def write() -> None:
        with Ledger.open(store, read_only=True) as ledger:
            write_bundle(ledger.connection, bundle, {})

    for step in range(3):
        evaluate(store, checkpoint(step), [1.0, 0.5], is_planned=True)
    write()
    reading = StoreReading(bundle)
    reading.read()
    join(store, 1)
    write()
    assert content(reading.read()) == content(read_store(bundle, summarized=True))
    leave(store)
    join(store, 2)
    write()
    assert content(reading.read()) == content(read_store(bundle, summarized=True))
    evaluate(store, checkpoint(1), [1.0, 0.25])
    write()
    assert content(reading.read()) == content(read_store(bundle, summarized=True))


def test_completions_that_a_merge_adds_or_a_reopened_checkpoint_loses_are_seen(tmp_path: Path) -> None:
    """They have no delivery, because the second sighting waits in the store."""
    store, copy, second = tmp_path / "store", tmp_path / "copy", checkpoint(0, bindings=BINDINGS)
    evaluate(store, checkpoint(0), [1.0, 0.5])
    with Ledger.open(store, name="test") as ledger:
        position = ledger.record_sighting(second)
    shutil.copytree(store, copy)
    with Ledger.open(copy, name="test") as ledger:
        ledger.record_admission(position, "admitted")
    finish(copy, second, "a", "1", "o")
    reading = StoreReading(store)
    reading.read()
    merge_stores([copy], store)
    found = reading.read()
    assert [row.recorded_sightings for row in found.rows] == [(checkpoint(0), second)]
    assert content(found) == content(read_store(store, summarized=True))
    with Ledger.open(store, name="test") as ledger:
        ledger.reopen_checkpoint(position)
    assert content(reading.read()) == content(read_store(store, summarized=True)) != content(found)


def test_another_store_at_the_same_place_is_read_again(tmp_path: Path) -> None:
    """As after a deleted store was computed anew."""
    store, other = tmp_path / "store", tmp_path / "other"
    for step in range(3):
        evaluate(store, checkpoint(step), [1.0, 0.5], is_planned=True)
        evaluate(other, checkpoint(step), [1.0, 0.25], is_planned=True)
    reading = StoreReading(store)
    reading.read()
    store.rename(tmp_path / "former")
    other.rename(store)
    found = reading.read()
    assert reading.num_read == 3 and content(found) == content(read_store(store, summarized=True))


def test_store_of_an_older_lobench_is_read_again_each_time(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [1.0, 0.5]}})
    with Ledger.open(tmp_path, name="test") as ledger:
        ledger.connection.execute("DROP TRIGGER evaluation_changed")
        ledger.connection.execute("DROP TRIGGER evaluation_removed")
        ledger.connection.execute("DELETE FROM meta WHERE key = 'num_changes'")
    reading = StoreReading(tmp_path)
    assert [len(reading.read().rows), reading.num_read] == [1, 1]
    assert [len(reading.read().rows), reading.num_read] == [1, 1]
