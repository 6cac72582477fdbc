"""Checks of the cases of results against the suite's files, field by field."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import PurePosixPath

from lobench.core.case import CaseInfo
from lobench.core.code import split_code
from lobench.core.wording import shortened_list
from lobench.engine.config.bound import BoundCase
from lobench.engine.config.reached_files import is_named_code
from lobench.engine.config.user_code import tree_sha256
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.plans import PlannedSubject
from lobench.tools.audit.findings import AuditFinding, Contradiction, Unaudited

__all__ = [
    "FORMER_CODE",
    "case_findings",
    "code_findings",
    "codes_without_files",
    "edited_former_codes",
    "files_of_codes",
    "is_item_of_experiment",
    "planned_case_findings",
]

# Seeds may be set outside of the suite's files; the plan has the seeds of a case.
_SEED_FIELDS = ("first_seed", "block_sizes", "num_seeds")
_TEST_FIELDS = ("name", "node_id", "case_code", "places")
# Older versions did not write these fields, which are "" then.
_LATER_FIELDS = ("problem", "program_hash", "file", "own_name", "task_code", "subject_code", "case_code")
# `--gin-param` may bind `scale` and `minimum`, and the bindings of a result do not show it. The hash of a program
# depends on bindings of all cases and methods, and another case or method may have been edited since.
_UNRECORDED_FIELDS = ("scale", "minimum", "program_hash")
_IS_SHA256 = re.compile("[0-9a-f]{64}")
FORMER_CODE = "results of former cases, in no table, whose code was edited later"


def case_findings(
    row: EvaluationRow,
    bound: BoundCase,
    file_names: Sequence[str],
    missing_code: Set[str] = frozenset(),
) -> Iterator[AuditFinding]:
    """Yields the fields of a result's case that differ from the suite's files.

    Args:
      row: The result.
      bound: The case, bound from the files of the bundle.
      file_names: Names of the suites' files in the bundle.
      missing_code: Code of which the bundle lacks a file; see `codes_without_files`.
    """
    claimed_case, our_case = row.case, bound.info
    for field in dataclasses.fields(CaseInfo):
        name = field.name
        claimed_value = getattr(claimed_case, field.name)
        our_value = getattr(our_case, field.name)
        if name in (*_SEED_FIELDS, *_TEST_FIELDS) or claimed_value == our_value:
            continue
        if name in _LATER_FIELDS and claimed_value == "":
            yield Unaudited(f"a field of cases that an older lobench did not write ({name})")
        elif name in ("task_code", "subject_code") and _has_packages(bound, name):
            yield Unaudited("versions of packages that cases or optimizers import")
        elif name == "subject_code" and claimed_value in missing_code:
            continue  # `code_findings` names the files
        elif name == "task_code" and missing_code & {claimed_value, claimed_case.case_code}:
            continue  # it is part of the case's code
        elif name in _UNRECORDED_FIELDS:
            yield Unaudited(
                f"{name} of {claimed_case.suite}/{claimed_case.name}: {claimed_value!r}, and its files say "
                f"{our_value!r}"
            )
        else:
            yield Contradiction("case", f"{row.where}: {name} is {claimed_value!r}, and its files give {our_value!r}")
    yield from _seed_count_findings(row, our_case)
    yield from _name_findings(row, our_case, file_names)


def _has_packages(bound_case: BoundCase, name: str) -> bool:
    code = bound_case.code.case if name == "task_code" else bound_case.code.subject
    return not all(map(_is_file_digest, code.parts.values()))


def _seed_count_findings(row: EvaluationRow, our_case: CaseInfo) -> Iterator[AuditFinding]:
    claimed_case = row.case
    expected_num_seeds = sum(claimed_case.block_sizes) if claimed_case.block_sizes else our_case.num_seeds
    if claimed_case.num_seeds != expected_num_seeds:
        yield Contradiction(
            "case", f"{row.where}: num_seeds is {claimed_case.num_seeds}, and its blocks have {expected_num_seeds}"
        )


def _name_findings(row: EvaluationRow, our_case: CaseInfo, file_names: Sequence[str]) -> Iterator[AuditFinding]:
    claimed_case = row.case
    file, _, item = claimed_case.node_id.partition("::")
    stem = PurePosixPath(file).stem
    if claimed_case.name not in (
        our_case.name,
        f"{our_case.file}.{our_case.name}",
        f"{stem}.{our_case.name}",
        f"{stem}.{item}",
    ):
        yield Contradiction(
            "case", f"{row.where}: it is called {claimed_case.name!r}, and its files call it {our_case.name!r}"
        )
    if is_item_of_experiment(claimed_case):
        # `pytest experiment.gin` calls it mini/bowl[adam-3], and mini/bowl.test_bowl[adam-3] if it has several tests.
        test_name = item.rpartition("[")[0]
        case_names = (claimed_case.name, our_case.name)
        if not any(
            test_name == name or test_name.startswith(f"{name}.")
            for name in (f"{claimed_case.suite}/{case_name}" for case_name in case_names)
        ):
            yield Contradiction("case", f"{row.where}: its test is called {item!r}, and the case {our_case.own_name!r}")
        return
    file_parts = PurePosixPath(file).parts
    member_parts = [PurePosixPath(*PurePosixPath(member).parts[2:]).parts for member in file_names]
    if not any(
        file_parts[-len(path_parts) :] == path_parts or path_parts[-len(file_parts) :] == file_parts
        for path_parts in member_parts
    ):
        yield Contradiction("case", f"{row.where}: its test is in {file!r}, and the bundle has no such file")
    parameter = item.partition("[")[2].removesuffix("]")
    names = (our_case.own_name, f"{our_case.file}.{our_case.own_name}", claimed_case.name)
    is_named = any(
        parameter == name or parameter.startswith(f"{name}-") or parameter.endswith(f"-{name}") for name in names
    )
    if parameter and not is_named:
        yield Contradiction("case", f"{row.where}: its test is called {item!r}, and the case {our_case.own_name!r}")
    if file.endswith(".gin") and item != our_case.own_name:
        yield Contradiction("case", f"{row.where}: its test is called {item!r}, and the case {our_case.own_name!r}")


def is_item_of_experiment(case: CaseInfo) -> bool:
    """Returns whether a case was evaluated by `pytest experiment.gin`, whose items have no name of a test."""
    file, _, item = case.node_id.partition("::")
    return file.endswith(".gin") and item.startswith(f"{case.suite}/") and item.endswith("]")


def planned_case_findings(
    planned_subjects: Sequence[PlannedSubject],
    rows: Sequence[EvaluationRow],
    codes_of_results: Mapping[tuple[str, str], Collection[str]],
) -> Iterator[AuditFinding]:
    """Yields contradictions between plans and results: another case name, code or seed blocks.

    Args:
      planned_subjects: Planned subjects, in order of their last plans.
      rows: Results of today's code.
      codes_of_results: Code of all results, also of code that was edited later, by identity and optimizer of the case.
    """
    names_of_results: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        key = (row.case.identity, row.case.optimizer_hash)
        names_of_results.setdefault(key, set()).add(f"{row.case.suite}/{row.case.name}")
    last_codes = {
        (case.identity, case.optimizer_hash): case.code
        for planned_subject in planned_subjects
        for case in planned_subject.cases
    }
    planned_codes: dict[tuple[str, str], set[str]] = {}
    blocks: dict[tuple[str, str], set[tuple[object, ...]]] = {}
    for planned_subject in planned_subjects:
        for case in planned_subject.cases:
            key = (case.identity, case.optimizer_hash)
            planned_codes.setdefault(key, set()).add(case.code)
            blocks.setdefault(key, set()).add(case.blocks)
            if key in names_of_results and case.name not in names_of_results[key]:
                yield Contradiction(
                    "plan", f"{case.name} was planned, and its results call it {min(names_of_results[key])}"
                )
            if (
                case.code
                and key in codes_of_results
                and not any(code in ("", case.code) for code in codes_of_results[key])
            ):
                message = f"{case.name} was planned with code that no result was made by"
                # Code may be edited before it gave a result.
                yield (
                    Contradiction("plan", message)
                    if last_codes[key] == case.code
                    else Unaudited(f"whether a file was edited after the evaluations were planned: {message}")
                )
    for row in rows:
        key = (row.case.identity, row.case.optimizer_hash)
        if key not in planned_codes:
            continue
        if row.case.code and not any(code in ("", row.case.code) for code in planned_codes[key]):
            yield Contradiction("plan", f"{row.where}: made by other code than was planned")
        if tuple(row.case.blocks()) not in blocks[key]:
            yield Contradiction("plan", f"{row.where}: its case has other seed blocks than were planned")


def codes_without_files(ledger: Ledger, rows: Sequence[EvaluationRow], file_names: Iterable[str]) -> set[str]:
    """Returns the code fingerprints that cannot be recomputed, because the bundle lacks one of their files.

    Args:
      ledger: Ledger of the bundle.
      rows: Results.
      file_names: Names of the suites' files in the bundle.
    """
    paths = [_absolute_path(member) for member in file_names]
    return {
        code
        for code in {code for row in rows for code in split_code(row.key.code)}
        for name, digest in (ledger.code_parts(code) or {}).items()
        if _is_file_digest(digest) and not any(is_named_code(path, [name]) for path in paths)
    }


def code_findings(
    ledger: Ledger, rows: Sequence[EvaluationRow], contents_by_name: Mapping[str, bytes]
) -> Iterator[AuditFinding]:
    """Yields contradictions in the code of results: unknown to the ledger, or different from the bundle's files.

    Code of which only results in no table are may have been edited later.
    """
    rows_by_code = {code: row for row in reversed(rows) for code in split_code(row.key.code) if code}
    former_codes = _former_codes(ledger, rows)
    for code, row in rows_by_code.items():
        digests_by_name = ledger.code_parts(code)
        if digests_by_name is None:
            yield Contradiction(
                "code", f"{row.where}: made by code {code}, of which the ledger does not know the files"
            )
            continue
        if not all(map(_is_file_digest, digests_by_name.values())):
            yield Unaudited("versions of packages that cases or optimizers import", is_usual=True)
        missing_names, edited_names = _missing_and_edited(digests_by_name, contents_by_name)
        if edited_names and code in former_codes:
            yield Unaudited(f"{FORMER_CODE}: {shortened_list(edited_names, 3)}")
        else:
            for name in edited_names:
                yield Contradiction("code", f"{row.where}: made by another {name} than the bundle has")
        if missing_names:
            yield Unaudited(f"code that the bundle does not have: {shortened_list(missing_names, 3)}")


def edited_former_codes(
    ledger: Ledger, rows: Sequence[EvaluationRow], contents_by_name: Mapping[str, bytes]
) -> set[str]:
    """Returns the code fingerprints that only results in no table have, and of which the bundle has another file."""
    return {
        code
        for code in _former_codes(ledger, rows)
        if _missing_and_edited(ledger.code_parts(code) or {}, contents_by_name)[1]
    }


def _former_codes(ledger: Ledger, rows: Sequence[EvaluationRow]) -> set[str]:
    """Returns the code fingerprints that only results of former forms of cases have."""
    codes: dict[bool, set[str]] = {True: {""}, False: set()}
    for row, is_current in zip(rows, ledger.current_cases(rows).are_current(rows), strict=True):
        codes[is_current].update(split_code(row.key.code))
    return codes[False] - codes[True]


def _missing_and_edited(
    digests_by_name: Mapping[str, str], contents_by_name: Mapping[str, bytes]
) -> tuple[list[str], list[str]]:
    """Returns the files of a code fingerprint that the bundle lacks, and those that it has with another content."""
    missing_names, edited_names = list[str](), list[str]()
    for name, digest in sorted(digests_by_name.items()):
        if not _is_file_digest(digest):
            continue
        digests = [
            _digest_of(member, content)
            for member, content in contents_by_name.items()
            if _is_file_of_code(member, name)
        ]
        if not digests:
            missing_names.append(name)
        elif digest not in digests:
            edited_names.append(name)
    return missing_names, edited_names


def files_of_codes(ledger: Ledger, codes: Iterable[str], contents_by_name: Mapping[str, bytes]) -> set[str]:
    """Returns the files of a bundle whose content is part of one of these code fingerprints."""
    digests_by_name: dict[str, set[str]] = {}
    for code in codes:
        for name, digest in (ledger.code_parts(code) or {}).items():
            digests_by_name.setdefault(name, set()).add(digest)
    return {
        member
        for member, content in contents_by_name.items()
        if any(
            _is_file_of_code(member, name) and _digest_of(member, content) in digests
            for name, digests in digests_by_name.items()
        )
    }


def _is_file_digest(fingerprint_part: str) -> bool:
    """Returns whether a part of a fingerprint is the hash of a file, and not the version of a package."""
    return _IS_SHA256.fullmatch(fingerprint_part) is not None


def _is_file_of_code(member: str, name: str) -> bool:
    return is_named_code(_absolute_path(member), [name])


def _digest_of(name: str, content: bytes) -> str:
    return tree_sha256(content) if name.endswith(".py") else hashlib.sha256(content).hexdigest()


def _absolute_path(member: str) -> PurePosixPath:
    return PurePosixPath("/") / member
