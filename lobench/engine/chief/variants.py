"""Variants that a chief evaluates, and their cases, as recorded in the store or described by a worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lobench.core.case import CaseInfo
from lobench.core.planner import History, Plan
from lobench.core.subject import Subject, Variant
from lobench.engine.chief.case_cache import RecordedCases
from lobench.engine.workers.protocol import Described

__all__ = ["Variants"]

_Cases = tuple[CaseInfo, ...]


class Variants:
    """Cases of the variants of a run. Nothing runs until the cases of all initial variants are known.

    Args:
      known: Recorded cases.
      names: Names of the cases that count, any of `CaseInfo.names`. Empty: all cases.
    """

    def __init__(self, known: RecordedCases, names: Sequence[str] = ()) -> None:
        self._known_cases, self._case_names = known, frozenset(names)
        self._variants: dict[str, Variant] = {}
        self._described_cases: dict[str, _Cases] = {}
        self._reported_cases: dict[str, _Cases] = {}

    def __iter__(self) -> Iterator[Variant]:
        return iter(self._variants.values())

    def add(self, variants: Iterable[Variant]) -> list[Variant]:
        """Adds variants, and returns the new ones."""
        new_variants = {variant.key: variant for variant in variants if variant.key not in self._variants}
        self._variants |= new_variants
        return list(new_variants.values())

    def all_recorded_cases(self, subjects: Iterable[Subject], history: History) -> Mapping[str, _Cases]:
        """Returns the recorded cases of all variants, if none of their evaluations is missing; else an empty mapping.

        If an evaluation is missing, a worker is needed anyway, and it describes the cases.
        """
        recorded_cases = self._recorded_cases(self._variants.values(), subjects, history)
        self._reported_cases = dict(recorded_cases) if recorded_cases.keys() == self._variants.keys() else {}
        return self._reported_cases

    def add_subjects(
        self, subjects: Sequence[Subject], history: History
    ) -> tuple[Mapping[str, _Cases], Sequence[Variant]]:
        """Adds subjects that arrived late.

        Returns the known cases of new variants, and the variants that a worker must describe.

        A variant needs no description if its cases are recorded and its subjects lack no evaluation.
        """
        new_variants = self.add(subject.variant for subject in subjects)
        recorded_cases = self._recorded_cases(
            new_variants, [subject for subject in subjects if subject.variant in new_variants], history
        )
        self._reported_cases = {**self._reported_cases, **recorded_cases}
        return recorded_cases, [variant for variant in new_variants if variant.key not in recorded_cases]

    def _recorded_cases(
        self, variants: Iterable[Variant], subjects: Iterable[Subject], history: History
    ) -> dict[str, _Cases]:
        """Returns the recorded cases of each variant whose subjects lack no evaluation."""
        stamps: dict[str, tuple[str, int, int] | None] = {}
        recalled_cases = ((variant.key, self._known_cases.unchanged_cases(variant, stamps)) for variant in variants)
        complete_cases = {key: self._select_cases(cases) for key, cases in recalled_cases if cases is not None}
        plan = Plan(history)
        for subject in subjects:
            cases = complete_cases.get(subject.variant.key, ())
            if plan.evaluations_to_retry(subject.sha256, cases) or any(
                True for _ in plan.missing_evaluations(subject.sha256, cases)
            ):
                complete_cases.pop(subject.variant.key, None)
        return complete_cases

    def add_description(self, description: Described) -> Mapping[str, _Cases]:
        """Adds a worker's description.

        Returns the cases to report: those of all variants, once the last one is described.
        """
        self._known_cases.record_description(self._variants[description.variant_key], description)
        return self._add_cases(description.variant_key, self._select_cases(description.cases))

    def refuse_variant(self, variant: Variant) -> Mapping[str, _Cases]:
        """Records that a variant has no cases because they cannot be bound. Returns the same as `describe`."""
        return self._add_cases(variant.key, ())

    def _add_cases(self, variant: str, cases: _Cases) -> Mapping[str, _Cases]:
        self._described_cases[variant] = cases
        if (
            self._reported_cases.keys()
            != self._variants.keys()
            == self._described_cases.keys() | self._reported_cases.keys()
        ):
            new_cases = {key: cases for key, cases in self._described_cases.items() if key not in self._reported_cases}
            self._reported_cases = {**self._reported_cases, **new_cases}
            return new_cases
        return {}

    def differs_from_reported(self, description: Described) -> bool:
        """Returns whether a worker found other cases than were reported, because the suite was changed."""
        selected_cases = self._select_cases(description.cases)
        return self._reported_cases.get(description.variant_key, selected_cases) != selected_cases

    def _select_cases(self, cases: _Cases) -> _Cases:
        return tuple(case for case in cases if not self._case_names or self._case_names & {*case.names})
