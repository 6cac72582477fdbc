"""`about.json` of a bundle: a summary of its ledger.

It is computed from the ledger alone, so that an audit can recompute it.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lobench.core.result import Outcome
from lobench.core.wording import counted
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.plans import missing_evaluations
from lobench.engine.store.provenance import versions_here

__all__ = ["ledger_about", "ledger_gaps", "lobench_version_and_hash", "short_location"]

_LOST_EVENTS = ("skipped", "expired", "unreadable")  # events of checkpoints that were not evaluated
_HASH_DIGITS = 12  # hex digits


def ledger_about(ledger: Ledger, rows: Sequence[EvaluationRow]) -> dict[str, Any]:
    """Returns the programs, machines and thetas of a ledger, and the end of its chain of plans.

    The number of plan records and the hash of the last one are part of the bundle's root. A bundle whose last plans
    were cut off therefore has another root.
    """
    history = ledger.plan_history()
    return {
        "lobench": lobench_version_and_hash(),
        "machines": sorted({curves.cost.machine for row in rows if (curves := row.curves) and curves.cost}),
        "plan": {"records": history.num_records, "last": history.last_digest},
        "programs": sorted({str(row.program) for row in rows}),
        "thetas": {
            sighting.sha256: short_location(sighting.uri)
            for sighting in ledger.sightings().values()
            if sighting.has_theta
        },
    }


def ledger_gaps(ledger: Ledger, rows: Sequence[EvaluationRow]) -> list[str]:
    """Returns lines on evaluations without curves, planned evaluations without an outcome, and lost checkpoints."""
    return [*_lines_without_curves(rows), *_missing_lines(ledger, rows)]


def short_location(uri: str) -> str:
    """Returns the last two parts of a path; a URL stays whole."""
    return os.path.join(*Path(uri).parts[-2:]) if os.path.isabs(uri) else uri


@functools.cache
def lobench_version_and_hash() -> str:
    """Returns the version of lobench and a hash of its source code. Equal values produce equal cards."""
    folder = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"{file.relative_to(folder).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return f"{versions_here().get('lobench', '')} {digest.hexdigest()[:_HASH_DIGITS]}"


def _lines_without_curves(rows: Sequence[EvaluationRow]) -> Iterator[str]:
    counts = Counter((row.outcome, row.case.suite, row.case.name) for row in rows if not row.has_curves)
    for (outcome, suite, name), count in sorted(counts.items()):
        yield f"no curves of {counted(count, 'evaluation')} of {suite}/{name}: {Outcome(outcome)}"


def _missing_lines(ledger: Ledger, rows: Sequence[EvaluationRow]) -> Iterator[str]:
    for subject, case, blocks in missing_evaluations(ledger.planned_subjects(), rows):
        yield f"planned and not evaluated: {subject.label} on {case.name}, seeds {', '.join(map(str, blocks))}"
    counts = Counter(kind for kind, _ in ledger.events(*_LOST_EVENTS))
    yield from (f"{counted(count, 'checkpoint')} {kind}" for kind, count in sorted(counts.items()))
