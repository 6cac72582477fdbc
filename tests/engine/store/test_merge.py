"""Stores become one; nothing is lost, nothing is overwritten."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
from commands import lobench
from disks import MOUNTING, small_disk
from shown import texts_of
from stores import add

from lobench.core.errors import StoreBusy, StoreError, UsageError
from lobench.core.result import Outcome
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.merge import merge_stores
from lobench.hookspecs import CheckpointFinished

SHOWN = texts_of("store")


def rows(store: Path) -> list[EvaluationRow]:
    ledger = Ledger.open(store, read_only=True)
    found = list(ledger.evaluations())
    ledger.close()
    return found


@pytest.fixture
def stores(tmp_path: Path) -> list[Path]:
    one, two = tmp_path / "one", tmp_path / "two"
    add(one, 1, {"a": {"train/loss": [1.0, 0.5]}, "b": {"train/loss": [1.0]}})
    add(two, 1, {"a": {"train/loss": [1.0, 0.5]}, "b": Outcome.ERROR}, revision="r2")
    add(two, 2, {"a": {"train/loss": [0.25, 0.5]}}, revision="r2")
    return [one, two]


def test_everything_is_there_once_with_its_own_date(stores: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "both"
    one, two = merge_stores(stores, target)
    assert (one.taken, one.known, one.conflicts) == (2, 0, ())
    # Different hosts and times are no conflict; case b has four seeds in one, and one in the other.
    assert (two.taken, two.known, two.conflicts) == (2, 1, ())
    found = rows(target)
    assert [(row.case.name, row.outcome, [c.outer_step for c in row.recorded_sightings]) for row in found] == [
        ("a", Outcome.PASSED, [1]),
        ("b", Outcome.PASSED, [1]),
        ("b", Outcome.ERROR, [1]),
        ("a", Outcome.PASSED, [2]),
    ]
    assert found[3].recorded_at == rows(stores[1])[2].recorded_at
    again = merge_stores(stores, target)
    assert [(merged.taken, merged.known, merged.conflicts) for merged in again] == [(0, 2, ()), (0, 3, ())]
    assert rows(target) == found


def test_sinks_of_the_target_get_each_thing_once(stores: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "both"
    for _ in range(2):
        merge_stores(stores, target)
    ledger = Ledger.open(target)
    events = [delivery.event for delivery in ledger.deliveries_after(0)]
    ledger.close()
    finished = [event.checkpoint.outer_step for event in events if isinstance(event, CheckpointFinished)]
    assert finished == [1, 2] and len(events) == 6


@MOUNTING
@pytest.mark.parametrize("has_log", [False, True])
def test_a_store_on_a_read_only_disk_is_merged(stores: list[Path], tmp_path: Path, has_log: bool) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        with Ledger.open(stores[0]) if has_log else contextlib.nullcontext() as writer:
            if writer is not None:
                writer.record_event("skipped", position=0)
            shutil.copytree(stores[0], disk.path / "one")
        disk.remount("ro")
        (merged,) = merge_stores([disk.path / "one"], tmp_path / "both")
    assert (merged.taken, merged.known, merged.conflicts) == (2, 0, ())
    assert rows(tmp_path / "both") == rows(stores[0])


def test_conflicts_are_named_and_the_target_stays(stores: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    add(other, 1, {"a": {"train/loss": [1.0, 0.75]}, "b": {"train/loss": [1.0]}})
    add(other, 2, {"a": Outcome.PASSED})
    before = rows(stores[0])
    done = lobench("merge", other, "--output", stores[0])
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        SHOWN["taken-1-there-already-1"].format(other=other),
        SHOWN["conflict-not-taken-run-theta"],
    ]
    assert rows(stores[0])[:2] == before


@pytest.mark.parametrize("says_so", [True, False], ids=["says what plugins added", "of an older lobench"])
def test_what_plugins_computed_need_not_agree(tmp_path: Path, says_so: bool) -> None:
    """One machine had the plugin, the other had not; a third one has another version of it."""
    finals = {"train/loss": [1.0, 0.5]}
    extra = ({"train/drop": [1.0, 1.5]}, {"train/drop": [7.0, 8.0]}) if says_so else ({"train/drop": [1.0, 1.5]},)
    add(tmp_path / "without", 1, {"a": finals}, added=() if says_so else None)
    for number, more in enumerate(extra):
        store, added = tmp_path / str(number), ("train/drop",) if says_so else None
        add(store, 1, {"a": finals | more}, added=added)
        (merged,) = merge_stores([store], tmp_path / "without")
        assert (merged.known, merged.conflicts) == (1, ())
        if number:
            assert merge_stores([store], tmp_path / "0")[0].conflicts == ()
    add(tmp_path / "other", 1, {"a": {"train/loss": [1.0, 0.75], "train/drop": [1.0, 1.5]}}, added=added)
    assert len(merge_stores([tmp_path / "other"], tmp_path / "without")[0].conflicts) == 1
    if says_so:  # what no plugin computed is the work's own: it must be there on either side
        add(tmp_path / "own", 1, {"a": finals | {"test/loss": [1.0, 1.0]}})
        assert len(merge_stores([tmp_path / "own"], tmp_path / "without")[0].conflicts) == 1


def test_what_cannot_be_merged_is_refused_before_anything_is_written(stores: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=SHOWN["target-is-one-of-the"]):
        merge_stores(stores, stores[1])
    with pytest.raises(StoreError, match=SHOWN["no-result-store-found"]):
        merge_stores([*stores, tmp_path / "none"], tmp_path / "new")
    assert not (tmp_path / "new").exists()
    holder = Ledger.open(tmp_path / "held", name="watch")
    with pytest.raises(StoreBusy, match="'watch'"):
        merge_stores(stores, tmp_path / "held")
    holder.close()


def test_a_target_that_cannot_be_is_one_line_without_an_option_of_other_commands(
    stores: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    done = lobench("merge", *stores, "--output", tmp_path / "file" / "x")
    assert done.returncode == 2 and SHOWN["not-a-directory-choose-another"] in done.stderr
    assert "--store" not in done.stderr
