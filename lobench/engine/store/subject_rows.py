"""Subject rows of a ledger, one per sighting: a subject found at a URI, generation and outer step."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lobench.core.checkpoint import Checkpoint
from lobench.core.subject import Subject, Variant
from lobench.core.trials import FIRST_REPORT_SEED

__all__ = ["SIGHTING_COLUMNS", "SUBJECT_COLUMNS", "sightings_of_evaluations", "subject_columns", "subject_from_row"]

# Columns that identify a sighting.
SIGHTING_COLUMNS = ("uri", "sha256", "generation", "outer_step", "variant")
_COLUMNS = ("kind", "uri", "sha256", "outer_step", "generation", "run", "label", "bindings", "trainer_config")
_FIRST_SEED = re.compile(r"\s*Case\.first_seed\s*=\s*(\d+)\s*")
SUBJECT_COLUMNS = ", ".join(
    f"c.{column}" for column in _COLUMNS
)  # columns of `subjects c` that `subject_from_row` reads


def _variant_key(subject: Subject) -> str:
    """Returns the key that distinguishes subjects with equal hashes; "" without a theta, because hashes are unique."""
    return subject.variant.key if subject.has_theta else ""


def subject_columns(subject: Subject) -> dict[str, Any]:
    """Returns the columns of a subject. The label is "" if it can be derived from the other columns."""
    values = {
        "kind": subject.kind,
        "uri": subject.uri,
        "sha256": subject.sha256,
        "outer_step": subject.outer_step,
        "generation": subject.generation,
        "run": subject.run,
        "label": "",
        "bindings": json.dumps(subject.variant.bindings if subject.has_theta else []),
        "trainer_config": subject.variant.trainer_config if subject.has_theta else None,
    }
    has_own_label = subject_from_row(tuple(values[column] for column in _COLUMNS)).label != subject.label
    return values | {"variant": _variant_key(subject), "label": subject.label if has_own_label else ""}


@functools.lru_cache(maxsize=16_384)  # a viewer reads all subjects of a large store each time that it grows
def subject_from_row(row: tuple[Any, ...]) -> Subject:
    """Returns the subject of a row of `SUBJECT_COLUMNS`."""
    kind, uri, sha256, outer_step, generation, run, label, bindings, trainer_config = row
    if kind == "optimizer":
        return dataclasses.replace(Subject.of_optimizer(uri, label=label), sha256=sha256)
    if kind == "imported":
        subject = Subject.of_imported(uri.partition(":")[2])
        return dataclasses.replace(subject, label=label or subject.label)
    checkpoint = Checkpoint(uri=uri, sha256=sha256, outer_step=outer_step, generation=generation, run=run)
    own_bindings = tuple(json.loads(bindings)) if bindings != "[]" else ()
    return Subject.of_checkpoint(checkpoint, Variant(bindings=own_bindings, trainer_config=trainer_config), label=label)


def _has_fresh_seeds(subject: Subject) -> bool:
    """Returns whether a subject is the best trial of a search on fresh seeds, judged by its binding of `first_seed`."""
    matches = (_FIRST_SEED.match(line) for line in subject.variant.bindings)
    return any(match is not None and int(match[1]) >= FIRST_REPORT_SEED for match in matches)


def sightings_of_evaluations(
    db: sqlite3.Connection, sightings: Mapping[int, Subject], *, where: str = "1", values: Sequence[object] = ()
) -> Callable[[int, str], tuple[Subject, ...]]:
    """Returns a function from an evaluation's id and its subject's hash to the sightings of the evaluation.

    These are all sightings of the theta. If the theta was seen with several bindings, they are the sightings for which
    the evaluation was delivered or completed and whose seeds include the evaluation's. Seeds are compared because
    bindings of seeds do not change a case's identity, and older stores have completions with seeds of other bindings.

    Args:
      db: Connection to the ledger.
      sightings: Sightings of the subjects, by position.
      where: SQL condition on `evaluations` that selects the evaluations for which the function is called.
      values: Values of the placeholders in `where`.
    """
    sightings_by_theta: dict[str, list[Subject]] = {}
    for subject in sightings.values():
        sightings_by_theta.setdefault(subject.sha256, []).append(subject)
    ambiguous_thetas = {
        sha256 for sha256, subjects in sightings_by_theta.items() if len(set(map(_variant_key, subjects))) > 1
    }
    sightings_by_evaluation: dict[int, list[Subject]] = {}
    if ambiguous_thetas:
        pairs_query = (
            f"SELECT evaluation, position FROM {{}} WHERE evaluation IN (SELECT id FROM evaluations WHERE {where})"
        )
        union = f"{pairs_query.format('deliveries')} UNION {pairs_query.format('completions')}"
        query = f"SELECT evaluation, position, seed_start FROM ({union}) JOIN evaluations ON id = evaluation"
        thetas_with_fresh_seeds = {
            sighting.sha256
            for sighting in sightings.values()
            if sighting.sha256 in ambiguous_thetas and _has_fresh_seeds(sighting)
        }
        for evaluation, position, start in db.execute(f"{query} ORDER BY position", (*values, *values)):
            evaluated_sighting = sightings.get(position)
            if evaluated_sighting is None:
                continue
            if evaluated_sighting.sha256 not in thetas_with_fresh_seeds or _has_fresh_seeds(evaluated_sighting) == (
                start >= FIRST_REPORT_SEED
            ):
                sightings_by_evaluation.setdefault(evaluation, []).append(evaluated_sighting)

    all_sightings = {sha256: tuple(subjects) for sha256, subjects in sightings_by_theta.items()}

    def sightings_of(evaluation: int, sha256: str) -> tuple[Subject, ...]:
        return (
            tuple(sightings_by_evaluation.get(evaluation, ()))
            if sha256 in ambiguous_thetas
            else all_sightings.get(sha256, ())
        )

    return sightings_of
