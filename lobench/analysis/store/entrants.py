"""Entrants of a race: methods with all their stored evaluations on the current cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lobench.core.case import CaseInfo
from lobench.core.experiment import Race
from lobench.core.subject import Subject
from lobench.engine.store.ledger import EvaluationRow, Ledger

__all__ = ["Entrant", "StoredRace", "entrants_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A method in a race.

    Attributes:
      subject: Subject of the method.
      label: Name of the method in tables.
      rows: All its evaluations on `cases`, in order of precedence: the last one of a seed counts.
      cases: Current cases of its store, with the first seed of the race.
    """

    subject: Subject
    label: str
    rows: tuple[EvaluationRow, ...]
    cases: tuple[CaseInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRace:
    """Race between an experiment's methods, in the order of its file."""

    rules: Race
    entrants: tuple[Entrant, ...]


def entrants_of(
    ledger: Ledger, subjects_and_labels: Iterable[tuple[Subject, str]], first_seed: int | None = None
) -> tuple[Entrant, ...]:
    """Returns methods as entrants of a race.

    Args:
      ledger: Ledger of the store.
      subjects_and_labels: Subjects of the methods, with their labels.
      first_seed: First seed of the race. None: that of each case.
    """
    subjects_and_labels = list(subjects_and_labels)
    descriptions = {
        subject.variant.key: ledger.recorded_description(subject.variant.key) for subject, _ in subjects_and_labels
    }
    codes = {
        case.key: case.code
        for description in descriptions.values()
        if description is not None
        for case in description.cases
    }
    rows: Sequence[EvaluationRow] = list(ledger.evaluations(codes=codes))
    current = ledger.current_cases(rows)
    entrants = []
    for subject, label in subjects_and_labels:
        description = descriptions[subject.variant.key]
        rows_of_subject = [row for row in rows if row.key.checkpoint_sha256 == subject.sha256]
        cases = current.cases_of(
            subject.variant.key, description.cases if description is not None else (), rows_of_subject
        )
        keys = {case.key for case in cases}
        rows_of_subject = current.by_precedence(subject, [row for row in rows_of_subject if row.case.key in keys])
        if first_seed is not None:
            cases = tuple(replace(case, first_seed=first_seed) for case in cases)
        entrants.append(
            Entrant(
                subject=subject,
                label=label,
                rows=tuple(replace(row, recorded_sightings=(subject,)) for row in rows_of_subject),
                cases=cases,
            )
        )
    return tuple(entrants)
