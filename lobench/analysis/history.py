"""Runs by date: what was evaluated when, at which git revision, and how far its last checkpoint came."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.analysis.baseline_scales import BaselineScales, baseline_scales
from lobench.analysis.intervals import Interval, stratified_t_mean
from lobench.analysis.subjects import Subject, case_scores, headline_metrics, last_subject, scales_among, subjects_of
from lobench.core.errors import StoreError
from lobench.engine.ledger import EvaluationRow, Ledger

__all__ = ["RunSummary", "find_stores", "history"]

_PREFIX = struct.Struct("<4sI")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The evaluations of one store at one git revision.

    Attributes:
      first, last: When its first and last evaluation were recorded; seconds since 1970.
      git_revision: Empty outside of a checkout; `+` where that had changes.
      last_checkpoint: Label of the last one among those with most cases.
      scores: By metric, the mean score of the last checkpoint over its cases, on a scale that all runs of the list
        share.
      scale: What 0 and 1 on it are.
      num_diverged, num_seeds: Of the last checkpoint.
      num_unscored: Cases of the last checkpoint that have no scale, and are in no mean.
    """

    store: Path
    first: float
    last: float
    git_revision: str
    num_checkpoints: int
    num_evaluations: int
    last_checkpoint: str
    scores: dict[str, Interval]
    scale: str
    num_diverged: int
    num_seeds: int
    num_unscored: int


def find_stores(folder: Path) -> list[Path]:
    """Returns the store that a folder is, or those below it; not those that a store has for its own purposes.

    Raises:
      StoreError: there is none.
    """
    found = sorted(path.parent for path in folder.rglob("ledger.sqlite"))
    if not found:
        raise StoreError("there is no result store here", where=str(folder), next_step="is --store right?")
    return [store for store in found if not set(store.parents) & set(found)]


def history(stores: Iterable[Path]) -> list[RunSummary]:
    """Returns the runs of some stores, the latest last."""
    groups: dict[tuple[Path, str], list[EvaluationRow]] = {}
    for store in stores:
        ledger = Ledger.open(store, read_only=True)
        try:
            revision = ""
            for row in ledger.evaluations():
                # What gave no curves does not say where it was made: where the one before it was.
                revision = _revision(row) if row.payload is not None else revision
                groups.setdefault((store, revision), []).append(row)
        finally:
            ledger.close()
    last = {key: _last_subject(rows) for key, rows in groups.items()}
    subjects = list(last.values())
    baseline = baseline_scales(subjects)
    found = [_summary(*key, rows, last[key], subjects, baseline) for key, rows in groups.items()]
    return sorted(found, key=lambda run: (run.last, str(run.store)))


def _revision(row: EvaluationRow) -> str:
    origin = row.header()[0]["provenance"]
    return str(origin["git_revision"][:12]) + ("+" if origin["git_dirty"] else "")


def _last_subject(rows: Sequence[EvaluationRow]) -> Subject:
    """Returns the last checkpoint among those that were evaluated on most cases; reads the curves of it alone."""
    cases: dict[str, set[str]] = {}
    order: dict[str, tuple[int, int]] = {}
    for row in rows:
        sha256 = row.key.checkpoint_sha256
        cases.setdefault(sha256, set()).add(row.case.identity)
        order[sha256] = max(((c.generation, c.outer_step) for c in row.checkpoints), default=(0, 0))
    chosen = max(cases, key=lambda sha256: (len(cases[sha256]), order[sha256]))
    return last_subject(subjects_of(row for row in rows if row.key.checkpoint_sha256 == chosen))


def _summary(
    store: Path,
    revision: str,
    rows: Sequence[EvaluationRow],
    last: Subject,
    subjects: Sequence[Subject],
    baseline: BaselineScales,
) -> RunSummary:
    scores, unscored = {}, set()
    for metric in headline_metrics([last]):
        scales = {**scales_among(subjects, metric), **baseline.of(metric)}
        cells = {identity: case_scores(cell, metric, scales[identity]) for identity, cell in last.cells.items()}
        known = [list(found.values()) for found in cells.values() if found and all(map(math.isfinite, found.values()))]
        unscored |= {identity for identity, found in cells.items() if any(map(math.isnan, found.values()))}
        if known:
            scores[metric] = stratified_t_mean(known)
    first_metric = [next(iter(cell.final.values()), {}) for cell in last.cells.values()]
    return RunSummary(
        store=store,
        first=min(row.recorded_at for row in rows),
        last=max(row.recorded_at for row in rows),
        git_revision=revision,
        num_checkpoints=len({row.key.checkpoint_sha256 for row in rows}),
        num_evaluations=len(rows),
        last_checkpoint=last.label,
        scores=scores,
        scale=baseline.describe("the best last checkpoint of this list"),
        num_diverged=last.num_diverged,
        num_seeds=sum(map(len, first_metric)),
        num_unscored=len(unscored),
    )
