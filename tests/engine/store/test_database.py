"""SQLite files that one process writes and others look on at."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

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


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with contextlib.closing(open_to_write(tmp_path / "file.sqlite")) as connection:
        write_ahead(connection)
        connection.execute("CREATE TABLE numbers (value INTEGER)")
    return tmp_path / "file.sqlite"


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [value for (value,) in connection.execute("SELECT value FROM numbers ORDER BY value")]


def test_a_reader_sees_commits_and_nothing_before_them(database: Path) -> None:
    with contextlib.closing(open_to_write(database)) as writer, contextlib.closing(open_to_read(database)) as reader:
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
    [(b"no database" * 100, "file is not a database; move the file away"), (b"", "no such table: meta; was its")],
)
def test_what_is_wrong_and_what_to_do_is_one_line(tmp_path: Path, content: bytes, output: str) -> None:
    (tmp_path / "file.sqlite").write_bytes(content)
    with pytest.raises(StoreError) as caught, database_errors(tmp_path, "the journal"):
        schema_version(open_to_read(tmp_path / "file.sqlite"))
    assert str(caught.value).startswith(f"{tmp_path}: cannot use the journal; got {output}")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write a folder")
def test_who_may_not_write_beside_a_database_reads_it_with_its_log() -> None:
    code = """
import os
import sys
import urllib.parse  # Python 3.13 imports it at `as_uri`, maybe from where that user may not read
from pathlib import Path
from lobench.extend import open_to_read
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
    with pytest.raises(StoreBusy, match=f"this run is taken; got 'mine', process {holder.pid} on "):
        StoreLock(tmp_path, file="some.lock", busy="this run is taken")
    holder.kill()
    holder.communicate()
    lock = StoreLock(tmp_path, file="some.lock")
    assert json.loads((tmp_path / "some.lock").read_text())["pid"] == os.getpid()
    lock.release()
    (tmp_path / "some.lock").write_text("from elsewhere")
    StoreLock(tmp_path, file="some.lock").release()


def test_a_store_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "store").touch()
    with pytest.raises(StoreError, match="cannot use the result store; got File exists; choose another folder"):
        StoreLock(tmp_path / "store")
