"""What was evaluated, as scores: the cells of a checkpoint or an optimizer, by case and seed, and their scales."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lobench.analysis.scores import ScoreScale, higher_is_better, normalised_scores
from lobench.core.case import CaseInfo
from lobench.core.checkpoint import Checkpoint
from lobench.engine.ledger import EvaluationRow

__all__ = [
    "Cell",
    "Subject",
    "case_scores",
    "differences",
    "headline_metrics",
    "place_of",
    "relative_scale",
    "scales_among",
    "subjects_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One case of one subject, its seed blocks joined.

    Attributes:
      final: By metric, then seed: the value after the last inner step; NaN where the seed diverged.
      untrained: By metric, then seed: the value before the first one.
      diverged: Seeds that met a non-finite loss.
      lost: Seeds of which no evaluation gave curves, counted by the outcome of the last one.
    """

    case: CaseInfo
    final: Mapping[str, Mapping[int, float]]
    untrained: Mapping[str, Mapping[int, float]]
    diverged: frozenset[int]
    lost: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A checkpoint with an optimizer's bindings, as a store holds it.

    Attributes:
      cells: By the identity of the case.
      git_revisions: Of the checkouts that the evaluations were made in, `+` where that had changes.
      name: How to call it, where not by its checkpoint.
    """

    checkpoint: Checkpoint
    optimizer_hashes: frozenset[str]
    cells: Mapping[str, Cell]
    git_revisions: frozenset[str] = frozenset()
    program_versions: frozenset[str] = frozenset()
    name: str = ""

    def named(self, name: str) -> Subject:
        """Returns the subject with another label."""
        return dataclasses.replace(self, name=name)

    @property
    def label(self) -> str:
        if self.name:
            return self.name
        if self.checkpoint.uri.startswith("optimizer: "):
            return self.checkpoint.uri.removeprefix("optimizer: ")
        return self.checkpoint.uri.rstrip("/").rsplit("/", 1)[-1] or self.checkpoint.sha256[:12]

    @property
    def num_lost(self) -> int:
        return sum(sum(cell.lost.values()) for cell in self.cells.values())

    @property
    def num_diverged(self) -> int:
        return sum(len(cell.diverged) for cell in self.cells.values())

    def metrics(self) -> set[str]:
        return {name for cell in self.cells.values() for name in cell.final}


def subjects_of(rows: Iterable[EvaluationRow]) -> list[Subject]:
    """Returns what a store's evaluations are of, by generation, outer step and first sight.

    A checkpoint that was seen at several outer steps is several subjects with the same cells; one that was evaluated
    with several optimizers' bindings is several subjects too. Where a case was evaluated twice on the same seeds (it
    was changed, or the inner program was) the later evaluation that gave curves counts.
    """
    groups: dict[Checkpoint, list[EvaluationRow]] = {}
    for row in sorted(rows, key=lambda row: row.recorded_at):
        unseen = Checkpoint(uri="", sha256=row.key.checkpoint_sha256, outer_step=0)
        for checkpoint in row.checkpoints or (unseen,):
            groups.setdefault(checkpoint, []).append(row)
    found = [_subject(checkpoint, part) for checkpoint, members in groups.items() for part in _by_optimizer(members)]
    return sorted(found, key=lambda subject: (subject.checkpoint.generation, subject.checkpoint.outer_step))


def last_subject(subjects: Sequence[Subject]) -> Subject:
    """Returns the last one among those that were evaluated on most cases: a run's last may be under way."""
    most = max(len(subject.cells) for subject in subjects)
    return [subject for subject in subjects if len(subject.cells) == most][-1]


def headline_metrics(subjects: Sequence[Subject]) -> list[str]:
    """Returns the metrics of a headline: the cases' primary one, and the losses of train and test beside it."""
    known = set().union(*(subject.metrics() for subject in subjects))
    primary = [cell.case.primary_metric for subject in subjects for cell in subject.cells.values()]
    return [name for name in dict.fromkeys([*primary, "train/loss", "test/loss"]) if name in known]


def relative_scale(cells: Sequence[Cell], metric: str) -> ScoreScale:
    """Returns the scale of a case among those who are compared: untrained 0, the best of them 1.

    For want of a tuned baseline. A seed that diverged enters no mean here, and a subject of which more than half of the
    seeds did cannot be the best. Where nobody is better than untrained the case has no scale.
    """
    starts = [value for cell in cells for value in cell.untrained.get(metric, {}).values() if math.isfinite(value)]
    untrained = math.fsum(starts) / len(starts) if starts else math.nan
    higher, nan = higher_is_better(metric), math.nan
    ends = []
    for cell in cells:
        values = [value for seed, value in cell.final.get(metric, {}).items() if seed not in cell.diverged]
        if values and len(values) >= len(cell.diverged) and all(map(math.isfinite, values)):
            ends.append(math.fsum(values) / len(values))
    tuned = (max if higher else min)(ends, default=nan)
    return ScoreScale.of(metric, untrained=untrained, tuned=tuned)


def scales_among(subjects: Sequence[Subject], metric: str | None = None) -> dict[str, ScoreScale]:
    """Returns the relative scale of every case that any of the subjects has, by identity.

    Args:
      metric: None: each case's primary one.
    """
    cells: dict[str, list[Cell]] = {}
    for subject in subjects:
        for identity, cell in subject.cells.items():
            cells.setdefault(identity, []).append(cell)
    return {
        identity: relative_scale(members, metric or members[0].case.primary_metric)
        for identity, members in cells.items()
    }


def case_scores(cell: Cell, metric: str | None, scale: ScoreScale) -> dict[int, float]:
    """Returns the normalised score of each seed; -1 for one that diverged, NaN for all where there is no scale."""
    finals = cell.final.get(metric or cell.case.primary_metric, {})
    diverged = [seed in cell.diverged for seed in finals]
    scores = normalised_scores(list(finals.values()), scale, diverged=diverged)
    return dict(zip(finals, scores.tolist(), strict=True))


def differences(a: Subject, b: Subject, metric: str | None, scales: Mapping[str, ScoreScale]) -> dict[str, list[float]]:
    """Returns score(B) - score(A) of each common seed, by the identity of the case.

    A case that only one side was evaluated on, or whose evaluation gave no curves, has no common seed: it is there,
    empty. Cases of which neither side knows the metric are not.

    Args:
      metric: None: each case's primary one.
    """
    found: dict[str, list[float]] = {}
    for identity in {**a.cells, **b.cells}:
        sides = [subject.cells.get(identity) for subject in (a, b)]
        ours, theirs = (case_scores(cell, metric, scales[identity]) if cell is not None else {} for cell in sides)
        if ours or theirs or any(cell is not None and cell.lost for cell in sides):
            found[identity] = [theirs[seed] - ours[seed] for seed in sorted(ours.keys() & theirs.keys())]
    return found


def _by_optimizer(rows: Sequence[EvaluationRow]) -> list[Sequence[EvaluationRow]]:
    """Parts rows by their optimizers' bindings where a case was evaluated with two of them.

    Otherwise they are one subject: a case may insist on bindings of its own.
    """
    places = {(row.key.case_identity, row.key.seed_block, row.key.optimizer_hash) for row in rows}
    if len({place[:2] for place in places}) == len(places):
        return [rows]
    parts: dict[str, list[EvaluationRow]] = {}
    for row in rows:
        parts.setdefault(row.key.optimizer_hash, []).append(row)
    return list(parts.values())


def place_of(case: CaseInfo) -> tuple[str, str, str]:
    """Returns where a case is written: what is at one place with another identity is the same case, changed.

    Its name alone is not enough: two tests may evaluate one case, and two files have cases of one name.
    """
    return case.suite, case.name, case.node_id.rsplit("/", 1)[-1]


def _subject(checkpoint: Checkpoint, rows: Sequence[EvaluationRow]) -> Subject:
    latest = {place_of(row.case): row.case.identity for row in rows}
    current = set(latest.values())
    by_case: dict[str, list[EvaluationRow]] = {}
    for row in rows:
        if row.case.identity in current:
            by_case.setdefault(row.case.identity, []).append(row)
    revisions: set[str] = set()
    cells = {identity: _cell(members, revisions) for identity, members in by_case.items()}
    return Subject(
        checkpoint=checkpoint,
        optimizer_hashes=frozenset(row.key.optimizer_hash for row in rows),
        cells=cells,
        git_revisions=frozenset(revisions),
        program_versions=frozenset(row.key.program_version for row in rows),
    )


def _cell(rows: Sequence[EvaluationRow], revisions: set[str]) -> Cell:
    final: dict[str, dict[int, float]] = {}
    untrained: dict[str, dict[int, float]] = {}
    diverged: set[int] = set()
    measured: set[int] = set()
    lost: dict[int, str] = {}
    for row in rows:
        curves = row.curves
        # An error or a timeout says nothing of the checkpoint: it replaces no value of an earlier evaluation.
        if curves is None:
            lost.update(dict.fromkeys(set(row.key.seed_block.seeds) - measured, str(row.outcome)))
            continue
        # Of a seed that was evaluated twice the later one counts.
        measured.update(curves.seeds)
        for seed in curves.seeds:
            lost.pop(seed, None)
            for values in (*final.values(), *untrained.values()):
                values.pop(seed, None)
        diverged.difference_update(curves.seeds)
        origin = curves.provenance
        if origin.git_revision:
            revisions.add(origin.git_revision[:12] + ("+" if origin.git_dirty else ""))
        diverged.update(seed for seed, step in zip(curves.seeds, curves.diverged_at, strict=True) if step >= 0)
        for name, view in curves.metrics.items():
            block = np.asarray(view)
            if name != "batch/loss" and block.size:
                untrained.setdefault(name, {}).update(zip(curves.seeds, block[:, 0].tolist(), strict=True))
                final.setdefault(name, {}).update(zip(curves.seeds, block[:, -1].tolist(), strict=True))
    return Cell(
        case=rows[-1].case,
        final=final,
        untrained=untrained,
        diverged=frozenset(diverged),
        lost=Counter(lost.values()),
    )
