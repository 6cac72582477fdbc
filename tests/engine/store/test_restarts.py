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
    superseded = ledger.restarts().superseded
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


def test_overwritten_file_restarts_if_its_step_falls_and_not_if_it_grows(tmp_path: Path) -> None:
    latest = [checkpoint(step, f"a{step}", "today/latest.npz") for step in (0, 20, 40)]
    with recorded(tmp_path, *latest) as ledger:
        assert len(present(ledger)) == 3
        see(ledger, checkpoint(20, "b20", "today/latest.npz"))
        assert present(ledger) == [(0, "a0"), (20, "b20")]


def test_arrival_counts_the_changes_of_a_file_without_a_step(tmp_path: Path) -> None:
    uri, numbers = "today/latest.npz", []
    with Ledger.open(tmp_path) as ledger:
        for sha256 in "aabba":
            numbers.append(ledger.arrival(uri, sha256))
            see(ledger, checkpoint(numbers[-1], sha256, uri))
        assert numbers == [0, 0, 1, 1, 2] and not ledger.restart_events()


def test_merged_store_keeps_the_restart_and_two_runs_of_one_name_stay(tmp_path: Path) -> None:
    recorded(tmp_path / "a", *FIRST, checkpoint(0, "b0")).close()
    recorded(tmp_path / "b", checkpoint(7, "z", "elsewhere/theta_7.npz"), checkpoint(0, "c0")).close()
    merge_stores([tmp_path / "b", tmp_path / "a"], tmp_path / "both")
    with Ledger.open(tmp_path / "both") as ledger:
        assert present(ledger) == [(0, "b0"), (0, "c0"), (7, "z")]


def test_restart_of_a_relative_path_is_found_from_the_folder_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "today").mkdir()
    for step in (0, 20, 40):
        (tmp_path / "today" / f"theta_{step}.npz").touch()
    monkeypatch.chdir(tmp_path)
    for subject in (*FIRST, FIRST[0], checkpoint(0, "b0")):  # each by a process of its own
        with Ledger.open(tmp_path / "store") as ledger:
            see(ledger, subject)
    with Ledger.open(tmp_path / "store") as ledger:
        assert present(ledger) == [(0, "b0")] and {one.sha256 for one in ledger.superseded()} == {"a0", "a20", "a40"}
        ledger.take_location("today")
        assert present(ledger) == [(0, "b0")]
        see(ledger, checkpoint(20, "b20", str(tmp_path / "today" / "theta_20.npz")))
        assert present(ledger) == [(0, "b0"), (20, "b20")]
