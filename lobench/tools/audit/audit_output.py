"""Text output and record of an audit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from lobench.analysis.stats.rounding import NUM_PERTURBED
from lobench.core.json_numbers import record_from
from lobench.core.wording import counted, one_line, shortened_list
from lobench.report.tables.text import escape_controls
from lobench.tools.audit.audit import Audit, AuditedEvaluation
from lobench.tools.audit.draw import Escape
from lobench.tools.audit.findings import UNUSED_FILES, Contradiction

__all__ = ["AuditRecord", "CheckedRecord", "audit_record", "audit_text"]

_SAME_CLAIMS = (  # claims that differ only in `names`
    re.compile(r"(?P<before>whether )(?P<names>.+)(?P<after> was the same when the evaluations were planned)"),
    re.compile(rf"(?P<before>{UNUSED_FILES}: )(?P<names>.+)(?P<after>)"),
    re.compile(r"(?P<before>the case )(?P<names>.+?): (?P=names) of checkpoint \w+(?P<after>: .+)"),
)
_MOST_FILES = 4
_MOST_SHOWN = 20


class CheckedRecord(TypedDict):
    """Repeated evaluation, and its verdict."""

    subject: str
    case: str
    first_seed: int
    num_seeds: int
    verdict: Literal["identical", "consistent", "differs", "not auditable"]
    why: str


class AuditRecord(TypedDict):
    """`lobench audit`: contradictions in a bundle, and evaluations with other results when repeated.

    Its fields are the keys of the JSON document.
    """

    bundle: str
    root: str
    beacon: str
    signed_by: str
    passed: bool
    num_evaluations: int
    contradictions: list[Contradiction]
    checked: list[CheckedRecord]
    level: float
    p_value: float | None
    escapes: list[Escape]
    not_auditable: Annotated[list[str], "Content of the bundle that no audit can check."]
    stated: Annotated[list[str], "Claims that no bundle can prove, such as times."]
    notes: list[str]


def audit_record(audited: Audit) -> AuditRecord:
    """Returns the record for `--format json`."""
    checked_records = []
    for audited_case in audited.evaluations:
        block = audited_case.row.key.seed_block
        case = audited_case.row.case
        checked_records.append(
            record_from(
                CheckedRecord,
                audited_case,
                subject=audited_case.row.sightings[0].label,
                case=f"{case.suite}/{case.name}",
                first_seed=block.start,
                num_seeds=block.size,
            )
        )
    p_value = audited.rounding_test.p_value if audited.rounding_test is not None else None
    return record_from(
        AuditRecord,
        audited,
        bundle=str(audited.bundle),
        passed=audited.is_passed,
        checked=checked_records,
        level=1 / (NUM_PERTURBED + 1),
        p_value=p_value,
    )


def audit_text(audited: Audit) -> str:
    """Returns the lines of the text output, the verdict first."""
    counts = audited.verdict_counts
    num_checked = len(audited.evaluations)
    signer_text = f" by {one_line(audited.signed_by)}" if audited.signed_by else ""
    num_failing = sum(check.verdict == "consistent" and not check.row.has_curves for check in audited.evaluations)
    counts_by_meaning = {
        "identical bit for bit": counts["identical"],
        "consistent (equal up to rounding)": counts["consistent"] - num_failing,
        "without a result, as recorded": num_failing,
        "different": counts["differs"],
        "not auditable": counts["not auditable"],
    }
    counts_text = ", ".join(f"{count} {meaning}" for meaning, count in counts_by_meaning.items() if count)
    repeated_text = (
        f"of {counted(num_checked, 'evaluation')} made again: {counts_text}"
        if counts_text
        else "no evaluation was made again"
    )
    contradictions_text = counted(len(audited.contradictions), "contradiction")
    if audited.contradictions:
        verdict = f"FAIL: {contradictions_text}: the author's bundle does not agree with itself; {repeated_text}"
    elif counts["differs"]:
        verdict = f"FAIL: {counted(counts['differs'], 'result')} could not be reproduced; {repeated_text}"
    else:
        verdict = f"PASS: {contradictions_text}; {repeated_text}"
    lines = [verdict]
    lines += [f"  {contradiction.kind}: {contradiction.what}" for contradiction in audited.contradictions]
    if any(contradiction.kind == "plan" for contradiction in audited.contradictions):
        lines.append("plan: the list of evaluations that the author's store recorded before it computed them")
    if any(contradiction.kind == "suite" for contradiction in audited.contradictions):
        lines.append(
            "if files of the suite were added or edited after the evaluations were planned, the author can evaluate "
            "again in a new store, and publish that: lobench watch RUN --suite SUITE --store NEW --once"
        )
    if audited.not_auditable:
        lines.append(f"cannot be audited: {'; '.join(map(one_line, _group_claims(audited.not_auditable)))}")
    lines.append(f"root {audited.root}, {'signed' if signer_text else 'not signed'}{signer_text}")
    unconfirmed_checks = [check for check in audited.evaluations if check.verdict == "differs"]
    unconfirmed_checks += [check for check in audited.evaluations if check.verdict == "not auditable"]
    lines += [_check_line(check) for check in unconfirmed_checks[:_MOST_SHOWN]]
    lines += [f"  and {len(unconfirmed_checks) - _MOST_SHOWN} more: --format json has them all"] * (
        len(unconfirmed_checks) > _MOST_SHOWN
    )
    if audited.rounding_test is not None:
        lines.append(
            f"not bit for bit comparable: compared with {NUM_PERTURBED} trainings each, perturbed in the last place; "
            f"level {1 / (NUM_PERTURBED + 1):.2f}, p {audited.rounding_test.p_value:.2f}"
        )
    if num_checked < audited.num_evaluations:
        chances = ", ".join(
            f"{escape.share:.0%} ({escape.num_false}): {escape.chance:.3g}" for escape in audited.escapes
        )
        lines.append(f"drawn by {audited.beacon!r}; chance that false results escaped, by their share: {chances}")
    lines.append(f"never audited, in any bundle (only the author says so): {'; '.join(audited.stated)}")
    lines += [f"note: {line}" for line in audited.notes]
    return "\n".join(escape_controls(line) for line in lines)


def _group_claims(claims: Sequence[str]) -> list[str]:
    """Joins claims that differ only in the name of a file or case.

    >>> _group_claims([f"whether {file} was the same when the evaluations were planned" for file in ("a.csv", "b.csv")])
    ['whether a.csv, b.csv was the same when the evaluations were planned']
    >>> _group_claims([f"{UNUSED_FILES}: {file}" for file in ("a.gin", "b.gin")])
    ['files of suites that the bundle does not hold and on which no result depends: a.gin, b.gin']
    """
    names: dict[tuple[str, str], dict[str, None]] = {}
    for claim in claims:
        match = next(filter(None, (pattern.fullmatch(claim) for pattern in _SAME_CLAIMS)), None)
        key = (claim, "") if match is None else (match["before"], match["after"])
        names.setdefault(key, {}).update({match["names"]: None} if match is not None else {})
    return [
        f"{prefix}{shortened_list(list(names_of_claim), _MOST_FILES)}{suffix}" if names_of_claim else prefix
        for (prefix, suffix), names_of_claim in names.items()
    ]


def _check_line(check: AuditedEvaluation) -> str:
    seeds = f"seeds {check.row.key.seed_block.seed_range_text}"
    label = check.row.sightings[0].label
    return f"  {check.verdict}: {label} on {check.row.case.suite}/{check.row.case.name}, {seeds}: {one_line(check.why)}"
