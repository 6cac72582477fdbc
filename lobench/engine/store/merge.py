"""Merging of stores. Each record is copied once, conflicts are reported, and nothing is overwritten."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from lobench.core.errors import UsageError
from lobench.core.result import Curves
from lobench.engine.store.experiments import VERSION_COLUMNS
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.ledger_tables import COUNT_CHANGE
from lobench.engine.store.network import OnProblem
from lobench.engine.store.programs import known_programs, programs_of_old_rows, register_program
from lobench.engine.store.reader import EVALUATION_COLUMNS
from lobench.engine.store.schema import attached, check_schema, decoding_errors
from lobench.engine.store.subject_rows import SIGHTING_COLUMNS
from lobench.engine.store.summaries import copy_summaries

__all__ = ["MergeRecord", "Merged", "merge_stores"]

_WORK_COLUMNS = ("checkpoint_sha256", "optimizer_hash", "case_identity", "seed_start", "seed_count", "program_version")
_PROGRAMS_TABLE, _VIEW = "temp.source_programs", "temp.source_rows"  # tables that exist while a source is attached
_SUBJECTS_TABLE, _BELONGING_TABLE = "source.subjects", "temp.belonging"


def _same_work_condition(own_table: str, other_table: str) -> str:
    """Returns the SQL condition that two results are of the same work and code. Unknown code matches any."""
    columns = [f"{own_table}.{column} = {other_table}.{column}" for column in _WORK_COLUMNS]
    return " AND ".join(
        [*columns, f"({own_table}.code = {other_table}.code OR {own_table}.code = '' OR {other_table}.code = '')"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Result of merging one store.

    Attributes:
      store: Folder of the store.
      taken: Number of evaluations that were new to the target.
      known: Number of evaluations that the target already had, with the same result.
      conflicts: One line for each evaluation whose results differ. The target keeps its own.
    """

    store: Path
    taken: int
    known: int
    conflicts: tuple[str, ...]


class MergeRecord(TypedDict):
    """Output of `lobench merge`: the result for each store."""

    output: Path
    stores: list[Merged]


def merge_stores(stores: list[Path], target: Path, on_problem: OnProblem = lambda problem: None) -> list[Merged]:
    """Adds the subjects, evaluations, experiments and events of stores to a target, in order.

    Merging again changes nothing. The stores may be in use; they are only read. Each is merged completely or not at
    all.

    Args:
      stores: Folders of the stores, or bundles.
      target: Folder of the target. Created if it does not exist.
      on_problem: Called with problems of the target's ledger; see `Ledger.open`.
    Raises:
      UsageError: The target is one of the stores.
      StoreBusy: The target is being written.
      StoreError: A path is not a store, or a store cannot be used.
    """
    if target.resolve() in {store.resolve() for store in stores}:
        raise UsageError("the target is one of the stores", where=str(target), next_step="name a new folder")
    for store in stores:
        Ledger.open(store, read_only=True).close()
    with Ledger.open(target, name="merge", on_problem=on_problem) as ledger:
        return [_merge(ledger, store) for store in stores]


def _merge(ledger: Ledger, store: Path) -> Merged:
    db = ledger.connection
    with attached(db, store), ledger.transaction():
        with decoding_errors(store):
            _create_source_view(db)
        (version,) = db.execute("SELECT value FROM source.meta WHERE key = 'schema_version'").fetchone()
        check_schema(int(version), store)
        conflicts, num_known = _compare_results(db)
        _copy_checkpoints(db)
        columns = EVALUATION_COLUMNS
        num_taken = db.execute(
            f"INSERT OR IGNORE INTO main.evaluations ({columns}) SELECT {columns} FROM {_VIEW} s WHERE NOT EXISTS "
            f"(SELECT 1 FROM main.evaluations m WHERE {_same_work_condition('m', 's')}) ORDER BY id"
        ).rowcount
        _add_deliveries(db)
        db.execute(
            "INSERT INTO main.events (kind, detail, at) SELECT kind, detail, at FROM source.events s WHERE NOT "
            "EXISTS (SELECT 1 FROM main.events m WHERE m.kind = s.kind AND m.detail = s.detail AND m.at = s.at)"
        )
        _copy_experiments(db)
        _copy_locations(db)
        copy_summaries(db, _VIEW)
        ledger.compute_summaries()
        db.execute(f"DROP VIEW {_VIEW}")
        db.execute(f"DROP TABLE {_PROGRAMS_TABLE}")
    return Merged(store=store, taken=num_taken, known=num_known, conflicts=conflicts)


def _create_source_view(db: sqlite3.Connection) -> None:
    """Creates a view of the source's evaluations in the current schema. Old evaluations get program keys."""
    programs_by_row = programs_of_old_rows(db, "source.evaluations")
    db.execute(f"CREATE TABLE {_PROGRAMS_TABLE} (evaluation INTEGER PRIMARY KEY, program TEXT)")
    db.executemany(
        f"INSERT INTO {_PROGRAMS_TABLE} VALUES (?, ?)", [(row, program.key) for row, program in programs_by_row.items()]
    )
    columns = EVALUATION_COLUMNS.replace("program_version", "COALESCE(program, program_version) AS program_version")
    if not any(row[1] == "code" for row in db.execute("PRAGMA source.table_info(evaluations)")):
        columns = columns.replace("recorded_at, code", "recorded_at, '' AS code")  # schema 2 has no column `code`
    db.execute(
        f"CREATE TEMP VIEW source_rows AS SELECT id, {columns} FROM source.evaluations "
        f"LEFT JOIN {_PROGRAMS_TABLE} ON evaluation = id"
    )
    programs = known_programs(db, "source")
    for program in {*programs_by_row.values(), *programs.values()}:
        register_program(db, program)
    if programs:
        db.execute("INSERT OR IGNORE INTO main.expectations SELECT expected, program FROM source.expectations")


def _compare_results(db: sqlite3.Connection) -> tuple[tuple[str, ...], int]:
    """Returns the conflicts, a line each, and the number of evaluations that both have with the same result."""
    rows = db.execute(
        "SELECT s.case_json, s.seed_start, s.seed_count, s.checkpoint_sha256, "
        "m.outcome, m.payload, s.outcome, s.payload, s.id "
        f"FROM {_VIEW} s JOIN main.evaluations m ON {_same_work_condition('m', 's')} ORDER BY s.id"
    )
    conflicts: dict[int, str] = {}
    known_rows = set[int]()
    for case_json, start, count, sha256, own_outcome, own_payload, other_outcome, other_payload, row in rows:
        if row in known_rows:
            continue
        if own_outcome == other_outcome and _are_equal_curves(own_payload, other_payload):
            known_rows.add(row)  # a result of unknown code matches several; it suffices that one agrees
            continue
        with decoding_errors("the store to be merged"):
            case = json.loads(case_json)
        difference = f"{own_outcome} and {other_outcome}" if own_outcome != other_outcome else "different values"
        seeds = f"seeds {start}-{start + count - 1}"
        conflicts.setdefault(
            row, f"{_checkpoint_label(db, sha256)}, {case['suite']}/{case['name']}, {seeds}: {difference}"
        )
    return tuple(text for row, text in conflicts.items() if row not in known_rows), len(known_rows)


def _are_equal_curves(own_payload: bytes | None, other_payload: bytes | None) -> bool:
    """Returns whether two results of the same work agree. Times, machines and metrics of plugins are not compared.

    A plugin that only one of them used makes no difference.
    """
    if own_payload is None or other_payload is None:
        return own_payload is other_payload
    with decoding_errors("the store to be merged"):
        compared_curves = [Curves.from_payload(payload) for payload in (own_payload, other_payload)]
    metrics_by_side = [_own_metrics(curves) for curves in compared_curves]
    names = metrics_by_side[0].keys() & metrics_by_side[1].keys()
    # Payloads of an older lobench do not list the metrics of plugins. A metric of one side only may then be a plugin's.
    is_known = all(curves.added is not None for curves in compared_curves)
    if metrics_by_side[0].keys() != metrics_by_side[1].keys() and (is_known or not names):
        return False
    contents = [
        ({name: values[name] for name in names}, curves.eval_steps, curves.log_steps, curves.diverged_at, curves.seeds)
        for curves, values in zip(compared_curves, metrics_by_side, strict=True)
    ]
    return contents[0] == contents[1]


def _own_metrics(curves: Curves) -> dict[str, bytes]:
    """Returns the values of the metrics, except for metrics that a plugin is known to have added."""
    plugin_metrics = curves.added or ()
    return {name: values.tobytes() for name, values in curves.metrics.items() if name not in plugin_metrics}


def _checkpoint_label(db: sqlite3.Connection, sha256: str) -> str:
    row = db.execute(f"SELECT uri FROM {_SUBJECTS_TABLE} WHERE sha256 = ? ORDER BY position", (sha256,)).fetchone()
    return str(row[0]) if row is not None else sha256[:12]


def _copy_checkpoints(db: sqlite3.Connection) -> None:
    (last_position,) = db.execute("SELECT COALESCE(MAX(position), -1) FROM main.subjects").fetchone()
    same_sighting = " AND ".join(f"m.{column} = s.{column}" for column in SIGHTING_COLUMNS)
    columns = ", ".join(
        (*SIGHTING_COLUMNS, "kind", "label", "bindings", "trainer_config", "run", "admission", "finished", "seen_at")
    )
    db.execute(
        f"INSERT INTO main.subjects (position, {columns}) "
        f"SELECT ? + ROW_NUMBER() OVER (ORDER BY s.position), {columns} FROM {_SUBJECTS_TABLE} s "
        f"WHERE NOT EXISTS (SELECT 1 FROM main.subjects m WHERE {same_sighting})",
        (last_position,),
    )


def _add_deliveries(db: sqlite3.Connection) -> None:
    """Adds deliveries of the merged evaluations, so that the target's sinks receive them."""
    same_sighting = " AND ".join(f"m.{column} = s.{column}" for column in SIGHTING_COLUMNS)
    same_key = _same_work_condition("me", "se")
    completions = db.execute(
        "INSERT OR IGNORE INTO main.completions SELECT m.position, me.id FROM source.completions c "
        f"JOIN {_SUBJECTS_TABLE} s ON s.position = c.position JOIN main.subjects m ON {same_sighting} "
        f"JOIN {_VIEW} se ON se.id = c.evaluation JOIN main.evaluations me ON {same_key}"
    )
    if completions.rowcount:  # some may have no delivery, by which readers would find them
        db.execute(COUNT_CHANGE)
    # If a theta was seen with several bindings, each sighting has its own evaluations.
    has_one_variant = "(SELECT COUNT(DISTINCT variant) FROM main.subjects o WHERE o.sha256 = c.sha256) = 1"
    source_query = (
        f"SELECT m.position, me.id FROM source.deliveries d JOIN {_SUBJECTS_TABLE} s ON s.position = d.position "
        f"JOIN main.subjects m ON {same_sighting} JOIN {_VIEW} se ON se.id = d.evaluation "
        f"JOIN main.evaluations me ON {same_key}"
    )
    db.execute(
        f"CREATE TABLE {_BELONGING_TABLE} AS {source_query} UNION SELECT position, evaluation FROM main.completions"
    )
    query = (
        "SELECT position, finished FROM main.subjects WHERE admission = 'admitted' AND kind <> 'imported' "
        "ORDER BY position"
    )
    for position, is_finished in db.execute(query).fetchall():
        db.execute(
            "INSERT OR IGNORE INTO main.deliveries (position, evaluation) SELECT c.position, e.id "
            "FROM main.subjects c JOIN main.evaluations e ON e.checkpoint_sha256 = c.sha256 "
            f"WHERE c.position = ? AND ({has_one_variant} OR (c.position, e.id) IN {_BELONGING_TABLE}) "
            "ORDER BY e.case_identity, e.seed_start",
            (position,),
        )
        is_delivered = "SELECT 1 FROM main.deliveries WHERE position = ? AND evaluation IS NULL"
        if is_finished and db.execute(is_delivered, (position,)).fetchone() is None:
            db.execute("INSERT INTO main.deliveries (position, evaluation) VALUES (?, NULL)", (position,))
    db.execute(f"DROP TABLE {_BELONGING_TABLE}")


def _copy_experiments(db: sqlite3.Connection) -> None:
    """Adds the experiments with their trials and members. If both stores have an experiment, members are united.

    Files of saved states are not copied.
    """
    columns = (*VERSION_COLUMNS, "config", "patch", "patch_note", "versions", "created_at", "last_at")
    db.execute(
        f"INSERT INTO main.experiments ({', '.join(columns)}) SELECT {', '.join(columns)} FROM source.experiments "
        f"WHERE 1 ORDER BY id ON CONFLICT ({', '.join(VERSION_COLUMNS)}) DO UPDATE SET "
        "created_at = MIN(created_at, excluded.created_at), last_at = MAX(last_at, excluded.last_at)"
    )
    same_form = " AND ".join(f"mx.{column} = sx.{column}" for column in VERSION_COLUMNS)
    experiments = f"JOIN source.experiments sx ON sx.id = s.experiment JOIN main.experiments mx ON {same_form}"
    has_ended = "state NOT IN ('waiting', 'running')"
    db.execute(
        "INSERT INTO main.trials SELECT mx.id, s.method, s.number, s.parameters, s.state, s.fitness, s.wave "
        f"FROM source.trials s {experiments} WHERE 1 ON CONFLICT (experiment, method, number) DO UPDATE SET "
        "parameters = excluded.parameters, state = excluded.state, fitness = excluded.fitness, wave = excluded.wave "
        f"WHERE NOT trials.{has_ended} AND excluded.{has_ended}"
    )
    same_key = _same_work_condition("me", "se")
    db.execute(
        "INSERT OR IGNORE INTO main.memberships SELECT mx.id, s.method, s.trial, s.session, me.id "
        f"FROM source.memberships s {experiments} JOIN {_VIEW} se ON se.id = s.evaluation "
        f"JOIN main.evaluations me ON {same_key} ORDER BY mx.id, me.id"
    )


def _copy_locations(db: sqlite3.Connection) -> None:
    """Adds the recorded locations of the suites and of the source.

    A source of an older lobench may lack these tables.
    """
    tables = {name for (name,) in db.execute("SELECT name FROM source.sqlite_master WHERE type = 'table'")}
    for table, columns in (("locations", "path"), ("suites", "suite, path, baselines")):
        if table in tables:
            db.execute(
                f"INSERT OR IGNORE INTO main.{table} ({columns}) SELECT {columns} FROM source.{table} ORDER BY id"
            )
