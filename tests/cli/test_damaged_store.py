"""A store whose contents are damaged: one line that names it, and never exit code 1, which means a failed verdict."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from stores import add
from tiny import make_run, make_suite

from lobench.cli import inventory
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("lobench")

DAMAGES = {
    "case": "UPDATE evaluations SET case_json = '{\"identity\": '",
    "case that is no case": "UPDATE evaluations SET case_json = '[1]'",
    "event": "UPDATE events SET detail = '{'",
    "program": "UPDATE programs SET parts = '{'",
    "schema version": "UPDATE meta SET value = 'one'",
}


@pytest.fixture(params=sorted(DAMAGES))
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    store = tmp_path / "store"
    for step in (1, 2):
        add(store, step, {"a": {"train/loss": [1.0, 0.5, 0.25, 0.5]}})
    ledger = Ledger.open(store)
    ledger.record_event("gate", verdict="PASSED")
    ledger.close()
    with contextlib.closing(sqlite3.connect(store / "ledger.sqlite")) as database, database:
        database.execute(DAMAGES[request.param])
    return store


def test_commands_say_so_in_one_line(damaged: Path, tmp_path: Path) -> None:
    commands = (
        ("results", "--store", damaged),
        ("results", "--store", damaged, "--format", "json"),
        ("results", "--store", damaged, "--format", "csv"),
        ("results", "--store", tmp_path, "--history"),
        ("report", "--store", damaged, "--output", tmp_path / "report.html"),
        ("compare", "1", "2", "--store", damaged),
        ("merge", damaged, "--output", tmp_path / "both"),
    )
    for command in commands:
        done = lobench(*command)
        assert done.returncode in (0, 2), (command, done)  # 0: what the command does not read does not matter to it
        assert len(done.stderr.splitlines()) == (done.returncode == 2), (command, done)


def test_a_watch_does_too(damaged: Path, tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    with contextlib.closing(sqlite3.connect(damaged / "ledger.sqlite")) as database, database:
        database.execute("UPDATE events SET detail = '{'")
    done = lobench("watch", run, "--suite", suite, "--once", "--store", damaged, "--workers", "1")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done


def test_what_best_found_before_is_looked_at_before_the_work(tmp_path: Path) -> None:
    suite, store = make_suite(tmp_path), tmp_path / "store"
    add(store, 1, {"a": {"train/loss": [1.0, 0.5, 0.25, 0.5]}})
    (store / "best.json").write_text("[{")
    done = lobench("best", make_run(tmp_path), "--suite", suite, "--store", store)
    assert done.returncode == 2 and SHOWN["best-json-what-earlier-calls"] in done.stderr, done


def test_what_nobody_foresaw_is_no_failed_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory.plugins, "callback", lambda **_: 1 / 0)
    done = lobench("plugins")
    assert done.returncode == 3
    assert "ZeroDivisionError" in done.stderr and done.stderr.rstrip().endswith(SHOWN["this-is-not-a-verdict"])
