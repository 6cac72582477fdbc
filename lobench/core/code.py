"""Code fingerprints: the user's code behind an evaluation, and whether it has changed since.

An evaluation has two fingerprints: of the case (task, data, metrics and test function) and of the subject (optimizer).
`CaseInfo.code` joins them as `CASE:SUBJECT`. "" means that the code is unknown, as in older stores, or that no code of
the user ran. It matches any other code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lobench.core.wording import counted, shortened_list

__all__ = [
    "CodeFingerprint",
    "canonical_fingerprints",
    "changed_code_line",
    "changed_parts",
    "describe_codes",
    "is_same_code",
    "join_code",
    "other_code_line",
    "other_code_text",
    "split_code",
]

_HASH_DIGITS = 16  # hex digits
_MAX_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFingerprint:
    """The user's code behind a case or an optimizer.

    Attributes:
      parts: The sha256 of each file's syntax tree, by the file's path from the folder that it is imported from; and the
        version of each installed package, by its name.
      files: The sha256 of each file that was read, by its path: of the syntax tree or, if it is not Python, of its
        content.
      missing_files: Files that do not exist, but would have been read if they did.
      data_files: Files of data that the code names.
      folder_listings: Hash of the names of code files in each folder that is searched by a pattern, by the folder's
        path.
    """

    parts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    missing_files: frozenset[str] = frozenset()
    data_files: frozenset[str] = frozenset()
    folder_listings: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Hash of the parts, independent of this machine's paths; "" without parts."""
        if not self.parts:
            return ""
        text = "\0".join(f"{name}\0{value}" for name, value in sorted(self.parts.items()))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]

    def __or__(self, other: CodeFingerprint) -> CodeFingerprint:
        return CodeFingerprint(
            parts={**self.parts, **other.parts},
            files={**self.files, **other.files},
            missing_files=self.missing_files | other.missing_files,
            data_files=self.data_files | other.data_files,
            folder_listings={**self.folder_listings, **other.folder_listings},
        )


def join_code(case: str, subject: str) -> str:
    """Returns both fingerprints as one text; "" if neither is known.

    >>> join_code("1f", "2a"), join_code("", "2a"), join_code("", "")
    ('1f:2a', ':2a', '')
    """
    return f"{case}:{subject}" if case or subject else ""


def split_code(code: str) -> tuple[str, str]:
    """Splits the result of `join_code` into the fingerprints of case and subject."""
    case, _, subject = code.partition(":")
    return case, subject


def is_same_code(stored_code: str, current_code: str, accepted: Mapping[str, str] | None = None) -> bool:
    """Returns whether a result of the code `stored_code` counts as a result of the current code.

    Args:
      stored_code, current_code: Codes as returned by `join_code`. A part that is "" in either matches any code.
      accepted: Canonical fingerprint by fingerprint, for code that was declared equivalent (`--keep-results`).

    >>> is_same_code("1f:2a", "1f:2a"), is_same_code("", "1f:2a"), is_same_code("1f:2a", "1f:3b")
    (True, True, False)
    """
    if stored_code == current_code or not stored_code or not current_code:
        return True
    canonical_codes = accepted or {}
    code_pairs = zip(split_code(stored_code), split_code(current_code), strict=True)
    return all(
        not stored_part
        or not current_part
        or canonical_codes.get(stored_part, stored_part) == canonical_codes.get(current_part, current_part)
        for stored_part, current_part in code_pairs
    )


def changed_parts(old_parts: Mapping[str, str], new_parts: Mapping[str, str]) -> list[str]:
    """Returns the sorted names of files and packages that were changed, added or removed between two fingerprints."""
    return sorted(name for name in old_parts.keys() | new_parts.keys() if old_parts.get(name) != new_parts.get(name))


def changed_code_line(
    changes: Collection[tuple[str, str]],
    files_of_part: Callable[[str], Mapping[str, str] | None],
    *,
    is_kept: bool = False,
) -> str:
    """Returns a line on results of other code, such as "12 results were made by other code: signs.py".

    Args:
      changes: Code of each result, and the current code.
      files_of_part: Function that returns the parts of a fingerprint; None if they are unknown.
      is_kept: Whether the results are kept nevertheless.
    """
    names: dict[str, None] = {}
    for stored_code, current_code in sorted(set(changes)):
        for stored_part, current_part in zip(split_code(stored_code), split_code(current_code), strict=True):
            if not stored_part or not current_part or stored_part == current_part:
                continue
            stored_files = files_of_part(stored_part)
            current_files = files_of_part(current_part)
            if stored_files is not None and current_files is not None:
                names.update(dict.fromkeys(changed_parts(stored_files, current_files)))
    line = other_code_line(len(changes), list(names))
    return f"{line}; kept, by --keep-results" if is_kept else line


def other_code_line(num_results: int, names: Sequence[str]) -> str:
    """Returns a line on results of other code, with the names of the differing files that are known."""
    verb = "was" if num_results == 1 else "were"
    return f"{counted(num_results, 'result')} {verb} {other_code_text(names)}"


def other_code_text(names: Sequence[str]) -> str:
    """Returns "made by other code", with the names of the differing files that are known."""
    return "made by other code" + (f": {shortened_list(names, _MAX_NAMED)}" if names else "")


def describe_codes(rows: Iterable[tuple[str, str, str, str]]) -> str:
    """Returns a line that names the cases with results of several versions of the user's code; "" if there are none.

    Args:
      rows: One tuple per result: name of the case, its identity, the subject's identity, and the code.
    """
    codes_by_case: dict[tuple[str, str], set[str]] = {}
    codes_by_subject: dict[tuple[str, str], set[str]] = {}
    for name, identity, subject, code in rows:
        case_code, subject_code = split_code(code)
        if case_code:
            codes_by_case.setdefault((name, identity), set()).add(case_code)
        if subject_code:
            codes_by_subject.setdefault((name, subject), set()).add(subject_code)
    case_names = {
        name for groups in (codes_by_case, codes_by_subject) for (name, _), codes in groups.items() if len(codes) > 1
    }
    if not case_names:
        return ""
    names_text = shortened_list(sorted(case_names), _MAX_NAMED)
    return f"results of several versions of the user's code are side by side: {names_text}"


def canonical_fingerprints(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns a canonical fingerprint by fingerprint, given pairs of fingerprints that were declared equivalent."""
    groups: dict[str, str] = {}

    def canonical_code(code: str) -> str:
        while (next_code := groups.get(code, code)) != code:
            code = next_code
        return code

    for fingerprint, equivalent_code in pairs:
        groups[canonical_code(fingerprint)] = canonical_code(equivalent_code)
    return {code: canonical_code(code) for code in groups}
