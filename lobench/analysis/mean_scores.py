"""The headline of a subject: its mean score. Without `scipy.stats`, whose import takes longer than a history."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lobench.analysis.intervals import Interval, stratified_t_mean
from lobench.analysis.scales import Scales
from lobench.analysis.subjects import Subject

__all__ = ["MeanScore", "mean_score"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanScore:
    """The mean over cases of the mean over seeds of one subject's scores.

    Attributes:
      scores: Of each case in the mean, by identity and seed.
      num_missing: Cases without a curve or a scale: they are not in the mean.
      num_diverged: Seeds that diverged; each counts as -1.
    """

    interval: Interval
    scores: Mapping[str, Mapping[int, float]]
    num_missing: int
    num_diverged: int

    @property
    def num_cases(self) -> int:
        return len(self.scores)


def mean_score(subject: Subject, metric: str | None, scales: Scales, cases: Iterable[str] | None = None) -> MeanScore:
    """Returns the headline of a subject.

    Args:
      metric: None: each case's primary one.
      cases: Identities that should be in the mean; None: those that the subject has.
    """
    found = {identity: scales.scores(cell, metric) for identity, cell in subject.cells.items()}
    known = {key: scores for key, scores in found.items() if scores and all(map(math.isfinite, scores.values()))}
    nothing = Interval()
    return MeanScore(
        interval=stratified_t_mean([list(scores.values()) for scores in known.values()]) if known else nothing,
        scores=known,
        num_missing=len({*(subject.cells if cases is None else cases)} - known.keys()),
        num_diverged=subject.num_diverged,
    )
