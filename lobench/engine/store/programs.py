"""Programs that this machine is expected to use, and programs behind the keys in a ledger.

A chief plans before any worker exists, so it has to predict the program. Results of older versions have no program key
and get one here.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.core.program import ELSEWHERE, EVALUATOR_PROGRAMS, Program
from lobench.core.result import Provenance, read_header
from lobench.engine.store.provenance import versions_here
from lobench.engine.workers.devices import cpu_class, device_description, devices_here

__all__ = [
    "ExpectedProgram",
    "accepted_keys",
    "accepted_keys_of_programs",
    "known_programs",
    "program_here",
    "programs_of_old_rows",
    "register_program",
    "replace_program_versions",
]

_GPU_FOLDER = Path("/proc/driver/nvidia/gpus")  # folder in which NVIDIA's driver lists the GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedProgram:
    """Program that a chief expects to compute its results, before a worker has reported one.

    Attributes:
      is_elsewhere: Whether workers may be on other machines, whose devices are not known in advance.
      together: Number of thetas that a worker may compute at once.
    """

    is_elsewhere: bool = False
    together: int = 1

    def of(self, num_gpus: float, together: int = 1) -> Program:
        """Returns the expected program of a case that asks for `num_gpus` GPUs."""
        return _make_program(ELSEWHERE if self.is_elsewhere else _device_here(num_gpus), together)

    def all_programs(self) -> list[Program]:
        return [self.of(num_gpus, together) for num_gpus in (0.0, 1.0) for together in {1, self.together}]


def program_here(*, num_gpus: float = 0.0) -> Program:
    """Returns the program expected for results of processes on this machine."""
    return _make_program(_device_here(num_gpus), together=1)


def _device_here(num_gpus: float) -> str:
    return _gpu_text() if num_gpus and devices_here(os.environ) else f"cpu: {cpu_class()}"


def _make_program(device: str, together: int) -> Program:
    versions = versions_here()
    return Program(jax=versions.get("jax", ""), jaxlib=versions.get("jaxlib", ""), device=device, together=together)


def _gpu_text() -> str:
    """Returns the first GPU, described as jax describes it."""
    for file in sorted(_GPU_FOLDER.glob("*/information")):
        for line in file.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "Model":
                return f"gpu: {value.strip()}"
    return "gpu"


# Program versions of old rows are numbers; keys have a hash behind them.
_OLD_VERSION_CONDITION = "program_version <> '' AND program_version NOT GLOB '*[^0-9]*'"


def register_program(db: sqlite3.Connection, program: Program, expected: Program | None = None) -> None:
    """Records the program of a key.

    Args:
      db: Connection to the ledger.
      program: Program that computed a result.
      expected: Program that was expected to compute it. If they differ, results of `program` count from now on for
        chiefs that expect `expected`.
    """
    program_json = json.dumps(dataclasses.asdict(program), sort_keys=True)
    db.execute("INSERT OR IGNORE INTO programs VALUES (?, ?)", (program.key, program_json))
    if expected is not None and expected != program.without_at_once:
        db.execute("INSERT OR IGNORE INTO expectations VALUES (?, ?)", (expected.key, program.key))


def accepted_keys_of_programs(db: sqlite3.Connection, expected: Iterable[Program]) -> set[str]:
    """Returns the keys of the programs whose results count if the given programs are expected."""
    return accepted_keys(db, {program.key for program in expected})


def accepted_keys(db: sqlite3.Connection, expected: Collection[str]) -> set[str]:
    """Like `accepted`, for keys of expected programs. Results of commands and tests count on every machine."""
    keys = set(expected)
    programs = known_programs(db)
    if not programs:
        return keys
    keys |= {program.key for program in EVALUATOR_PROGRAMS.values()} & programs.keys()
    # The number of trainings computed at once depends on the case, and is known only after tracing.
    keys |= {key for key, program in programs.items() if program.without_at_once.key in keys}
    placeholders = ", ".join("?" * len(keys))
    rows = db.execute(f"SELECT program FROM expectations WHERE expected IN ({placeholders})", tuple(keys))
    return keys | {program for (program,) in rows}


def known_programs(db: sqlite3.Connection, schema: str = "main") -> dict[str, Program]:
    """Returns the recorded programs, by key."""
    if db.execute(f"SELECT 1 FROM {schema}.sqlite_master WHERE name = 'programs'").fetchone() is None:
        return {}  # an old store, opened for reading
    return {key: Program(**json.loads(text)) for key, text in db.execute(f"SELECT id, parts FROM {schema}.programs")}


def _program_of_row(version: str, payload: bytes) -> Program:
    """Returns the program of an old row from the provenance of its curves, which lacks the CPU's instruction set.

    If the result was made on this machine, the instruction set is this machine's.
    """
    try:
        provenance: Provenance = read_header(payload)[0]["provenance"]
    except ValueError:
        return Program(version=version)  # reported when the row is read
    if provenance.host == socket.gethostname():
        provenance = dataclasses.replace(provenance, device=device_description(provenance.device))
    return Program.of(provenance, version)


def programs_of_old_rows(
    db: sqlite3.Connection, table: str = "evaluations", *, where: str = "1", values: Sequence[object] = ()
) -> dict[int, Program]:
    """Returns the programs of rows whose keys do not name them, by id.

    A row without curves has no provenance. It gets the program of the other rows of its version, if they have only one.

    Args:
      db: Connection to the ledger.
      table: Table of evaluations.
      where, values: SQL condition on the rows, and its parameters. Payloads of other rows are read only for rows
        without curves.
    """
    columns = f"SELECT id, program_version, payload FROM {table}"
    programs: dict[int, Program] = {}
    versions_without_curves: dict[int, str] = {}
    for row, version, payload in db.execute(f"{columns} WHERE {_OLD_VERSION_CONDITION} AND {where}", values):
        if payload is None:
            versions_without_curves[row] = version
        else:
            programs[row] = _program_of_row(version, payload)
    programs_by_version: dict[str, set[Program]] = {}
    for version in {*versions_without_curves.values()}:
        rows_of_version = db.execute(f"{columns} WHERE program_version = ? AND payload IS NOT NULL", (version,))
        programs_by_version[version] = {
            dataclasses.replace(programs.get(row) or _program_of_row(version, payload), together=1)
            for row, _, payload in rows_of_version
        }
    for row, version in versions_without_curves.items():
        single_programs = programs_by_version[version]
        programs[row] = next(iter(single_programs)) if len(single_programs) == 1 else Program(version=version)
    return programs


def replace_program_versions(db: sqlite3.Connection) -> None:
    """Replaces the program versions of old rows by keys, in the caller's transaction."""
    if db.execute(f"SELECT 1 FROM evaluations WHERE {_OLD_VERSION_CONDITION} LIMIT 1").fetchone() is None:
        return
    programs = programs_of_old_rows(db)
    for program in set(programs.values()):
        register_program(db, program)
    db.executemany(
        "UPDATE OR IGNORE evaluations SET program_version = ? WHERE id = ?",
        [(program.key, row) for row, program in programs.items()],
    )
