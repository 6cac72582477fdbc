"""A ledger of schema 1 where nothing may be written: it is read, and a chief is told what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import lobench
from disks import MOUNTING, small_disk
from old_stores import old_store

from lobench.core.errors import StoreError
from lobench.engine.store.ledger import Ledger


@MOUNTING
def test_a_store_of_schema_1_on_a_disk_that_is_read_only(tmp_path: Path) -> None:
    store = old_store(tmp_path)
    shown = lobench("results", "--store", store, "--format", "json").stdout
    assert len(json.loads(shown)) > 1
    with small_disk(tmp_path / "disk", "50m") as disk:
        shutil.copytree(store, disk.path / "store")
        disk.remount("ro")
        assert lobench("results", "--store", disk.path / "store", "--format", "json").stdout == shown
        with pytest.raises(StoreError, match="Read-only file system; choose another folder"):
            Ledger.open(disk.path / "store")
