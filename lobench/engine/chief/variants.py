"""The cases of each variant of what a chief evaluates: as its store remembers them, and as a worker says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lobench.core.case import CaseInfo
from lobench.core.planner import History, Plan
from lobench.core.subject import Subject, Variant
from lobench.engine.chief.known import KnownCases
from lobench.engine.workers.protocol import Described

__all__ = ["Variants"]

_Cases = tuple[CaseInfo, ...]


class Variants:
    """Knows the cases of a few variants. Those of all are told together: before, nothing may run."""

    def __init__(self, known: KnownCases) -> None:
        self._known = known
        self._variants: dict[str, Variant] = {}
        self._heard: dict[str, _Cases] = {}
        self._told: dict[str, _Cases] = {}

    def __iter__(self) -> Iterator[Variant]:
        return iter(self._variants.values())

    def add(self, variants: Iterable[Variant]) -> list[Variant]:
        """Returns those that are new."""
        new = {variant.key: variant for variant in variants if variant.key not in self._variants}
        self._variants |= new
        return list(new.values())

    def remembered(self, subjects: Iterable[Subject], history: History) -> Mapping[str, _Cases]:
        """Returns the cases of every variant as the store remembers them, if with them nothing is left to do.

        Where something is, a worker is needed in any case, and it will say them itself.
        """
        found: dict[str, _Cases] = {}
        for key, variant in self._variants.items():
            if (cases := self._known.recall(variant)) is None:
                return {}
            found[key] = cases
        plan = Plan(history)
        for subject in subjects:
            cases = found[subject.variant.key]
            if plan.retried(subject.sha256, cases) or any(True for _ in plan.missing(subject.sha256, cases)):
                return {}
        self._told = found
        return found

    def hear(self, described: Described) -> Mapping[str, _Cases]:
        """Takes what a worker says, and returns what may be told now: with the last variant, the cases of all."""
        self._known.keep(self._variants[described.variant_key], described)
        return self._hear(described.variant_key, described.cases)

    def refuse(self, variant: Variant) -> Mapping[str, _Cases]:
        """Takes that the cases of a variant cannot be bound: it has none. Returns what `hear` does."""
        return self._hear(variant.key, ())

    def _hear(self, variant: str, cases: _Cases) -> Mapping[str, _Cases]:
        self._heard[variant] = cases
        if self._told.keys() != self._variants.keys() == self._heard.keys() | self._told.keys():
            new = {key: cases for key, cases in self._heard.items() if key not in self._told}
            self._told = {**self._told, **new}
            return new
        return {}

    def has_changed(self, described: Described) -> bool:
        """Says whether a worker says other cases than were told: the suite is not what the store remembered."""
        return self._told.get(described.variant_key, described.cases) != described.cases
