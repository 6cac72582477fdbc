"""Live scores of a store's subjects while evaluations arrive. They equal those of a report made at that moment."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lobench.analysis.scores.mean_scores import MeanScore, mean_score
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.subjects import Cell, StoredSubject, subjects_of
from lobench.core.result import Curves, Provenance, mean_of
from lobench.core.subject import Subject as Who
from lobench.engine.store.current import CurrentCases
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.plans import Plans

__all__ = ["Fallback", "Scored", "StoreScores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """Scores of a subject that lacks tuned baselines, on the scale that a report would use now.

    Attributes:
      score: Mean score. On cases without a baseline the best stored mean scores 1, so it changes with new results.
      finals: Name, primary metric and mean over the seeds of each case. The mean is NaN if a seed diverged.
      before: Earlier subjects with the same cases, and their mean scores on this scale.
    """

    score: MeanScore
    finals: tuple[tuple[str, str, float], ...]
    before: tuple[tuple[Who, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A subject with its mean score.

    Attributes:
      subject: The subject.
      score: Mean score. None if a case has no tuned baseline, because its scale would change with new results.
      num_untuned: Number of the subject's cases without a tuned baseline.
      label: Name of the baseline that scores 1; "" if there is none.
      fallback: Substitute for the score, if it is None.
    """

    subject: StoredSubject
    score: MeanScore | None
    num_untuned: int
    label: str
    fallback: Fallback | None = None


class StoreScores:
    """Live scores of a store. Reads the store once, and later only the requested subjects.

    It keeps the first and last values of each subject's seeds, and no curves.

    Args:
      ledger: Ledger of the store.
      places: Suites whose tuned baselines define the scales.
    """

    def __init__(self, ledger: Ledger, places: Sequence[Path]) -> None:
        self._ledger, self._places = ledger, tuple(places)
        self._current: CurrentCases | None = None
        self._current_forms: frozenset[str] = frozenset()
        self._last_event = -1
        self._subjects: dict[str, list[StoredSubject]] = {}  # by theta's hash

    def of(self, asked: Collection[Who]) -> list[Scored]:
        """Returns the present scores of subjects, in the order of their outer steps.

        Raises:
          StoreError: The store cannot be read.
          BaselineError: A baseline file cannot be read.
        """
        wanted = {(one.key, one.outer_step) for one in asked}
        found = self._read({one.sha256 for one in asked})
        return self._scored([one for one in found if (one.who.key, one.who.outer_step) in wanted])

    def everyone(self) -> list[Scored]:
        """Returns the scores of all subjects read so far; [] before the first call of `of`."""
        return self._scored(self._known())

    def _known(self) -> list[StoredSubject]:
        return [one for found in self._subjects.values() for one in found]

    def _scored(self, subjects: Sequence[StoredSubject]) -> list[Scored]:
        known = sorted(self._known(), key=_place)
        scales = Scales.of(known, self._places)
        found = [_scored(one, scales) for one in sorted(subjects, key=_place)]
        if all(one.score is not None for one in found):
            return found
        # The best mean may have changed, and with it all scores.
        means = [(one, mean_score(one, None, scales).mean) for one in known]
        return [one if one.score is not None else _with_fallback(one, scales, means) for one in found]

    def _read(self, hashes: Collection[str]) -> list[StoredSubject]:
        """Reads and returns subjects by checkpoint hash.

        Reads all of them on the first call, and after a case was changed.
        """
        is_first = not self._subjects
        plans = self._ledger if isinstance(self._ledger, Plans) else None
        last_event = plans.last_plan_event() if plans is not None else 0
        is_planned, self._last_event = last_event != self._last_event, last_event
        rows = [
            row for sha256 in ([""] if is_first or is_planned else hashes) for row in self._ledger.evaluations(sha256)
        ]
        if self._current is None or is_planned:
            self._current = plans.current_cases(rows) if plans is not None else CurrentCases.of_rows(rows)
        else:
            self._current.seen(rows)
            if self._current.identities != self._current_forms:
                rows = list(self._ledger.evaluations())
        self._current_forms = self._current.identities
        if not is_first and self._is_restarted(rows):
            rows = list(self._ledger.evaluations())
        groups: dict[str, list[EvaluationRow]] = {}
        for row in rows:
            groups.setdefault(row.key.checkpoint_sha256, []).append(row)
        found = {sha256: subjects_of(members, current=self._current) for sha256, members in groups.items()}
        self._subjects |= {sha256: [_without_curves(one) for one in members] for sha256, members in found.items()}
        return [one for members in found.values() for one in members]

    def _is_restarted(self, rows: Sequence[EvaluationRow]) -> bool:
        """Returns whether a known path now has another checkpoint, so that its run may have been restarted."""
        known = {one.who.uri: one.who.sha256 for one in self._known() if one.who.has_theta}
        return any(known.get(who.uri, who.sha256) != who.sha256 for row in rows for who in row.present)


def _scored(subject: StoredSubject, scales: Scales) -> Scored:
    num_untuned = len(subject.cells.keys() - scales.tuned.keys())
    score = None if num_untuned else mean_score(subject, None, scales)
    return Scored(subject=subject, score=score, num_untuned=num_untuned, label=scales.label)


def _with_fallback(scored: Scored, scales: Scales, means: Sequence[tuple[StoredSubject, float]]) -> Scored:
    """Returns a score with its fallback.

    Args:
      scored: Subject without a score.
      scales: Scales of the store.
      means: Mean scores of all subjects, in order.
    """
    own = scored.subject
    # Of equal cells, use those from which the scales were made, because their scores are cached.
    among = next(one for one, _ in means if (one.who, one.optimizer_hashes) == (own.who, own.optimizer_hashes))
    before = [
        (one.who, mean)
        for one, mean in means
        if _place(one) < _place(own) and one.cells.keys() == own.cells.keys() and math.isfinite(mean)
    ]
    fallback = Fallback(
        score=mean_score(among, None, scales),
        finals=tuple(
            (cell.case.name, cell.case.primary_metric, _final(cell)) for _, cell in sorted(own.cells.items(), key=_name)
        ),
        before=tuple(before),
    )
    return dataclasses.replace(scored, fallback=fallback)


def _name(item: tuple[str, Cell]) -> tuple[str, str]:
    return item[1].case.suite, item[1].case.name


def _final(cell: Cell) -> float:
    values = list(cell.finals(cell.case.primary_metric).values())
    return mean_of(values) if values else math.nan


def _without_curves(subject: StoredSubject) -> StoredSubject:
    """Returns a subject reduced to the data that scores, explosions and groups of cases depend on."""
    cells, former = (
        {identity: _ends_of(cell) for identity, cell in part.items()} for part in (subject.cells, subject.former)
    )
    return dataclasses.replace(subject, cells=cells, former=former)


def _ends_of(cell: Cell) -> Cell:
    """Returns a cell reduced to the first and last value of each seed, and the trainings of the seeds."""
    blocks = {id(curves): curves for curves, _ in cell.sources.values()}
    ends = {place: _first_and_last(curves.whole(), cell.case.primary_metric) for place, curves in blocks.items()}
    return dataclasses.replace(cell, sources={seed: (ends[id(one)], row) for seed, (one, row) in cell.sources.items()})


def _first_and_last(curves: Curves, metric: str) -> Curves:
    metrics: dict[str, memoryview[float]] = {}
    if metric in curves.metrics:
        values = np.asarray(curves.metrics[metric])
        ends = values[:, [0, -1]] if values.shape[1] > 1 else values.copy()
        metrics[metric] = memoryview(ends.data)
    bindings, imported = sys.intern(curves.provenance.bindings), curves.provenance.imported
    return Curves(
        seeds=curves.seeds,
        metrics=metrics,
        eval_steps=tuple(dict.fromkeys(curves.eval_steps[:1] + curves.eval_steps[-1:])),
        diverged_at=curves.diverged_at,
        provenance=Provenance(bindings=bindings, imported=imported),
    )


def _place(subject: StoredSubject) -> tuple[int, int]:
    return subject.who.generation, subject.who.outer_step
