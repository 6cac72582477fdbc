"""Results of former code: once the present code has results of the same case, they define no scale."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence, Set
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


class _Code(NamedTuple):
    """Code of a result.

    Attributes:
      case, subject: Fingerprints of the case and the optimizer; "" if there is none.
      method: Method that is a command; "" if no command made the result.
      command: First digits of the fingerprint of the method's script.
    """

    case: str = ""
    subject: str = ""
    method: str = ""
    command: str = ""


# Version of a file or a command: kind, name, content.
_Version: TypeAlias = tuple[str, str, str]


def without_former_code(
    subjects: Sequence[StoredSubject], events: Iterable[tuple[str, Mapping[str, Any]]]
) -> tuple[StoredSubject, ...]:
    """Returns subjects without their results of former code on cases on which the present code has results.

    The code of a result is former if one of its files, or its command, has results of another version that was planned
    later. So results of a method that the experiment does not contain any more count until a file of its code is
    edited. Files are told by their names in fingerprints. If one start planned several files of a name, as in two
    folders, they are not versions of each other. Versions of packages do not matter here.

    Args:
      subjects: Subjects of a store.
      events: Kind and detail of each event of the store, in order.
    """
    history = _CodeHistory(events)
    if not history.has_edits:
        return tuple(subjects)
    codes_of_subjects = [_codes_of(subject, history.command_code_of(subject.subject)) for subject in subjects]
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


def _codes_of(subject: StoredSubject, command_code: _Code) -> dict[str, _Code]:
    """Returns the code of a subject's results, by case. Imported curves have that of their command alone."""
    cells = subject.all_cells()
    if subject.subject.is_imported:
        return dict.fromkeys(cells, command_code)
    cases = {identity: cell.case for identity, cell in cells.items()}
    return {
        identity: command_code._replace(case=case.case_code, subject=case.subject_code)
        for identity, case in cases.items()
    }


class _CodeHistory:
    """Codes of a store, in the order in which they were planned last.

    Args:
      events: Kind and detail of each event of the store, in order.
    """

    def __init__(self, events: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        self._files: dict[str, dict[str, str]] = {}  # by fingerprint
        # By fingerprint: positions of the event that recorded it, and of the starts that planned it.
        self._positions: dict[str, set[int]] = {}
        self._commands: dict[str, dict[str, int]] = {}  # positions by method, by the first digits of the fingerprint
        self._fingerprints_of_commands: dict[str, str] = {}  # by their first digits
        start, start_position = "", -1
        fingerprints_of_plans: dict[str, set[str]] = {}
        equal_fingerprints = []
        for position, (kind, detail) in enumerate(events):
            if kind == CODE_EVENT:
                parts = detail["parts"]
                self._files[detail["id"]] = {name: value for name, value in parts.items() if not is_package(name)}
                self._positions.setdefault(detail["id"], set()).add(position)
            elif kind == PLAN_EVENT:
                codes = {case.get("code", "") for case in detail["cases"]}
                fingerprints_of_plans[detail["plan"]] = {part_id for code in codes for part_id in split_code(code)}
            elif kind in (CURRENT_PLAN_EVENT, PLANNED_EVENT):
                if detail.get("start", start) != start:
                    start, start_position = detail["start"], position
                for part_id in fingerprints_of_plans.get(detail["plan"], ()):
                    self._positions.setdefault(part_id, set()).add(start_position if start else position)
            elif kind == METHOD_CODE_EVENT:
                fingerprint = str(detail["code"])
                self._fingerprints_of_commands[fingerprint[:SHOWN_DIGITS]] = fingerprint
                self._commands.setdefault(fingerprint[:SHOWN_DIGITS], {})[str(detail["method"])] = position
            elif kind == SAME_CODE_EVENT:
                equal_fingerprints.append((detail["code"], detail["other"]))
        self._canonical = canonical_fingerprints(equal_fingerprints)

    @property
    def has_edits(self) -> bool:
        """Whether a file or a command has several versions."""
        versions = {version for files in self._files.values() for version in files.items()}
        methods = [method for positions in self._commands.values() for method in positions]
        return len({name for name, _ in versions}) < len(versions) or len(set(methods)) < len(methods)

    def command_code_of(self, subject: Subject) -> _Code:
        """Returns the command that a subject is a result of, and its code; an empty code if it is of none."""
        match = _RUN.search(subject.uri)
        is_known = match is not None and match[1] in self._commands.get(match[2], ())
        return _Code(method=match[1], command=match[2]) if match is not None and is_known else _Code()

    def former_codes(self, codes: Iterable[_Code]) -> set[_Code]:
        """Returns those of the codes, which have results of one case, that are former."""
        positions_by_code = {code: self._positions_of(code) for code in codes}
        positions_by_part = dict[tuple[str, str], dict[str, set[int]]]()  # then by content
        for positions_by_version in positions_by_code.values():
            for (kind, name, content), positions in positions_by_version.items():
                positions_by_content = positions_by_part.setdefault((kind, name), {})
                positions_by_content.setdefault(content, set()).update(positions)
        former_versions = {
            (kind, name, content)
            for (kind, name), positions_by_content in positions_by_part.items()
            for content in _former_contents(positions_by_content)
        }
        return {
            code
            for code, positions_by_version in positions_by_code.items()
            if not former_versions.isdisjoint(positions_by_version)
        }

    def _positions_of(self, code: _Code) -> dict[_Version, set[int]]:
        """Returns the versions of a code's files and of its command, with the positions at which they were planned."""
        positions = dict[_Version, set[int]]()
        command_files = self._files.get(self._fingerprints_of_commands.get(code.command, ""), {})
        for method, position in self._commands.get(code.command, {}).items():
            # Edits show in the code of each method that the script runs. Another script of such a method is no edit.
            for name, sha256 in (command_files or {"": code.command}).items():
                positions[f"file of {method}", name, sha256] = {position}
            if method == code.method:
                positions["command", method, code.command] = {position}
        for kind, fingerprint in (("case", code.case), ("subject", code.subject)):
            current_id = self._canonical.get(fingerprint, fingerprint)
            positions_of_id = self._positions.get(fingerprint, set()) | self._positions.get(current_id, set())
            for name, sha256 in self._files.get(current_id, self._files.get(fingerprint, {})).items():
                positions[kind, name, sha256] = positions_of_id
        return positions


def _former_contents(positions_by_content: Mapping[str, Set[int]]) -> list[str]:
    """Returns those contents of a file that another content replaced later, and never accompanied."""
    latest_first = sorted(positions_by_content.values(), key=_last, reverse=True)
    return [
        content
        for content, positions in positions_by_content.items()
        if any(_last(others) > _last(positions) and positions.isdisjoint(others) for others in latest_first)
    ]


def _last(positions: Set[int]) -> int:
    return max(positions, default=-1)
