"""Outcomes of a suite's ordinary tests on two sides: a test that A passes and B fails is a regression."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from lobench.analysis.store.subjects import Cell, StoredSubject
from lobench.core.case import TEST
from lobench.core.result import Outcome

__all__ = ["OutcomesOfTests", "outcomes_of_tests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomesOfTests:
    """Ordinary tests by their outcomes under A and under B. Each is an identity or a name of a case.

    Attributes:
      broken: Tests that pass under A and fail under B.
      fixed: Tests that fail under A and pass under B.
      passed, failed: Tests that pass, or fail, on both sides.
      unknown: Tests without an outcome on a side that B might fail although A does not: they were skipped, not run, or
        ended in an error.
    """

    broken: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def has_tests(self) -> bool:
        return self.has_compared_tests or bool(self.unknown)

    @property
    def has_compared_tests(self) -> bool:
        """Whether any test has an outcome on both sides."""
        return bool(self.broken or self.fixed or self.passed or self.failed)

    def with_names(self, names: Mapping[str, str]) -> OutcomesOfTests:
        """Returns the tests with the names of the cases in place of their identities, sorted."""
        named_parts = {
            field.name: tuple(sorted(names[identity] for identity in getattr(self, field.name)))
            for field in dataclasses.fields(self)
        }
        return OutcomesOfTests(**named_parts)


def outcomes_of_tests(a: StoredSubject, b: StoredSubject) -> OutcomesOfTests:
    """Returns the outcomes of the tests that either side was evaluated on."""
    outcomes_by_test: dict[str, list[str]] = {}
    for identity, cell in {**b.cells, **a.cells}.items():
        if cell.case.evaluator == TEST:
            has_passed_a, has_passed_b = (_has_passed(subject.cells.get(identity)) for subject in (a, b))
            outcomes_by_test.setdefault(_FIELD_BY_RESULTS[has_passed_a, has_passed_b], []).append(identity)
    outcomes_by_test.pop("", None)
    return OutcomesOfTests(**{group: tuple(identities) for group, identities in outcomes_by_test.items()})


# Part of `OutcomesOfTests` by whether the test passed under A and B; None without an outcome.
_FIELD_BY_RESULTS = {
    (True, False): "broken",
    (False, True): "fixed",
    (True, True): "passed",
    (False, False): "failed",
    (True, None): "unknown",
    (None, None): "unknown",
    (None, False): "unknown",
    (None, True): "",
    (False, None): "",
}


def _has_passed(cell: Cell | None) -> bool | None:
    if cell is None:
        return None
    outcomes = {outcome for outcome, _ in cell.failures}
    if Outcome.FAILED in outcomes:
        return False
    return True if cell.curves_by_seed and not outcomes and not cell.missing_seeds else None
