"""Checkpoints of a run whose results have former bindings of the optimizer."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from shown import texts_of
from stores import add, case_info, curves

from lobench.analysis.store.former_bindings import bindings_note, subjects_with_former_bindings
from lobench.analysis.store.snapshot import read_store
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import EvaluationKey, Outcome
from lobench.core.subject import Subject, Variant
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.plans import suite_plan

SHOWN = texts_of("analysis")


def former_uris(store: Path) -> set[str]:
    snapshot = read_store(store)
    return {subject.uri for subject in subjects_with_former_bindings(snapshot.rows, snapshot.current)}


def bindings_note_of(store: Path) -> str:
    snapshot = read_store(store)
    return bindings_note(snapshot.rows, snapshot.current)


def watch(store: Path, run: str, bindings: str, steps: str, *, name: str = "", config: str | None = None) -> None:
    """Plans and evaluates checkpoints as a start of a watch. Runs have the same theta at an outer step, a digit."""
    case = dataclasses.replace(case_info("a", 2), optimizer_hash=bindings)
    plan, variant = suite_plan([case], {}), Variant(trainer_config=config)
    with Ledger.open(store, name="test") as ledger:
        for step in steps:
            uri = f"/runs/{run}/theta_{step}.npz"
            subject = Subject.of_checkpoint(Checkpoint(uri=uri, sha256=step, outer_step=int(step), run=name), variant)
            ledger.record_sighting(subject)
            ledger.record_plan(subject, plan)
            key = EvaluationKey.of(subject.sha256, case, case.blocks()[0], "1")
            ledger.record_evaluation(key, case, Outcome.PASSED, curves=curves({"train/loss": [0.1, 0.2]}))


@pytest.mark.parametrize("run", ["", "run_1"])
def test_checkpoints_in_folders_of_their_own_are_judged_as_one_run(tmp_path: Path, run: str) -> None:
    for step, bindings in ((10, "former"), (20, "present"), (30, "present")):
        uri = f"/runs/run_1/step_{step}/theta.npz"
        add(tmp_path, step, {"a": {"train/loss": [0.1, 0.2]}}, uri=uri, run=run, bindings=bindings)
    assert former_uris(tmp_path) == {"/runs/run_1/step_10/theta.npz"}


def test_theta_of_two_runs_has_the_bindings_of_each(tmp_path: Path) -> None:
    watched = {"r": ("x", "012"), "s": ("y", "034")}
    for run in "rsrs":
        watch(tmp_path, run, *watched[run])
        assert former_uris(tmp_path) == set()
    snapshot = read_store(tmp_path)
    assert bindings_note_of(tmp_path) == ""
    assert {(subject.subject.uri, *subject.optimizer_hashes) for subject in snapshot.subjects} == {
        (f"/runs/{run}/theta_{step}.npz", bindings) for run, (bindings, steps) in watched.items() for step in steps
    }


def test_theta_with_the_bindings_of_another_run_alone_makes_no_checkpoint_former(tmp_path: Path) -> None:
    watch(tmp_path, "r", "former", "01")
    watch(tmp_path, "r", "present", "12")
    assert bindings_note_of(tmp_path).startswith(SHOWN["checkpoints-were-evaluated-with-2"])
    watch(tmp_path, "s", "other", "03")
    assert former_uris(tmp_path) == {"/runs/r/theta_0.npz"}
    assert bindings_note_of(tmp_path).startswith(SHOWN["checkpoints-of-r-were-evaluated-with-2"])


@pytest.mark.parametrize("is_below_one_folder", [False, True])
def test_plan_of_another_run_with_the_former_bindings_changes_nothing(
    is_below_one_folder: bool, tmp_path: Path
) -> None:
    for run, bindings, steps in (("r", "former", "01"), ("r", "present", "23"), ("s", "former", "45")):
        name, config = (run, f"{run}: {bindings}") if is_below_one_folder else ("", None)
        watch(tmp_path, run, bindings, steps, name=name, config=config)
    assert former_uris(tmp_path) == {"/runs/r/theta_0.npz", "/runs/r/theta_1.npz"}


def test_copied_run_that_goes_on_with_other_bindings_leaves_those_of_the_former(tmp_path: Path) -> None:
    watch(tmp_path, "r", "x", "01")
    watch(tmp_path, "s", "y", "012")
    assert {(subject.subject.uri[6:7], *subject.optimizer_hashes) for subject in read_store(tmp_path).subjects} == {
        ("r", "x"),
        ("s", "y"),
    }
    assert former_uris(tmp_path) == set()


def test_theta_of_two_runs_below_one_watched_folder_has_the_bindings_planned_last(tmp_path: Path) -> None:
    watch(tmp_path, "a", "former", "012", name="a")
    watch(tmp_path, "b", "former", "23", name="b")
    watch(tmp_path, "a", "present", "2", name="a")
    assert former_uris(tmp_path) == {f"/runs/{place}.npz" for place in ("a/theta_0", "a/theta_1", "b/theta_3")}
