"""Ledger of a store on a network file system: a local database, published to the store as whole copies.

SQLite's write-ahead log needs shared memory and reliable locks. Network file systems lack shared memory, and their
locks are often unreliable. So the chief writes a local database, and replaces the store's file with a snapshot of it
from time to time and at the end. A restart on the same machine continues from the local database. On another machine
it continues from the store's copy, and evaluations recorded after that copy are computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sqlite3
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from lobench.core.errors import StoreError
from lobench.core.wording import convert_errors
from lobench.engine.group_files import open_to_group
from lobench.engine.retries import retried
from lobench.engine.whole_file import write_whole

__all__ = ["READS_LOCAL_COPY", "LocalCopy", "file_system_type", "is_on_network_disk", "newer_local_database"]

# Types of local file systems. Every other type is treated as a network file system, because an unknown type may be one
# and FUSE may keep the bytes anywhere.
_LOCAL_TYPES = frozenset((
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "bcachefs", "f2fs", "jfs", "nilfs2", "reiserfs", "reiser4", "udf",
    "minix", "hfs", "hfsplus", "apfs", "ufs", "befs", "affs", "vfat", "msdos", "exfat", "ntfs", "ntfs3", "fuseblk",
    "tmpfs", "ramfs", "rootfs", "devtmpfs", "overlay", "aufs", "ecryptfs", "squashfs", "erofs", "iso9660", "cramfs",
    "romfs", "ubifs", "jffs2", "yaffs2", "lxfs", "wslfs",
))  # fmt: skip
# FUSE file systems that are known to keep their bytes on this machine.
_LOCAL_FUSE_TYPES = frozenset({"fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.mergerfs", "fuse.ntfs-3g", "fuse.encfs"})
# Environment variable of processes that a chief starts to read its store: the chief's process id.
READS_LOCAL_COPY = "LOBENCH_READS_LOCAL_COPY"
_PUBLISH_SECONDS = 15.0
_MIN_PAUSE_FACTOR = 20  # publishing takes at most 1/20 of the time
_PATIENCE_SECONDS = 10.0  # retries while a disk fails
_SKIPPED_SEQUENCES = 1_000_000  # more than any watch delivers between two publications

OnProblem = Callable[[str], None]


def file_system_type(path: Path, mounts: str | None = None) -> str:
    """Returns the type of the file system of a path, which need not exist; "" if unknown.

    Args:
      path: Path to look up.
      mounts: Text in the format of /proc/self/mountinfo. None: the content of that file.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return ""
    real_path = os.path.realpath(path)
    longest, type_name = -1, ""
    for line in mounts.splitlines():
        mount_fields, _, type_fields = line.partition(" - ")
        mount_point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), mount_fields.split(" ")[4])
        is_inside = real_path == mount_point or real_path.startswith(mount_point.rstrip("/") + "/")
        if is_inside and len(mount_point) >= longest:  # >=: of two mounts at one point, the later one is visible
            longest = len(mount_point)
            type_name = type_fields.split(" ")[0]
    return type_name


def is_on_network_disk(path: Path, mounts: str | None = None) -> bool:
    """Returns whether a path is on a network file system, or on one that is not known to be local.

    LOBENCH_NETWORK_STORE=1 or 0 overrides the result. If the mounts cannot be read, as on macOS, the path counts as
    local.
    """
    setting = os.environ.get("LOBENCH_NETWORK_STORE", "")
    if setting:
        return setting != "0"
    type_name = file_system_type(path, mounts)
    return type_name not in (_LOCAL_TYPES | _LOCAL_FUSE_TYPES | {""})


def newer_local_database(store: Path) -> Path | None:
    """Returns the local database that this user's chief on this machine writes for a store, or None.

    It has records that the store's own file lacks until the next publication. Returns None unless the store's file is a
    publication of this database, because another machine may have continued since.
    """
    try:
        if not is_on_network_disk(store):
            return None
        name = (store / "store.id").read_text(encoding="ascii")
        database = _base_folder() / f"{name}-{_path_hash(store)}" / "ledger.sqlite"
        if not database.is_file() or database.stat().st_uid != os.geteuid():
            return None
    except (OSError, ValueError):
        return None
    store_publication = _publication_ids(store / "ledger.sqlite", immutable=True)
    local_publication = _publication_ids(database, immutable=False)
    is_newer = local_publication is not None and (
        store_publication is None or store_publication[0] in local_publication
    )
    return database if is_newer else None


def _base_folder() -> Path:
    return Path(os.environ.get("LOBENCH_LOCAL_DIR") or f"{tempfile.gettempdir()}/lobench-ledgers-{os.getuid()}")


def _path_hash(store: Path) -> str:
    return hashlib.sha256(os.path.realpath(store).encode(errors="surrogateescape")).hexdigest()[:12]


class LocalCopy:
    """Local database of a store. The caller holds the store's lock.

    Attributes:
      database: File that the ledger is written to.
      num_changes: Number of transactions reported with `count_change`.
      num_published: Number of them that are in the store's own file.

    Raises:
      StoreError: No local disk is available for the copy, or the store cannot be read.
    """

    def __init__(self, store: Path, on_problem: OnProblem) -> None:
        self._store = store
        self._store_file = store / "ledger.sqlite"
        self._on_problem = on_problem
        self._folder = _local_folder(store)
        self.database = self._folder / "ledger.sqlite"
        self._confirmed_publication: str | None = None  # last publication known to be in the store's file
        self.num_changes, self.num_published = 0, -1
        self._problem = ""
        self._has_changes, self._stop_event, self._publish_lock = threading.Event(), threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._publish_repeatedly, daemon=True)
        for leftover in store.glob(".ledger-*.tmp"):
            with contextlib.suppress(OSError):  # removed at a later start
                leftover.unlink()
        self._choose_database()

    def start(self) -> None:
        """Publishes once, so that readers find a store, and starts the thread that publishes later changes."""
        self.publish()
        self._thread.start()

    def count_change(self) -> None:
        self.num_changes += 1
        self._has_changes.set()

    def publish(self) -> None:
        """Replaces the store's file with a snapshot, unless it is up to date.

        Raises:
          StoreError: The store cannot be written. The local database keeps all records.
        """
        with self._publish_lock, self._as_store_errors():
            num_changes = self.num_changes
            if num_changes == self.num_published:
                return
            name = uuid.uuid4().hex
            snapshot = self._folder / "snapshot.sqlite"
            snapshot.unlink(missing_ok=True)
            with contextlib.closing(sqlite3.connect(self.database, isolation_level=None, timeout=30)) as database:
                database.execute("BEGIN IMMEDIATE")
                _set_meta(database, publication=name, previous_publication=self._confirmed_publication or "")
                database.execute("COMMIT")
                database.execute("VACUUM INTO ?", (str(snapshot),))
            try:
                retried(
                    lambda: self._replace_store_file(snapshot), retries_forbidden=False, most_seconds=_PATIENCE_SECONDS
                )
            finally:
                snapshot.unlink(missing_ok=True)
            self._confirmed_publication = name
            self.num_published = num_changes
            self._problem = ""

    def close(self) -> None:
        """Publishes the remaining changes and then removes the local database."""
        self._stop_event.set()
        self._has_changes.set()
        if self._thread.is_alive():
            self._thread.join()
        self.publish()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _publish_repeatedly(self) -> None:
        pause = _PUBLISH_SECONDS
        while not self._stop_event.wait(pause):
            self._has_changes.wait()
            if self._stop_event.is_set():
                return
            self._has_changes.clear()
            started_at = time.monotonic()
            try:
                self.publish()
            except StoreError as error:
                self._has_changes.set()  # again after the pause
                if str(error) != self._problem:
                    self._problem = str(error)
                    self._on_problem(f"{error}; trying again")
            pause = max(_PUBLISH_SECONDS, _MIN_PAUSE_FACTOR * (time.monotonic() - started_at))

    def _replace_store_file(self, snapshot: Path) -> None:
        temporary_path = self._store / f".ledger-{uuid.uuid4().hex}.tmp"
        try:
            with snapshot.open("rb") as source, temporary_path.open("wb") as target:
                open_to_group(temporary_path, store=self._store)
                shutil.copyfileobj(source, target, 1 << 20)
                target.flush()
                os.fsync(target.fileno())
            for suffix in ("-wal", "-shm"):  # left by a ledger that was once written in place
                self._store_file.with_name(self._store_file.name + suffix).unlink(missing_ok=True)
            temporary_path.replace(self._store_file)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary_path.unlink(missing_ok=True)
            raise

    # Choice between the two copies at a restart.

    def _choose_database(self) -> None:
        store_publication = _publication_ids(self._store_file, immutable=True)
        if self.database.exists() and self._descends_from(store_publication[0] if store_publication else None):
            self._confirmed_publication = store_publication[0] if store_publication else None
            return
        with self._as_store_errors():
            shutil.rmtree(self._folder)
            self._folder.mkdir(mode=0o700)
            if not self._store_file.exists() or self._store_file.stat().st_size == 0:
                return
            for suffix in ("-wal", ""):
                source = self._store_file.with_name(self._store_file.name + suffix)
                if source.exists():
                    shutil.copyfile(source, self.database.with_name(self.database.name + suffix))
            with contextlib.closing(sqlite3.connect(self.database)) as database:
                # Sinks may have seen sequence numbers given after this copy was made. These are not reused.
                (last_sequence,) = database.execute("SELECT COALESCE(MAX(sequence), 0) FROM deliveries").fetchone()
                database.execute("DELETE FROM sqlite_sequence WHERE name = 'deliveries'")
                database.execute(
                    "INSERT INTO sqlite_sequence VALUES ('deliveries', ?)", (last_sequence + _SKIPPED_SEQUENCES,)
                )
                database.commit()
        self._confirmed_publication = store_publication[0] if store_publication else None

    def _descends_from(self, publication_name: str | None) -> bool:
        """Returns whether the store's file is a publication of the local database.

        If it is not, another machine has continued since.
        """
        local_publication = _publication_ids(self.database, immutable=False)
        return local_publication is not None and (publication_name or "") in {name or "" for name in local_publication}

    @contextlib.contextmanager
    def _as_store_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                "cannot keep the ledger of a store on a network file system",
                where=str(self._store),
                got=str(error),
                next_step=f"the recorded results are safe in {self._folder}; the same command on this machine goes on",
            ) from error


def _local_folder(store: Path) -> Path:
    """Returns this user's local folder for a store.

    Its name has an id from the store, which is deleted with the store.
    """
    base_folder = _base_folder()
    problem = "the store is on a network file system, and no local disk has a place for its ledger"
    next_step = "set LOBENCH_LOCAL_DIR to a folder on a local disk"
    with convert_errors(OSError, StoreError, problem, where=store, next_step=next_step):
        id_file = store / "store.id"
        if not id_file.exists():
            write_whole(id_file, uuid.uuid4().hex)
        base_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if base_folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{base_folder} belongs to another user")
        name = retried(
            lambda: id_file.read_text(encoding="ascii"), retries_forbidden=False, most_seconds=_PATIENCE_SECONDS
        )
        folder = base_folder / f"{name}-{_path_hash(store)}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


def _publication_ids(database: Path, *, immutable: bool) -> tuple[str | None, str | None] | None:
    """Returns the ids of a database's publication and of the previous one; None if it is missing or damaged."""
    if not database.exists():
        return None
    uri = f"{database.absolute().as_uri()}?{'immutable=1' if immutable else 'mode=rw'}"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
            meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    except sqlite3.Error:
        return None
    return meta.get("publication"), meta.get("previous_publication")


def _set_meta(database: sqlite3.Connection, **values: str) -> None:
    database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(values.items()))
