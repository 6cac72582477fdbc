"""Current cases by the last plan: what a start says of places, subjects, programs and other stores."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from shown import texts_of
from stores import case_info, curves

from lobench.core.case import CaseInfo
from lobench.core.program import Program
from lobench.core.result import EvaluationKey, Outcome
from lobench.core.subject import Subject
from lobench.engine.store.current import CurrentCases, WholeSuites
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.merge import merge_stores
from lobench.engine.store.plans import missing_evaluations, suite_plan

SHOWN = texts_of("store")

ADAM, SGD = Subject.of_optimizer("adam()"), Subject.of_optimizer("sgd()")
OLD, NEW = (Program(jax=one, jaxlib=one, device="cpu: x86-64-v3") for one in ("0.7.0", "0.7.1"))


def case(name: str, form: str, optimizer: str = "o") -> CaseInfo:
    return dataclasses.replace(case_info(name, 2, identity=f"{name} {form}"), optimizer_hash=optimizer)


def start(
    store: Path,
    plans: Mapping[Subject, Sequence[CaseInfo]],
    program: Program = OLD,
    value: float = 0.5,
    whole: WholeSuites = WholeSuites(),  # noqa: B008
) -> int:
    """Plans and evaluates the cases of each subject as one start; returns the number of its events."""
    with Ledger.open(store, name="test") as ledger:
        before = len(ledger.events())
        for subject, cases in plans.items():
            ledger.record_sighting(subject)
            ledger.record_plan(subject, suite_plan(cases, {}), [program.key], whole)
            for one in cases:
                key = EvaluationKey.of(subject.sha256, one, one.blocks()[0], program.key)
                found = curves({"train/loss": [value, value]})
                ledger.record_evaluation(key, one, Outcome.PASSED, curves=found, program=program)
        return len(ledger.events()) - before


def current(store: Path) -> set[str]:
    with Ledger.open(store, read_only=True) as ledger:
        return set(ledger.current_cases(ledger.evaluations()).identities)


def test_current_cases_after_a_return_are_those_of_the_last_plan(tmp_path: Path) -> None:
    for form in ("1", "2", "1"):
        start(tmp_path, {ADAM: [case("a", form)]})
    assert current(tmp_path) == {"a 1"}


def test_cases_that_are_made_anew_for_each_row_are_all_current(tmp_path: Path) -> None:
    start(tmp_path, {ADAM: [case(name, "1") for name in "abcdef"]})
    with Ledger.open(tmp_path, read_only=True) as ledger:
        stored = list(ledger.evaluations())
        rows = (dataclasses.replace(row, case=dataclasses.replace(row.case)) for row in stored)
        assert set(CurrentCases.of_rows(rows).identities) == {f"{name} 1" for name in "abcdef"}


def test_a_start_like_the_last_one_writes_no_event(tmp_path: Path) -> None:
    plans = {ADAM: [case("a", "1")], SGD: [case("a", "1", "s")]}
    assert start(tmp_path, plans) > 0
    assert [start(tmp_path, plans), start(tmp_path, {SGD: plans[SGD]})] == [0, 0]


def test_a_start_of_a_part_leaves_the_other_cases_current(tmp_path: Path) -> None:
    start(tmp_path, {ADAM: [case("a", "1"), case("b", "1")]})
    start(tmp_path, {ADAM: [case("b", "2")]})
    assert current(tmp_path) == {"a 1", "b 2"}


def test_a_start_of_the_whole_suite_ends_the_cases_that_it_does_not_have(tmp_path: Path) -> None:
    whole = WholeSuites(("s",))
    both, one = {ADAM: [case("a", "1"), case("b", "1")]}, {ADAM: [case("a", "1")]}
    start(tmp_path, both, whole=whole)
    for of_a_part in (WholeSuites(), WholeSuites(("other",))):
        start(tmp_path, one, whole=of_a_part)
        assert current(tmp_path) == {"a 1", "b 1"}
    assert start(tmp_path, one, whole=whole) > 0 and current(tmp_path) == {"a 1"}
    assert start(tmp_path, one, whole=whole) == 0, "a store does not grow by being looked after"
    start(tmp_path, {SGD: []}, whole=whole)  # its cases could not be bound
    assert current(tmp_path) == {"a 1"}
    start(tmp_path, both)
    assert current(tmp_path) == {"a 1", "b 1"}, "it returned"


def test_a_whole_suite_contains_what_was_planned_with_it_and_ordinary_tests_only_if_they_are_cases(
    tmp_path: Path,
) -> None:
    nested = dataclasses.replace(case("c", "1"), suite="nested", node_id="all/nested/test_nested.py::test[c]")
    test = dataclasses.replace(case("test_d", "1"), suite="all", node_id="all/test_all.py::test_d")
    start(tmp_path, {ADAM: [case("a", "1"), nested, test]}, whole=WholeSuites(("all",), with_tests=True))
    start(tmp_path, {ADAM: [case("a", "1")]}, whole=WholeSuites(("nested",)))
    assert current(tmp_path) == {"a 1", "c 1", "test_d 1"}  # a suite of the same name elsewhere
    start(tmp_path, {ADAM: [case("a", "1")]}, whole=WholeSuites(("all",)))
    assert current(tmp_path) == {"a 1", "test_d 1"}
    start(tmp_path, {ADAM: [case("a", "1")]}, whole=WholeSuites(("all",), with_tests=True))
    assert current(tmp_path) == {"a 1"}


def test_subjects_that_bind_a_case_differently_in_one_start_are_all_current(tmp_path: Path) -> None:
    both = {ADAM: [case("a", "adam's")], SGD: [case("a", "sgd's")]}
    start(tmp_path, both)
    assert current(tmp_path) == {"a adam's", "a sgd's"}
    start(tmp_path, {ADAM: both[ADAM]})  # fewer methods: nothing was changed
    assert current(tmp_path) == {"a adam's", "a sgd's"}
    start(tmp_path, {SGD: [case("a", "edited")]})
    assert current(tmp_path) == {"a edited"}


def test_bindings_of_the_optimizer_that_return_are_current(tmp_path: Path) -> None:
    for optimizer in ("o", "other", "o"):
        start(tmp_path, {ADAM: [case("a", "1", optimizer)]})
    with Ledger.open(tmp_path, read_only=True) as ledger:
        rows = list(ledger.evaluations())
        found = ledger.current_cases(rows)
    assert [row.key.optimizer_hash for row in rows if found.is_current(row)] == ["o"]


def test_a_start_that_was_killed_before_its_first_result_decides_too(tmp_path: Path) -> None:
    start(tmp_path, {ADAM: [case("a", "1")]})
    with Ledger.open(tmp_path, name="test") as ledger:
        ledger.record_plan(ADAM, suite_plan([case("a", "2")], {}))
    assert current(tmp_path) == {"a 2"}


def test_a_result_of_the_program_that_is_expected_again_counts(tmp_path: Path) -> None:
    for program, value in ((OLD, 0.5), (NEW, 0.25), (OLD, 0.5)):
        start(tmp_path, {ADAM: [case("a", "1")]}, program, value)
    with Ledger.open(tmp_path, read_only=True) as ledger:
        rows = list(ledger.evaluations())
        last = ledger.current_cases(rows).by_precedence(ADAM, rows)[-1]
    assert last.program == OLD and rows[-1].program == NEW


def test_a_store_without_plans_has_the_forms_of_its_last_evaluations(tmp_path: Path) -> None:
    for form in ("1", "2"):
        start(tmp_path, {ADAM: [case("a", form)]})
    with sqlite3.connect(tmp_path / "ledger.sqlite") as database:
        database.execute("DELETE FROM events")
        database.execute("UPDATE evaluations SET recorded_at = -recorded_at")  # whatever the clock said
    assert current(tmp_path) == {"a 2"}


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_after_a_merge_the_plans_of_the_last_store_are_the_last(tmp_path: Path, order: tuple[str, str]) -> None:
    start(tmp_path / "one", {ADAM: [case("a", "1")]})
    start(tmp_path / "two", {ADAM: [case("a", "2")]})
    merge_stores([tmp_path / name for name in order], tmp_path / "all")
    assert current(tmp_path / "all") == {"a 2" if order[-1] == "two" else "a 1"}
    before = start(tmp_path / "all", {ADAM: [case("a", "1")]}), current(tmp_path / "all")
    merge_stores([tmp_path / "two"], tmp_path / "all")  # nothing new, so that nothing changes
    assert before[1] == current(tmp_path / "all") == {"a 1"}


@pytest.mark.parametrize("edited", [case("a", "2"), dataclasses.replace(case("a", "1"), case_code="edited")])
def test_a_plan_that_is_the_last_one_again_after_an_edit_of_one_case_is_at_the_end(
    tmp_path: Path, edited: CaseInfo
) -> None:
    cases = [dataclasses.replace(case("a", "1"), case_code="first"), case("b", "1")]
    start(tmp_path, {ADAM: cases})
    with Ledger.open(tmp_path, name="test") as ledger:  # killed before its first result
        ledger.record_plan(ADAM, suite_plan([edited, cases[1]], {"s/a.gin": "edited"}))
    start(tmp_path, {ADAM: cases})
    with Ledger.open(tmp_path, read_only=True) as ledger:
        planned, rows = ledger.planned_subjects(), list(ledger.evaluations())
        assert (planned[-1].cases[0].identity, planned[-1].cases[0].code) == ("a 1", "first:")
        assert list(missing_evaluations(planned, rows)) == []
        assert [files for files in ledger.planned_files() if files] == [{"s/a.gin": "edited"}] * 2
        assert ledger.planned_files()[-1] == {}


def test_a_plan_that_is_the_last_one_again_keeps_the_chain_intact(tmp_path: Path) -> None:
    for form in ("1", "2", "1"):
        start(tmp_path, {ADAM: [case("a", form)]})
    with Ledger.open(tmp_path, read_only=True) as ledger:
        planned = ledger.planned_subjects()
    assert [one.problem for one in planned] == ["", ""]
    assert [one.cases[0].identity for one in planned] == ["a 2", "a 1"], "the last plan is at the end"
    with sqlite3.connect(tmp_path / "ledger.sqlite") as database:
        kind = "current plan"
        (last,) = database.execute("SELECT MAX(id) FROM events WHERE kind = ?", (kind,)).fetchone()
        database.execute(
            'UPDATE events SET detail = replace(detail, \'"start": "\', \'"start": "f\') WHERE id = ?', (last,)
        )
    with Ledger.open(tmp_path, read_only=True) as ledger:
        assert SHOWN["its-hash"] in ledger.planned_subjects()[-1].problem, "a changed order of plans is found"
