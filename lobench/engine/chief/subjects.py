"""Subjects of a chief by position: the cases of their variants, and thetas still in use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from lobench.core.case import CaseInfo
from lobench.core.planner import EvaluationId, History
from lobench.core.subject import Subject, Variant
from lobench.engine.checkpoints.intake import Intake

__all__ = ["Subjects", "todays"]


class Subjects:
    """The subjects that a chief knows. Positions are those of the ledger; one subject may be seen at several."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._subjects: dict[int, Subject] = {}
        self._needed: dict[str, dict[str, set[int]]] = {}  # by theta or text, then by variant
        self._cases: dict[str, dict[str, CaseInfo]] = {}  # by variant, then by `CaseInfo.key`

    def __getitem__(self, position: int) -> Subject:
        return self._subjects[position]

    def __contains__(self, position: object) -> bool:
        return position in self._subjects

    def __len__(self) -> int:
        return len(self._subjects)

    @property
    def highest_step(self) -> int:
        return max((subject.outer_step for subject in self._subjects.values()), default=-1)

    def run_of(self, position: int) -> str:
        """Returns the run of a checkpoint; "" if there is one run, and of what is no checkpoint."""
        return self._subjects[position].run

    @property
    def needed(self) -> Collection[str]:
        """Thetas that the spool must keep."""
        return self._needed.keys()

    def sha256s(self) -> set[str]:
        return {subject.sha256 for subject in self._subjects.values()}

    def add(self, position: int, subject: Subject, *, is_needed: bool = True) -> None:
        self._subjects[position] = subject
        if is_needed:
            self.need(position)

    def need(self, position: int) -> None:
        """Says that something of a position is to be evaluated."""
        sha256, variant = self._subjects[position].key
        self._needed.setdefault(sha256, {}).setdefault(variant, set()).add(position)

    def know_cases(self, variant: str, cases: Sequence[CaseInfo]) -> None:
        self._cases[variant] = {case.key: case for case in cases}

    def variants(self) -> list[Variant]:
        """Returns the variants of all subjects, each once."""
        return list(dict.fromkeys(subject.variant for subject in self._subjects.values()))

    def of_variant(self, variant: str) -> list[Subject]:
        """Returns who has a variant."""
        return [one for one in self._subjects.values() if one.variant.key == variant]

    def cases(self, variant: str) -> Collection[str]:
        """Returns the keys of a variant's cases; none while they are not known."""
        return self._cases.get(variant, {}).keys()

    def codes(self) -> dict[str, str]:
        """Returns today's code of each case (`CaseInfo.code`) by its key."""
        return {key: case.code for cases in self._cases.values() for key, case in cases.items()}

    def all(self) -> tuple[Subject, ...]:
        return tuple(self._subjects.values())

    def known_cases(self, variant: str) -> Mapping[str, CaseInfo]:
        """Returns a variant's cases by their keys; another mapping when they have changed."""
        return self._cases.get(variant, {})

    def cases_by_variant(self) -> dict[str, tuple[CaseInfo, ...]]:
        return {variant: tuple(cases.values()) for variant, cases in self._cases.items()}

    def case_keys(self) -> set[str]:
        return {key for cases in self._cases.values() for key in cases}

    def case(self, case_key: str) -> CaseInfo:
        return next(cases[case_key] for cases in self._cases.values() if case_key in cases)

    def positions(self, evaluation: EvaluationId) -> list[int]:
        """Returns the positions that need an evaluation, in order."""
        found: list[int] = []
        for variant, positions in self._needed.get(evaluation.sha256, {}).items():
            if evaluation.case_key in self._cases.get(variant, ()):
                found += positions
        return sorted(found)

    def first(self, evaluation: EvaluationId) -> Subject:
        """Returns the first sighting that needs an evaluation; there is one."""
        return self._subjects[self.positions(evaluation)[0]]

    def has_theta(self, evaluation: EvaluationId) -> bool:
        """Says whether the spool has a theta, after copying it again where it has lost it and one of its places has."""
        return any(self._intake.fetch(self._subjects[position]) for position in self.positions(evaluation))

    def release(self, position: int) -> None:
        """Says that nothing of a position is to be evaluated any more."""
        subject = self._subjects[position]
        sha256, variant = subject.key
        variants = self._needed.get(sha256, {})
        variants.get(variant, set()).discard(position)
        if not variants.get(variant):
            variants.pop(variant, None)
        if not variants:
            self._needed.pop(sha256, None)
            self.release_unneeded(subject)

    def release_unneeded(self, subject: Subject) -> None:
        if subject.has_theta and subject.sha256 not in self._needed:
            self._intake.release(subject.sha256)


def todays(sightings: Mapping[int, Subject], history: History) -> Iterator[tuple[int, Subject, bool]]:
    """Yields the positions of a watched run's plan, and whether an earlier start was through with them.

    Of several things that lay at one place, and that earlier starts were through with, the last one counts. What was
    given by name, with bindings of its own or without theta, is no checkpoint of the run. A run below the watched
    folder may have a config of its own.
    """
    of_the_run = {
        position: one
        for position, one in sightings.items()
        if one.has_theta and (not one.variant.key or (one.run and not one.variant.bindings))
    }
    last = {subject.uri: position for position, subject in of_the_run.items()}
    for position, subject in of_the_run.items():
        is_done = is_through(position, history)
        if not is_done or last[subject.uri] == position:
            yield position, subject, is_done


def is_through(position: int, history: History) -> bool:
    """Says whether an earlier start has finished or skipped a position."""
    return position in history.finished or history.admissions.get(position) == "skipped"
