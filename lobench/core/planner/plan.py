"""Evaluation plan: subjects x cases x seed blocks, minus recorded evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lobench.core.case import CaseInfo
from lobench.core.planner.events import EvaluationId, History

__all__ = ["Plan"]


class Plan:
    """The evaluations of today's cases, and which of them have an outcome that stays.

    Args:
      history: What the ledger knows.
    """

    def __init__(self, history: History) -> None:
        self._recorded = set(history.recorded)
        self._retried = set(history.retried) & self._recorded
        self._splits = set(history.splits)

    def missing(self, sha256: str, cases: Sequence[CaseInfo]) -> Iterator[tuple[EvaluationId, CaseInfo]]:
        """Yields what a theta has no outcome of."""
        for case in cases:
            for block in case.blocks():
                yield from self.missing_of(EvaluationId(sha256, case.key, block), case)

    def missing_of(self, evaluation: EvaluationId, case: CaseInfo) -> Iterator[tuple[EvaluationId, CaseInfo]]:
        """Yields an evaluation, or its halves where it ran out of memory, as far as they have no outcome."""
        for part in self.parts(evaluation):
            if part not in self._recorded:
                yield part, case

    def retried(self, sha256: str, cases: Sequence[CaseInfo]) -> list[EvaluationId]:
        """Returns what of today's cases is to be tried again although it has an outcome."""
        if not self._retried:
            return []
        wholes = (EvaluationId(sha256, case.key, block) for case in cases for block in case.blocks())
        return [part for whole in wholes for part in self.parts(whole) if part in self._retried]

    def record(self, evaluation: EvaluationId) -> None:
        self._recorded.add(evaluation)

    def is_recorded(self, evaluation: EvaluationId) -> bool:
        return evaluation in self._recorded

    def forget(self, evaluations: Iterable[EvaluationId]) -> None:
        """Takes outcomes for none: what had them is missing again."""
        self._recorded.difference_update(evaluations)
        self._retried.difference_update(evaluations)

    def split(self, evaluation: EvaluationId) -> None:
        self._splits.add(evaluation)

    def parts(self, evaluation: EvaluationId) -> Iterator[EvaluationId]:
        """Yields an evaluation, or its halves where it ran out of memory."""
        if evaluation not in self._splits:
            yield evaluation
            return
        for half in evaluation.block.halves():
            yield from self.parts(EvaluationId(evaluation.sha256, evaluation.case_key, half))
