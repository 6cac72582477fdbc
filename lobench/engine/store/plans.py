"""Plans in a ledger: the intended evaluations, recorded before their first result.

A plan contains the cases of a variant with their seed blocks, and the hashes of the suite's files. Three kinds of
events record plans. The first contains a plan. The second names a subject that is planned when it is admitted. The
third names a plan that becomes its variant's last one because a run plans it, even if nothing is left to evaluate. Each
event has a hash of its content and of the previous event's hash, so changing one event invalidates all later ones.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.subject import Subject
from lobench.engine.store.current import (
    CURRENT_PLAN_EVENT,
    PLAN_EVENT,
    PLANNED_EVENT,
    CaseForm,
    CasePlace,
    CurrentCases,
    PlanHistory,
    WholeSuites,
    codes_of_plan,
    forms_of_plan,
    place_of_case,
)
from lobench.engine.store.ledger_part import LedgerPart
from lobench.engine.store.programs import accepted_keys
from lobench.engine.store.schema import decoding_errors, store_errors

if TYPE_CHECKING:
    from lobench.engine.store.evaluation_row import EvaluationRow

__all__ = [
    "PlannedCase",
    "PlannedSubject",
    "Plans",
    "files_changed_since_plan",
    "missing_evaluations",
    "record_digest",
    "suite_plan",
]

_A_PART = WholeSuites()
_NO_CODES: Mapping[CasePlace, str] = MappingProxyType({})
_KINDS = (PLAN_EVENT, PLANNED_EVENT, CURRENT_PLAN_EVENT)  # kinds of events
_DIGEST, _PREVIOUS = "digest", "previous"
_NUM_DIGITS = 16  # hex digits of the name of a start


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCase:
    """Case as recorded in a plan of the ledger.

    Attributes:
      name: Suite and name of the case, `SUITE/NAME`.
      identity: Identity of the case.
      optimizer_hash: Hash of its optimizer's bindings.
      blocks: Seed blocks.
      code: `CaseInfo.code`; "" in plans of an older lobench.
    """

    name: str
    identity: str
    optimizer_hash: str
    blocks: tuple[SeedBlock, ...]
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSubject:
    """Subject with its plan.

    Attributes:
      sha256: Hash of the subject.
      variant: Key of its variant.
      label: Label of the subject when it was planned.
      at: Time of the record, in seconds since 1970.
      cases: Planned cases.
      problem: Problem with the record itself; "" if it is intact.
    """

    sha256: str
    variant: str
    label: str
    at: float
    cases: tuple[PlannedCase, ...] = ()
    problem: str = ""


def record_digest(detail: Mapping[str, Any]) -> str:
    """Returns the hash (hex) of a record, without the field that holds the hash."""
    hashed_fields = {name: value for name, value in detail.items() if name != _DIGEST}
    return hashlib.sha256(json.dumps(hashed_fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def suite_plan(cases: Iterable[CaseInfo], files: Mapping[str, str]) -> dict[str, Any]:
    """Returns a plan: the cases of a variant and the files of its suite, with the plan's hash."""
    records = [
        {
            "name": f"{case.suite}/{case.name}",
            "identity": case.identity,
            "optimizer_hash": case.optimizer_hash,
            "place": list(place_of_case(case)),
            "blocks": [[block.start, block.size] for block in case.blocks()],
            **({"code": case.code} if case.code else {}),
        }
        for case in cases
    ]
    plan = {"cases": sorted(records, key=lambda record: (record["name"], record["identity"])), "files": dict(files)}
    return {**plan, "plan": record_digest(plan)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """Plan of this run for a variant."""

    variant: str
    make_plan: Callable[[], Mapping[str, Any]]
    programs: tuple[str, ...]
    whole_suites: WholeSuites


class Plans(LedgerPart):
    """Part of a ledger: plans."""

    _start_name = ""  # name of this start, once it has written an event

    def record_plan(
        self,
        subject: Subject,
        plan: Mapping[str, Any],
        programs: Collection[str] = (),
        whole_suites: WholeSuites = _A_PART,
    ) -> None:
        """Records the plan of a subject, and that it is the last plan of the subject's variant.

        Writes nothing if the ledger already has this plan.

        Args:
          subject: Subject that is planned.
          plan: Plan as returned by `suite_plan`.
          programs: Keys of the programs that are expected to compute the results. Empty: unknown.
          whole_suites: Suites of which the plan has every case.
        """
        history = self._history
        variant = subject.variant.key
        plan_digest = plan["plan"]
        last_plan = plan_digest, tuple(sorted(programs))
        if self._last_plans.get(variant) != last_plan:
            self.record_current(variant, forms_of_plan(plan), lambda: plan, programs, codes_of_plan(plan), whole_suites)
            self._last_plans[variant] = last_plan
        planned_key = (subject.sha256, variant, subject.label, plan_digest)
        if planned_key in history.subjects:
            return
        with self.transaction():
            if plan_digest not in history.plan_digests:
                self._record_chained(PLAN_EVENT, plan)
            self._record_chained(
                PLANNED_EVENT, dict(zip(("sha256", "variant", "label", "plan"), planned_key, strict=True))
            )

    def record_current(
        self,
        variant: str,
        forms: Mapping[CasePlace, CaseForm],
        make_plan: Callable[[], Mapping[str, Any]],
        programs: Collection[str] = (),
        codes: Mapping[CasePlace, str] = _NO_CODES,
        whole_suites: WholeSuites = _A_PART,
    ) -> None:
        """Records that a plan is the last one of a variant. Writes nothing if it already was.

        A run with the same plans as the previous run writes nothing. A run that changes the plan of one variant also
        writes its plans of the other variants, so that all of them belong to one run.

        Args:
          variant: Key of the variant.
          forms: Forms of the plan's cases, by place.
          make_plan: Function that returns the plan, as `suite_plan` does. Called only if the plan is written.
          programs: Keys of the programs that are expected to compute the results. Empty: unknown.
          codes: Fingerprints of the user's code behind the plan's cases, by place.
          whole_suites: Suites of which the plan has every case. Not used for a plan without cases, which could not be
            bound.
        """
        self._last_plans.pop(variant, None)
        whole_suites = whole_suites if forms else _A_PART
        start = _Start(
            variant=variant, make_plan=make_plan, programs=tuple(sorted(programs)), whole_suites=whole_suites
        )
        if self._history.contains_plan(variant, forms, programs, codes, whole_suites):
            if not self._start_name:
                self._unwritten_starts[variant, frozenset(forms)] = start
            return
        with self.transaction():
            for unwritten_start in (*self._unwritten_starts.values(), start):
                plan = unwritten_start.make_plan()
                if plan["plan"] not in self._history.plan_digests:
                    self._record_chained(PLAN_EVENT, plan)
                detail = {
                    "variant": unwritten_start.variant,
                    "plan": plan["plan"],
                    "programs": list(unwritten_start.programs),
                }
                self._start_name = (
                    self._start_name or record_digest({**detail, _PREVIOUS: self._history.last_digest})[:_NUM_DIGITS]
                )
                detail |= unwritten_start.whole_suites.as_detail()
                self._record_chained(CURRENT_PLAN_EVENT, {"start": self._start_name, **detail})
        self._unwritten_starts.clear()

    @functools.cached_property
    def _last_plans(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Plan that this run recorded last, and its programs, by variant."""
        return {}

    @functools.cached_property
    def _unwritten_starts(self) -> dict[tuple[str, frozenset[CasePlace]], _Start]:
        """Plans of this run that the ledger already has. Written once another plan of the run differs."""
        return {}

    @functools.cached_property
    def _history(self) -> PlanHistory:
        """Plans recorded so far. Cached, since this process is the only writer."""
        return self.plan_history()

    def plan_history(self) -> PlanHistory:
        """Returns the plans of this ledger, in their order.

        Raises:
          StoreError: An event lacks a part.
        """
        history = PlanHistory()
        with decoding_errors(self.store):
            for kind, detail in self.events(*_KINDS):
                history.add(kind, detail)
        return history

    def _record_chained(self, kind: str, detail: Mapping[str, Any]) -> None:
        detail = {**detail, _PREVIOUS: self._history.last_digest}
        detail[_DIGEST] = record_digest(detail)
        self.record_event(kind, **detail)
        self._history.add(kind, detail)

    def current_cases(self, rows: Iterable[EvaluationRow] = ()) -> CurrentCases:
        """Returns the current cases of the store, by its last plans.

        Args:
          rows: All evaluations of the store. Further ones can be added with `CurrentCases.add_rows`.
        """
        with store_errors(self.store), decoding_errors(self.store):
            history = self.plan_history()
            accepted_programs = {
                expected: accepted_keys(self._db, expected) for expected in history.expected_programs()
            }
            return CurrentCases(history, accepted_programs).add_rows(rows)

    def planned_after(self, event: int) -> tuple[int, frozenset[str]]:
        """Returns the id of the last event of the ledger, and the subjects planned after an event, by their hashes."""
        last_event = self._fetch_number("SELECT MAX(id) FROM events")
        query = "SELECT detail FROM events WHERE kind = ? AND id > ? AND id <= ?"
        rows = self._fetch_rows(query, (PLANNED_EVENT, event, last_event))
        with decoding_errors(self.store):
            return last_event, frozenset(json.loads(detail)["sha256"] for (detail,) in rows)

    def last_plan_event(self) -> int:
        """Returns the id of the last plan event, or 0. The current cases change only with such events."""
        return self._fetch_number("SELECT MAX(id) FROM events WHERE kind IN (?, ?, ?)", _KINDS)

    def planned_subjects(self) -> list[PlannedSubject]:
        """Returns the planned subjects, in order of their last plans; [] for a store without plans."""
        with decoding_errors(self.store):
            return _read_plans(self.timed_events(*_KINDS))

    def planned_files(self) -> list[Mapping[str, str]]:
        """Returns the files of the plans, in the order in which the plans became the last ones.

        A plan that became the last one several times is contained several times.

        Returns:
          SHA-256 by name of the file. Names begin with the suite's folder.
        """
        files_by_plan: dict[str, Mapping[str, str]] = {}
        planned_files = []
        with decoding_errors(self.store):
            for kind, detail in self.events(*_KINDS):
                if kind == PLAN_EVENT:
                    files_by_plan[detail["plan"]] = detail["files"]
                else:
                    planned_files.append(files_by_plan.get(detail["plan"], {}))
        return planned_files

    def files_of_descriptions(self) -> dict[str, list[str]]:
        """Returns the paths of the files on which the cases depend: files around suites, and other loaded files."""
        files_by_origin: dict[str, dict[str, None]] = {"around": {}, "loaded": {}}
        with decoding_errors(self.store):
            for (text,) in self._fetch_rows("SELECT files_json FROM described ORDER BY variant"):
                files = json.loads(text)
                for name in files_by_origin:
                    stamps = files.get(name, ())
                    files_by_origin[name].update(dict.fromkeys(str(stamp[0]) for stamp in stamps))
        return {name: list(paths) for name, paths in files_by_origin.items()}


def missing_evaluations(
    planned_subjects: Sequence[PlannedSubject], rows: Iterable[EvaluationRow]
) -> Iterator[tuple[PlannedSubject, PlannedCase, tuple[SeedBlock, ...]]]:
    """Yields planned evaluations without an outcome: the subject, the case, and its missing blocks.

    If a later plan of the subject has another case of the same name, because the case was edited, only the later case
    counts. A block that ran out of memory counts as evaluated if its parts are evaluated.
    """
    seeds_by_key: dict[tuple[str, str, str], set[int]] = {}
    for row in rows:
        key = (row.key.checkpoint_sha256, row.key.case_identity, row.key.optimizer_hash)
        seeds_by_key.setdefault(key, set()).update(row.key.seed_block.seeds)
    current_identities = {
        (planned_subject.sha256, planned_subject.variant, case.name): case.identity
        for planned_subject in planned_subjects
        for case in planned_subject.cases
    }
    reported_keys = set()
    for planned_subject in planned_subjects:
        for case in planned_subject.cases:
            if current_identities[planned_subject.sha256, planned_subject.variant, case.name] != case.identity:
                continue
            stored_seeds = seeds_by_key.get((planned_subject.sha256, case.identity, case.optimizer_hash), set())
            blocks = tuple(block for block in case.blocks if not stored_seeds.issuperset(block.seeds))
            report_key = (planned_subject.sha256, case.identity, case.optimizer_hash, blocks)
            if blocks and report_key not in reported_keys:
                reported_keys.add(report_key)
                yield planned_subject, case, blocks


def files_changed_since_plan(
    last_digests: Mapping[str, str], members: Mapping[str, bytes], planned_code: Collection[str] = ()
) -> Iterator[tuple[str | None, str]]:
    """Yields the files of a suite that differ from the last plan: name of the member, and a line.

    Args:
      last_digests: SHA-256 of the files in the last plan that lists them, by name; see `Plans.planned_files`.
      members: Contents by name: `suites/N/`, then the name from the suite's folder on. Files without a member are
        yielded as (None, name).
      planned_code: Members whose content a plan determines by the fingerprint of a case's code. A plan need not list
        them: for a suite that is a gin file it lists the files next to it, but no packages below.
    """
    digests_by_name: dict[str, dict[str, str]] = {}
    for name, content in members.items():
        digests_by_name.setdefault(name.split("/", 2)[2], {})[name] = hashlib.sha256(content).hexdigest()
    folders = {name.partition("/")[0] for name in last_digests}
    for name in sorted({*last_digests, *digests_by_name}):
        if name.partition("/")[0] not in folders or "/" not in name:
            continue
        digests = digests_by_name.get(name, {})
        if name in last_digests and digests and last_digests[name] not in digests.values():
            yield min(digests), f"{name} is another file than when the evaluations were planned"
        elif not digests:
            yield None, name
        elif name not in last_digests and name.endswith((".py", ".gin")) and not digests.keys() <= set(planned_code):
            yield min(digests), f"{name} was not there when the evaluations were planned"


def _read_plans(events: Sequence[tuple[str, dict[str, Any], float]]) -> list[PlannedSubject]:
    known_digests = {""} | {str(detail.get(_DIGEST)) for _, detail, _ in events}
    plans: dict[str, tuple[dict[str, Any], str]] = {}
    planned_rows: list[tuple[PlannedSubject, int]] = []  # each row with the index of its event
    # Index of the event with which a form became the last one of a variant, by variant, form and code.
    last_events: dict[tuple[str, CaseForm, str], int] = {}
    order_problem = ""
    for index, (kind, detail, recorded_at) in enumerate(events):
        problem = ""
        if record_digest(detail) != detail.get(_DIGEST):
            problem = "its hash is another one than that of its content"
        elif detail.get(_PREVIOUS) not in known_digests:
            problem = "the record before it is missing, or was changed"
        if kind == PLAN_EVENT:
            plan = {name: detail[name] for name in ("cases", "files")}
            if not problem and record_digest(plan) != detail["plan"]:
                problem = "its hash is another one than that of its content"
            plans[detail["plan"]] = plan, problem
            continue
        plan, plan_problem = plans.get(detail["plan"], ({"cases": [], "files": {}}, "its plan is missing"))
        if kind == CURRENT_PLAN_EVENT:
            order_problem = order_problem or problem or plan_problem
            for case in plan["cases"]:
                form = CaseForm(case["identity"], case["optimizer_hash"])
                last_events[detail["variant"], form, case.get("code", "")] = index
            continue
        subject_of_plan = PlannedSubject(
            sha256=detail["sha256"],
            variant=detail["variant"],
            label=detail["label"],
            at=recorded_at,
            cases=tuple(
                PlannedCase(
                    name=case["name"],
                    identity=case["identity"],
                    optimizer_hash=case["optimizer_hash"],
                    blocks=tuple(SeedBlock(start=start, size=size) for start, size in case["blocks"]),
                    code=case.get("code", ""),
                )
                for case in plan["cases"]
            ),
            problem=problem or plan_problem,
        )
        planned_rows.append((subject_of_plan, index))

    def order(entry: tuple[PlannedSubject, int]) -> list[int]:
        """Returns the events that last planned the cases of a plan, latest first.

        Plans that share a case also share its event, so the events of the other cases count, too.
        """
        planned_subject, event_index = entry
        case_events = [
            max(
                event_index,
                last_events.get((planned_subject.variant, CaseForm(case.identity, case.optimizer_hash), case.code), 0),
            )
            for case in planned_subject.cases
        ]
        return sorted(case_events, reverse=True) or [event_index]

    ordered_subjects = [planned_subject for planned_subject, _ in sorted(planned_rows, key=order)]
    if order_problem and ordered_subjects:
        ordered_subjects[-1] = dataclasses.replace(
            ordered_subjects[-1], problem=ordered_subjects[-1].problem or f"its order: {order_problem}"
        )
    return ordered_subjects
