"""Subjects of a chief by position, the cases of their variants, and the thetas still in use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from lobench.core.case import CaseInfo
from lobench.core.planner import EvaluationId, History
from lobench.core.subject import RequestedSubject, Subject, SubjectKey, Variant
from lobench.engine.checkpoints.intake import Intake
from lobench.engine.chief.interfaces import Arrivals
from lobench.engine.store.series import has_step_in_name

__all__ = ["SubjectRecorder", "Subjects", "planned_sightings"]


class SubjectRecorder:
    """Records subjects that are named, or that arrive during a run, in the ledger.

    Args:
      intake: Reads checkpoints and records sightings.
      given_variants: Subjects named by the user.
      arrivals: Source of subjects that arrive while the chief runs.

    Attributes:
      given_variants: Variants of the named subjects.
    """

    def __init__(self, intake: Intake, given: Sequence[RequestedSubject], arrivals: Arrivals) -> None:
        self._intake = intake
        self._given = given
        self._arrivals = arrivals
        self.given_variants = frozenset(request.variant for request in given)

    def record_given(self, log: Callable[[str], None]) -> dict[int, Subject]:
        """Returns the subjects at the start, by position. Logs subjects that are given twice."""
        subjects_by_position: dict[int, Subject] = {}
        first_subjects: dict[SubjectKey, Subject] = {}
        for position, subject in filter(None, map(self._intake.admit_given, self._given)):
            if (first_subject := first_subjects.setdefault(subject.key, subject)) is not subject:
                log(f"{first_subject.label!r} and {subject.label!r} are the same subject: it is computed once")
            subjects_by_position.setdefault(position, subject)
        for position, subject in self.record_new():
            subjects_by_position.setdefault(position, subject)
        return subjects_by_position

    def record_new(self) -> list[tuple[int, Subject]]:
        """Returns the subjects that arrived since the last call, with their positions. Duplicates are not logged."""
        sightings = [(request, self._intake.admit_given(request)) for request in self._arrivals.new_subjects()]
        for request, sighting in sightings:
            self._arrivals.subject_read(request, sighting[1] if sighting is not None else None)
        return [sighting for _, sighting in sightings if sighting is not None]


class Subjects:
    """Subjects known to a chief. Positions are those of the ledger; a subject may have several."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._subjects: dict[int, Subject] = {}
        self._needed_positions: dict[str, dict[str, set[int]]] = {}  # by theta or text, then by variant
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

    def run_and_numbering(self, position: int) -> tuple[str, bool]:
        """Returns the run for which an admission policy is asked, and whether checkpoints have numbers in their names.

        The run is "" if there is only one, or if the subject is not a checkpoint. Files without a number (`latest.npz`)
        are treated apart, because they may be older or newer than the numbered ones.
        """
        subject = self._subjects[position]
        return subject.run, subject.has_theta and has_step_in_name(subject.uri)

    @property
    def needed_hashes(self) -> Collection[str]:
        """Hashes of the thetas that the spool must keep."""
        return self._needed_positions.keys()

    def hashes(self) -> set[str]:
        return {subject.sha256 for subject in self._subjects.values()}

    def add(self, position: int, subject: Subject, *, is_needed: bool = True) -> None:
        self._subjects[position] = subject
        if is_needed:
            self.mark_needed(position)

    def mark_needed(self, position: int) -> None:
        """Marks a position as needed: it has evaluations to compute."""
        sha256, variant = self._subjects[position].key
        self._needed_positions.setdefault(sha256, {}).setdefault(variant, set()).add(position)

    def register_cases(self, variant: str, cases: Sequence[CaseInfo]) -> None:
        self._cases[variant] = {case.key: case for case in cases}

    def variants(self) -> list[Variant]:
        """Returns the variants of all subjects, without duplicates."""
        return list(dict.fromkeys(subject.variant for subject in self._subjects.values()))

    def with_variant(self, variant: str) -> list[Subject]:
        """Returns the subjects with a variant."""
        return [subject for subject in self._subjects.values() if subject.variant.key == variant]

    def cases(self, variant: str) -> Collection[str]:
        """Returns the keys of a variant's cases; empty if unknown."""
        return self._cases.get(variant, {}).keys()

    def codes(self) -> dict[str, str]:
        """Returns the current code of each case (`CaseInfo.code`), by `CaseInfo.key`."""
        return {key: case.code for cases in self._cases.values() for key, case in cases.items()}

    def all(self) -> tuple[Subject, ...]:
        return tuple(self._subjects.values())

    def known_cases(self, variant: str) -> Mapping[str, CaseInfo]:
        """Returns a variant's cases by key. The mapping is replaced, not modified, when they change."""
        return self._cases.get(variant, {})

    def cases_by_variant(self) -> dict[str, tuple[CaseInfo, ...]]:
        return {variant: tuple(cases.values()) for variant, cases in self._cases.items()}

    def case_keys(self) -> set[str]:
        return {key for cases in self._cases.values() for key in cases}

    def case(self, case_key: str) -> CaseInfo:
        return next(cases[case_key] for cases in self._cases.values() if case_key in cases)

    def positions_needing(self, evaluation: EvaluationId) -> list[int]:
        """Returns the positions that need an evaluation, in order."""
        needed_positions: list[int] = []
        for variant, positions in self._needed_positions.get(evaluation.sha256, {}).items():
            if evaluation.case_key in self._cases.get(variant, ()):
                needed_positions += positions
        return sorted(needed_positions)

    def first_sighting(self, evaluation: EvaluationId) -> Subject:
        """Returns the first sighting that needs an evaluation. At least one must."""
        return self._subjects[self.positions_needing(evaluation)[0]]

    def ensure_theta(self, evaluation: EvaluationId) -> bool:
        """Returns whether the spool has a theta, after trying to copy it again if the spool lost it."""
        return any(
            self._intake.fetch_theta(self._subjects[position]) for position in self.positions_needing(evaluation)
        )

    def mark_unneeded(self, position: int) -> None:
        """Marks a position as no longer needed."""
        subject = self._subjects[position]
        sha256, variant = subject.key
        variants = self._needed_positions.get(sha256, {})
        variants.get(variant, set()).discard(position)
        if not variants.get(variant):
            variants.pop(variant, None)
        if not variants:
            self._needed_positions.pop(sha256, None)
            self.release_unneeded(subject)

    def release_unneeded(self, subject: Subject) -> None:
        if subject.has_theta and subject.sha256 not in self._needed_positions:
            self._intake.release_theta(subject.sha256)


def planned_sightings(sightings: Mapping[int, Subject], history: History) -> Iterator[tuple[int, Subject, bool]]:
    """Yields the planned positions of a watched run, with their subjects and whether they were finished before.

    If several subjects at one path are finished or skipped, only the last one is yielded. Subjects without theta,
    subjects given by name, and subjects with additional bindings are not checkpoints of the run. Runs below the watched
    folder may have their own config.
    """
    sightings_of_run = {
        position: sighting
        for position, sighting in sightings.items()
        if sighting.has_theta and (not sighting.variant.key or (sighting.run and not sighting.variant.bindings))
    }
    last_positions = {subject.uri: position for position, subject in sightings_of_run.items()}
    for position, subject in sightings_of_run.items():
        is_done = was_finished(position, history)
        if not is_done or last_positions[subject.uri] == position:
            yield position, subject, is_done


def was_finished(position: int, history: History) -> bool:
    """Returns whether an earlier run finished or skipped a position."""
    return position in history.finished or history.admissions.get(position) == "skipped"
