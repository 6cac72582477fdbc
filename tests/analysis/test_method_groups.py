"""Which subjects a line along a run may join, and which stand beside it."""

from __future__ import annotations

from pathlib import Path

from shown import texts_of
from stores import add

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.store.groups import MethodGroups, run_names
from lobench.analysis.store.snapshot import Snapshot, read_store

SHOWN = texts_of("analysis")

LOSS = {"a": {"train/loss": [1.0, 1.1]}}
ADAM = "adam(); adam.learning_rate = 0.01"


def groups(store: Path) -> MethodGroups:
    return read_store(store).groups


def labels(snapshot: Snapshot, places: list[int]) -> list[str]:
    return [snapshot.labels[place] for place in places]


def test_a_run_has_its_checkpoints_and_an_optimizer_stands_alone(tmp_path: Path) -> None:
    for step in (0, 10, 20):
        add(tmp_path, step, LOSS)
    add(tmp_path, 0, LOSS, optimizer=ADAM)
    snapshot = read_store(tmp_path)
    assert [labels(snapshot, list(run)) for run in snapshot.groups.runs] == [
        ["outer step 0", SHOWN["outer-step-10"], SHOWN["outer-step-20"]]
    ]
    assert labels(snapshot, list(snapshot.groups.single_indices)) == [ADAM]
    assert snapshot.groups.has_several_methods and not snapshot.groups.is_one_run
    assert labels(snapshot, snapshot.groups.chart_indices(snapshot.headline_index)) == [
        SHOWN["outer-step-20"],
        "outer step 0",
        ADAM,
    ]


def test_the_headline_is_of_the_run_whatever_stands_beside_it(tmp_path: Path) -> None:
    """adam was evaluated on more cases than any checkpoint, and stands at outer step 0 of nothing."""
    for step in (10, 20):
        add(tmp_path, step, LOSS)
    add(tmp_path, 0, {**LOSS, "b": {"train/loss": [1.0, 1.1]}}, optimizer=ADAM)
    summary = summary_of(tmp_path, [])
    assert labels(summary.snapshot, [summary.reference_index, summary.headline_index]) == [
        SHOWN["outer-step-10"],
        SHOWN["outer-step-20"],
    ]


def test_checkpoints_of_several_optimizers_in_one_folder_are_no_run(tmp_path: Path) -> None:
    for step, name in enumerate(("dm.npz", "celo.msgpack", "mup_10.npz", "mup_20.npz")):
        add(tmp_path, step, LOSS, uri=f"shared/{name}")
    assert (groups(tmp_path).runs, groups(tmp_path).single_indices) == (((2, 3),), (0, 1))


def test_two_runs_side_by_side_are_two_lines(tmp_path: Path) -> None:
    for run in ("one", "two"):
        for step in (1, 2, 3):
            add(tmp_path, step, LOSS, sha256=f"{run}{step}", uri=f"runs/{run}/theta_{step}.npz")
    snapshot = read_store(tmp_path)
    assert sorted(map(len, snapshot.groups.runs)) == [3, 3] and not snapshot.groups.single_indices
    assert run_names(snapshot.subjects, snapshot.groups.runs) == ["one", "two"]


def test_of_two_checkpoints_at_one_step_the_later_one_is_of_the_run(tmp_path: Path) -> None:
    for step, sha256 in ((1, "a"), (2, "b"), (2, "c")):
        add(tmp_path, step, LOSS, sha256=sha256)
    snapshot = read_store(tmp_path)
    assert [snapshot.subjects[place].checkpoint.sha256 for place in snapshot.groups.runs[0]] == ["a", "c"]
    assert [snapshot.subjects[place].checkpoint.sha256 for place in snapshot.groups.single_indices] == ["b"]
