"""Results of former code: once the present code has results of the same case, they define no scale."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from lobench.analysis.store.subjects import StoredSubject
from lobench.core.code import canonical_fingerprints, split_code
from lobench.core.subject import Subject
from lobench.engine.store.codes import CODE_EVENT, METHOD_CODE_EVENT, SAME_CODE_EVENT, SHOWN_DIGITS
from lobench.engine.store.current import CURRENT_PLAN_EVENT, PLAN_EVENT, PLANNED_EVENT
from lobench.engine.store.edited_code import is_package

__all__ = ["without_former_code"]

# Folder of a command's checkpoints, or name of a script's curves; see `Method.folder_name`. What follows the code in a
# name is the hash of the import settings, and how far the curves go.
_RUN = re.compile(
    rf"(?:^imported:|/commands/)([^/]+)-[0-9a-f]{{8}}-([0-9a-f]{{{SHOWN_DIGITS}}})(?:-[^/]*$|/)",
)


class _Version(NamedTuple):
    """Version of a part of the code, and the position of the event that planned it last."""

    position: int
    content: str


# Code of a result: fingerprints of the case and the optimizer, and the first digits of that of the command. "": none.
_Code: TypeAlias = tuple[str, str, str]
_Part: TypeAlias = tuple[str, str]  # kind and name: a file of the case or the optimizer, or a command


def without_former_code(
    subjects: Sequence[StoredSubject], events: Iterable[tuple[str, Mapping[str, Any]]]
) -> tuple[StoredSubject, ...]:
    """Returns subjects without their results of former code on cases on which the present code has results.

    The code of a result is former if one of its files, or of its command, has results of another version that was
    planned later. So results of a method that the experiment does not contain any more count until a file of its code
    is edited. Files are told by their names in fingerprints; versions of packages do not matter here.

    Args:
      subjects: Subjects of a store.
      events: Kind and detail of each event of the store, in order.
    """
    history = _CodeHistory(events)
    if not history.has_edits:
        return tuple(subjects)
    codes_of_subjects = [_codes_of(subject, history.command_of(subject.subject)) for subject in subjects]
    codes_by_case = dict[str, set[_Code]]()
    for subject, codes in zip(subjects, codes_of_subjects, strict=True):
        for identity, cell in subject.all_cells().items():
            if cell.num_seeds:
                codes_by_case.setdefault(identity, set()).add(codes[identity])
    former_codes = {identity: history.former_codes(codes) for identity, codes in codes_by_case.items()}
    kept_subjects = []
    for subject, codes in zip(subjects, codes_of_subjects, strict=True):
        former_identities = {identity for identity, code in codes.items() if code in former_codes.get(identity, ())}
        if not former_identities:
            kept_subjects.append(subject)
        elif len(former_identities) < len(codes):
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


def _codes_of(subject: StoredSubject, command: str) -> dict[str, _Code]:
    """Returns the code of a subject's results, by case. Imported curves have that of their command alone."""
    cells = subject.all_cells()
    if subject.subject.is_imported:
        return dict.fromkeys(cells, ("", "", command))
    cases = {identity: cell.case for identity, cell in cells.items()}
    return {identity: (case.case_code, case.subject_code, command) for identity, case in cases.items()}


class _CodeHistory:
    """Codes of a store, in the order in which they were planned last.

    Args:
      events: Kind and detail of each event of the store, in order.
    """

    def __init__(self, events: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        self._files: dict[str, dict[str, str]] = {}  # by fingerprint
        self._positions: dict[str, int] = {}  # by fingerprint
        self._commands: dict[str, dict[str, int]] = {}  # positions by method, by the first digits of the fingerprint
        fingerprints_of_plans: dict[str, set[str]] = {}
        equal_fingerprints = []
        for position, (kind, detail) in enumerate(events):
            if kind == CODE_EVENT:
                parts = detail["parts"]
                self._files[detail["id"]] = {name: value for name, value in parts.items() if not is_package(name)}
                self._positions[detail["id"]] = position
            elif kind == PLAN_EVENT:
                codes = {case.get("code", "") for case in detail["cases"]}
                fingerprints_of_plans[detail["plan"]] = {part_id for code in codes for part_id in split_code(code)}
            elif kind in (CURRENT_PLAN_EVENT, PLANNED_EVENT):
                self._positions.update(dict.fromkeys(fingerprints_of_plans.get(detail["plan"], ()), position))
            elif kind == METHOD_CODE_EVENT:
                self._commands.setdefault(str(detail["code"])[:SHOWN_DIGITS], {})[str(detail["method"])] = position
            elif kind == SAME_CODE_EVENT:
                equal_fingerprints.append((detail["code"], detail["other"]))
        self._canonical = canonical_fingerprints(equal_fingerprints)

    @property
    def has_edits(self) -> bool:
        """Whether a file or a command has several versions."""
        versions = {version for files in self._files.values() for version in files.items()}
        methods = [method for positions in self._commands.values() for method in positions]
        return len({name for name, _ in versions}) < len(versions) or len(set(methods)) < len(methods)

    def command_of(self, subject: Subject) -> str:
        """Returns the first digits of the fingerprint of the command that a subject is a result of; "" if of none."""
        match = _RUN.search(subject.uri)
        return match[2] if match and match[1] in self._commands.get(match[2], ()) else ""

    def former_codes(self, codes: Iterable[_Code]) -> set[_Code]:
        """Returns those of the codes, which have results of one case, that are former."""
        versions_by_code = {code: self._versions_of(code) for code in codes}
        last_versions = dict[_Part, _Version]()
        for versions in versions_by_code.values():
            for part, version in versions.items():
                last_versions[part] = max(version, last_versions.get(part, version))
        return {
            code
            for code, versions in versions_by_code.items()
            if any(version.content != last_versions[part].content for part, version in versions.items())
        }

    def _versions_of(self, code: _Code) -> dict[_Part, _Version]:
        case_id, subject_id, command = code
        # Another method may be run by the same script, so an edit shows in the code of either.
        versions = {
            ("command", method): _Version(position, command)
            for method, position in self._commands.get(command, {}).items()
        }
        for kind, fingerprint in (("case", case_id), ("subject", subject_id)):
            current_id = self._canonical.get(fingerprint, fingerprint)
            position = max(self._positions.get(part_id, -1) for part_id in (fingerprint, current_id))
            for name, sha256 in self._files.get(current_id, self._files.get(fingerprint, {})).items():
                versions[kind, name] = _Version(position, sha256)
        return versions
