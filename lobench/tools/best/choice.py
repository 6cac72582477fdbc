"""Best choice: the chosen checkpoint, and the record of it in the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, TypedDict

from lobench.analysis.scores.mean_scores import Ranked
from lobench.analysis.scores.score_scale import SCORE_VERSION
from lobench.analysis.stats.intervals import Interval
from lobench.core.json_numbers import finite_or_none

__all__ = ["Best", "BestRecord", "Candidate"]


class Bounds(TypedDict):
    """A mean with its 95% interval; null where nothing can be said."""

    mean: float
    lower: float
    upper: float


class RankedCounts(TypedDict):
    num_cases: int
    diverged: int
    exploded: int
    lost: int


class RankedReport(RankedCounts):
    score: Bounds


class CandidateRecord(RankedCounts):
    uri: str
    outer_step: int
    generation: int
    sha256: str
    fresh: Bounds
    chosen_by: Bounds


class BestRecord(TypedDict):
    """`lobench best`: the best checkpoint, and how good it is on seeds that did not choose it."""

    best: Annotated[str, "Path of the checkpoint."]
    sha256: str
    score_version: int
    metric: str
    report: Annotated[RankedReport | None, "The number to report."]
    candidates: list[CandidateRecord]
    scale: str
    first_fresh_seed: int
    first_further_seed: int
    suites: list[str]
    gone: list[str]
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A checkpoint that was evaluated again.

    Attributes:
      chosen: As the run's own seeds saw it: they chose it.
      fresh: As the fresh seeds saw it.
    """

    chosen: Ranked
    fresh: Ranked

    def to_record(self) -> CandidateRecord:
        checkpoint = self.chosen.subject.checkpoint
        return {
            "uri": checkpoint.uri,
            "outer_step": checkpoint.outer_step,
            "generation": checkpoint.generation,
            "sha256": checkpoint.sha256,
            "fresh": _interval(self.fresh.score),
            "chosen_by": _interval(self.chosen.score),
            **_counts(self.fresh),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best checkpoint of a run.

    Attributes:
      metric: What it is best in; None: each case's primary one.
      candidates: Those that were evaluated again, the best first.
      report: As further seeds saw the best one, which chose nothing; None where it could not be evaluated on them.
      scale: What 0 and 1 on the scale are.
      first_fresh_seed, first_further_seed: Of the cases' seeds.
      gone: Paths of better ones that cannot be read any more: removed, or overwritten with another theta.
      at: When; seconds since 1970.
    """

    metric: str | None
    candidates: tuple[Candidate, ...]
    report: Ranked | None
    scale: str
    first_fresh_seed: int
    first_further_seed: int
    suites: tuple[str, ...]
    gone: tuple[str, ...]
    at: float

    @property
    def uri(self) -> str:
        return self.candidates[0].chosen.subject.checkpoint.uri

    @property
    def sha256(self) -> str:
        return self.candidates[0].chosen.subject.checkpoint.sha256

    def to_record(self) -> BestRecord:
        """Returns what `best.json` keeps, and `--format json` prints."""
        return {
            "best": self.uri,
            "sha256": self.sha256,
            "score_version": SCORE_VERSION,
            "metric": self.metric or "primary",
            "report": None if self.report is None else {"score": _interval(self.report.score), **_counts(self.report)},
            "candidates": [candidate.to_record() for candidate in self.candidates],
            "scale": self.scale,
            "first_fresh_seed": self.first_fresh_seed,
            "first_further_seed": self.first_further_seed,
            "suites": list(self.suites),
            "gone": list(self.gone),
            "at": datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds"),
        }


def _counts(ranked: Ranked) -> RankedCounts:
    return {
        "num_cases": ranked.num_cases,
        "diverged": ranked.num_diverged,
        "exploded": ranked.num_exploded,
        "lost": ranked.num_lost,
    }


def _interval(found: Interval) -> Bounds:
    bounds: Bounds = {"mean": found.mean, "lower": found.lower, "upper": found.upper}
    return finite_or_none(bounds)
