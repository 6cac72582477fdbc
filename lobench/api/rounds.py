"""Progress of commands that evaluate in rounds: one line per round, and an end if no case has a requested metric."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from lobench.analysis.store.subjects import StoredSubject
from lobench.core.case import TEST, CaseInfo
from lobench.core.metric import stored_spelling, unknown_metric
from lobench.core.result import Outcome
from lobench.engine.chief.interfaces import ForwardingProgress, WatchProgress
from lobench.hookspecs import EvaluationFinished

__all__ = ["MetricCheck", "RoundProgress", "RunningProgress"]


class RoundProgress(WatchProgress):
    """Progress of a round that forwards problems but hides plans and completed evaluations.

    Args:
      inner: Progress of the command, which logs a line per round.
    """

    def __init__(self, inner: WatchProgress) -> None:
        for name in (
            "log",
            "warn",
            "closed",
            "programs_planned",
            "training_progressed",
            "evaluation_leased",
            "given_up",
            "evaluation_finished",
            "curves_extended",
        ):
            setattr(self, name, getattr(inner, name))

    def announce(self, line: str) -> None:
        """Drops the line."""


class RunningProgress(WatchProgress):
    """Progress of a round that shows running evaluations only. The command itself reports failures.

    Args:
      inner: Progress of the command.
    """

    def __init__(self, inner: WatchProgress) -> None:
        self._inner = inner
        for name in ("programs_planned", "training_progressed", "evaluation_leased", "given_up"):
            setattr(self, name, getattr(inner, name))

    def evaluation_finished(self, event: EvaluationFinished, lease: int | None) -> None:
        self._inner.evaluation_finished(dataclasses.replace(event, outcome=Outcome.PASSED, message=""), lease)

    def log(self, line: str) -> None:
        """Drops the line."""

    def warn(self, line: str) -> None:
        """Drops the line."""


class MetricCheck(ForwardingProgress):
    """Progress that passes all events on, and ends the run once each case has a result and none has a given metric.

    The run then ends with a UsageError. Its results stay. What a test records, or a plugin's metric that failed, may
    differ between subjects, so they end no run.

    Args:
      inner: Progress that receives the events.
      metrics: Metrics that a case must have, in any spelling. An empty name is not checked.
      stored_subjects: Subjects that are compared and have results already.
    """

    def __init__(
        self, inner: WatchProgress, metrics: Sequence[str], stored_subjects: Iterable[StoredSubject] = ()
    ) -> None:
        super().__init__(inner)
        self._metrics = [*filter(None, metrics)]
        self._stored_cells = [cell for subject in stored_subjects for cell in subject.cells.values()]
        self._known_metrics = {metric for cell in self._stored_cells for metric in cell.metric_names}
        self._cases_without_result = set[str]()

    def cases_known(self, cases: Sequence[CaseInfo]) -> None:
        self._inner.cases_known(cases)
        self._cases_without_result = {case.identity for case in cases if not case.has_only_outcome}
        case_codes = {case.identity: case.case_code for case in cases}
        for cell in self._stored_cells:
            if case_codes.get(cell.case.identity) == cell.case.case_code:
                self._add(cell.case, ())

    def evaluation_finished(self, event: EvaluationFinished, lease: int | None) -> None:
        self._inner.evaluation_finished(event, lease)
        if event.curves is not None and not event.curves.problems:
            self._add(event.case, event.curves.metrics)

    def _add(self, case: CaseInfo, metrics: Iterable[str]) -> None:
        self._known_metrics |= {*metrics}
        if case.evaluator != TEST:
            self._cases_without_result.discard(case.identity)
        for metric in () if self._cases_without_result else self._metrics:
            if stored_spelling(metric, self._known_metrics) not in self._known_metrics:
                raise unknown_metric(metric, self._known_metrics)
