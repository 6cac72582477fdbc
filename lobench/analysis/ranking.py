"""Which checkpoints of a run are best: the mean score over the cases, with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lobench.analysis.intervals import Interval, stratified_t_mean
from lobench.analysis.scores import DIVERGED_SCORE, ScoreScale
from lobench.analysis.subjects import Subject, case_scores, scales_among

__all__ = ["Ranked", "ScalesByName", "rank", "scales_by_name"]

# By suite and name, since other seeds or budgets make another identity of the same case.
ScalesByName = Mapping[tuple[str, str], ScoreScale]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A checkpoint with its mean score.

    Attributes:
      score: Mean over the cases that have a scale; a diverged seed and one without a result count -1.
      num_cases, num_diverged, num_lost: Cases in the mean, seeds that diverged, seeds without a result.
    """

    subject: Subject
    score: Interval
    num_cases: int
    num_diverged: int
    num_lost: int


def scales_by_name(
    subjects: Sequence[Subject], metric: str | None, tuned: Mapping[str, ScoreScale]
) -> dict[tuple[str, str], ScoreScale]:
    """Returns the scales of the cases: untrained 0, and 1 the best of the subjects.

    Args:
      tuned: By identity of the case: scales that count instead, from a tuned baseline.
    """
    cases = {identity: cell.case for subject in subjects for identity, cell in subject.cells.items()}
    scales = {**scales_among(subjects, metric), **tuned}
    return {(case.suite, case.name): scales[identity] for identity, case in cases.items()}


def rank(subjects: Sequence[Subject], metric: str | None, scales: ScalesByName) -> list[Ranked]:
    """Returns those subjects that were evaluated on most cases, the best first; a theta seen twice counts once.

    Args:
      metric: None: each case's primary one.
      scales: A case that is not in it, or has no usable scale, is in no mean.
    """
    most = max((len(subject.cells) for subject in subjects), default=0)
    latest = {subject.checkpoint.sha256: subject for subject in subjects if len(subject.cells) == most}
    found = [_ranked(subject, metric, scales) for subject in latest.values()]
    return sorted(found, key=lambda ranked: (math.isnan(ranked.score.mean), -ranked.score.mean))


def _ranked(subject: Subject, metric: str | None, scales: ScalesByName) -> Ranked:
    cells = []
    for cell in subject.cells.values():
        scale = scales.get((cell.case.suite, cell.case.name))
        if scale is not None and scale.is_usable:
            scores = list(case_scores(cell, metric, scale).values())
            cells.append(scores + [DIVERGED_SCORE] * sum(cell.lost.values()))
    known = [cell for cell in cells if cell]
    nan = math.nan
    return Ranked(
        subject=subject,
        score=stratified_t_mean(known) if known else Interval(mean=nan, lower=nan, upper=nan, degrees=nan),
        num_cases=len(known),
        num_diverged=subject.num_diverged,
        num_lost=subject.num_lost,
    )
