"""`lobench.wait_for_evaluations`: a trainer that waits for its evaluations."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from shown import texts_of

import lobench
from lobench.core.checkpoint import Checkpoint
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("api")


def seen(ledger: Ledger, step: int) -> int:
    return ledger.record_sighting(Subject.of_checkpoint(Checkpoint(uri=f"c{step}", sha256=str(step), outer_step=step)))


def test_what_is_neither_evaluated_nor_skipped_is_waited_for(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "store") as ledger:
        positions = [seen(ledger, step) for step in range(4)]
        ledger.record_admission(positions[0], "skipped")
        ledger.record_admission(positions[1], "admitted")
        ledger.finish_checkpoint(positions[1], programs=[], case_keys=[])
        assert lobench.wait_for_evaluations(tmp_path / "store", max_pending=2, timeout=0)
        assert not lobench.wait_for_evaluations(tmp_path / "store", max_pending=1, timeout=0)
        assert not lobench.wait_for_evaluations(tmp_path / "store", max_pending=1, timeout=0.2)


def test_checkpoints_of_all_runs_in_the_store_are_waited_for(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "store") as ledger:
        for run in ("a", "b"):
            checkpoint = Checkpoint(uri=f"/runs/{run}/theta_1.npz", sha256=run, outer_step=1)
            ledger.record_sighting(Subject.of_checkpoint(checkpoint))
        assert not lobench.wait_for_evaluations(tmp_path / "store", max_pending=1, timeout=0)


def test_store_that_does_not_exist_is_not_waited_for_and_warned_of_once(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "quick") as ledger:
        seen(ledger, 1)
    with pytest.warns(UserWarning) as warned:
        for _ in range(2):
            assert lobench.wait_for_evaluations(tmp_path / "quik")
    (one,) = warned
    assert str(tmp_path / "quik") in str(one.message) and SHOWN["beside-it-quick"] in str(one.message)
    assert one.filename == __file__, "the warning is at the trainer's line"


def test_store_that_a_watch_is_creating_has_nothing_to_wait_for(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").touch()
    assert lobench.wait_for_evaluations(tmp_path, timeout=0)


def test_it_ends_when_the_watch_has_caught_up(tmp_path: Path) -> None:
    found: list[bool] = []
    waiter = threading.Thread(target=lambda: found.append(lobench.wait_for_evaluations(tmp_path)))
    with Ledger.open(tmp_path) as ledger:
        position = seen(ledger, 1)
        waiter.start()
        waiter.join(0.5)
        assert not found
        ledger.record_admission(position, "admitted")
        ledger.finish_checkpoint(position, programs=[], case_keys=[])
        waiter.join(60)
    assert found == [True]


def test_a_trainer_that_waits_imports_no_jax(tmp_path: Path) -> None:
    with Ledger.open(tmp_path) as ledger:
        seen(ledger, 1)
    script = f"""
import sys, lobench
print(lobench.wait_for_evaluations({str(tmp_path)!r}, timeout=0), {{"jax", "optax", "gin"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False set()\n"


@pytest.mark.parametrize("wrong", [{"max_pending": -1}, {"timeout": -1.0}, {"timeout": float("nan")}])
def test_a_negative_number_is_one_line(tmp_path: Path, wrong: dict[str, float]) -> None:
    with pytest.raises(lobench.UsageError, match=SHOWN["wait-for-evaluations-got-expected"]):
        lobench.wait_for_evaluations(tmp_path, **wrong)


def test_run_folder_instead_of_its_store_is_an_error_that_names_the_store(tmp_path: Path) -> None:
    store = tmp_path / "lobench_results" / "quick"
    with Ledger.open(store) as ledger:
        seen(ledger, 1)
    with pytest.raises(lobench.StoreError) as raised:
        lobench.wait_for_evaluations(tmp_path, timeout=0)
    assert str(store) in str(raised.value)
