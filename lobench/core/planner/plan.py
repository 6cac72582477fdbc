"""Evaluation plan: subjects x cases x seed blocks, except evaluations that the present code has computed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lobench.core.case import CaseInfo
from lobench.core.code import is_same_code
from lobench.core.planner.events import EvaluationId, History

__all__ = ["Plan"]


class Plan:
    """Evaluations of the present cases, and which of them have an outcome by the present code.

    Args:
      history: Recorded evaluations of the ledger.
    """

    def __init__(self, history: History) -> None:
        self._recorded = set(history.recorded)
        self._retried = set(history.retried) & self._recorded
        self._splits = set(history.splits)
        self._codes = dict(history.codes)
        self._retried_codes = dict(history.retried_codes)
        self._same_codes = history.same_codes
        self._keeps_code = history.keeps_code

    def missing_evaluations(self, sha256: str, cases: Sequence[CaseInfo]) -> Iterator[tuple[EvaluationId, CaseInfo]]:
        """Yields the evaluations of a theta that have no outcome by the present code."""
        for evaluation, case in self.planned_evaluations(sha256, cases):
            if not self.is_current(evaluation, case):
                yield evaluation, case

    def missing_parts(self, evaluation: EvaluationId, case: CaseInfo) -> Iterator[tuple[EvaluationId, CaseInfo]]:
        """Yields an evaluation if its outcome is missing; or its missing parts, if it was split for lack of memory."""
        for part in self.split_parts(evaluation):
            if not self.is_current(part, case):
                yield part, case

    def evaluations_to_retry(self, sha256: str, cases: Sequence[CaseInfo]) -> list[EvaluationId]:
        """Returns the evaluations of the present cases to retry although they have an outcome."""
        if not self._retried:
            return []
        return [
            evaluation
            for evaluation, case in self.planned_evaluations(sha256, cases)
            if self.is_to_retry(evaluation, case)
        ]

    def is_to_retry(self, evaluation: EvaluationId, case: CaseInfo) -> bool:
        """Returns whether to retry an evaluation although it has an outcome by the present code."""
        if evaluation not in self._retried:
            return False
        codes = self._retried_codes.get(evaluation)
        return codes is None or any(self._counts(code, case) for code in codes)

    def outdated_evaluations(self, sha256: str, cases: Sequence[CaseInfo]) -> list[tuple[EvaluationId, str, str]]:
        """Returns the evaluations of the present cases whose results were all made by other code.

        Each is followed by the code of its last result and the present code. `History.keeps_code` is not considered.
        """
        if not self._codes:
            return []
        return [
            (evaluation, self._codes[evaluation][-1], case.code)
            for evaluation, case in self.planned_evaluations(sha256, cases)
            if evaluation in self._recorded
            and evaluation in self._codes
            and not any(is_same_code(code, case.code, self._same_codes) for code in self._codes[evaluation])
        ]

    def planned_evaluations(self, sha256: str, cases: Sequence[CaseInfo]) -> Iterator[tuple[EvaluationId, CaseInfo]]:
        """Yields all evaluations of a theta, recorded or not."""
        for case in cases:
            for block in case.blocks():
                for evaluation in self.split_parts(EvaluationId(sha256, case.key, block)):
                    yield evaluation, case

    def record(self, evaluation: EvaluationId, case: CaseInfo) -> None:
        if evaluation in self._codes or (evaluation not in self._recorded and case.code):
            self._codes[evaluation] = (*self._codes.get(evaluation, ()), case.code)
        self._recorded.add(evaluation)

    def is_current(self, evaluation: EvaluationId, case: CaseInfo) -> bool:
        """Returns whether an evaluation has an outcome that counts: one by the present code, or by unknown code."""
        if evaluation not in self._recorded:
            return False
        codes = self._codes.get(evaluation)
        return codes is None or any(self._counts(code, case) for code in codes)

    def _counts(self, code: str, case: CaseInfo) -> bool:
        return self._keeps_code or is_same_code(code, case.code, self._same_codes)

    def forget(self, evaluations: Collection[EvaluationId]) -> None:
        """Discards outcomes: their evaluations are missing again."""
        self._recorded.difference_update(evaluations)
        self._retried.difference_update(evaluations)
        for evaluation in evaluations:
            self._codes.pop(evaluation, None)

    def record_split(self, evaluation: EvaluationId) -> None:
        self._splits.add(evaluation)

    def split_parts(self, evaluation: EvaluationId) -> Iterator[EvaluationId]:
        """Yields an evaluation, or its halves if it ran out of memory."""
        if evaluation not in self._splits:
            yield evaluation
            return
        for half in evaluation.block.halves():
            yield from self.split_parts(EvaluationId(evaluation.sha256, evaluation.case_key, half))
