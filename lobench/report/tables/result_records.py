"""JSON records of evaluations: `lobench results --format json`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, NotRequired, TypeAlias, TypedDict, cast

from lobench.core.json_numbers import finite_or_none
from lobench.core.metric import Direction
from lobench.core.result import Curves, Outcome, mean_of
from lobench.core.step_cost import Overhead, StepCost, StepSeconds
from lobench.core.subject import Subject, SubjectKind
from lobench.engine.store.edited_code import ResultCodes
from lobench.engine.store.ledger import EvaluationRow

__all__ = ["ResultRecord", "ResultRecords", "result_records", "unread_records"]


class SightingRecord(TypedDict):
    uri: str | None
    outer_step: int | None
    generation: int | None
    sha256: str | None


class CaseNames(TypedDict):
    suite: str
    name: str
    identity: str


class MetricRecord(TypedDict):
    final: float
    best: float | None
    direction: Direction | None
    mean: Annotated[float, "Mean over evaluations and seeds."]
    per_seed: Annotated[list[float], "Final value of each seed."]


class ResultRecord(TypedDict):
    """`lobench results`: a record for each evaluation and sighting of its subject.

    Its fields are the keys of the JSON document.
    """

    kind: SubjectKind
    label: str
    bindings: list[str]
    checkpoint: SightingRecord
    optimizer: Annotated[str | None, "Hash of the optimizer's bindings."]
    case: CaseNames
    role: str | None
    primary_metric: str | None
    num_inner_steps: int | None
    seeds: list[int]
    outcome: Outcome
    message: str
    diverged: Annotated[int | None, "Number of diverged seeds."]
    diverged_at: Annotated[list[int] | None, "Inner step at which each seed diverged. -1: it did not."]
    exploded: int | None
    metrics: dict[str, MetricRecord]
    eval_steps: list[int]
    compile_seconds: float | None
    wall_seconds: float | None
    ahead_seconds: float | None
    step_seconds: Annotated[float | None, "Seconds of an inner step of one seed, without compilation and evaluations."]
    step_unsteady: Annotated[
        bool | None, "Whether the times are unreliable: too few chunks, a large spread, or a shared processor."
    ]
    gradient_seconds: Annotated[float | None, "Seconds of a plain gradient step. null without `Case.time_gradient`."]
    overhead: Annotated[float | None, "Time of a step over the time of a plain gradient step."]
    step_spread: Annotated[float | None, "Interquartile range of the chunks' times over their median."]
    state_bytes: Annotated[int | None, "Size of the optimizer's state of one seed."]
    peak_bytes: Annotated[int | None, "Peak memory of the device. null: its backend does not report it."]
    machine: Annotated[str | None, "Class of machines. Only compare times of the same class."]
    num_together: Annotated[
        int | None, "Number of trainings in one program. `step_seconds` is the time of its step divided by this number."
    ]
    num_params: int | None
    num_compilations: int | None
    program_version: str | None
    program: str | None
    code: Annotated[str | None, "Fingerprint of the user's code that made the result. null: unknown."]
    changed_files: Annotated[list[str], "Files and packages of that code that differ now. []: none is known to differ."]
    experiment: str | None
    trial: str | None
    session: str | None
    recorded_at: Annotated[float | None, "Seconds since 1970."]
    provenance: dict[str, Any] | None
    imported: NotRequired[dict[str, str]]
    items: NotRequired[Annotated[list[str], "Names of the items of which the values are. `seeds` is then empty."]]
    resumed_at: NotRequired[int]
    curves: NotRequired[Annotated[dict[str, list[list[float]]], "With --curves: values by metric, [seed][evaluation]."]]
    log_steps: NotRequired[list[int]]


ResultRecords: TypeAlias = list[ResultRecord]

_COST_FIELDS = (
    "step_seconds", "step_unsteady", "gradient_seconds", "overhead", "step_spread", "state_bytes", "peak_bytes",
    "machine", "num_together",
)  # fmt: skip

# Fields of a record besides checkpoint, case, seeds, outcome, message, metrics and eval_steps.
_FIELDS = (
    "optimizer", "role", "primary_metric", "num_inner_steps", "diverged", "diverged_at", "exploded", "compile_seconds",
    "wall_seconds", "ahead_seconds", *_COST_FIELDS, "num_params", "num_compilations", "program_version", "program",
    "code", "experiment", "trial", "session", "recorded_at", "provenance",
)  # fmt: skip


def result_records(rows: Iterable[EvaluationRow], codes: ResultCodes, *, with_curves: bool) -> Iterator[ResultRecord]:
    """Yields a record for each evaluation and sighting. NaN and infinities become None, because JSON lacks them."""
    for row in rows:
        for subject in row.sightings:
            yield _record(row, subject, codes, with_curves)


def unread_records(events: Iterable[tuple[str, Mapping[str, Any]]], uris: Collection[str]) -> Iterator[ResultRecord]:
    """Yields a record without case and seeds for each checkpoint that could never be read.

    A checkpoint that was rewritten and then skipped in favour of a newer one has no record.

    Args:
      events: Events of a ledger.
      uris: Paths of checkpoints that were read at any time.
    """
    outcomes = {"expired": Outcome.EXPIRED, "unreadable": Outcome.ERROR}
    last_failures: dict[str, tuple[str, str]] = {}
    for kind, detail in events:
        if kind in outcomes:
            last_failures[detail["uri"]] = kind, detail["message"]
        for uri in detail.get("cleared", ()):
            last_failures.pop(uri, None)
    for uri, (kind, message) in last_failures.items():
        if uri not in uris:
            record: dict[str, Any] = {
                **dict.fromkeys(_FIELDS),
                "kind": "checkpoint",
                "label": uri.rstrip("/").rsplit("/", 1)[-1],
                "bindings": [],
                "checkpoint": {"uri": uri, "outer_step": None, "generation": None, "sha256": None},
                "case": {"suite": "", "name": "", "identity": ""},
                "seeds": [],
                "outcome": outcomes[kind],
                "message": message,
                "metrics": {},
                "eval_steps": [],
                "changed_files": [],
            }
            yield cast(ResultRecord, record)


def _record_label(subject: Subject) -> str:
    """Returns the label of a subject, preceded by the name of its run if it is a file name."""
    is_file = subject.has_theta and subject.label.startswith(subject.uri.rstrip("/").rsplit("/", 1)[-1])
    return f"{subject.run}/{subject.label}" if is_file and subject.run else subject.label


def _record(row: EvaluationRow, subject: Subject, codes: ResultCodes, with_curves: bool) -> ResultRecord:
    curves = row.curves
    code = codes.code_of(row, subject)
    provenance = dataclasses.asdict(curves.provenance) if curves else None
    import_origin = provenance.pop("imported") if provenance else None  # origin of imported curves
    record: ResultRecord = {
        "kind": subject.kind,
        "label": _record_label(subject),
        "bindings": list(subject.variant.bindings),
        "checkpoint": {
            "uri": subject.uri or None,
            "outer_step": subject.known_outer_step,
            "generation": subject.generation if subject.has_theta else None,
            "sha256": row.key.checkpoint_sha256,
        },
        "optimizer": row.key.optimizer_hash,
        "case": {"suite": row.case.suite, "name": row.case.name, "identity": row.case.identity},
        "role": row.case.role or None,
        "primary_metric": row.case.primary_metric,
        "num_inner_steps": row.case.num_inner_steps,
        "seeds": [] if row.case.has_items else list(row.key.seed_block.seeds),
        "outcome": row.outcome,
        "message": row.message,
        "diverged": curves.num_diverged if curves else None,
        "diverged_at": list(curves.diverged_at) if curves else None,
        "exploded": curves.num_exploded(row.case) if curves else None,
        "metrics": {name: _metric_record(curves, name) for name in sorted(curves.metrics)} if curves else {},
        "eval_steps": list(curves.eval_steps) if curves else [],
        "compile_seconds": curves.compile_seconds if curves else None,
        "wall_seconds": curves.wall_seconds if curves else None,
        "ahead_seconds": curves.ahead_seconds if curves else None,
        **_cost_fields(curves.cost if curves else None),  # type: ignore[typeddict-item]
        "num_params": curves.num_params if curves else None,
        "num_compilations": curves.num_compilations if curves else None,
        "program_version": row.key.program_version,
        "program": str(row.program),
        "code": code or None,
        "changed_files": list(codes.changed_files_of_code(code)),
        "experiment": row.labels.experiment,
        "trial": row.labels.trial,
        "session": row.labels.session,
        "recorded_at": row.recorded_at,
        "provenance": provenance,
    }
    if import_origin:
        record["imported"] = import_origin
    if curves is not None and curves.resumed_at:
        record["resumed_at"] = curves.resumed_at  # resumed from a saved state
    if curves is not None and curves.items:
        record["items"] = list(curves.items)
    if with_curves and curves is not None:
        rows_by_name: dict[str, Any] = {name: values.tolist() for name, values in curves.metrics.items()}
        record["curves"] = {
            name: [[finite_or_none(value) for value in seed] for seed in rows]
            for name, rows in sorted(rows_by_name.items())
        }
        record["log_steps"] = list(curves.log_steps)
    return record


def _cost_fields(cost: StepCost | None) -> dict[str, Any]:
    if cost is None:
        return dict.fromkeys(_COST_FIELDS)
    seconds = StepSeconds.of([cost])
    overhead = Overhead.of([cost])
    return {
        "step_seconds": finite_or_none(seconds.median),
        "step_unsteady": seconds.is_unsteady if seconds.num_samples else None,
        "gradient_seconds": finite_or_none(overhead.gradient.median),
        "overhead": finite_or_none(overhead.ratio),
        "step_spread": finite_or_none(seconds.spread),
        "state_bytes": cost.state_bytes,
        "peak_bytes": cost.peak_bytes,
        "machine": cost.machine,
        "num_together": cost.num_together,
    }


def _metric_record(curves: Curves, name: str) -> MetricRecord:
    final_values = curves.final(name)
    means = curves.mean(name)
    direction = curves.direction(name)
    return {
        # With a diverged seed there is no final value, as in every table.
        "final": finite_or_none(math.nan if curves.num_diverged else mean_of(final_values)),
        "best": finite_or_none(mean_of(curves.best(name))) if direction is not None else None,
        "direction": direction,
        "mean": finite_or_none(mean_of(means)),
        "per_seed": finite_or_none(list(final_values)),
    }
