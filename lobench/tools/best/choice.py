"""Result of `lobench best`: the chosen checkpoint, and its record in the store."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, TypedDict

from lobench.analysis.scores.mean_scores import RankedSubject
from lobench.analysis.scores.score_scale import SCORE_VERSION
from lobench.analysis.stats.intervals import Interval, IntervalRecord
from lobench.core.json_numbers import finite_or_none, record_from
from lobench.core.wording import counted, level_text, one_line
from lobench.report.tables.text import has_outer_step, interval_cell, interval_words, text_table

__all__ = ["Best", "BestRecord", "Candidate", "best_text"]


class RankedCounts(TypedDict):
    num_cases: int
    diverged: int
    exploded: int
    lost: int


class RankedReport(RankedCounts):
    score: IntervalRecord
    most_lost: Annotated[float, "Upper bound (95%) of the share of seeds that diverge or explode on any case."]


class CandidateRecord(RankedCounts):
    uri: str
    outer_step: int | None
    generation: int
    sha256: str
    fresh: IntervalRecord
    chosen_by: IntervalRecord


class BestRecord(TypedDict):
    """`lobench best`: the best checkpoint, and how good it is on seeds that did not choose it."""

    best: Annotated[str, "Path of the best checkpoint."]
    sha256: str
    score_version: int
    metric: str
    report: Annotated[RankedReport | None, "Score to report, on fresh seeds."]
    candidates: list[CandidateRecord]
    scale: str
    first_fresh_seed: int
    first_further_seed: int
    suites: list[str]
    gone: list[str]
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Checkpoint that was evaluated again.

    Attributes:
      chosen: Rank on the seeds of the run, by which the candidates were chosen.
      fresh: Rank on the fresh seeds.
    """

    chosen: RankedSubject
    fresh: RankedSubject

    def to_record(self) -> CandidateRecord:
        bounds = {"fresh": _interval_record(self.fresh.score), "chosen_by": _interval_record(self.chosen.score)}
        subject = self.chosen.subject.subject
        return record_from(
            CandidateRecord, subject, outer_step=subject.known_outer_step, **bounds, **_count_record(self.fresh)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """Best checkpoint of a run.

    Attributes:
      metric: Metric of the ranking. None: each case's primary one.
      candidates: Checkpoints that were evaluated again, the best first.
      report: Score of the best one on further seeds, which were used for no choice. None if it could not be evaluated.
      scale: Description of the score scale: what 0 and 1 stand for.
      first_fresh_seed, first_further_seed: Numbers of the first fresh seed and of the first further seed.
      suites: Suites of the evaluations.
      gone: Paths of better checkpoints that cannot be read any more: removed, or overwritten with another theta.
      at: Time of the call, in seconds since 1970.
    """

    metric: str | None
    candidates: tuple[Candidate, ...]
    report: RankedSubject | None
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
        """Returns the record for `best.json` and `--format json`."""
        return record_from(
            BestRecord,
            self,
            best=self.uri,
            score_version=SCORE_VERSION,
            metric=self.metric or "primary",
            report=None if self.report is None else _report_record(self.report),
            candidates=[candidate.to_record() for candidate in self.candidates],
            at=datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds"),
        )


def _report_record(result: RankedSubject) -> RankedReport:
    return {"score": _interval_record(result.score), **_count_record(result), "most_lost": result.lost_seeds()[2]}


def _count_record(result: RankedSubject) -> RankedCounts:
    return {
        "num_cases": result.num_cases,
        "diverged": result.num_diverged,
        "exploded": result.num_exploded,
        "lost": result.num_lost,
    }


def _interval_record(interval: Interval) -> IntervalRecord:
    return finite_or_none(record_from(IntervalRecord, interval))


def best_text(best: Best) -> str:
    """Returns the best checkpoint with the score to report, then the candidates, the best first."""
    return "\n".join(
        [
            *map(one_line, _answer_lines(best)),
            *(one_line(f"gone from its place, or overwritten: {uri}") for uri in best.gone),
            "",
            text_table(_table_rows(best)),
            "",
            best.scale,
        ]
    )


def _table_rows(best: Best) -> list[list[str]]:
    """Returns the table of the candidates, with columns for exploded and lost seeds only if there are any."""
    results = [candidate.fresh for candidate in best.candidates]
    has_exploded = any(result.num_exploded for result in results)
    has_lost = any(result.num_lost for result in results)
    header = ["checkpoint", "outer step", "score on fresh seeds", "score that chose it", "diverged"]
    rows = [header + ["exploded"] * has_exploded + ["no result"] * has_lost]
    uris = [candidate.chosen.subject.checkpoint.uri for candidate in best.candidates]
    folders = zip(*(uri.split("/")[:-1] for uri in uris), strict=False)
    num_common = sum(1 for _ in itertools.takewhile(lambda names: len(set(names)) == 1, folders))
    for candidate in best.candidates:
        subject = candidate.chosen.subject.subject
        fresh_result = candidate.fresh
        step = str(subject.outer_step) if has_outer_step(subject) else "-"
        row = ["/".join(subject.uri.split("/")[num_common:]), step]
        row += [
            interval_cell(fresh_result.score),
            interval_cell(candidate.chosen.score),
            str(fresh_result.num_diverged),
        ]
        row += [str(fresh_result.num_exploded)] * has_exploded + [str(fresh_result.num_lost)] * has_lost
        rows.append(row)
    return rows


def _answer_lines(choice: Best) -> list[str]:
    first, *others = choice.candidates
    level = level_text(
        first.fresh.ranking_value,
        ((candidate.chosen.subject.checkpoint.uri, candidate.fresh.ranking_value) for candidate in others),
    )
    best = f"best checkpoint by {choice.metric or 'the primary metric'}: {choice.uri}{level}"
    optimistic = "the scores in the table are optimistic: their seeds chose the checkpoint"
    report = choice.report
    if report is None:
        return [f"{best}; no score to report: it could not be evaluated on further seeds", optimistic]
    num_lost, num_all, max_share = report.lost_seeds()
    bound = f"their share is at most {100 * max_share:.0f}% (95% confidence)"
    share = f"; {num_lost} of {counted(num_all, 'seed')} diverged or exploded, {bound}"
    missing = f"; without a result: {counted(report.num_lost, 'seed')}" if report.num_lost else ""
    score = f"score {interval_words(report.score)} on seeds from {choice.first_further_seed} on"
    return [
        f"{best}; {score}{share}{missing}",
        f"report this score and this share; {optimistic}",
    ]
