"""What a node keeps and what it throws away; no Ray runs."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

import pytest
from lobench_ray import slot
from lobench_ray.slot import Slot

from lobench.hookspecs import WorkerExited

DAYS = 2 * 86400.0


def aged(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "a.gin").write_text("x = 1\n")
    then = time.time() - DAYS
    os.utime(folder, (then, then))
    return folder


def test_a_file_where_the_folder_belongs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = tmp_path / f"lobench-{os.getuid()}"
    file.touch()
    with pytest.raises(FileExistsError, match=str(file)):
        slot.node_folder()


def test_a_day_without_a_worker_removes_suites_and_logs_and_no_compiled_program(tmp_path: Path) -> None:
    old = [aged(tmp_path / kind / "old") for kind in ("suites", "logs")]
    cache = aged(tmp_path / "xla_cache" / "old")
    new = tmp_path / "suites" / "new"
    new.mkdir()
    slot._remove_unused(tmp_path)
    assert not any(folder.exists() for folder in old)
    assert [entry.name for entry in (tmp_path / "suites").iterdir()] == ["new"] and cache.exists()


def test_what_is_swept_is_never_found_half_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that is killed half way, and a slot that wants the same suite then."""
    suite = aged(tmp_path / "suites" / "sha")

    def killed(folder: Path) -> None:
        raise OSError("killed")

    monkeypatch.setattr(slot.shutil, "rmtree", killed)
    slot._remove_unused(tmp_path)
    assert not suite.exists() and [entry.name[:4] for entry in suite.parent.iterdir()] == ["tmp-"]


class Pool:
    """A worker that says nothing for two days, and then dies."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders, self.num_waits = folders, 0

    def start(self, worker: int, num_cpus: int, num_gpus: float) -> None:
        pass

    def wait(self, seconds: float) -> list[WorkerExited]:
        self.num_waits += 1
        if self.num_waits > 1:
            slot._remove_unused(self.folders[0].parent.parent)
            return [WorkerExited(worker=0, message="it ended")]
        for folder in self.folders:
            then = time.time() - DAYS
            os.utime(folder, (then, then))
        return []


def test_what_a_living_worker_uses_stays(tmp_path: Path) -> None:
    folders = [aged(tmp_path / "suites" / "sha"), aged(tmp_path / "logs" / "1")]
    one = Slot()
    one._used_folders = tuple(folders)
    one._relay_events(Pool(folders), 1, 0.0, threading.Event())  # type: ignore[arg-type]  # what of a pool is used here
    assert all(folder.exists() for folder in folders)
