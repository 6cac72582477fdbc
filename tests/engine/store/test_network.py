"""The ledger of a store on a network file system: local copies are lost, machines change, the store vanishes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from shown import texts_of

from lobench.core.checkpoint import Checkpoint
from lobench.core.errors import StoreError
from lobench.core.subject import Subject
from lobench.engine.store import network as network_store
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("store")

MOUNTS = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:40 / /home rw shared:5 - nfs4 server:/home rw,vers=4.2
31 30 0:41 / /home/me/my\\040disk rw - xfs /dev/sdb rw
32 27 0:42 / /data rw - ext4 /dev/sdc rw
33 27 0:43 / /data rw - fuse.sshfs me@host: rw
34 27 0:44 / /overlay rw - fuse.fuse-overlayfs overlay rw
35 27 0:45 / /usb rw - fuseblk /dev/sdd rw
36 27 0:46 / /lus rw - lustre 10.0.0.1@tcp:/lus rw
37 27 0:47 / /bind rw - fuse /home/me rw
38 27 0:48 / /vm rw - virtiofs host rw
39 27 0:49 / /gfs rw - gfs2 /dev/sde rw
40 27 0:50 / /hgfs rw - vmhgfs .host:/ rw
41 27 0:51 / /quo rw - quobyte quo rw
42 27 0:52 / /new rw - filesystem_of_2031 new rw
43 27 0:53 / /merged rw - overlay overlay rw
44 27 0:54 / /memory rw - tmpfs tmpfs rw
45 27 0:55 / /tank rw - zfs tank rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/x", "ext4", False),
        ("/home/me/runs", "nfs4", True),
        ("/home/me/my disk/runs", "xfs", False),
        ("/homes", "ext4", False),
        ("/data/run", "fuse.sshfs", True),
        ("/overlay/run", "fuse.fuse-overlayfs", False),
        ("/usb/run", "fuseblk", False),
        ("/lus", "lustre", True),
        ("/bind/run", "fuse", True),
        ("/vm/run", "virtiofs", True),
        ("/gfs/run", "gfs2", True),
        ("/hgfs/run", "vmhgfs", True),
        ("/quo/run", "quobyte", True),
        ("/new/run", "filesystem_of_2031", True),
        ("/merged/run", "overlay", False),
        ("/memory/run", "tmpfs", False),
        ("/tank/run", "zfs", False),
    ],
)
def test_what_the_mounts_say(path: str, kind: str, network: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOBENCH_NETWORK_STORE", raising=False)
    assert network_store.file_system_type(Path(path), MOUNTS) == kind
    assert network_store.is_on_network_disk(Path(path), MOUNTS) is network
    monkeypatch.setenv("LOBENCH_NETWORK_STORE", "0" if network else "1")
    assert network_store.is_on_network_disk(Path(path), MOUNTS) is not network


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine's local disk; publication happens only when a test asks for it."""
    monkeypatch.setenv("LOBENCH_NETWORK_STORE", "1")
    monkeypatch.setattr(network_store, "_PUBLISH_SECONDS", 3600.0)
    return use_machine(tmp_path / "machine", monkeypatch)


def use_machine(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOBENCH_LOCAL_DIR", str(disk))
    return disk


def sight(ledger: Ledger, sha256: str, step: int) -> None:
    ledger.record_sighting(Subject.of_checkpoint(Checkpoint(uri=f"c{step}", sha256=sha256, outer_step=step)))


def killed(ledger: Ledger) -> None:
    """Ends a ledger as a kill does: the lock goes, nothing is published."""
    ledger._db.close()
    assert ledger._lock is not None
    ledger._lock.release()


def steps(ledger: Ledger) -> list[int]:
    return [checkpoint.outer_step for checkpoint in ledger.sightings().values()]


def published(store: Path) -> list[int]:
    reader = Ledger.open(store, read_only=True)
    try:
        return steps(reader)
    finally:
        reader.close()


def test_the_store_gets_whole_copies_and_the_local_one_goes_at_the_end(tmp_path: Path, machine: Path) -> None:
    store = tmp_path / "store"
    ledger = Ledger.open(store)
    assert published(store) == []
    sight(ledger, "x", 1)
    place = ledger.num_transactions()
    assert published(store) == [] and not ledger.is_published(place)
    reader = ledger.open_reader()
    assert steps(reader) == [1]
    reader.close()
    ledger.publish()
    assert published(store) == [1] and ledger.is_published(place)
    sight(ledger, "y", 2)
    ledger.close()
    assert published(store) == [1, 2]
    assert list(machine.iterdir()) == []
    assert sorted(path.name for path in store.iterdir()) == ["chief.lock", "ledger.sqlite", "store.id"]
    assert "wal" not in sqlite3.connect(store / "ledger.sqlite").execute("PRAGMA journal_mode").fetchone()


def test_what_is_new_is_published_without_being_asked(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_store, "_PUBLISH_SECONDS", 0.01)
    ledger = Ledger.open(tmp_path / "store")
    sight(ledger, "x", 1)
    while not ledger.is_published(ledger.num_transactions()):
        time.sleep(0.01)
    assert published(tmp_path / "store") == [1]
    ledger.close()


def test_a_restart_goes_on_from_the_local_copy(tmp_path: Path, machine: Path) -> None:
    ledger = Ledger.open(tmp_path / "store")
    sight(ledger, "x", 1)
    killed(ledger)
    assert published(tmp_path / "store") == []
    ledger = Ledger.open(tmp_path / "store")
    assert steps(ledger) == [1]
    ledger.close()
    assert published(tmp_path / "store") == [1]


def test_what_was_not_published_is_lost_with_the_local_disk_and_no_number_comes_twice(
    tmp_path: Path, machine: Path
) -> None:
    store = tmp_path / "store"
    ledger = Ledger.open(store)
    sight(ledger, "x", 1)
    ledger.publish()
    sight(ledger, "y", 2)
    ledger.finish_checkpoint(0, programs=["1"], case_keys=())
    last = ledger.last_sequence()
    killed(ledger)
    shutil.rmtree(machine)
    ledger = Ledger.open(store)
    assert steps(ledger) == [1]
    ledger.finish_checkpoint(0, programs=["1"], case_keys=())
    assert ledger.last_sequence() > last
    ledger.close()


def test_another_machine_went_on_meanwhile(tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    ledger = Ledger.open(store)
    sight(ledger, "lost", 1)
    killed(ledger)
    use_machine(tmp_path / "other", monkeypatch)
    other = Ledger.open(store)
    sight(other, "kept", 2)
    other.close()
    use_machine(machine, monkeypatch)
    back = Ledger.open(store)
    assert steps(back) == [2]
    back.close()


def test_a_store_that_was_removed_begins_anew(tmp_path: Path, machine: Path) -> None:
    store = tmp_path / "store"
    ledger = Ledger.open(store)
    sight(ledger, "x", 1)
    killed(ledger)
    shutil.rmtree(store)
    ledger = Ledger.open(store)
    assert steps(ledger) == []
    ledger.close()


def test_a_ledger_once_written_in_place_is_taken_over_with_its_log(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    monkeypatch.setenv("LOBENCH_NETWORK_STORE", "0")
    ledger = Ledger.open(store)
    sight(ledger, "x", 1)
    shutil.copytree(store, tmp_path / "as killed")
    ledger.close()
    assert (tmp_path / "as killed" / "ledger.sqlite-wal").stat().st_size > 0
    monkeypatch.setenv("LOBENCH_NETWORK_STORE", "1")
    Ledger.open(tmp_path / "as killed").close()
    assert published(tmp_path / "as killed") == [1]
    assert not (tmp_path / "as killed" / "ledger.sqlite-wal").exists()


def test_a_store_that_goes_away_leaves_the_local_copy_and_says_where(tmp_path: Path, machine: Path) -> None:
    store = tmp_path / "store"
    ledger = Ledger.open(store)
    sight(ledger, "x", 1)
    os.rename(store, tmp_path / "away")
    with pytest.raises(StoreError, match=SHOWN["safe-in"].format(machine=machine)):
        ledger.close()
    os.rename(tmp_path / "away", store)
    ledger = Ledger.open(store)
    assert steps(ledger) == [1]
    ledger.close()


def test_no_local_disk_is_one_clear_line(tmp_path: Path, machine: Path) -> None:
    machine.write_text("in the way")
    with pytest.raises(StoreError, match=SHOWN["set-lobench-local-dir-to"]):
        Ledger.open(tmp_path / "store")


def test_reader_that_the_chief_starts_sees_what_is_not_published_yet(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    with Ledger.open(store) as ledger:
        sight(ledger, "x", 1)
        assert published(store) == []
        monkeypatch.setenv(network_store.READS_LOCAL_COPY, "1")
        assert published(store) == [1]
    assert published(store) == [1]


def test_local_copy_of_a_machine_that_another_one_has_overtaken_is_not_read(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    ledger = Ledger.open(store)
    sight(ledger, "x", 1)
    killed(ledger)
    use_machine(tmp_path / "other", monkeypatch)
    with Ledger.open(store) as later:
        sight(later, "y", 2)
    use_machine(machine, monkeypatch)
    monkeypatch.setenv(network_store.READS_LOCAL_COPY, "1")
    assert published(store) == [2]
