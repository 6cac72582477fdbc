"""A ledger's schema: made whole or not at all; another one is refused and left as it is."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of

from lobench.core.errors import StoreError
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.ledger_tables import SCHEMA_VERSION
from lobench.engine.store.merge import merge_stores

SHOWN = texts_of("store")

pytestmark = pytest.mark.usefixtures("any_program_is_forked")

KILLED = """
import os, shutil, signal, sqlite3, sys
from pathlib import Path
from lobench.engine.store.ledger import Ledger

connect, left = sqlite3.connect, 0

class Counting(sqlite3.Connection):
    def execute(self, *arguments):
        return self.counted(super().execute, *arguments)
    def executemany(self, *arguments):
        return self.counted(super().executemany, *arguments)
    def counted(self, call, *arguments):
        global left
        left -= 1
        if left == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        found = call(*arguments)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

sqlite3.connect = lambda *arguments, **options: connect(*arguments, factory=Counting, **options)
folder, place = Path(sys.argv[1]), Path(sys.argv[2])
for kill in range(1, 200):
    for after in (False, True):
        store = place / f"{kill}-{int(after)}"
        shutil.copytree(folder, store)
        child = os.fork()
        if child == 0:
            left = kill
            Ledger.open(store).close()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            sys.exit()
"""


def version_of(store: Path) -> str:
    with contextlib.closing(sqlite3.connect(store / "ledger.sqlite")) as database:
        return str(database.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()[0])


def of_schema(store: Path, version: int) -> bytes:
    """Makes a store of another schema, and returns its ledger's bytes."""
    Ledger.open(store).close()
    with contextlib.closing(sqlite3.connect(store / "ledger.sqlite")) as database:
        database.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(version),))
        database.execute("DROP TABLE trials")
        database.commit()
    return (store / "ledger.sqlite").read_bytes()


@pytest.mark.parametrize(
    ("version", "output"),
    [
        (SCHEMA_VERSION + 1, SHOWN["newer-lobench-got-schema-version-4"]),
        (1, SHOWN["schema-1-of-a-lobench"]),
    ],
)
def test_a_store_of_another_schema_is_refused_and_left_as_it_is(version: int, output: str, tmp_path: Path) -> None:
    before = of_schema(tmp_path, version)
    for read_only in (False, True):
        with pytest.raises(StoreError, match=output):
            Ledger.open(tmp_path, read_only=read_only)
    for arguments in (("results", "--store", tmp_path), ("merge", tmp_path, "--output", tmp_path / "both")):
        done = lobench(*arguments)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert (tmp_path / "ledger.sqlite").read_bytes() == before


def test_a_ledger_that_was_cut_off_is_one_line_and_stays(tmp_path: Path) -> None:
    Ledger.open(tmp_path).close()
    file = tmp_path / "ledger.sqlite"
    whole = file.read_bytes()
    for size in (len(whole) // 2, 5000, 100):
        file.write_bytes(whole[:size])
        with pytest.raises(StoreError, match=SHOWN["malformed-not-a-database-disk"]):
            Ledger.open(tmp_path)
        assert file.read_bytes()[:100] == whole[:100]
    file.write_bytes(whole)
    Ledger.open(tmp_path).close()
    assert version_of(tmp_path) == str(SCHEMA_VERSION)


def test_a_new_store_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "empty"), str(tmp_path / "killed")], check=True)
    begun_stores = [store for store in (tmp_path / "killed").iterdir() if (store / "ledger.sqlite").exists()]
    for killed in begun_stores:
        with Ledger.open(killed, read_only=True) as reader:
            assert reader.num_evaluations() == 0 and not reader.sightings()
    assert {merged.taken for merged in merge_stores(begun_stores, tmp_path / "both")} == {0}
    for killed in (tmp_path / "killed").iterdir():
        Ledger.open(killed).close()
        assert version_of(killed) == str(SCHEMA_VERSION)
