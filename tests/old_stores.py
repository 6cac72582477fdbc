"""Stores that older versions wrote, as they would lie on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from pathlib import Path
from typing import Any

from tiny import make_run, make_suite, write_checkpoint

from lobench.engine.store.programs import program_here

_DATA = Path(__file__).parent / "data" / "stores"
_PROGRAM = "3-fbfac2a996"  # that of the machine which wrote the store
_EXTRA = """
bad/Case.task = @Hungry()
bad/Case.num_seeds = 2
flaky/Case.task = @Killer()
flaky/Killer.counter = 'counter'
flaky/Killer.times = 1
"""


def old_store(folder: Path) -> Path:
    """Writes a store of schema 1, and returns it; its programs are this machine's, so that its results count here."""
    store = folder / "store"
    store.mkdir(parents=True)
    here = program_here()
    text = (_DATA / "schema1.sql").read_text().replace("FOLDER", str(folder)).replace(_PROGRAM, here.key)
    with contextlib.closing(sqlite3.connect(store / "ledger.sqlite")) as database:
        database.executescript(text)
        database.execute("UPDATE programs SET parts = ?", (json.dumps(dataclasses.asdict(here), sort_keys=True),))
        database.commit()
    return store


def old_run(folder: Path) -> tuple[Path, Path]:
    """Writes what the store is of: the checkpoints that their trainer has left, and the suite."""
    run, suite = make_run(folder), make_suite(folder, extra=_EXTRA)
    for step, log_lr in ((3, -1.0), (4, -0.5)):
        write_checkpoint(run / f"theta_{step}.npz", log_lr)
    (folder / "counter").write_text("x")
    return run, suite


def old_records(folder: Path) -> list[dict[str, Any]]:
    """Returns what `lobench results` of then said of it."""
    text = (_DATA / "schema1.json").read_text().replace("FOLDER", str(folder))
    return json.loads(text.replace(_PROGRAM, program_here().key))
