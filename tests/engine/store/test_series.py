"""Series of checkpoints: files without a step beside checkpoints with steps."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from lobench.core.checkpoint import Checkpoint
from lobench.core.subject import Subject
from lobench.engine.store import reader
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.series import numbered_by_arrival, run_of


def checkpoint(uri: str, step: int, run: str = "") -> Subject:
    return Subject.of_checkpoint(Checkpoint(uri=uri, sha256=f"{uri}{step}", outer_step=step, run=run))


@pytest.mark.parametrize(
    "seen, by_arrival",
    [
        ([("r/latest.npz", 0), ("r/latest.npz", 1)], []),  # alone in the folder
        ([("r/theta_10.npz", 10), ("r/latest.npz", 0), ("r/theta_20.npz", 20), ("r/latest.npz", 1)], [1, 3]),
        ([("r/latest.npz", 0), ("r/theta_10.npz", 10), ("r/latest.npz", 1)], [2]),  # the first one came first
        ([("r/10", 10), ("r/latest.msgpack", 10), ("r/20", 20), ("r/latest.msgpack", 20)], []),  # the content has steps
        ([("r/theta_10.npz", 10), ("s/latest.npz", 0)], []),
        ([("r/theta_10.npz", 10), ("r/adam2.npz", 0)], [1]),
    ],
)
def test_contents_have_the_number_of_their_arrival_beside_checkpoints_with_steps(
    seen: list[tuple[str, int]], by_arrival: list[int]
) -> None:
    assert sorted(numbered_by_arrival(dict(enumerate(checkpoint(*one) for one in seen)))) == by_arrival


def test_runs_of_one_folder_are_apart() -> None:
    seen = [checkpoint("r/theta_10.npz", 10, run="a"), checkpoint("r/latest.npz", 0, run="b")]
    assert not numbered_by_arrival(dict(enumerate(seen)))


@pytest.mark.parametrize(
    "uri, run, folder",
    [
        ("/x/run_1/theta_10.npz", "", "/x/run_1/"),
        ("/x/run_1/latest.npz", "", "/x/run_1/"),
        ("/x/run_1/10/", "", "/x/run_1/"),
        ("/x/run_1/step_10/theta.npz", "", "/x/run_1/"),
        ("run_1/epoch3/", "", "run_1/"),
        ("s3://x/run_1/step_10/theta.npz", "run_1", "s3://x/run_1/"),
        ("/x/generation_2/trial_7/attempt_0/theta_10.npz", "trial_7", "/x/generation_2/trial_7/"),
        ("a/b/theta_10.npz", "a/b", "a/b/"),
        ("/x/step_10/theta.npz", "mine", ""),
    ],
)
def test_run_of_a_checkpoint_has_the_folder_above_those_of_single_checkpoints(uri: str, run: str, folder: str) -> None:
    assert run_of(checkpoint(uri, 10, run)) == (run, folder, 0)


def test_content_of_a_file_without_a_step_is_found_without_reading_all_sightings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_rows = list[object]()
    read = reader.subject_from_row
    monkeypatch.setattr(reader, "subject_from_row", lambda row: read_rows.append(row) or read(row))
    num_files = 20
    with Ledger.open(tmp_path) as ledger:
        for number in range(num_files):
            seen = checkpoint(f"run_{number}/theta.npz", 0)
            position = ledger.record_sighting(seen)
            assert ledger.sightings(seen.sha256) == {position: seen}
    assert len(read_rows) <= 3 * num_files


def test_position_whose_sighting_was_rolled_back_is_numbered_again(tmp_path: Path) -> None:
    latest = checkpoint("r/latest.npz", 0)
    with Ledger.open(tmp_path) as ledger:
        with contextlib.suppress(KeyError), ledger.transaction():
            ledger.record_sighting(checkpoint("s/latest.npz", 0))
            ledger.sightings()
            raise KeyError
        ledger.record_sighting(checkpoint("r/theta_10.npz", 10))
        ledger.record_sighting(latest)
        assert [subject.is_numbered_by_arrival for subject in ledger.sightings(latest.sha256).values()] == [True]
