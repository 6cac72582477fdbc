"""Checks of a bundle's ledger: references, keys, hashes, and values that follow from other rows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lobench.core.code import CodeFingerprint
from lobench.core.program import IMPORTED, Program
from lobench.core.result import Outcome
from lobench.core.subject import Subject, Variant
from lobench.core.wording import shortened_list
from lobench.engine.store.bundle import ResultBundle
from lobench.engine.store.current import CURRENT_PLAN_EVENT, PLAN_EVENT, PLANNED_EVENT
from lobench.engine.store.ledger import EvaluationRow
from lobench.engine.store.plans import record_digest
from lobench.tools.audit.findings import AuditFinding, Contradiction, Unaudited

__all__ = ["Tables", "record_findings"]

Row = Mapping[str, Any]

_PLANS = (PLAN_EVENT, CURRENT_PLAN_EVENT, PLANNED_EVENT)
_CODE = "code"
# Events that no number of a plan or of a result depends on; their content cannot be checked.
_OTHER_EVENTS = {
    "same_code": "code that was declared to be the same",
    "skipped": "checkpoints that were skipped",
    "expired": "checkpoints that had gone",
    "unreadable": "checkpoints that could not be read",
    "restarted": "restarts of runs",
    "returned": "restarts of runs",
    "reopened": "checkpoints that were evaluated again",
    "imported": "imports of files",
    "search": "waves of searches",
    "method_code": "code of commands",
    "gate": "gates",
    "gate_reference": "references of gates",
}
_START_DIGITS = 16  # hex digits in the name of a run (`start`)


class Tables:
    """Tables of a bundle's ledger, with a mapping for each row."""

    def __init__(self, bundle: ResultBundle) -> None:
        self._bundle = bundle
        self._known_rows: dict[str, list[Row]] = {}

    def __getitem__(self, name: str) -> list[Row]:
        if name not in self._known_rows:
            columns, rows = self._bundle.read_table(name)
            self._known_rows[name] = [dict(zip(columns, row, strict=True)) for row in rows]
        return self._known_rows[name]

    def events(self, *kinds: str) -> list[tuple[Row, Mapping[str, Any]]]:
        """Returns the events of some kinds in order, with their details."""
        return [(row, json.loads(row["detail"])) for row in self["events"] if row["kind"] in kinds]


def record_findings(tables: Tables, rows: Sequence[EvaluationRow]) -> Iterator[AuditFinding]:
    """Yields contradictions between records, and the names of claims that no record can confirm."""
    yield from _subject_findings(tables)
    yield from _delivery_findings(tables)
    yield from _program_findings(tables, rows)
    yield from _event_findings(tables)
    yield from _start_findings(tables)
    yield from _membership_findings(tables)
    yield from _payload_findings(rows)
    yield from _key_findings(tables, rows)
    if any(row["kind"] == "checkpoint" for row in tables["subjects"]):
        yield Unaudited("paths, runs, generations and outer steps of checkpoints", is_usual=True)
    yield Unaudited("the order of results and deliveries", is_usual=True)
    yield Unaudited("which subjects were still waiting", is_usual=True)
    if any(row["message"] for row in tables["evaluations"]):
        yield Unaudited("messages of results", is_usual=True)
    if tables["incidents"]:
        yield Unaudited("lost workers and blocks that were halved", is_usual=True)
    if tables["expectations"] or tables.events(CURRENT_PLAN_EVENT):
        yield Unaudited("programs that plans expected", is_usual=True)
    for experiment in tables["experiments"]:
        yield Unaudited("names, revisions, patches and versions of experiments", is_usual=True)
        if not experiment["config"]:
            yield Unaudited(f"labels of experiment {experiment['name']!r}")


def _subject_findings(tables: Tables) -> Iterator[AuditFinding]:
    hashes = {row["checkpoint_sha256"] for row in tables["evaluations"]}
    for row in tables["subjects"]:
        where = f"subject {row['position']}"
        variant = Variant(bindings=tuple(json.loads(row["bindings"])), trainer_config=row["trainer_config"])
        if row["kind"] == "checkpoint":
            if row["variant"] != variant.key:
                yield Contradiction("record", f"{where}: the hash of its bindings differs from the ledger's")
        elif row["kind"] not in ("optimizer", "imported"):
            yield Contradiction("record", f"{where}: unknown kind {row['kind']!r}")
        elif (row["variant"], row["outer_step"], row["generation"], row["run"]) != ("", 0, 0, "") or variant.key:
            yield Contradiction("record", f"{where}: it has no theta, and bindings or a place of a checkpoint")
        if row["kind"] == "imported":
            name = row["uri"].partition(":")[2]
            if Subject.of_imported(name).sha256 != row["sha256"] or not row["uri"].startswith("imported:"):
                yield Contradiction("label", f"the import {row['uri']!r} has another hash than in the ledger")
        if row["admission"] not in ("waiting", "admitted", "skipped"):
            yield Contradiction("record", f"{where}: unknown admission {row['admission']!r}")
        if row["sha256"] not in hashes:
            yield Unaudited("subjects without results", is_usual=True)


def _delivery_findings(tables: Tables) -> Iterator[AuditFinding]:
    subjects = {row["position"]: row for row in tables["subjects"]}
    hashes = {row["id"]: row["checkpoint_sha256"] for row in tables["evaluations"]}
    delivered = set()
    finished_positions = list[int]()
    for table_name in ("deliveries", "completions"):
        for row in tables[table_name]:
            position, evaluation = row["position"], row["evaluation"]
            where = f"{table_name} of position {position}"
            if position not in subjects:
                yield Contradiction("record", f"{where}: unknown subject")
            elif evaluation is None:
                finished_positions.append(position)
            elif hashes.get(evaluation) != subjects[position]["sha256"]:
                yield Contradiction("record", f"{where}: evaluation {evaluation} does not belong to its subject")
            elif table_name == "deliveries":
                delivered.add((position, evaluation))
                if subjects[position]["admission"] != "admitted":
                    yield Contradiction("record", f"{where}: it has results but was not admitted")
            elif (position, evaluation) not in delivered and subjects[position]["finished"]:
                yield Contradiction("record", f"{where}: evaluation {evaluation} completes it, and was not delivered")
    if len(set(finished_positions)) < len(finished_positions):
        yield Contradiction("record", "a subject was finished twice")
    for position, row in subjects.items():
        if row["kind"] != "imported" and row["finished"] != int(position in finished_positions):
            yield Contradiction("record", f"subject {position}: its finished mark contradicts its deliveries")


def _program_findings(tables: Tables, rows: Sequence[EvaluationRow]) -> Iterator[AuditFinding]:
    programs = {}
    for row in tables["programs"]:
        program = programs[row["id"]] = Program(**json.loads(row["parts"]))
        if program.key != row["id"]:
            yield Contradiction("record", f"program {row['id']} has another key than its parts give")
    for row in tables["expectations"]:
        if row["program"] not in programs:
            yield Contradiction("record", f"a program was expected, and {row['program']} is not in the ledger")
    for evaluation in rows:
        if evaluation.payload is None:
            continue
        if evaluation.key.program_version in programs:
            computed_by = Program.of(evaluation.header()[0]["provenance"], version=evaluation.program.version)
            is_known = (
                evaluation.program == IMPORTED
                or computed_by == evaluation.program
                or computed_by == dataclasses.replace(evaluation.program, device=computed_by.device)
            )
            if not is_known or (
                computed_by.device
                and computed_by.device != evaluation.program.device
                and evaluation.program != IMPORTED
            ):
                yield Contradiction(
                    "record", f"{evaluation.where}: computed by {computed_by}, and the ledger has {evaluation.program}"
                )
        elif evaluation.key.program_version and not evaluation.key.program_version.isdecimal() and programs:
            yield Contradiction("record", f"{evaluation.where}: unknown program {evaluation.key.program_version}")


def _event_findings(tables: Tables) -> Iterator[AuditFinding]:
    for row in tables["events"]:
        kind = row["kind"]
        if kind in _OTHER_EVENTS:
            yield Unaudited(_OTHER_EVENTS[kind], is_usual=True)
        elif kind not in (*_PLANS, _CODE):
            yield Contradiction("record", f"event {row['id']}: unknown kind {kind!r}")
    for _, detail in tables.events(_CODE):
        if CodeFingerprint(parts=detail["parts"]).id != detail["id"] or set(detail) != {"id", "parts"}:
            yield Contradiction("code", f"the code {detail['id']!r} has another hash than in the ledger")


def _start_findings(tables: Tables) -> Iterator[AuditFinding]:
    """Yields events of plans that do not follow one another, and runs whose name does not match their first event."""
    known_digests = {""}
    seen_starts = set[str]()
    for row, detail in tables.events(*_PLANS):
        if detail["previous"] not in known_digests:
            yield Contradiction("plan", f"event {row['id']}: the record before it comes later, or is missing")
        known_digests.add(detail["digest"])
        if row["kind"] != CURRENT_PLAN_EVENT or detail["start"] in seen_starts:
            continue
        seen_starts.add(detail["start"])
        first_plan = {name: detail[name] for name in ("variant", "plan", "programs", "previous")}
        if record_digest(first_plan)[:_START_DIGITS] != detail["start"]:
            yield Contradiction(
                "plan", f"event {row['id']}: the name of its start is another one than its content gives"
            )
    current_variants = set[str]()
    for row, detail in tables.events(CURRENT_PLAN_EVENT, PLANNED_EVENT):
        if row["kind"] == CURRENT_PLAN_EVENT:
            current_variants.add(detail["variant"])
        elif current_variants and detail["variant"] not in current_variants:
            yield Contradiction("plan", f"event {row['id']}: the plan of {detail['label']} was never the last one")
    names = {
        PLAN_EVENT: {"cases", "files", "plan", "digest", "previous"},
        CURRENT_PLAN_EVENT: {"start", "variant", "plan", "programs", "digest", "previous"},
        PLANNED_EVENT: {"sha256", "variant", "label", "plan", "digest", "previous"},
    }
    added_names = {CURRENT_PLAN_EVENT: {"whole", "tests"}}  # those that only some events have
    for row, detail in tables.events(*_PLANS):
        if set(detail) - added_names.get(row["kind"], set()) != names[row["kind"]]:
            yield Contradiction("plan", f"event {row['id']}: it has other fields than a {row['kind']!r}")


def _membership_findings(tables: Tables) -> Iterator[AuditFinding]:
    experiments_by_id = {row["id"]: row for row in tables["experiments"]}
    blocks = {row["id"]: (row["seed_start"], row["seed_count"]) for row in tables["evaluations"]}
    trials = {(row["experiment"], row["method"], row["number"]) for row in tables["trials"]}
    for row in tables["memberships"]:
        where = f"member of experiment {row['experiment']}, method {row['method']!r}"
        if row["experiment"] not in experiments_by_id:
            yield Contradiction("record", f"{where}: no such experiment")
            continue
        if row["evaluation"] not in blocks:
            yield Contradiction("record", f"{where}: no such evaluation: {row['evaluation']}")
            continue
        if not experiments_by_id[row["experiment"]]["config"]:
            continue
        start, count = blocks[row["evaluation"]]
        if not isinstance(row["session"], int) or not start <= row["session"] < start + count:
            yield Contradiction("record", f"{where}: session {row['session']} is not among the seeds of its evaluation")
        if row["trial"] and (row["experiment"], row["method"], row["trial"]) not in trials:
            yield Contradiction("record", f"{where}: no such trial: {row['trial']}")
    for row in tables["trials"]:
        if row["experiment"] not in experiments_by_id:
            yield Contradiction("record", f"trial {row['number']} of {row['method']}: no such experiment")
    for experiment_row in experiments_by_id.values():
        patch = experiment_row["patch"]
        if patch is not None and hashlib.sha256(_decode_bytes(patch)).hexdigest() != experiment_row["patch_sha256"]:
            yield Contradiction(
                "record", f"the patch of experiment {experiment_row['name']} has another hash than in the ledger"
            )
        if not experiment_row["config"] and experiment_row["config_sha256"]:
            yield Contradiction(
                "plan", f"the file of experiment {experiment_row['name']} is gone, and its hash is there"
            )


def _decode_bytes(value: Any) -> bytes:
    import base64

    return base64.b64decode(value["base64"]) if isinstance(value, dict) else str(value).encode()


def _payload_findings(rows: Sequence[EvaluationRow]) -> Iterator[AuditFinding]:
    """Yields payloads with content besides curves: further fields, or bytes after the values."""
    for row in rows:
        if row.payload is None:
            continue
        curves = row.curves
        assert curves is not None
        encoded = dataclasses.replace(curves).to_payload()
        (claimed_header, claimed_end), (our_header, our_end) = _json_header(row.payload), _json_header(encoded)
        # Fields with default values may be absent from either.
        differing_fields = [
            name
            for name, value in claimed_header.items()
            if (our_header[name] != value if name in our_header else value)
        ]
        if differing_fields:
            yield Contradiction(
                "result",
                f"{row.where}: its curves say {shortened_list(sorted(differing_fields), 3)}, which have another form",
            )
        if row.payload[claimed_end:] != encoded[our_end:]:
            yield Contradiction("result", f"{row.where}: its curves have bytes that are not values")


def _json_header(payload: bytes) -> tuple[dict[str, Any], int]:
    size = int.from_bytes(payload[4:8], "little")
    return json.loads(payload[8 : 8 + size]), 8 + size


def _key_findings(tables: Tables, rows: Sequence[EvaluationRow]) -> Iterator[AuditFinding]:
    """Yields results whose columns do not match their case and curves."""
    seconds = {row["id"]: row["seconds"] for row in tables["evaluations"]}
    num_outdated = len(tables["evaluations"]) - len(rows)
    if num_outdated:
        yield Unaudited(f"results of code that was edited later, in no table ({num_outdated})")
    for row in rows:
        case, key = row.case, row.key
        # An import on a case that lobench trains has the case's code, and was not made by it.
        code = "" if row.program == IMPORTED else case.code
        if (case.identity, case.optimizer_hash, code) != (key.case_identity, key.optimizer_hash, key.code):
            yield Contradiction("case", f"{row.where}: the key of the result is not that of its case")
        curves = row.curves
        claimed_seconds = curves.compile_seconds + curves.wall_seconds if curves is not None else 0.0
        if abs(claimed_seconds - seconds[row.id]) > 1e-6 * max(1.0, claimed_seconds):
            yield Contradiction(
                "result", f"{row.where}: it took {seconds[row.id]:g} s, and its curves say {claimed_seconds:g} s"
            )
        if curves is None:
            continue
        if row.outcome == Outcome.PASSED and row.message not in ("", "; ".join(curves.problems)):
            yield Contradiction("result", f"{row.where}: it passed, and has the message {row.message[:60]!r}")
        if any(sighting.is_imported for sighting in row.sightings) != bool(curves.provenance.imported):
            yield Contradiction("result", f"{row.where}: whether it was imported is not what its curves say")
        if (row.program == IMPORTED) != bool(curves.provenance.imported):
            yield Contradiction("result", f"{row.where}: its program is not what its curves say")
