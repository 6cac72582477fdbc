"""`lobench doctor --store`, on stores that are there, are not, and may not be written."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from stores import add

from lobench.engine.store.ledger import Ledger
from lobench.tools.doctor import command

SHOWN = texts_of("doctor")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """jax's devices are not what these tests are about, and take seconds."""
    monkeypatch.setattr(command, "_DEVICES_CODE", "print('not asked')")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    add(tmp_path / "store", 1, {"a": {"train/loss": [1.0]}})
    return tmp_path / "store"


@pytest.fixture
def read_only(store: Path) -> Iterator[Path]:
    """A store that this user may read and not write; root may, unless the file system itself may not be written."""
    if os.getuid() != 0:
        modes = {path: path.stat().st_mode for path in (store, *store.iterdir())}
        for path in modes:
            path.chmod(modes[path] & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
        yield store
        for path, mode in modes.items():
            path.chmod(mode)
        return
    bound = subprocess.run(["mount", "--bind", str(store), str(store)], capture_output=True, check=False)
    if bound.returncode:
        pytest.skip("needs a machine that lets its root mount a folder")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(store)], check=True)
        yield store
    finally:
        subprocess.run(["umount", "-l", str(store)], check=True)


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    done = lobench("doctor", "--store", tmp_path / "typo")
    assert done.returncode == 3
    assert SHOWN["wrong-store-no-result-store"].format(store=tmp_path / "typo") in done.stdout
    assert not (tmp_path / "typo").exists()


def test_a_store_is_as_it_was_also_beside_its_writer(store: Path) -> None:
    with_writer = Ledger.open(store, name="watch")
    before = sorted(path.name for path in store.iterdir())
    done = lobench("doctor", "--store", store)
    assert done.returncode == 0 and SHOWN["ok-store-1-checkpoint-1"] in done.stdout
    assert sorted(path.name for path in store.iterdir()) == before
    with_writer.close()


def test_a_store_that_cannot_be_written_is_wrong(read_only: Path) -> None:
    done = lobench("doctor", "--store", read_only)
    assert done.returncode == 3
    assert SHOWN["wrong-store"] in done.stdout and SHOWN["choose-another-folder"] in done.stdout


def test_a_folder_of_compiled_programs_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOBENCH_CACHE_DIR", str(tmp_path / "cache"))
    done = lobench("doctor")
    assert done.returncode == 0
    assert SHOWN["ok-compiled-programs-0-programs"].format(folder=tmp_path / "cache" / "xla_cache") in done.stdout
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOBENCH_CACHE_DIR", str(tmp_path / "file"))
    done = lobench("doctor")
    assert (
        done.returncode == 3 and SHOWN["wrong-compiled-programs"] in done.stdout and "LOBENCH_CACHE_DIR" in done.stdout
    )
