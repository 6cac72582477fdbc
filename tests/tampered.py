"""Bundles that were tampered with, each in one way, by somebody who then makes a new root."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lobench.core.result import Curves
from lobench.engine.store.bundle import ResultBundle, write_bundle
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.plans import record_digest
from lobench.tools.publish.publish import publish

__all__ = ["TAMPERINGS", "published", "tampered"]


def published(store: Path, output: Path, suite: Path) -> Path:
    publish(store, output, suites=[suite])
    return output


@contextlib.contextmanager
def _database(store: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(store / "ledger.sqlite")) as db, db:
        yield db


def _change_values(
    store: Path, rng: np.random.Generator, *, is_final: bool, factor: float = 0.0, count: int = 1
) -> None:
    with _database(store) as db:
        rows = db.execute("SELECT id, payload FROM evaluations WHERE payload IS NOT NULL ORDER BY id").fetchall()
        for place in rng.choice(len(rows), count, replace=False):
            number, payload = rows[place]
            curves = Curves.from_payload(payload)
            name = "train/loss"
            values = np.array(curves.metrics[name])
            column = values.shape[1] - 1 if is_final else int(rng.integers(1, values.shape[1] - 1))
            values[rng.integers(len(values)), column] *= np.float32(factor or 1 + 10.0 ** -rng.integers(1, 7))
            changed = dataclasses.replace(curves, metrics={**curves.metrics, name: memoryview(values)})
            db.execute("UPDATE evaluations SET payload = ? WHERE id = ?", (changed.to_payload(), number))


def curve(store: Path, rng: np.random.Generator) -> None:
    _change_values(store, rng, is_final=False)


def final(store: Path, rng: np.random.Generator, factor: float = 0.0, count: int = 1) -> None:
    _change_values(store, rng, is_final=True, factor=factor, count=count)


def seeds_dropped(store: Path, rng: np.random.Generator) -> None:
    with _database(store) as db:
        rows = db.execute("SELECT id FROM evaluations ORDER BY id").fetchall()
        (number,) = rows[rng.integers(len(rows))]
        for table, column in (("evaluations", "id"), ("completions", "evaluation"), ("deliveries", "evaluation")):
            db.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))


def hidden_as_error(store: Path, rng: np.random.Generator) -> None:
    with _database(store) as db:
        rows = db.execute("SELECT id FROM evaluations ORDER BY id").fetchall()
        (number,) = rows[rng.integers(len(rows))]
        db.execute("UPDATE evaluations SET payload = NULL, seconds = 0, outcome = 'error' WHERE id = ?", (number,))


def labels_swapped(store: Path, rng: np.random.Generator) -> None:
    with _database(store) as db:
        rows = db.execute("SELECT position, uri FROM subjects ORDER BY position").fetchall()
        a, b = rng.choice(len(rows), 2, replace=False)
        for (position, _), (_, uri) in ((rows[a], rows[b]), (rows[b], rows[a])):
            db.execute("UPDATE subjects SET label = ? WHERE position = ?", (Path(uri).name, position))


def subjects_swapped(store: Path, rng: np.random.Generator) -> None:
    """The results of one are said to be those of the other: their hashes change places, in the plan too."""
    with _database(store) as db:
        rows = [one for (one,) in db.execute("SELECT DISTINCT checkpoint_sha256 FROM evaluations ORDER BY 1")]
        a, b = rng.choice(len(rows), 2, replace=False)
        for old, new in ((rows[a], "?"), (rows[b], rows[a]), ("?", rows[b])):
            db.execute("UPDATE evaluations SET checkpoint_sha256 = ? WHERE checkpoint_sha256 = ?", (new, old))


def _edit_plan(store: Path, *, is_rehashed: bool) -> None:
    """Drops the last block from the plan and from the results."""
    with _database(store) as db:
        number, text = db.execute("SELECT id, detail FROM events WHERE kind = 'plan' ORDER BY id").fetchone()
        detail = json.loads(text)
        start, size = detail["cases"][0]["blocks"].pop()
        if is_rehashed:
            detail["digest"] = record_digest(detail)
        db.execute("UPDATE events SET detail = ? WHERE id = ?", (json.dumps(detail, sort_keys=True), number))
        which = "seed_start = ? AND seed_count = ? AND case_identity = ?"
        db.execute(f"DELETE FROM evaluations WHERE {which}", (start, size, detail["cases"][0]["identity"]))


def plan(store: Path, rng: np.random.Generator) -> None:
    _edit_plan(store, is_rehashed=bool(rng.integers(2)))


def theta(bundle: Path, rng: np.random.Generator) -> None:
    """Another theta under the name of the one that the results are of."""
    found = ResultBundle(bundle)
    members = {name: found.read(name) for name in found.member_names if not name.startswith(("ledger/", "bundle.json"))}
    name = sorted(name for name in members if name.startswith("theta/"))[0]
    with np.load(io.BytesIO(members[name])) as file:
        arrays = dict(file)
    arrays["leaf0"] = arrays["leaf0"] + np.float32(rng.uniform(0.01, 1))
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    members[name] = buffer.getvalue()
    with Ledger.open(bundle, read_only=True) as ledger:
        write_bundle(ledger.connection, bundle, members)


def suite_file(suite: Path, rng: np.random.Generator) -> None:
    tasks = suite / "tiny_tasks.py"
    tasks.write_text(tasks.read_text() + f"\n# {rng.integers(1 << 30)}\n")


TAMPERINGS: dict[str, tuple[str, ...]] = {  # and how an audit may name them: a finding's kind, or a verdict
    "curve": ("differs",),
    "final": ("differs",),
    "seeds_dropped": ("absent",),
    "hidden_as_error": ("not auditable",),
    "labels_swapped": ("label",),
    "subjects_swapped": ("differs",),
    "plan": ("plan",),
    "theta": ("theta",),
    "suite_file": ("suite",),
}


def tampered(name: str, store: Path, suite: Path, folder: Path, rng: np.random.Generator, **options: Any) -> Path:
    """Returns a bundle of a copy of a store that somebody has tampered with."""
    change: Callable[..., None] = globals()[name]
    shutil.copytree(store, folder / "store")
    shutil.copytree(suite, folder / suite.name)
    if name == "suite_file":
        change(folder / suite.name, rng)
    elif name != "theta":
        change(folder / "store", rng, **options)
    bundle = published(folder / "store", folder / "results.lobench", folder / suite.name)
    if name == "theta":
        change(bundle, rng)
    return bundle
