"""Restarts in place: which checkpoints are of a dead run."""

from __future__ import annotations

from pathlib import Path

import pytest

from lobench.core.checkpoint import Checkpoint
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.merge import merge_stores


def checkpoint(step: int, sha256: str, uri: str = "") -> Subject:
    return Subject.of_checkpoint(Checkpoint(uri=uri or f"today/theta_{step}.npz", sha256=sha256, outer_step=step))


def present(ledger: Ledger) -> list[tuple[int, str]]:
    superseded = ledger.restarts().superseded_positions
    subjects = [one for position, one in ledger.sightings().items() if position not in superseded]
    return sorted((one.outer_step, one.sha256) for one in subjects)


def see(ledger: Ledger, subject: Subject) -> None:
    ledger.record_sighting(subject, on_restart=lambda restart: None)


def recorded(store: Path, *subjects: Subject) -> Ledger:
    ledger = Ledger.open(store)
    for subject in subjects:
        see(ledger, subject)
    return ledger


FIRST = [checkpoint(step, f"a{step}") for step in (0, 20, 40)]


def test_restart_with_other_content_supersedes_what_was_seen_from_its_step_on(tmp_path: Path) -> None:
    with recorded(tmp_path, *FIRST, checkpoint(0, "a0"), checkpoint(20, "b20")) as ledger:
        assert present(ledger) == [(0, "a0"), (20, "b20")]
        see(ledger, checkpoint(40, "b40"))
        assert present(ledger) == [(0, "a0"), (20, "b20"), (40, "b40")]
        assert len(ledger.restart_events()) == 1


def test_new_checkpoints_in_any_order_are_no_restart(tmp_path: Path) -> None:
    found = [checkpoint(step, f"a{step}") for step in (40, 0, 20)]
    with recorded(tmp_path, *found, checkpoint(0, "x", "today/other_0.npz")) as ledger:
        assert len(present(ledger)) == 4 and not ledger.restart_events()


def test_restart_of_one_series_leaves_other_files_of_the_folder(tmp_path: Path) -> None:
    other = checkpoint(40, "x", "today/other_40.npz")
    with recorded(tmp_path, *FIRST, other, checkpoint(0, "b0")) as ledger:
        assert present(ledger) == [(0, "b0"), (40, "x")]


def test_run_that_begins_as_the_first_one_did_is_present_again(tmp_path: Path) -> None:
    other = [checkpoint(step, f"b{step}") for step in (0, 20, 40)]
    with recorded(tmp_path, *FIRST, *other, *FIRST[:2]) as ledger:
        assert present(ledger) == [(0, "a0"), (20, "a20")]


def test_file_of_a_dead_run_that_is_read_again_stays_out_and_one_of_the_first_run_begun_again_is_back(
    tmp_path: Path,
) -> None:
    latest = checkpoint(0, "a40", "today/latest.npz")
    with recorded(tmp_path, *FIRST, latest, checkpoint(20, "b20"), FIRST[2], latest) as ledger:  # copied or touched
        assert present(ledger) == [(0, "a0"), (20, "b20")]
        for subject in (checkpoint(0, "c0"), *FIRST[1:], latest):
            see(ledger, subject)
        assert present(ledger) == [(0, "c0")]
        assert len(ledger.restart_events()) == 2
        for subject in (*FIRST, latest):
            see(ledger, subject)
        assert present(ledger) == [(0, "a0"), (0, "a40"), (20, "a20"), (40, "a40")]


def test_overwritten_file_restarts_if_its_step_falls_and_not_if_it_grows(tmp_path: Path) -> None:
    latest = [checkpoint(step, f"a{step}", "today/latest.npz") for step in (0, 20, 40)]
    with recorded(tmp_path, *latest) as ledger:
        assert len(present(ledger)) == 3
        see(ledger, checkpoint(20, "b20", "today/latest.npz"))
        assert present(ledger) == [(0, "a0"), (20, "b20")]


def test_restart_supersedes_earlier_contents_of_a_file_without_a_number(tmp_path: Path) -> None:
    def latest(arrival: int, sha256: str, folder: str = "today") -> Subject:
        return checkpoint(arrival, sha256, f"{folder}/latest.npz")

    elsewhere = latest(0, "e", "elsewhere")
    first = [FIRST[0], latest(0, "a0"), FIRST[1], latest(1, "between"), FIRST[2], latest(2, "a40"), elsewhere]
    with recorded(tmp_path / "all", *first, checkpoint(0, "b0"), latest(3, "b0")) as ledger:
        assert present(ledger) == [(0, "b0"), (0, "e"), (3, "b0")]
        (arrived,) = [
            position for position, one in ledger.sightings().items() if (one.outer_step, one.sha256) == (3, "b0")
        ]
        assert ledger.restarts().num_restarts_before(arrived) == 1
    with recorded(tmp_path / "part", *first, checkpoint(40, "b40")) as ledger:  # both runs have the first two
        assert present(ledger) == [(0, "a0"), (0, "a0"), (0, "e"), (20, "a20"), (40, "b40")]
    with recorded(tmp_path / "early", *first, latest(3, "b0"), checkpoint(0, "b0")) as ledger:
        assert present(ledger) == [(0, "b0"), (0, "e"), (3, "b0")]
    with recorded(
        tmp_path / "before", latest(0, "a0"), *FIRST, checkpoint(0, "b0")
    ) as ledger:  # seen before all others
        assert present(ledger) == [(0, "b0")]


def test_arrival_counts_the_changes_of_a_file_without_a_step(tmp_path: Path) -> None:
    uri, numbers = "today/latest.npz", []
    with Ledger.open(tmp_path) as ledger:
        for sha256 in "aabba":
            numbers.append(ledger.current_restarts.arrival_number(uri, sha256))
            see(ledger, checkpoint(numbers[-1], sha256, uri))
        assert numbers == [0, 0, 1, 1, 2] and not ledger.restart_events()


def test_merged_store_keeps_the_restart_and_two_runs_of_one_name_stay(tmp_path: Path) -> None:
    recorded(tmp_path / "a", *FIRST, checkpoint(0, "b0")).close()
    recorded(tmp_path / "b", checkpoint(7, "z", "elsewhere/theta_7.npz"), checkpoint(0, "c0")).close()
    merge_stores([tmp_path / "b", tmp_path / "a"], tmp_path / "both")
    with Ledger.open(tmp_path / "both") as ledger:
        assert present(ledger) == [(0, "b0"), (0, "c0"), (7, "z")]


def test_sighting_of_a_path_as_it_was_typed_is_found_again_and_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theta_20.npz").touch()
    monkeypatch.chdir(tmp_path)
    typed = [checkpoint(20, sha256, "theta_20.npz") for sha256 in "ab"]
    for _ in range(2):  # a later process finds the file from the folder in which the path was typed
        recorded(tmp_path / "store", typed[0]).close()
    recorded(tmp_path / "store", typed[1]).close()
    with Ledger.open(tmp_path / "store") as ledger:
        assert present(ledger) == [(20, "b")]


def test_restart_holds_after_store_and_run_were_moved(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "today").mkdir(parents=True)

    def at(folder: Path, step: int, sha256: str) -> Subject:
        return checkpoint(step, sha256, str(folder / "today" / f"theta_{step}.npz"))

    with recorded(first / "store", at(first, 0, "a0"), at(first, 20, "a20"), at(first, 0, "b0")) as ledger:
        ledger.record_suites({})
        assert present(ledger) == [(0, "b0")]
    first.rename(second)
    for step in (0, 20):
        (second / "today" / f"theta_{step}.npz").touch()
    with Ledger.open(second / "store") as ledger:
        assert present(ledger) == [(0, "b0")]
        for _ in range(2):
            ledger.update_moved_paths(str(second / "today"))
            assert present(ledger) == [(0, "b0")]
            assert {Path(one.uri).parent for one in ledger.sightings().values()} == {second / "today"}
        see(ledger, at(second, 20, "b20"))
        assert present(ledger) == [(0, "b0"), (20, "b20")] and len(ledger.restart_events()) == 1


def test_checkpoints_given_one_by_one_after_a_move_are_known_at_their_new_paths(tmp_path: Path) -> None:
    names = ("old.npz", "new.npz")
    with recorded(
        tmp_path / "first" / "store", *(checkpoint(0, name, str(tmp_path / "first" / name)) for name in names)
    ) as ledger:
        ledger.record_suites({})
    (tmp_path / "first").rename(tmp_path / "second")
    for name in names:
        (tmp_path / "second" / name).touch()
    with Ledger.open(tmp_path / "second" / "store") as ledger:
        for name in names:
            subject = checkpoint(0, name, str(tmp_path / "second" / name))
            ledger.update_moved_paths(subject.uri)
            see(ledger, subject)
        assert len(ledger.sightings()) == len(names) and not ledger.restart_events()
