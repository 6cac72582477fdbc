"""Results of a command's former code, and the scale of the scores."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from stores import add

from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.snapshot import Snapshot, read_store
from lobench.engine.store.codes import METHOD_CODE_EVENT
from lobench.engine.store.ledger import Ledger

FORMER, PRESENT = "a" * 16, "b" * 16


def run_with(store: Path, code: str) -> None:
    with contextlib.closing(Ledger.open(store)) as ledger:
        ledger.record_event(METHOD_CODE_EVENT, method="mine", code=code, is_old=False)


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


def test_subject_that_sets_the_scale_is_told_from_a_shown_namesake_that_does_not(tmp_path: Path) -> None:
    for step, folder in enumerate(("former", "present")):
        add(tmp_path, step, {"a": {"train/loss": [0.1, 0.2]}}, uri=f"{folder}/theta.npz")
    subjects = read_store(tmp_path).subjects
    for shown, label in ((subjects, "present/theta.npz"), (subjects[1:], "theta.npz")):
        scales = Scales.of(shown, all_subjects=subjects[1:])
        assert list(scales.label_by_cell_id.values()) == [label]
