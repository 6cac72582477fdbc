"""A reading that is continued gives the snapshot of one that begins anew, whatever happens to the store between."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import add, case_info, curves

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.store.reading import StoreReading
from lobench.analysis.store.snapshot import Snapshot, read_store
from lobench.core.checkpoint import Checkpoint
from lobench.core.history import EvaluationId
from lobench.core.program import Program
from lobench.core.result import EvaluationKey, Outcome
from lobench.core.subject import Subject, Variant
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.merge import merge_stores
from lobench.engine.store.plans import suite_plan

PROGRAMS = [Program(jax=one, jaxlib=one, device="cpu: x86-64-v3") for one in ("0.7.0", "0.7.1")]


def content(snapshot: Snapshot) -> str:
    """Returns all of a snapshot as text, but for the objects that hold curves."""
    subjects = [
        [
            [one.who, sorted(one.optimizer_hashes), sorted(one.repeated), sorted(map(str, one.programs)), one.codes],
            [
                [
                    identity,
                    *(getattr(cell, field.name) for field in dataclasses.fields(cell) if field.name != "sources"),
                ]
                + [cell.seeds]
                for identity, cell in one.every_form().items()
            ],
        ]
        for one in snapshot.subjects
    ]
    rows = [
        [row.id, row.key, row.outcome, row.subjects, row.superseded, row.case, row.program, row.code, row.recorded_at]
        for row in snapshot.rows
    ]
    rest = dataclasses.replace(snapshot, subjects=(), rows=())
    summary = summary_of(snapshot.store, (), snapshot=snapshot)
    scores = [summary.mean_score(place, "primary").scores for place in range(len(snapshot.subjects))]
    current = sorted(snapshot.current.identities)
    return repr([subjects, rows, dataclasses.replace(rest, current=None), current, scores])  # type: ignore[arg-type]


def checkpoint(step: int, content: str = "a", bindings: tuple[str, ...] = ()) -> Subject:
    sha256 = f"{content}{step}".ljust(64, "0")
    variant = Variant(bindings=bindings)
    return Subject.of_checkpoint(Checkpoint(uri=f"run/theta_{step}.npz", sha256=sha256, outer_step=step), variant)


def evaluate(
    store: Path,
    subject: Subject,
    finals: Sequence[float],
    *,
    name: str = "a",
    form: str = "1",
    optimizer: str = "o",
    program: Program = PROGRAMS[0],
    code: str = "",
    is_planned: bool = False,
    is_failed: bool = False,
) -> None:
    """Evaluates a subject on a case. A result that is there already is replaced."""
    case = dataclasses.replace(case_info(name, len(finals), identity=f"{name} {form}"), optimizer_hash=optimizer)
    case = dataclasses.replace(case, case_code=code)
    with Ledger.open(store, name="test") as ledger:
        ledger.set_admission(ledger.record_sighting(subject, on_restart=lambda restart: None), "admitted")
        if is_planned:
            ledger.record_plan(subject, suite_plan([case], {}), [program.key])
        key = EvaluationKey.of(subject.sha256, case, case.blocks()[0], program.key)
        found = None if is_failed else curves({"train/loss": finals})
        outcome = Outcome.ERROR if is_failed else Outcome.PASSED
        ledger.record_evaluation(key, case, outcome, curves=found, replace=True, program=program)


def forget(store: Path, name: str, form: str, optimizer: str, subject: Subject) -> None:
    case = dataclasses.replace(case_info(name, 2, identity=f"{name} {form}"), optimizer_hash=optimizer)
    with Ledger.open(store, name="test") as ledger:
        evaluation = EvaluationId(subject.sha256, case.key, case.blocks()[0])
        ledger.forget([evaluation], programs=[program.key for program in PROGRAMS])


_EVALUATIONS = st.fixed_dictionaries(
    {
        "finals": st.lists(st.sampled_from([0.25, 0.5, 1.0, 4.5, math.nan]), min_size=2, max_size=2),
        "name": st.sampled_from("ab"),
        "form": st.sampled_from(["1", "1", "2"]),
        "optimizer": st.sampled_from(["o", "o", "p"]),
        "program": st.sampled_from([PROGRAMS[0], *PROGRAMS]),
        "code": st.sampled_from(["", "", "x", "y"]),
        "is_planned": st.booleans(),
        "is_failed": st.sampled_from([False, False, False, True]),
    }
)
_SUBJECTS = st.builds(
    checkpoint,
    st.integers(0, 3),
    st.sampled_from(["a", "a", "a", "b"]),
    st.sampled_from([(), (), (), ("Case.num_inner_steps = 5",)]),
)
_STEPS = st.one_of(
    st.tuples(st.just("evaluate"), _SUBJECTS, _EVALUATIONS),
    st.tuples(st.just("evaluate"), _SUBJECTS, _EVALUATIONS),
    st.tuples(st.just("forget"), _SUBJECTS, _EVALUATIONS),
    st.tuples(st.just("merge"), _SUBJECTS, _EVALUATIONS),
)


@settings(deadline=None)
@given(st.lists(st.tuples(_STEPS, st.booleans()), min_size=1, max_size=7))
def test_continued_reading_equals_one_of_the_whole_store(history: list[tuple[tuple[str, Subject, dict], bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        Ledger.open(store).close()
        reading = StoreReading(store)
        for number, ((action, subject, detail), is_read) in enumerate(history):
            if action == "evaluate":
                evaluate(store, subject, **detail)
            elif action == "forget":
                forget(store, detail["name"], detail["form"], detail["optimizer"], subject)
            else:
                evaluate(Path(folder) / f"other{number}", subject, **detail)
                merge_stores([Path(folder) / f"other{number}"], store)
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


@pytest.mark.parametrize("change", ["replaced", "forgotten", "restarted", "edited"])
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
    else:
        evaluate(tmp_path, checkpoint(2), [1.0, 0.5], form="2", is_planned=True)
    found = reading.read()
    assert reading.num_read == len(found.rows)
    assert content(found) == content(read_store(tmp_path, summarized=True))


def test_store_of_an_older_lobench_is_read_again_each_time(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [1.0, 0.5]}})
    with Ledger.open(tmp_path, name="test") as ledger:
        ledger.connection.execute("DROP TRIGGER evaluation_changed")
        ledger.connection.execute("DROP TRIGGER evaluation_removed")
        ledger.connection.execute("DELETE FROM meta WHERE key = 'num_changes'")
    reading = StoreReading(tmp_path)
    assert [len(reading.read().rows), reading.num_read] == [1, 1]
    assert [len(reading.read().rows), reading.num_read] == [1, 1]
