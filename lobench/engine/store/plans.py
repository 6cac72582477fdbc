"""Plans in a ledger: what was to be evaluated, as it was written before the first result of it.

A plan is the cases of a variant with their seed blocks, and the hashes of the suite's files. A subject is planned when
it is admitted. Both are events, each with a hash of its own content and of the one before: to change one is to change
all that follow.
"""

from __future__ import annotations

import functools
import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.subject import Subject
from lobench.engine.store.database import LedgerPart
from lobench.engine.store.schema import intact_rows, store_errors

if TYPE_CHECKING:
    from lobench.engine.store.reader import EvaluationRow

__all__ = ["PlannedCase", "PlannedSubject", "Plans", "absent", "changed_files", "digest_of", "suite_plan"]

PLAN, PLANNED = "plan", "planned"  # kinds of events
_DIGEST, _PREVIOUS = "digest", "previous"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCase:
    """A case of a plan.

    Attributes:
      code: `CaseInfo.code`; "" in plans of an older lobench.
    """

    name: str
    identity: str
    optimizer_hash: str
    blocks: tuple[SeedBlock, ...]
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSubject:
    """A subject, and what was planned for it.

    Attributes:
      label: How it was called then.
      at: When it was written; seconds since 1970.
      files: sha256 of the suite's files, by their names from the suite's folder on.
      problem: What is wrong with the record itself; "" where nothing is.
    """

    sha256: str
    variant: str
    label: str
    at: float
    cases: tuple[PlannedCase, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def digest_of(detail: Mapping[str, Any]) -> str:
    """Returns the hash (hex) of a record without its own."""
    rest = {name: value for name, value in detail.items() if name != _DIGEST}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def suite_plan(cases: Iterable[CaseInfo], files: Mapping[str, str]) -> dict[str, Any]:
    """Returns the cases of a variant and the files of its suite as a record, with its own hash."""
    records = [
        {
            "name": f"{case.suite}/{case.name}",
            "identity": case.identity,
            "optimizer_hash": case.optimizer_hash,
            "blocks": [[block.start, block.size] for block in case.blocks()],
            **({"code": case.code} if case.code else {}),
        }
        for case in cases
    ]
    plan = {"cases": sorted(records, key=lambda one: (one["name"], one["identity"])), "files": dict(files)}
    return {**plan, "plan": digest_of(plan)}


@dataclass(slots=True)
class _Chained:
    """Plans and planned subjects, and the hash of the last record."""

    plans: set[str] = field(default_factory=set)
    subjects: set[tuple[str, str, str, str]] = field(default_factory=set)
    last: str = ""


class Plans(LedgerPart):
    """The part of a ledger that holds plans."""

    @abstractmethod
    def record_event(self, kind: str, **detail: Any) -> None:
        """Records what is worth remembering and is no result."""

    def record_plan(self, subject: Subject, plan: Mapping[str, Any]) -> None:
        """Records what is planned for a subject; what was recorded before is not recorded again.

        Args:
          plan: As `suite_plan` returns it.
        """
        known, mark = self._chained, plan["plan"]
        who = (subject.sha256, subject.variant.key, subject.label, mark)
        if who in known.subjects:
            return
        with self.transaction():
            if mark not in known.plans:
                known.last = self._chain(PLAN, plan, known.last)
            names = ("sha256", "variant", "label", "plan")
            known.last = self._chain(PLANNED, dict(zip(names, who, strict=True)), known.last)
        known.plans.add(mark)
        known.subjects.add(who)

    @functools.cached_property
    def _chained(self) -> _Chained:
        """What this ledger's only writer has recorded."""
        found = _Chained()
        for kind, text in self._db.execute(
            "SELECT kind, detail FROM events WHERE kind IN (?, ?) ORDER BY id", (PLAN, PLANNED)
        ):
            detail = json.loads(text)
            found.last = detail[_DIGEST]
            if kind == PLAN:
                found.plans.add(detail["plan"])
            else:
                found.subjects.add((detail["sha256"], detail["variant"], detail["label"], detail["plan"]))
        return found

    def _chain(self, kind: str, detail: Mapping[str, Any], previous: str) -> str:
        detail = {**detail, _PREVIOUS: previous}
        detail[_DIGEST] = digest_of(detail)
        self.record_event(kind, **detail)
        return str(detail[_DIGEST])

    def planned(self) -> list[PlannedSubject]:
        """Returns the subjects that were planned, in order; [] of a store of before there were plans."""
        with store_errors(self.store), intact_rows(self.store):
            events = self._db.execute(
                "SELECT kind, detail, at FROM events WHERE kind IN (?, ?) ORDER BY id", (PLAN, PLANNED)
            ).fetchall()
            return _read([(kind, json.loads(detail), at) for kind, detail, at in events])

    def described_files(self) -> dict[str, list[str]]:
        """Returns the paths of the files that the suites' cases hang on: those of and around suites, and all others."""
        found: dict[str, dict[str, None]] = {"around": {}, "loaded": {}}
        with store_errors(self.store), intact_rows(self.store):
            for (text,) in self._db.execute("SELECT files_json FROM described ORDER BY variant"):
                files = json.loads(text)
                for name in found:
                    marks = files.get(name, ())
                    found[name].update(dict.fromkeys(str(mark[0]) for mark in marks))
        return {name: list(paths) for name, paths in found.items()}


def absent(
    planned: Sequence[PlannedSubject], rows: Iterable[EvaluationRow]
) -> Iterator[tuple[PlannedSubject, PlannedCase, tuple[SeedBlock, ...]]]:
    """Yields what was planned and has no outcome: the subject, the case, and its blocks.

    Of a case that was edited later, so that a later plan of the same subject has another one of its name, the later
    plan counts. A block that ran out of memory is there as its parts.
    """
    seeds: dict[tuple[str, str, str], set[int]] = {}
    for row in rows:
        key = (row.key.checkpoint_sha256, row.key.case_identity, row.key.optimizer_hash)
        seeds.setdefault(key, set()).update(row.key.seed_block.seeds)
    current = {(one.sha256, one.variant, case.name): case.identity for one in planned for case in one.cases}
    reported = set()
    for one in planned:
        for case in one.cases:
            if current[one.sha256, one.variant, case.name] != case.identity:
                continue
            there = seeds.get((one.sha256, case.identity, case.optimizer_hash), set())
            blocks = tuple(block for block in case.blocks if not there.issuperset(block.seeds))
            mark = (one.sha256, case.identity, case.optimizer_hash, blocks)
            if blocks and mark not in reported:
                reported.add(mark)
                yield one, case, blocks


def changed_files(planned: Sequence[PlannedSubject], members: Mapping[str, bytes]) -> list[str]:
    """Returns a line for each file of a suite that is not what it was when the last plan was written.

    Args:
      members: Contents by `suites/N/` and the name from the suite's folder on.
    """
    last: dict[str, str] = {}
    for one in planned:
        last.update(one.files)
    there: dict[str, set[str]] = {}
    for name, content in members.items():
        there.setdefault(name.split("/", 2)[2], set()).add(hashlib.sha256(content).hexdigest())
    folders = {name.partition("/")[0] for name in last}
    lines = []
    for name in sorted({*last, *there}):
        if name.partition("/")[0] not in folders or "/" not in name:
            continue
        if name in last and name in there and last[name] not in there[name]:
            lines.append(f"{name} is another file than when the plan was written")
        elif name not in there and name in last:
            lines.append(f"{name} is missing")
        elif name not in last and name.endswith((".py", ".gin")):
            lines.append(f"{name} was not there when the plan was written")
    return lines


def _read(events: Sequence[tuple[str, dict[str, Any], float]]) -> list[PlannedSubject]:
    known = {""} | {str(detail.get(_DIGEST)) for _, detail, _ in events}
    plans: dict[str, tuple[dict[str, Any], str]] = {}
    found = []
    for kind, detail, at in events:
        problem = ""
        if digest_of(detail) != detail.get(_DIGEST):
            problem = "its hash is another one than that of its content"
        elif detail.get(_PREVIOUS) not in known:
            problem = "the record before it is missing, or was changed"
        if kind == PLAN:
            own = {name: detail[name] for name in ("cases", "files")}
            if not problem and digest_of(own) != detail["plan"]:
                problem = "its hash is another one than that of its content"
            plans[detail["plan"]] = own, problem
            continue
        own, of_plan = plans.get(detail["plan"], ({"cases": [], "files": {}}, "its plan is missing"))
        found.append(
            PlannedSubject(
                sha256=detail["sha256"],
                variant=detail["variant"],
                label=detail["label"],
                at=at,
                cases=tuple(
                    PlannedCase(
                        name=one["name"],
                        identity=one["identity"],
                        optimizer_hash=one["optimizer_hash"],
                        blocks=tuple(SeedBlock(start=start, size=size) for start, size in one["blocks"]),
                        code=one.get("code", ""),
                    )
                    for one in own["cases"]
                ),
                files=own["files"],
                problem=problem or of_plan,
            )
        )
    return found
