"""Results of former code, and the scale of the scores."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from stores import add

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.scores.live_scores import StoreScores
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.snapshot import Snapshot, read_store
from lobench.core.result import Outcome
from lobench.engine.store.codes import METHOD_CODE_EVENT
from lobench.engine.store.current import CURRENT_PLAN_EVENT, PLAN_EVENT, PLANNED_EVENT
from lobench.engine.store.ledger import Ledger
from lobench.tools.best.best import rank_checkpoints

SHOWN = texts_of("lobench")
FORMER, PRESENT, OTHER = "a" * 16, "b" * 16, "c" * 16


def run_with(store: Path, code: str, method: str = "mine") -> None:
    with contextlib.closing(Ledger.open(store)) as ledger:
        ledger.record_event(METHOD_CODE_EVENT, method=method, code=code, is_old=False)


def scale_cases(snapshot: Snapshot) -> dict[int, set[str]]:
    """Returns the cases on which each subject sets the scale, by outer step."""
    return {
        subject.subject.outer_step: {cell.case.name for cell in subject.all_cells().values()}
        for subject in snapshot.scale_subjects
    }


@pytest.mark.parametrize(
    "uri", ["imported:{name}-01234567-{code:.8}-9fa0", "/x/store/commands/{name}-01234567-{code:.8}/0/theta.npz"]
)
def test_former_code_of_a_command_sets_the_scale_only_where_the_present_code_has_no_result(
    tmp_path: Path, uri: str
) -> None:
    for code in (FORMER, PRESENT):
        run_with(tmp_path, code)
    loss = {"train/loss": [0.1, 0.2]}
    add(tmp_path, 1, {"both": loss, "former": loss}, uri=uri.format(name="mine", code=FORMER))
    add(tmp_path, 2, {"both": loss}, uri=uri.format(name="mine", code=PRESENT))
    add(tmp_path, 3, {"both": loss}, uri=uri.format(name="other", code=FORMER))
    snapshot = read_store(tmp_path)
    assert scale_cases(snapshot) == {1: {"former"}, 2: {"both"}, 3: {"both"}}
    assert len(snapshot.subjects) == 3  # all are listed
    run_with(tmp_path, FORMER)  # the edit was undone
    assert scale_cases(read_store(tmp_path)) == {1: {"both", "former"}, 3: {"both"}}


def test_former_code_of_a_removed_command_sets_no_scale_once_another_runs_the_edited_script(tmp_path: Path) -> None:
    loss = {"train/loss": [0.1, 0.2]}
    uri = "imported:{name}-{values}-{code:.8}-9fa0"
    for method, code in (("kept", FORMER), ("gone", FORMER), ("alone", OTHER), ("kept", PRESENT)):
        run_with(tmp_path, code, method)
    runs = [("gone", "1", FORMER), ("kept", "1", FORMER), ("kept", "2", PRESENT), ("alone", "1", OTHER)]
    for step, (name, values, code) in enumerate(runs):
        add(tmp_path, step, {"a": loss}, uri=uri.format(name=name, values=values * 8, code=code))
    assert scale_cases(read_store(tmp_path)) == {2: {"a"}, 3: {"a"}}


def test_code_of_a_command_is_not_former_because_another_has_a_new_script_unless_a_common_file_was_edited(
    tmp_path: Path,
) -> None:
    loss = {"train/loss": [0.1, 0.2]}
    codes = [("a", FORMER), ("b", FORMER), ("a", PRESENT), ("a", OTHER)]
    with contextlib.closing(Ledger.open(tmp_path)) as ledger:
        ledger.record_code({FORMER: {"train.py": "1"}, PRESENT: {"other.py": "2"}, OTHER: {"train.py": "3"}})
    former_steps = []
    for step, (method, code) in enumerate(codes):
        run_with(tmp_path, code, method)
        add(tmp_path, step, {"c": loss}, uri=f"imported:{method}-{'1' * 8}-{code:.8}-9fa0")
        former_steps.append({*range(step + 1)} - scale_cases(read_store(tmp_path)).keys())
    assert former_steps == [set(), set(), {0}, {0, 1, 2}]


@pytest.mark.parametrize("is_of_one_start", [False, True], ids=["edited", "two-folders"])
def test_files_of_one_name_are_versions_of_each_other_unless_one_start_planned_both(
    tmp_path: Path, is_of_one_start: bool
) -> None:
    codes = (FORMER, PRESENT)
    with contextlib.closing(Ledger.open(tmp_path)) as ledger:
        ledger.record_code({code: {"opt.py": code} for code in codes})
    for step, code in enumerate(codes):
        add(tmp_path, step, {"a": {"train/loss": [0.1, 0.2]}}, code=f":{code}")
    snapshot = read_store(tmp_path)
    plans = [(PLAN_EVENT, {"plan": code, "cases": [{"code": f":{code}"}]}) for code in codes]
    starts = [("first", FORMER), ("first" if is_of_one_start else "later", PRESENT), ("last", PRESENT)]
    currents = [(CURRENT_PLAN_EVENT, {"start": start, "plan": code}) for start, code in starts]
    planned = dataclasses.replace(snapshot, events=(*snapshot.events, *plans, *currents))
    assert scale_cases(planned).keys() == ({0, 1} if is_of_one_start else {1})


@pytest.mark.parametrize("is_of_case", [False, True], ids=["optimizer", "task"])
def test_former_code_of_a_removed_method_sets_the_scale_only_where_the_present_code_has_no_result(
    tmp_path: Path, is_of_case: bool
) -> None:
    def code_of(fingerprint: str) -> str:
        return f"{fingerprint}:" if is_of_case else f":{fingerprint}"

    with contextlib.closing(Ledger.open(tmp_path)) as ledger:
        ledger.record_code({FORMER: {"mine.py": "1", "optax": "0.2.7"}})
        ledger.record_code({PRESENT: {"mine.py": "2", "helper.py": "3", "optax": "0.2.8"}})
        ledger.record_code({OTHER: {"other.py": "4", "optax": "0.2.7"}})  # not edited, only removed
    loss = {"train/loss": [0.1, 0.2]}
    add(tmp_path, 1, {"both": loss, "former": loss, "failed": loss}, code=code_of(FORMER))
    add(tmp_path, 2, {"both": loss, "failed": Outcome.ERROR}, code=code_of(PRESENT))
    add(tmp_path, 3, {"both": loss}, code=code_of(OTHER))
    add(tmp_path, 4, {"both": loss})  # recorded before codes were, or by optimizers that are not the user's
    snapshot = read_store(tmp_path)
    assert scale_cases(snapshot) == {1: {"former", "failed"}, 2: {"both", "failed"}, 3: {"both"}, 4: {"both"}}
    plan = {"plan": "p", "cases": [{"code": code_of(FORMER)}]}
    undone = [*snapshot.events, (PLAN_EVENT, plan), (PLANNED_EVENT, {"plan": "p"})]
    assert 1 in scale_cases(dataclasses.replace(snapshot, events=tuple(undone)))
    assert scale_cases(dataclasses.replace(snapshot, events=tuple(undone)))[2] == {"failed"}
    with contextlib.closing(Ledger.open(tmp_path)) as ledger:
        ledger.accept_code([(code_of(FORMER), code_of(PRESENT))])
    assert scale_cases(read_store(tmp_path))[1] == {"both", "former", "failed"}


def test_live_scores_and_best_are_on_the_scale_of_the_present_code(tmp_path: Path) -> None:
    with contextlib.closing(Ledger.open(tmp_path)) as ledger:
        ledger.record_code({FORMER: {"mine.py": "1"}, PRESENT: {"mine.py": "2"}})
    add(tmp_path, 0, {"a": {"train/loss": [1e-9, 1e-9]}}, optimizer="mine()", code=f":{FORMER}")
    add(tmp_path, 1, {"a": {"train/loss": [0.1, 0.1]}}, code=f":{PRESENT}")
    snapshot = read_store(tmp_path)
    assert rank_checkpoints(snapshot, [], "")[2][0].score.mean == pytest.approx(1)
    with contextlib.closing(Ledger.open(tmp_path)) as ledger:
        checkpoints = [subject.subject for subject in snapshot.subjects if subject.subject.has_theta]
        (scored,) = StoreScores(ledger, []).scores_of(checkpoints)
    assert scored.fallback is not None and scored.fallback.score.mean == pytest.approx(1)


def test_line_on_the_score_1_says_that_other_code_made_the_results(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("RATE = 2\n")
    store = tmp_path / ".lobench" / "x"
    with contextlib.closing(Ledger.open(store)) as ledger:
        ledger.record_code({FORMER: {"mine.py": "1"}})
    for step, (final, code) in enumerate([(0.1, f":{FORMER}"), (0.5, "")]):
        add(store, step, {"a": {"train/loss": [final, final]}}, optimizer=f"mine(); mine.rate = {step}", code=code)
    (line,) = summary_of(store).scales.best_subject_lines()
    assert SHOWN["made-by-other-code-mine-py"] in line
    done = lobench("compare", "mine(); mine.rate = 1", "mine(); mine.rate = 0", "--store", store)
    assert line in done.stdout, done.stdout + done.stderr


def test_subject_that_sets_the_scale_is_told_from_a_shown_namesake_that_does_not(tmp_path: Path) -> None:
    for step, folder in enumerate(("former", "present")):
        add(tmp_path, step, {"a": {"train/loss": [0.1, 0.2]}}, uri=f"{folder}/theta.npz")
    subjects = read_store(tmp_path).subjects
    for shown, label in ((subjects, "present/theta.npz"), (subjects[1:], "theta.npz")):
        scales = Scales.of(shown, all_subjects=subjects[1:])
        assert list(scales.label_by_cell_id.values()) == [label]
