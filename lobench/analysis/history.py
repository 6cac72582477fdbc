"""Runs by date: what was evaluated when, at which git revision, and how far its last checkpoint came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lobench.analysis.intervals import Interval
from lobench.analysis.mean_scores import mean_score
from lobench.analysis.reading import Reading, read_store
from lobench.analysis.scales import Scales
from lobench.analysis.subjects import Subject, headline_metrics
from lobench.core.errors import StoreError
from lobench.engine.store.ledger import EvaluationRow

__all__ = ["RunSummary", "find_stores", "history"]


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
      num_diverged, num_exploded, num_seeds: Of the last checkpoint.
      programs: What made the last checkpoint's results.
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
    num_exploded: int
    num_seeds: int
    num_unscored: int
    programs: tuple[str, ...] = ()


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
    runs: list[tuple[str, Reading]] = []
    for store in stores:
        whole = read_store(store)
        groups: dict[str, list[EvaluationRow]] = {}
        revision = ""
        for row in whole.rows:
            # What gave no curves does not say where it was made: where the one before it was.
            revision = _revision(row) if row.payload is not None else revision
            groups.setdefault(revision, []).append(row)
        if len(groups) == 1:
            runs.append((revision, whole))
        else:
            positions = {subject.who: place for place, subject in enumerate(whole.subjects)}
            runs += [(name, Reading.of(store, rows, positions=positions)) for name, rows in groups.items()]
    scales = Scales.of([subject for _, reading in runs for subject in reading.subjects], None)
    found = [_summary(revision, reading, scales) for revision, reading in runs]
    return sorted(found, key=lambda run: (run.last, str(run.store)))


def _revision(row: EvaluationRow) -> str:
    origin = row.header()[0]["provenance"]
    return str(origin["git_revision"][:12]) + ("+" if origin["git_dirty"] else "")


def _summary(revision: str, reading: Reading, scales: Scales) -> RunSummary:
    last = reading.subjects[reading.shown]
    cases = [case.identity for case in reading.cases]
    found = {label: mean_score(last, metric, scales, cases) for label, metric in headline_metrics(reading.subjects)}
    return RunSummary(
        store=reading.store,
        first=min(row.recorded_at for row in reading.rows),
        last=max(row.recorded_at for row in reading.rows),
        git_revision=revision,
        num_checkpoints=len({row.key.checkpoint_sha256 for row in reading.rows}),
        num_evaluations=len(reading.rows),
        last_checkpoint=last.label,
        scores={label: one.interval for label, one in found.items() if one.num_cases},
        scale=scales.describe("`lobench baseline SUITE` makes one"),
        num_diverged=last.num_diverged,
        num_exploded=scales.num_exploded(*last.cells.values()),
        num_seeds=last.num_seeds,
        num_unscored=_num_unscored(last, scales),
        programs=tuple(sorted(map(str, last.programs))),
    )


def _num_unscored(last: Subject, scales: Scales) -> int:
    return sum(
        any(
            not scales.scale(cell.case, metric or cell.case.primary_metric).is_usable
            for _, metric in headline_metrics([last])
        )
        for cell in last.cells.values()
        if cell.sources
    )
