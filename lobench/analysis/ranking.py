"""Which checkpoints of a run are best: the mean score over the cases, with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lobench.analysis.findings import mean_score
from lobench.analysis.intervals import Interval
from lobench.analysis.scales import Scales
from lobench.analysis.score_scale import DIVERGED_SCORE
from lobench.analysis.subjects import Subject
from lobench.core.result import mean_of

__all__ = ["Ranked", "rank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A checkpoint with its mean score.

    Attributes:
      score: Mean over the cases that have a scale, as every headline has it; a diverged seed counts -1.
      worth: What it is ranked by: the same mean where a seed without a result counts -1 too.
      num_cases, num_lost: Cases in the mean, seeds without a result.
      num_diverged, num_exploded: Seeds that diverged, and others that ended above twice their start.
    """

    subject: Subject
    score: Interval
    worth: float
    num_cases: int
    num_diverged: int
    num_exploded: int
    num_lost: int


def rank(subjects: Sequence[Subject], metric: str | None, scales: Scales) -> list[Ranked]:
    """Returns those subjects that were evaluated on most cases, the best first; a theta seen twice counts once.

    Args:
      metric: None: each case's primary one.
      scales: A case that has no usable one is in no mean.
    """
    most = max((len(subject.cells) for subject in subjects), default=0)
    latest = {subject.checkpoint.sha256: subject for subject in subjects if len(subject.cells) == most}
    found = [_ranked(subject, metric, scales) for subject in latest.values()]
    return sorted(found, key=lambda ranked: (math.isnan(ranked.worth), -ranked.worth))


def _ranked(subject: Subject, metric: str | None, scales: Scales) -> Ranked:
    found = mean_score(subject, metric, scales)
    means = []
    for identity, cell in subject.cells.items():
        scale = scales.scale(cell.case, metric or cell.case.primary_metric)
        values = [*found.scores.get(identity, {}).values(), *[DIVERGED_SCORE] * sum(cell.lost.values())]
        if values and scale.is_usable:
            means.append(mean_of(values))
    return Ranked(
        subject=subject,
        score=found.interval,
        worth=mean_of(means) if means else math.nan,
        num_cases=found.num_cases,
        num_diverged=found.num_diverged,
        num_exploded=found.num_exploded,
        num_lost=subject.num_lost,
    )
