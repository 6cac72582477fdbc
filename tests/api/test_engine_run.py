"""What a watch tells its executor."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import ONE_CASE, make_run, make_suite, watch

from lobench.engine.workers.pool import InlineExecutor


def test_the_executor_in_this_process_is_one_worker_however_many_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, start = [], InlineExecutor.start

    def counted(self: InlineExecutor, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None:
        started.append(worker)
        start(self, worker, num_cpus, num_gpus)

    monkeypatch.setattr(InlineExecutor, "start", counted)
    words = ("--once", "--executor", "inline", "--workers", "3", "--store", str(tmp_path / "store"))
    done = watch(make_run(tmp_path / "run", -1.0), make_suite(tmp_path / "tiny", ONE_CASE), *words)
    assert done.returncode == 0 and len(started) == 1, done.stdout
