"""SQLite files that one process writes and others look on at."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from failing_disk import COMPILING, failing_disk
from shown import texts_of

from lobench import StoreError
from lobench.extend import (
    StoreBusy,
    StoreLock,
    database_errors,
    open_to_read,
    open_to_write,
    schema_version,
    transaction,
    write_ahead,
)

SHOWN = texts_of("store")

pytestmark = pytest.mark.usefixtures("any_program_is_forked")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with contextlib.closing(open_to_write(tmp_path / "file.sqlite")) as connection:
        write_ahead(connection)
        connection.execute("CREATE TABLE numbers (value INTEGER)")
    return tmp_path / "file.sqlite"


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [value for (value,) in connection.execute("SELECT value FROM numbers ORDER BY value")]


def test_a_reader_sees_commits_and_nothing_before_them(database: Path) -> None:
    with (
        contextlib.closing(open_to_write(database)) as writer,
        contextlib.closing(open_to_read(database)) as reader,
    ):
        with transaction(writer):
            writer.execute("INSERT INTO numbers VALUES (1)")
            assert numbers(reader) == []
        assert numbers(reader) == [1]
        with pytest.raises(sqlite3.OperationalError):
            reader.execute("INSERT INTO numbers VALUES (2)")


def test_a_transaction_that_raises_is_undone_and_the_next_one_begins(database: Path) -> None:
    with contextlib.closing(open_to_write(database)) as writer:
        with pytest.raises(ZeroDivisionError), transaction(writer):
            writer.execute("INSERT INTO numbers VALUES (1)")
            _ = 1 / 0
        with transaction(writer):
            writer.execute("INSERT INTO numbers VALUES (2)")
        assert numbers(writer) == [2]


@pytest.mark.parametrize(("synced", "level"), [(True, 2), (False, 1)])
def test_who_syncs_is_said_when_it_is_opened(database: Path, synced: bool, level: int) -> None:
    with contextlib.closing(open_to_write(database)) as writer:
        write_ahead(writer, synced=synced)
        assert writer.execute("PRAGMA synchronous").fetchone() == (level,)


@pytest.mark.parametrize(
    ("content", "output"),
    [(b"no database" * 100, SHOWN["file-is-not-a-database"]), (b"", SHOWN["no-such-table-meta-was"])],
)
def test_what_is_wrong_and_what_to_do_is_one_line(tmp_path: Path, content: bytes, output: str) -> None:
    (tmp_path / "file.sqlite").write_bytes(content)
    with pytest.raises(StoreError) as caught, database_errors(tmp_path, "the journal"):
        schema_version(open_to_read(tmp_path / "file.sqlite"))
    assert str(caught.value).startswith(SHOWN["cannot-use-the-journal-got"].format(tmp_path=tmp_path, output=output))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write a folder")
def test_who_may_not_write_beside_a_database_reads_it_with_its_log() -> None:
    code = """
import os
import sys
import urllib.parse  # Python 3.13 imports it at `as_uri`, maybe from where that user may not read
from pathlib import Path
from lobench.extend import open_to_read
os.setgroups([])
os.setegid(65534)
os.seteuid(65534)
print(open_to_read(Path(sys.argv[1])).execute("SELECT COUNT(*) FROM numbers").fetchone()[0])
"""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        Path(folder).chmod(0o755)
        path = Path(folder) / "file.sqlite"
        with contextlib.closing(open_to_write(path)) as writer:
            write_ahead(writer)
            writer.execute("CREATE TABLE numbers (value INTEGER)")
            writer.execute("INSERT INTO numbers VALUES (7)")
            done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
            assert done.stdout == "1\n", done.stderr


def test_a_lock_names_its_holder_and_goes_with_it(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from lobench.extend import StoreLock
lock = StoreLock(Path({str(tmp_path)!r}), "mine", file="some.lock")
print("held", flush=True)
input()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    StoreLock(tmp_path, file="other.lock").release()
    with pytest.raises(StoreBusy, match=SHOWN["this-run-is-taken-got"].format(pid=holder.pid)):
        StoreLock(tmp_path, file="some.lock", busy_message="this run is taken")
    holder.kill()
    holder.communicate()
    lock = StoreLock(tmp_path, file="some.lock")
    assert json.loads((tmp_path / "some.lock").read_text())["pid"] == os.getpid()
    lock.release()
    (tmp_path / "some.lock").write_text("from elsewhere")
    StoreLock(tmp_path, file="some.lock").release()


def test_a_store_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "store").touch()
    with pytest.raises(StoreError, match=SHOWN["cannot-use-the-result-store"]):
        StoreLock(tmp_path / "store")


def as_nobody(code: str, *arguments: object) -> str:
    """Runs code as a user that owns nothing, once the module is imported, and returns its output."""
    start = """
import os, sys
import tempfile, urllib.parse  # before this user may not read Python's folder
from pathlib import Path
from lobench import StoreError
from lobench.extend import StoreLock, open_to_read, open_to_write, write_ahead
os.setgroups([])
os.setegid(65534)
os.seteuid(65534)
"""
    command = [sys.executable, "-c", start + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def shared() -> Iterator[Path]:
    """A database at rest, in a folder that everybody may write; its owner is root."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        path = Path(folder) / "file.sqlite"
        with contextlib.closing(open_to_write(path)) as writer:
            write_ahead(writer)
            writer.execute("CREATE TABLE numbers (value INTEGER)")
            writer.execute("INSERT INTO numbers VALUES (7)")
        yield path


COUNT = "print(open_to_read(Path(sys.argv[1])).execute('SELECT COUNT(*) FROM numbers').fetchone()[0])"
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@ROOT
@pytest.mark.parametrize("largest", [1 << 26, 0])
def test_open_to_read_by_another_user_leaves_no_log(shared: Path, largest: int) -> None:
    code = f"from lobench.engine.store import database\ndatabase._MAX_COPIED_BYTES = {largest}\n{COUNT}"
    assert as_nobody(code, shared) == "1\n"
    assert os.listdir(shared.parent) == [shared.name]


@ROOT
def test_open_to_read_by_another_user_reads_the_log_of_a_killed_writer(shared: Path) -> None:
    code = f"""
import os
from pathlib import Path
from lobench.extend import open_to_write
open_to_write(Path({str(shared)!r})).execute("INSERT INTO numbers VALUES (8)")
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    before = sorted((path.name, path.stat().st_uid) for path in shared.parent.iterdir())
    assert len(before) == 3
    assert as_nobody(COUNT, shared) == "2\n"
    shared.with_name(f"{shared.name}-shm").unlink()
    assert as_nobody(COUNT, shared) == "2\n"
    assert sorted((path.name, path.stat().st_uid) for path in shared.parent.iterdir()) == [
        one for one in before if not one[0].endswith("-shm")
    ]


def test_open_to_read_at_rest_is_a_copy_that_leaves_no_log(database: Path) -> None:
    with contextlib.closing(open_to_read(database, is_live=False)) as reader:
        assert numbers(reader) == []
        with pytest.raises(sqlite3.OperationalError):
            reader.execute("INSERT INTO numbers VALUES (2)")
        assert os.listdir(database.parent) == [database.name]
    with contextlib.closing(open_to_write(database)) as writer:
        writer.execute("INSERT INTO numbers VALUES (1)")
        with contextlib.closing(open_to_read(database, is_live=False)) as reader:
            assert numbers(reader) == [1]


@ROOT
def test_open_to_write_takes_over_the_log_that_another_user_left(shared: Path) -> None:
    os.chown(shared, 65534, 65534)
    for suffix in ("-wal", "-shm"):
        shared.with_name(shared.name + suffix).touch(mode=0o644)  # root's
    code = """
connection = open_to_write(Path(sys.argv[1]))
write_ahead(connection)
connection.execute("INSERT INTO numbers VALUES (8)")
connection.close()
"""
    assert as_nobody(code, shared) == ""
    with contextlib.closing(open_to_read(shared)) as reader:
        assert numbers(reader) == [7, 8]


@ROOT
def test_open_to_write_of_another_users_database_names_both_users(shared: Path) -> None:
    code = """
try:
    open_to_write(Path(sys.argv[1]))
except StoreError as error:
    print(error)
"""
    line = as_nobody(code, shared)
    assert SHOWN["got-file-sqlite-belongs-to"] in line


@ROOT
def test_open_to_read_of_another_users_private_database_names_its_owner_and_mode(shared: Path) -> None:
    shared.chmod(0o600)
    code = """
from lobench.extend import database_errors
try:
    with database_errors(Path(sys.argv[1]), "the ledger"):
        open_to_read(Path(sys.argv[1]))
except StoreError as error:
    print(error)
"""
    line = as_nobody(code, shared)
    assert SHOWN["got-permission-denied-file-sqlite"] in line


@ROOT
def test_store_lock_of_another_users_private_file_names_the_file(shared: Path) -> None:
    (shared.parent / "chief.lock").touch(mode=0o600)
    code = """
try:
    StoreLock(Path(sys.argv[1]))
except StoreError as error:
    print(error)
"""
    line = as_nobody(code, shared.parent)
    assert SHOWN["got-permission-denied-chief-lock"] in line


def test_database_errors_of_a_failed_read_advises_to_try_again_before_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as writer, writer:
        writer.execute("CREATE TABLE numbers (value INTEGER)")
    with path.open("r+b") as file:
        file.seek(4096)  # the page of the table
        file.write(b"\xff" * 4096)
    with (
        contextlib.closing(sqlite3.connect(path)) as reader,
        pytest.raises(StoreError, match=SHOWN["malformed-if-its-disk-failed"]),
        database_errors(path, "the ledger"),
    ):
        reader.execute("SELECT * FROM numbers").fetchall()


@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o664), (0o022, 0o644), (0o077, 0o600)])
def test_new_database_log_and_lock_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with contextlib.closing(open_to_write(tmp_path / "file.sqlite")) as writer:
            write_ahead(writer)
            writer.execute("CREATE TABLE numbers (value INTEGER)")
            StoreLock(tmp_path).release()
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    names = ("file.sqlite", "file.sqlite-wal", "file.sqlite-shm", "chief.lock")
    assert modes == dict.fromkeys(names, mode)


@ROOT
def test_lock_of_another_user_that_may_only_be_read_is_taken(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        StoreLock(Path(folder), "mine").release()
        code = "lock = StoreLock(Path(sys.argv[1]), 'theirs')\nprint((Path(sys.argv[1]) / 'chief.lock').read_text())"
        assert '"name": "mine"' in as_nobody(code, folder)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("SQLITE_IOERR_SHMMAP", SHOWN["maps-no-shared-memory"]),
        ("SQLITE_IOERR_SHMSIZE", SHOWN["is-the-disk-full-or"]),
        ("SQLITE_IOERR_LOCK", SHOWN["cannot-lock-files"]),
        ("SQLITE_IOERR_WRITE", SHOWN["is-the-disk-full-or"]),
        ("SQLITE_BUSY", SHOWN["another-program-has-held-its"]),
    ],
)
def test_database_errors_advice_fits_the_error(tmp_path: Path, name: str, reason: str) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = name
    with pytest.raises(StoreError, match=reason.replace("?", r"\?")), database_errors(tmp_path, "the ledger"):
        raise error


@COMPILING
def test_database_errors_of_a_file_system_without_locks_say_so(tmp_path: Path) -> None:
    code = """
import sqlite3, sys
from pathlib import Path
from lobench.engine.store import database
database._BUSY_SECONDS = 0.1
database._PATIENCE_SECONDS = 0.1
store = Path(sys.argv[1])
for attempt in (lambda: database.open_to_write(store / "file.sqlite").execute("CREATE TABLE a (b)"),
                lambda: database.StoreLock(store)):
    try:
        with database.database_errors(store, "the ledger"):
            attempt()
    except database.StoreError as error:
        print(error)
"""
    store = tmp_path / "locks"
    store.mkdir()
    environment = failing_disk(tmp_path, "lock", paths=(str(store),), numbers=(errno.ENOLCK,), seconds=1000)
    command = [sys.executable, "-c", code, str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all(SHOWN["no-locks-available"] in line and SHOWN["cannot-lock-files"] in line for line in lines), lines


HOLDER = """
import os, sys, time
from pathlib import Path
from lobench.engine.store.database import StoreLock

StoreLock(Path(sys.argv[1]), "killed")
if os.fork() == 0:
    while not Path(sys.argv[1], "go").exists():
        time.sleep(0.01)
os._exit(0)
"""


def test_lock_of_a_process_that_has_ended_is_waited_for_until_its_last_child_has_gone(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", HOLDER, str(tmp_path)], check=True)
    threading.Timer(0.3, (tmp_path / "go").touch).start()
    StoreLock(tmp_path, "second").release()


LEFT_BEHIND = """
import os, sys, time
from pathlib import Path
from lobench.engine.store.database import StoreLock

store, parent, (taken, written) = Path(sys.argv[1]), os.getpid(), os.pipe()
if os.fork() == 0:
    lock = StoreLock(store, "left", parent=parent)
    os.write(written, b"x")
    while not (store / "go").exists():
        time.sleep(0.01)
    os._exit(0)
os.close(written)
assert os.read(taken, 1)
os._exit(0)
"""


def test_lock_of_a_process_whose_parent_has_ended_is_waited_for_as_long_as_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lobench.engine.store.database._ENDED_HOLDER_SECONDS", 0.0)
    subprocess.run([sys.executable, "-c", LEFT_BEHIND, str(tmp_path)], check=True)
    holders = list[str]()

    def end_holder(holder: str) -> None:
        holders.append(holder)
        threading.Timer(0.2, (tmp_path / "go").touch).start()

    StoreLock(tmp_path, "second", on_wait=end_holder).release()
    assert len(holders) == 1 and "'left', process" in holders[0]


def test_lock_of_a_living_process_is_refused_at_once(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path, "first")
    began = time.monotonic()
    with pytest.raises(StoreBusy, match=SHOWN["another-chief-writes-this-store"]):
        StoreLock(tmp_path, "second")
    assert time.monotonic() - began < 5
    lock.release()


@pytest.mark.parametrize(("mode", "is_shared"), [(0o770, True), (0o750, False)])
def test_release_opens_a_store_and_one_below_it_to_the_group_of_the_store(
    tmp_path: Path, mode: int, is_shared: bool
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "ledger.sqlite").touch()
    store.chmod(mode)
    code = "import os, sys\nfrom pathlib import Path\nfrom lobench.engine.store.database import StoreLock\n"
    code += "os.umask(0o077)\nbelow = Path(sys.argv[1], 'best')\nlock = StoreLock(below)\n"
    code += "(below / 'x').touch()\nlock.release()\n"
    code += "print(oct(os.umask(0)))\n"
    done = subprocess.run([sys.executable, "-c", code, str(store)], capture_output=True, text=True, check=True)
    assert done.stdout == "0o77\n", "the umask stays"
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o060 for path in (store / "best", *(store / "best").iterdir())}
    assert modes == ({0o060} if is_shared else {0})
