"""Results of a command's former code: once the present code has results of the same case, they define no scale."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from lobench.analysis.store.subjects import StoredSubject
from lobench.core.subject import Subject
from lobench.engine.store.codes import METHOD_CODE_EVENT, SHOWN_DIGITS

__all__ = ["without_former_code"]

# Folder of a command's checkpoints, or name of a script's curves; see `Method.folder_name`. What follows the code in a
# name is the hash of the import settings, and how far the curves go.
_RUN = re.compile(
    rf"(?:^imported:|/commands/)([^/]+)-([0-9a-f]{{8}})-([0-9a-f]{{{SHOWN_DIGITS}}})(?:(-[^/]*)$|/)",
)


def without_former_code(
    subjects: Sequence[StoredSubject], events: Iterable[tuple[str, Mapping[str, object]]]
) -> tuple[StoredSubject, ...]:
    """Returns subjects without the results that a command has of its former code, as `Codes.outdated_ids` defines them.

    A command with the same values is one piece of work. On each case, only results of the code that it was run with
    last count. If this code has no results, the latest code that has some counts.

    Args:
      subjects: Subjects of a store.
      events: Kind and detail of each event of the store, in order.
    """
    positions = {
        (detail["method"], str(detail["code"])[:SHOWN_DIGITS]): position
        for position, (kind, detail) in enumerate(events)
        if kind == METHOD_CODE_EVENT
    }
    if not positions:
        return tuple(subjects)
    works = [_work_of(subject.subject, positions) for subject in subjects]
    last_positions = dict[tuple[object, str], int]()
    for subject, (work, position) in zip(subjects, works, strict=True):
        for identity in subject.all_cells():
            last_positions[work, identity] = max(position, last_positions.get((work, identity), position))
    kept_subjects = []
    for subject, (work, position) in zip(subjects, works, strict=True):
        former_identities = {key for key in subject.all_cells() if last_positions[work, key] != position}
        if not former_identities:
            kept_subjects.append(subject)
        elif len(former_identities) < len(subject.all_cells()):
            kept_subjects.append(
                dataclasses.replace(
                    subject,
                    cells={key: cell for key, cell in subject.cells.items() if key not in former_identities},
                    former_cells={
                        key: cell for key, cell in subject.former_cells.items() if key not in former_identities
                    },
                )
            )
    return tuple(kept_subjects)


def _work_of(subject: Subject, positions: Mapping[tuple[object, str], int]) -> tuple[object, int]:
    """Returns what a subject is a result of, whatever the code, and the position of its code."""
    if match := _RUN.search(subject.uri):
        method, values, code, settings = match.groups()
        if (position := positions.get((method, code))) is not None:
            return (method, values, settings), position
    return subject, 0
