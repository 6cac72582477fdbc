"""What is answered is on the disk; one sync serves all who wait, and heartbeats cost none."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lobench_pbt.durable import CommitLog
from lobench_pbt.service import Service
from lobench_pbt.transitions import Completion
from pbt_simulation import PLUGINS, make_study, write_theta
from shown import texts_of

from lobench import StoreError

SHOWN = texts_of("pbt")


class Counted(CommitLog):
    """Counts syncs, and holds the first one until it may go on."""

    def __init__(self, database: Path) -> None:
        super().__init__(database)
        self.num_syncs, self.begun, self.may_end = 0, threading.Event(), threading.Event()

    def _sync(self) -> None:
        self.num_syncs += 1
        self.begun.set()
        assert self.may_end.wait(600)
        super()._sync()


def test_those_who_come_while_one_syncs_share_the_next_one(tmp_path: Path) -> None:
    log = Counted(tmp_path / "db")
    log._database.touch()

    def commit() -> None:
        log.record_commit()
        log.wait_until_synced()

    with ThreadPoolExecutor(20) as threads:
        first = threads.submit(commit)
        assert log.begun.wait(600)
        others = [threads.submit(commit) for _ in range(19)]
        while log._num_written < 20:
            threading.Event().wait(0.001)
        assert not any(other.done() for other in others), "their commits came after that sync had begun"
        log.may_end.set()
        for future in (first, *others):
            future.result(600)
    assert log.num_syncs == 2
    log.wait_until_synced()
    assert log.num_syncs == 2, "nothing is new"


def test_a_disk_that_takes_nothing_is_said_to_everybody_and_asked_again(tmp_path: Path) -> None:
    log = CommitLog(tmp_path / "db")  # there is no such file yet
    log.record_commit()
    for _ in range(2):
        with pytest.raises(StoreError, match=SHOWN["cannot-use-the-study-s"]):
            log.wait_until_synced()
    log._database.touch()
    log.wait_until_synced()


def test_a_heartbeat_waits_for_no_disk_and_each_other_request_for_one_sync(tmp_path: Path) -> None:
    service = Service(tmp_path / "store", clock=lambda: 0.0, plugins=PLUGINS)
    assert service._db.execute("PRAGMA synchronous").fetchone() == (1,), "commits do not sync by themselves"
    service.create_study(make_study(parameters=()))
    service._commit_log = log = Counted(tmp_path / "store" / "pbt.sqlite")
    log.may_end.set()
    counts = []

    def count() -> None:
        counts.append(log.num_syncs)
        log.num_syncs = 0

    trial = service.suggest("", "one").trial
    count()
    assert trial is not None
    for _ in range(10):
        service.heartbeat("", trial.id, 0)
    count()
    service.add_measurement("", trial.id, 0, step=1, seconds=0.0, metrics={})
    count()
    theta = write_theta(tmp_path / "theta.npz", 1.0)
    service.complete("", trial.id, Completion(attempt=0, checkpoint=theta, metrics={"loss": 1.0}, n_steps=5))
    count()
    service.get_study()
    count()
    assert counts == [1, 0, 1, 1, 0]
    service.close()
