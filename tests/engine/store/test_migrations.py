"""A ledger of schema 1 becomes one of schema 2: whole or not at all, and with all that it says."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import lobench
from disks import MOUNTING, small_disk
from old_stores import old_records, old_run, old_store
from tiny import watch, write_checkpoint

from lobench.core.errors import StoreBusy, StoreError
from lobench.core.subject import Subject
from lobench.engine.store import migrations
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.merge import merge_stores
from lobench.engine.store.migrations import SCHEMA_VERSION

OPTIMIZER = "adam(); adam.learning_rate = 0.1"


def dump(file: Path) -> list[str]:
    """Returns the statements that make a database, by those who only read it."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        return sorted(database.iterdump())


def said(store: Path) -> list[dict[str, Any]]:
    """Returns what `lobench results` says, as far as it said it before there were kinds of subjects."""
    done = lobench("results", "--store", store, "--format", "json", "--curves")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    for record in records:
        kind, *_ = (record.pop(name) for name in ("kind", "label", "bindings", "schema"))
        if kind == "optimizer":
            record["checkpoint"]["uri"] = f"optimizer: {record['checkpoint']['uri']}"
    return records


def version_of(store: Path) -> str:
    with contextlib.closing(sqlite3.connect(store / "ledger.sqlite")) as database:
        return str(database.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()[0])


def expected(folder: Path, store: Path) -> list[dict[str, Any]]:
    """Returns what the older version said, which knew no roles, and placed an optimizer at outer step 0 of a run."""
    records = old_records(folder)
    (program,) = {record["program"] for record in said(store)}
    for record in records:
        record |= {"program": program, "role": None}
        if record["provenance"]:
            record["provenance"] |= {"optimizer": ""}
        if str(record["checkpoint"]["uri"]).startswith("optimizer: "):
            record["checkpoint"] |= {"outer_step": None, "generation": None}
    return records


def test_results_say_the_same_before_and_after(tmp_path: Path) -> None:
    store = old_store(tmp_path)
    before = dump(store / "ledger.sqlite")
    first = said(store)
    assert first == expected(tmp_path, store)
    assert version_of(store) == "1" and dump(store / "ledger.sqlite") == before, "who looks on writes nothing"
    lines = list[str]()
    Ledger.open(store, on_problem=lines.append).close()
    assert lines == [f"{store / 'ledger.sqlite'}: taken from schema 1 to 2; ledger.schema1.sqlite is what it was"]
    assert said(store) == first
    assert version_of(store) == str(SCHEMA_VERSION)
    copy = store / "ledger.schema1.sqlite"
    assert dump(copy) == before, "the copy has all of it"
    made = copy.stat().st_mtime_ns
    Ledger.open(store, on_problem=lines.append).close()
    assert len(lines) == 1 and copy.stat().st_mtime_ns == made, "told once, and made once"
    assert sorted(path.name for path in store.iterdir()) == ["chief.lock", copy.name, "ledger.sqlite"]


def state(ledger: Ledger) -> tuple[Any, ...]:
    """Returns what a ledger says, by all of its readers."""
    rows = [
        (row.key, row.program, row.case, row.outcome, row.message, row.payload, row.subjects, row.recorded_at)
        for row in ledger.evaluations()
    ]
    labels = [(row.experiment, row.trial, row.session) for row in ledger.evaluations()]
    members = [(one.name, ledger.memberships(one.id)) for one in ledger.experiments()]
    programs = {row.key.program_version for row in ledger.evaluations()}
    deliveries = [(one.sequence, type(one.event), one.event.subject) for one in ledger.deliveries_after(0)]
    return (
        *(rows, labels, members, deliveries, ledger.sightings(), ledger.fingerprints(), ledger.events()),
        *(ledger.history(programs), ledger.cursor(f"notes:{ledger.store.parent}/notes")),
    )


def test_every_reader_sees_the_same_before_and_after(tmp_path: Path) -> None:
    store = old_store(tmp_path)
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        before = state(ledger)
    with contextlib.closing(Ledger.open(store)) as ledger:
        assert state(ledger) == before
        assert list(ledger.sightings().values())[-1] == Subject.of_optimizer(OPTIMIZER)
        assert ledger.record_sighting(Subject.of_optimizer(OPTIMIZER)) == 2, "it is the one that was"
        assert ledger.cursor(f"notes:{tmp_path}/notes") == 30
        (sweep,) = ledger.experiments()
        assert {(one.trial, one.session) for one in ledger.memberships(sweep.id)} == {("3", "s0"), ("4", "s1")}
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        assert state(ledger)[:-2] == before[:-2]


def test_doctor_and_merge_say_what_becomes_of_it(tmp_path: Path) -> None:
    store = old_store(tmp_path)
    done = lobench("doctor", "--store", store)
    what = "2 checkpoints, 1 optimizer, 12 evaluations, schema 1: who writes it next takes it to 2, and keeps a copy, "
    assert what in done.stdout, done.stdout
    done = lobench("merge", old_store(tmp_path / "other"), "--output", store)
    assert "taken from schema 1 to 2; ledger.schema1.sqlite is what it was" in done.stdout
    assert "4 checkpoints, 1 optimizer, 12 evaluations, local" in lobench("doctor", "--store", store).stdout


def test_pytest_into_it_says_what_becomes_of_it(tmp_path: Path) -> None:
    store = old_store(tmp_path)
    _, suite = old_run(tmp_path)
    session = [
        str(suite / "test_tiny.py"),
        "-k",
        "[a]",
        "--lobench-optimizer",
        OPTIMIZER,
        "--lobench-store",
        str(store),
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--lobench-reuse", *session]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("taken from schema 1 to 2; ledger.schema1.sqlite is what it was") == 1, done.stdout
    assert done.stdout.count("not trained again (--lobench-reuse)") == 1
    before = expected(tmp_path, store)
    for records in (before, after := said(store)):
        for record in records:
            record.pop("recorded_at", None)
    assert after == before


def test_a_watch_goes_on_and_evaluates_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of the version before, opened by this one: nothing is trained again, and a new checkpoint is."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # the kernels that users have ask for all of that memory
    store = old_store(tmp_path)
    run, suite = old_run(tmp_path)
    options = ("--once", "--workers", "1", "--checkpoints", "all", "--store", str(store))
    done = watch(run, suite, *options)
    assert done.stdout.count("taken from schema 1 to 2; ledger.schema1.sqlite is what it was") == 1, done.stdout
    assert "2 of them finished before" in done.stdout and "outer step" not in done.stdout, done.stdout + done.stderr
    before = expected(tmp_path, store)
    assert said(store) == before
    write_checkpoint(run / "theta_5.npz", -2.5)
    done = watch(run, suite, *options, "--experiment", "sweep", "--trial", "5")
    assert "taken from schema" not in done.stdout
    records = said(store)
    assert [record for record in records if record["checkpoint"]["outer_step"] != 5] == before
    new = [record for record in records if record["checkpoint"]["outer_step"] == 5]
    assert sorted((one["case"]["name"], one["seeds"], one["outcome"]) for one in new) == [
        *(("a", [0, 1], "passed"), ("b", [0, 1], "passed")),
        *(("bad", [0], "oom"), ("bad", [1], "oom"), ("flaky", [0, 1], "passed")),
    ]
    assert {(one["experiment"], one["trial"], one["session"]) for one in new} == {("sweep", "5", "")}


def test_an_older_sqlite_cannot_drop_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = old_store(tmp_path)
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        before = state(ledger)
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with contextlib.closing(Ledger.open(store)) as ledger:
        assert state(ledger) == before
        position = ledger.record_sighting(Subject.of_optimizer("sgd()"))
        assert position == 3


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
    def backup(self, *arguments):
        return self.counted(super().backup, *arguments)
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


def test_killed_at_each_statement_it_is_the_one_or_the_other(tmp_path: Path) -> None:
    store = old_store(tmp_path)
    before = dump(store / "ledger.sqlite")
    shutil.copytree(store, tmp_path / "whole")
    Ledger.open(tmp_path / "whole").close()
    after = dump(tmp_path / "whole" / "ledger.sqlite")
    subprocess.run([sys.executable, "-c", KILLED, str(store), str(tmp_path / "killed")], check=True)
    found = {"1": 0, "2": 0}
    for killed in (tmp_path / "killed").iterdir():
        found[version_of(killed)] += 1
        assert dump(killed / "ledger.sqlite") == (before if version_of(killed) == "1" else after), killed.name
        copy = killed / "ledger.schema1.sqlite"
        assert version_of(killed) == "1" or dump(copy) == before
        if copy.exists():
            assert dump(copy) == before, "a copy is whole"
        Ledger.open(killed).close()
        assert dump(killed / "ledger.sqlite") == after and dump(copy) == before
        assert not list(killed.glob(".*")), "nothing is left of the one that was killed"
    assert found["1"] > 60 and found["2"] >= 2, found


def test_another_chief_and_a_reader_while_it_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = old_store(tmp_path)
    before = said(store)
    seen = list[str]()
    take_over = migrations._take_over

    def watched(database: sqlite3.Connection) -> None:
        take_over(database)
        with pytest.raises(StoreBusy, match="another chief writes this store; got 'first'"):
            Ledger.open(store, name="second")
        seen.append(version_of(store))
        assert said(store) == before

    monkeypatch.setattr(migrations, "_take_over", watched)
    Ledger.open(store, name="first").close()
    assert seen == ["1"] and said(store) == before


def test_a_chief_of_the_older_version_is_looked_on(tmp_path: Path) -> None:
    """Its log is read with its database, and it may go on writing."""
    store = old_store(tmp_path)
    chief = sqlite3.connect(store / "ledger.sqlite", isolation_level=None)
    chief.execute("PRAGMA journal_mode=WAL")
    chief.execute("UPDATE evaluations SET message = 'first'")
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        assert {row.message for row in ledger.evaluations()} == {"first"}
        chief.execute("UPDATE evaluations SET message = 'second'")
        assert {row.message for row in ledger.evaluations()} == {"second"}
    chief.close()
    assert version_of(store) == "1"


def test_the_copy_holds_what_the_log_holds(tmp_path: Path) -> None:
    store = old_store(tmp_path)
    program = (
        "import os, sqlite3, sys\n"
        "chief = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "chief.execute('PRAGMA journal_mode=WAL')\n"
        "chief.execute(\"UPDATE evaluations SET message = 'in the log'\")\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(store / "ledger.sqlite")], check=True)
    assert (store / "ledger.sqlite-wal").stat().st_size > 0
    Ledger.open(store).close()
    with contextlib.closing(sqlite3.connect(store / "ledger.schema1.sqlite")) as copy:
        assert copy.execute("SELECT DISTINCT message FROM evaluations").fetchall() == [("in the log",)]


def test_a_store_of_a_newer_schema_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    store = old_store(tmp_path)
    Ledger.open(store).close()
    with contextlib.closing(sqlite3.connect(store / "ledger.sqlite")) as database:
        database.execute("UPDATE meta SET value = '3' WHERE key = 'schema_version'")
        database.execute("DROP TABLE trials")
        database.commit()
    before = (store / "ledger.sqlite").read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"newer lobench; got schema version 3; .*2 or older; upgrade lobench"):
            Ledger.open(store, read_only=read_only)
    assert (store / "ledger.sqlite").read_bytes() == before
    done = lobench("results", "--store", store)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "upgrade lobench" in done.stderr


def test_a_ledger_that_was_cut_off_is_one_line_and_stays(tmp_path: Path) -> None:
    store = old_store(tmp_path)
    file = store / "ledger.sqlite"
    whole = file.read_bytes()
    for size in (len(whole) // 2, 5000, 100):
        file.write_bytes(whole[:size])
        with pytest.raises(StoreError, match=r"malformed|not a database|disk image"):
            Ledger.open(store)
        assert file.read_bytes()[:100] == whole[:100] and not (store / "ledger.schema1.sqlite").exists()
    file.write_bytes(whole)
    Ledger.open(store).close()
    assert version_of(store) == "2"


def test_stores_of_both_schemas_merge(tmp_path: Path) -> None:
    old, new = old_store(tmp_path / "old"), old_store(tmp_path / "new")
    Ledger.open(new).close()
    before = dump(old / "ledger.sqlite")
    (merged,) = merge_stores([old], tmp_path / "both")
    assert (merged.taken, merged.known, merged.conflicts) == (12, 0, ())
    assert said(tmp_path / "both") == said(old) and dump(old / "ledger.sqlite") == before
    assert [(one.taken, one.known) for one in merge_stores([old, old], tmp_path / "both")] == [(0, 12), (0, 12)]
    assert said(tmp_path / "both") == said(old)
    (merged,) = merge_stores([new], old)  # a target of schema 1 is taken over
    assert (merged.taken, merged.known) == (0, 12) and version_of(old) == "2"


def test_a_store_on_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOBENCH_NETWORK_STORE", "1")
    monkeypatch.setenv("LOBENCH_LOCAL_DIR", str(tmp_path / "local"))
    store = old_store(tmp_path)
    before, shown = dump(store / "ledger.sqlite"), said(store)
    lines = list[str]()
    Ledger.open(store, on_problem=lines.append).close()
    assert len(lines) == 1 and version_of(store) == "2" and said(store) == shown
    # Numbers that a sink may know are not given again.
    differing = [line for line in dump(store / "ledger.schema1.sqlite") if line not in before]
    assert differing == ["INSERT INTO \"sqlite_sequence\" VALUES('deliveries',1000035);"]
    assert not list(store.glob(".*")) and not list((tmp_path / "local").iterdir())


@MOUNTING
def test_a_disk_that_fills_in_mid_migration_leaves_it_as_it_was(tmp_path: Path) -> None:
    store = old_store(tmp_path)
    before, shown = dump(store / "ledger.sqlite"), said(store)
    size = (store / "ledger.sqlite").stat().st_size // 1024
    problems = set[str]()
    with small_disk(tmp_path / "disk", "50m") as disk:
        for room in range(0, 20 * size, 16):
            place = disk.path / "store"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(store, place)
            disk.resize(f"{disk.used_kib + room}k")
            try:
                Ledger.open(place).close()
                break
            except StoreError as error:
                problems.add(str(error))
                disk.resize("50m")
                assert dump(place / "ledger.sqlite") == before, room
                assert said(place) == shown
                Ledger.open(place).close()
                assert version_of(place) == "2" and said(place) == shown
        assert problems and all("full" in one or "No space left" in one for one in problems), problems
        assert version_of(place) == "2" and said(place) == shown


def test_a_new_store_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "empty"), str(tmp_path / "killed")], check=True)
    for killed in (tmp_path / "killed").iterdir():
        Ledger.open(killed).close()
        assert version_of(killed) == str(SCHEMA_VERSION)


def test_a_store_whose_making_was_cut_short_by_the_older_version(tmp_path: Path) -> None:
    """It made its tables one by one, and wrote the number of the schema last."""
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as database:
        database.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    Ledger.open(tmp_path).close()
    assert version_of(tmp_path) == str(SCHEMA_VERSION)
    store = old_store(tmp_path / "old")
    with contextlib.closing(sqlite3.connect(store / "ledger.sqlite")) as database:
        database.execute("DELETE FROM meta")
        database.execute("DROP TABLE expectations")
        database.commit()
    with contextlib.closing(Ledger.open(store)) as ledger:
        assert len(list(ledger.evaluations())) == 12
    assert os.path.exists(store / "ledger.schema1.sqlite")
