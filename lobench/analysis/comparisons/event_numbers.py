"""Numbers of a finished evaluation or checkpoint, under the names used by the sinks of plugins.

All values are of the last inner step. A sink may rename them, and writes each at the checkpoint's outer step.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lobench.analysis.scores.baseline_file import find_baselines
from lobench.analysis.scores.mean_scores import mean_score
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.intervals import Interval, metric_means
from lobench.analysis.store.subjects import StoredSubject, subjects_of
from lobench.core.case import CaseInfo
from lobench.core.labels import NO_LABELS
from lobench.core.program import Program
from lobench.core.result import Curves, EvaluationKey, Outcome
from lobench.engine.store.ledger import EvaluationRow
from lobench.hookspecs import AlarmRaised, CheckpointFinished, Delivery, EvaluationFinished

__all__ = ["Group", "Number", "evaluation_row_of", "numbers_of", "run_label"]


class Group(enum.StrEnum):
    """Groups of numbers, in order of importance.

    >>> [group.name for group in Group]
    ['HEADLINE', 'CASES', 'DIAGNOSTICS']
    """

    HEADLINE = "headline"
    CASES = "cases"
    DIAGNOSTICS = "diagnostics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One number of a subject.

    Attributes:
      group: Group of the number.
      name: `score`, `verdicts_passed` or `alarm/<kind>`; for a case `score` or `<split>/<metric>`; for diagnostics
        `diverged`, `exploded`, `not_evaluated` or `outcomes/<outcome>`.
      suite: Name of the suite. "": all suites together.
      case: Name of the case. "": all cases of the suite.
      value: The number.
      lower, upper: Bounds of a 95% interval over seeds, or over cases and seeds for a score of several cases. NaN
        without an interval.
      is_primary: Whether it is the case's primary metric, which headlines show.

    >>> Number(group=Group.HEADLINE, name="score", value=0.9).is_primary
    False
    """

    group: Group
    name: str
    suite: str = ""
    case: str = ""
    value: float
    lower: float = math.nan
    upper: float = math.nan
    is_primary: bool = False

    @property
    def has_chart(self) -> bool:
        """Whether the number is drawn with its interval: a score or a case's primary metric that has an interval."""
        return not math.isnan(self.lower) and (self.is_primary or self.name == "score")

    @property
    def key(self) -> str:
        """Name with slashes between sections. No key is the beginning of another one.

        `score`, `score_of/<suite>`, `<suite>/<case>/<split>/<metric>`, `diagnostics/suite/<suite>/diverged`,
        `diagnostics/case/<suite>/<case>/diverged`.
        """
        if self.group is Group.HEADLINE:
            return f"{self.name}_of/{self.suite}" if self.suite else self.name
        path = "/".join(filter(None, (self.suite, self.case, self.name)))
        return path if self.group is Group.CASES else f"diagnostics/{'case' if self.case else 'suite'}/{path}"

    def values(self) -> Iterator[tuple[str, float]]:
        """Yields the key and value to write, and the bounds of a chart, such as `intervals/<key>/lower`."""
        yield self.key, self.value
        if self.has_chart:
            yield f"intervals/{self.key}/lower", self.lower
            yield f"intervals/{self.key}/upper", self.upper


def numbers_of(
    event: EvaluationFinished | CheckpointFinished | AlarmRaised, suites: Sequence[str] = ()
) -> list[Number]:
    """Returns all numbers that follow from an event.

    For an evaluation, these are the metrics of its case, once all seeds are evaluated. A metric is NaN if a seed
    diverged, so that divergence stays visible in means. For a checkpoint, these are the metrics of all cases, the
    scores, and counts of problems. Scores are the only means over cases, because losses of different tasks have no
    common scale. For an alarm, it is the alarm's value.

    A case without a tuned baseline has no score, because its scale would change with every new checkpoint. A suite with
    such a case has no score, and if one suite has none, there is no score over all suites.

    Args:
      event: Event of a run.
      suites: Suites that are searched for tuned baselines.

    Raises:
      BaselineError: A baseline file cannot be read.

    >>> subject, case = Subject.of_optimizer("adam()"), lobench.open_results("results").rows[0].case
    >>> block, outcome = SeedBlock(start=0, size=3), lobench.Outcome.ERROR
    >>> numbers_of(EvaluationFinished(subject=subject, case=case, seed_block=block, outcome=outcome))
    []
    """
    if isinstance(event, AlarmRaised):
        return [Number(group=Group.HEADLINE, name=f"alarm/{event.kind}", value=event.value)]
    if isinstance(event, EvaluationFinished):
        return _case_numbers([[event]])
    evaluations_by_case: dict[str, list[EvaluationFinished]] = {}
    for evaluation in event.evaluations:
        evaluations_by_case.setdefault(evaluation.case.key, []).append(evaluation)
    names = sorted({evaluation.case.suite for evaluation in event.evaluations})
    warnings = [number for name in names for number in _problem_numbers(name, event.evaluations)]
    return [
        *_score_numbers(event, suites, names),
        *_passed_numbers(event),
        *_case_numbers(evaluations_by_case.values()),
        *warnings,
    ]


def run_label(store: Path, delivery: Delivery) -> str:
    """Returns a label of a delivery's run that is distinct between stores: the store's folder and the run's name.

    >>> event = CheckpointFinished(subject=Subject.of_optimizer("adam()"), evaluations=())
    >>> run_label(Path("results"), Delivery(sequence=1, event=event, run="today"))
    'results/today'
    """
    name = store.parent.parent.name if store.parent.name == "lobench_results" else store.name
    label = "/".join([name, *filter(None, [delivery.run])])
    generation = delivery.event.checkpoint.generation
    return f"{label} generation {generation}" if generation else label


def evaluation_row_of(event: EvaluationFinished, recorded_at: float) -> EvaluationRow:
    """Returns an event as an evaluation of a store, recorded at the time `recorded_at`."""
    return EvaluationRow(
        key=EvaluationKey.of(event.subject.sha256, event.case, event.seed_block, ""),
        program=Program(),
        case=event.case,
        outcome=event.outcome,
        message=event.message,
        payload=None,
        recorded_sightings=(event.subject,),
        labels=NO_LABELS,
        recorded_at=recorded_at,
        attached_curves=event.curves,
    )


def _case_numbers(cases: Iterable[Sequence[EvaluationFinished]]) -> list[Number]:
    """Returns the numbers of cases whose seeds are all evaluated. Partial results could not be corrected later."""
    whole_cases: list[tuple[Sequence[EvaluationFinished], list[str]]] = []
    finals: dict[str, list[list[float]]] = {}  # by metric, one case after another
    for evaluations in cases:
        blocks = _curves_of(evaluations)
        if len({seed for block in blocks for seed in block.seeds}) < evaluations[0].case.num_seeds:
            continue
        # A plugin's metric may be missing in some blocks.
        metrics = sorted(set.intersection(*(set(block.metrics) for block in blocks)))
        whole_cases.append((evaluations, metrics))
        for name in metrics:
            finals.setdefault(name, []).append(_final_values(blocks, name))
    intervals = {name: iter(metric_means(name, rows)) for name, rows in finals.items()}
    numbers: list[Number] = []
    for evaluations, metrics in whole_cases:
        case = evaluations[0].case
        numbers += (_metric_number(case, name, next(intervals[name])) for name in metrics)
        numbers += _lost_seed_numbers(evaluations, case.suite, case.name)
    return numbers


def _final_values(blocks: Sequence[Curves], name: str) -> list[float]:
    """Returns the final values of all seeds. They are NaN for diverged seeds, whatever the metric, as in tables."""
    return [
        math.nan if diverged_at >= 0 else value
        for block in blocks
        for value, diverged_at in zip(block.final(name), block.diverged_at, strict=True)
    ]


def _metric_number(case: CaseInfo, name: str, interval: Interval) -> Number:
    is_primary = name == case.primary_metric
    bounds = _interval_fields(interval)
    return Number(group=Group.CASES, name=name, suite=case.suite, case=case.name, is_primary=is_primary, **bounds)


def _interval_fields(interval: Interval) -> dict[str, Any]:
    return {"value": interval.mean, "lower": interval.lower, "upper": interval.upper}


def _lost_seed_numbers(evaluations: Sequence[EvaluationFinished], suite: str, case: str = "") -> list[Number]:
    num_exploded = sum(
        evaluation.curves.num_exploded(evaluation.case) for evaluation in evaluations if evaluation.curves is not None
    )
    counts = {"diverged": sum(block.num_diverged for block in _curves_of(evaluations)), "exploded": num_exploded}
    return [_count_number(name, count, suite, case) for name, count in counts.items()]


def _problem_numbers(suite: str, evaluations: Iterable[EvaluationFinished]) -> list[Number]:
    evaluations_of_suite = [evaluation for evaluation in evaluations if evaluation.case.suite == suite]
    outcomes = Counter({Outcome.PASSED: 0, Outcome.FAILED: 0})
    outcomes.update(evaluation.outcome for evaluation in evaluations_of_suite)
    num_missing = sum(evaluation.curves is None for evaluation in evaluations_of_suite)
    outcome_counts = [_count_number(f"outcomes/{outcome}", outcomes[outcome], suite) for outcome in sorted(outcomes)]
    return [
        *_lost_seed_numbers(evaluations_of_suite, suite),
        _count_number("not_evaluated", num_missing, suite),
        *outcome_counts,
    ]


def _count_number(name: str, count: int, suite: str, case: str = "") -> Number:
    return Number(group=Group.DIAGNOSTICS, name=name, suite=suite, case=case, value=float(count))


def _passed_numbers(event: CheckpointFinished) -> list[Number]:
    if not event.evaluations:
        return []
    share = sum(evaluation.outcome is Outcome.PASSED for evaluation in event.evaluations) / len(event.evaluations)
    return [Number(group=Group.HEADLINE, name="verdicts_passed", value=share)]


def _score_numbers(event: CheckpointFinished, suites: Sequence[str], names: Sequence[str]) -> list[Number]:
    suite_paths = [Path(suite) for suite in suites]
    if not event.evaluations or not any(map(find_baselines, suite_paths)):
        return []
    subject = subjects_of(
        evaluation_row_of(evaluation, float(index)) for index, evaluation in enumerate(event.evaluations)
    )[0]
    scales = Scales.of([subject], suite_paths)
    numbers = [_score_number(subject, subject.cells, scales)]
    if len(names) > 1:
        for name in names:
            cases_of_suite = [identity for identity, cell in subject.cells.items() if cell.case.suite == name]
            numbers.append(_score_number(subject, cases_of_suite, scales, suite=name))
    for cell in subject.cells.values():
        numbers.append(_score_number(subject, [cell.case.identity], scales, suite=cell.case.suite, case=cell.case.name))
    return [number for number in numbers if not math.isnan(number.value)]


def _score_number(
    subject: StoredSubject, cases: Iterable[str], scales: Scales, *, suite: str = "", case: str = ""
) -> Number:
    cells = {identity: subject.cells[identity] for identity in cases}
    is_tuned = cells.keys() <= scales.baselines.baseline_by_case.keys()
    interval = mean_score(replace(subject, cells=cells), None, scales).interval if is_tuned else Interval()
    group = Group.CASES if case else Group.HEADLINE
    return Number(group=group, name="score", suite=suite, case=case, **_interval_fields(interval))


def _curves_of(evaluations: Iterable[EvaluationFinished]) -> list[Curves]:
    return [evaluation.curves for evaluation in evaluations if evaluation.curves is not None]
