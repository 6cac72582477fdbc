"""Current cases of a store: those in the form of the last plan.

A suite may be edited, or run with another `--gin-param`, and later be changed back. The store keeps the evaluations
of all forms of a case, but tables and scores use its current form only. That is the form that was planned last, even
if all its evaluations were stored already and nothing was trained. Order is that of the ledger (ids of events and
evaluations), never that of a clock.

`CurrentCases` applies these rules for every command that reads a store:

1. A *place* is where a case is written: suite, name and test. A *start* is one opening of the ledger by a writer.
2. At each place the last start that planned it decides, whatever subjects it planned. If several subjects bind a case
   differently in one start, each of these forms is current.
3. A start that agrees with the current forms adds to them: it plans some of the same subjects, or one of the current
   forms, and plans no known subject differently. So after a start with fewer methods the others' forms stay current.
4. A start that asked for a part (`-k`, `--case`) does not affect places that it does not plan. One that asked for whole
   suites (`WholeSuites`) ends the other places of these suites: their cases were removed, renamed or moved. Such a
   place has no current form until a start plans it again. Places of other suites in the store are not affected.
5. If a subject was evaluated with several bindings of its optimizer, those that were planned last for it count. A
   checkpoint that several runs of the store have has, in each run, the bindings that the run's other checkpoints have,
   and not those that only another run's other checkpoints have. Runs below one watched folder, whose `config.gin` they
   share, are one run here.
6. Of several results for one seed, the latest by a program that the last plan accepts counts (another version of jax
   or another kind of machine is another program). If no such program has one, the latest result counts.
7. Places without a plan (older stores, imports) have the form of their last evaluation.

After a merge, the plans of the store that was merged last are the last ones.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from lobench.core.case import CaseInfo
from lobench.core.subject import Subject
from lobench.engine.store.series import watched_folder_of

if TYPE_CHECKING:
    from lobench.engine.store.evaluation_row import EvaluationRow

__all__ = [
    "CURRENT_PLAN_EVENT",
    "PLANNED_EVENT",
    "PLAN_EVENT",
    "CaseForm",
    "CasePlace",
    "CurrentCases",
    "PlanHistory",
    "WholeSuites",
    "codes_by_place",
    "codes_of_plan",
    "forms_by_place",
    "forms_of_plan",
    "place_of_case",
]

# Kinds of events: the cases of a plan; a subject that was planned; a plan that became the last one of its variant.
PLAN_EVENT, PLANNED_EVENT, CURRENT_PLAN_EVENT = "plan", "planned", "current plan"


class CasePlace(NamedTuple):
    """Place where a case is written. If the identity at a place changes, the case was edited.

    A name alone is not enough: two tests may evaluate one case, and two files may have cases of the same name.
    """

    suite: str
    name: str
    test: str

    @property
    def is_ordinary_test(self) -> bool:
        """Whether an ordinary test is at this place, and no case of a gin file."""
        file, _, test = self.test.partition("::")
        # If the parameters of a test contain a slash, its file is not part of the place.
        return not test or (file.endswith(".py") and self.name.endswith(test))


class WholeSuites(NamedTuple):
    """Suites of which a start asked for every case. Cases of them that it does not plan are no longer there.

    Attributes:
      names: Names of the suites' folders, or `FOLDER/FILE` for a suite that is a file. (): it asked for a part.
      with_tests: Whether ordinary tests of the suites were cases of the start.

    >>> WholeSuites(("quick",)).as_detail(), WholeSuites().as_detail()
    ({'whole': ['quick']}, {})
    """

    names: tuple[str, ...] = ()
    with_tests: bool = False

    @classmethod
    def of_detail(cls, detail: Mapping[str, Any]) -> WholeSuites:
        """Returns the suites of an event. Events of an older lobench name none."""
        return cls(tuple(detail.get("whole", ())), bool(detail.get("tests", False)))

    def as_detail(self) -> dict[str, Any]:
        """Returns the fields of an event."""
        return {"whole": list(self.names), **({"tests": True} if self.with_tests else {})} if self.names else {}


class CaseForm(NamedTuple):
    """Version of a case at a place: its identity, and the hash of its optimizer's bindings."""

    identity: str
    optimizer_hash: str


def place_of_case(case: CaseInfo) -> CasePlace:
    """Returns the place where a case is written."""
    return CasePlace(case.suite, case.name, case.node_id.rsplit("/", 1)[-1])


def forms_by_place(cases: Iterable[CaseInfo]) -> dict[CasePlace, CaseForm]:
    """Returns the forms of cases by place."""
    return {place_of_case(case): CaseForm(case.identity, case.optimizer_hash) for case in cases}


def forms_of_plan(plan: Mapping[str, Any]) -> dict[CasePlace, CaseForm]:
    """Returns the forms of a recorded plan by place.

    Cases recorded by an older lobench have no place and are left out.
    """
    return {
        CasePlace(*case["place"]): CaseForm(case["identity"], case["optimizer_hash"])
        for case in plan["cases"]
        if "place" in case
    }


def codes_by_place(cases: Iterable[CaseInfo]) -> dict[CasePlace, str]:
    """Returns the fingerprint of the user's code that each case was evaluated with, by place."""
    return {place_of_case(case): case.code for case in cases}


def codes_of_plan(plan: Mapping[str, Any]) -> dict[CasePlace, str]:
    """Returns the fingerprint of the user's code for each case of a recorded plan, by place; "" if unknown."""
    return {CasePlace(*case["place"]): case.get("code", "") for case in plan["cases"] if "place" in case}


class PlanHistory:
    """Plans of a ledger, read event by event in the order of the ledger.

    Attributes:
      last_digest: Hash of the last event of the chain; "" for an empty chain.
      num_records: Number of events read.
      plan_digests: Hashes of the plans.
      subjects: Subjects with a plan: hash, variant, label, plan.
      last_codes: Code with which each case was planned last, by `CaseInfo.key`.
    """

    def __init__(self) -> None:
        self.last_digest = ""
        self.plan_digests: set[str] = set()
        self.subjects: set[tuple[str, str, str, str]] = set()
        self._forms: dict[str, dict[CasePlace, CaseForm]] = {}  # by plan
        self._codes: dict[str, dict[CasePlace, str]] = {}  # by plan
        self._codes_by_key: dict[str, dict[str, str]] = {}  # by plan, then by `CaseInfo.key`
        self.last_codes: dict[str, str] = {}
        self._last_code: dict[tuple[str, CasePlace], str] = {}  # by variant
        self._identities_before_start: dict[
            CasePlace, dict[str, str]
        ] = {}  # identities by variant, before the open start
        self._start = ""
        self._identities_of_start: dict[CasePlace, dict[str, str]] = {}  # identities by variant, in the open start
        self._whole_suites_of_start: set[WholeSuites] = set()  # of the open start
        # Suites of which starts asked for every case, and planned this place.
        self._suites_of_place: dict[CasePlace, set[frozenset[str]]] = {}
        self._last_form: dict[tuple[str, CasePlace], CaseForm] = {}  # by variant
        self._variants: set[str] = set()  # variants that have a last plan
        self._record_of_form: dict[tuple[str, CaseForm], int] = {}  # when a variant's form became the last one
        self._last_record_of_form: dict[CaseForm, int] = {}  # when any variant's form became the last one
        self._planned_records: dict[
            tuple[str, str], dict[CaseForm, int]
        ] = {}  # when a form was planned for a single subject
        self._programs: dict[str, tuple[str, ...]] = {}  # by variant
        self.num_records = 0
        self._merged_identities: dict[CasePlace, dict[str, str]] | None = None

    def add(self, kind: str, detail: Mapping[str, Any]) -> None:
        """Adds the next event of the ledger."""
        self.num_records += 1
        self.last_digest = detail["digest"]
        if kind == PLAN_EVENT:
            self.plan_digests.add(detail["plan"])
            self._forms[detail["plan"]] = forms_of_plan(detail)
            self._codes[detail["plan"]] = codes_of_plan(detail)
            self._codes_by_key[detail["plan"]] = {
                f"{case['identity']}:{case['optimizer_hash']}": case.get("code", "") for case in detail["cases"]
            }
            return
        self.last_codes.update(self._codes_by_key.get(detail["plan"], {}))
        forms = self._forms.get(detail["plan"], {})
        variant = detail["variant"]
        if kind == PLANNED_EVENT:
            self.subjects.add((detail["sha256"], variant, detail["label"], detail["plan"]))
            orders = self._planned_records.setdefault((detail["sha256"], variant), {})
            orders.update(dict.fromkeys(forms.values(), self.num_records))
            return
        if detail["start"] != self._start:
            self._identities_before_start, self._identities_of_start, self._start = (
                self._merge_identities(),
                {},
                detail["start"],
            )
            self._whole_suites_of_start = set()
        self._variants.add(variant)
        whole_suites = WholeSuites.of_detail(detail)
        if whole_suites.names:
            self._whole_suites_of_start.add(whole_suites)
            for case_place in forms:
                self._suites_of_place.setdefault(case_place, set()).add(frozenset(whole_suites.names))
        for case_place, form in forms.items():
            self._identities_of_start.setdefault(case_place, {})[variant] = form.identity
            self._last_form[variant, case_place] = form
            self._last_code[variant, case_place] = self._codes[detail["plan"]].get(case_place, "")
            self._record_of_form[variant, form] = self._last_record_of_form[form] = self.num_records
        if detail["programs"]:
            self._programs[variant] = tuple(detail["programs"])
        self._merged_identities = None

    def contains_plan(
        self,
        variant: str,
        forms: Mapping[CasePlace, CaseForm],
        programs: Collection[str],
        codes: Mapping[CasePlace, str],
        whole_suites: WholeSuites,
    ) -> bool:
        """Returns whether the last plans already contain a plan of a variant, so that it need not be recorded.

        Args:
          variant: Key of the variant.
          forms: Forms of the plan's cases, by place.
          programs: Keys of the programs that the plan expects. Empty: unknown, and not compared.
          codes: Code of the plan's cases, by place.
          whole_suites: Suites of which the plan has every case.
        """
        if whole_suites.names and not (
            all(self._is_of_suites(case_place, whole_suites) for case_place in forms)
            and forms.keys() >= {place for place in self._present_places() if self._is_of_suites(place, whole_suites)}
        ):
            return False
        if any(self._last_code.get((variant, case_place)) != code for case_place, code in codes.items()):
            return False
        if programs and tuple(sorted(programs)) != self._programs.get(variant):
            return False
        identities = self.identities()
        return all(
            self._last_form.get((variant, case_place)) == form and identities[case_place].get(variant) == form.identity
            for case_place, form in forms.items()
        )

    def identities(self) -> Mapping[CasePlace, Mapping[str, str]]:
        """Returns, for each planned place, the current identity of its case by variant; {} if its case was removed."""
        if self._merged_identities is None:
            self._merged_identities = self._merge_identities()
        return self._merged_identities

    def _merge_identities(self) -> dict[CasePlace, dict[str, str]]:
        identities_by_case = dict(self._identities_before_start)
        for case_place, new_identities in self._identities_of_start.items():
            old_identities = identities_by_case.get(case_place, {})
            is_same = all(
                old_identities.get(variant, identity) == identity for variant, identity in new_identities.items()
            )
            is_known = not {*old_identities.values()}.isdisjoint(new_identities.values())
            identities_by_case[case_place] = (
                {**old_identities, **new_identities} if is_same and is_known else dict(new_identities)
            )
        for whole_suites in self._whole_suites_of_start:
            for case_place in self._identities_before_start.keys() - self._identities_of_start.keys():
                if self._is_of_suites(case_place, whole_suites):
                    identities_by_case[case_place] = {}
        return identities_by_case

    def _present_places(self) -> list[CasePlace]:
        """Returns the planned places whose case was not removed."""
        return [case_place for case_place, identities in self.identities().items() if identities]

    def _is_of_suites(self, case_place: CasePlace, whole_suites: WholeSuites) -> bool:
        """Returns whether a place belongs to suites of which a start asked for every case.

        It does if an earlier start that planned the place asked for some of these suites, and for every case of them.
        If no start that planned it asked for whole suites, the suite in the place decides.
        """
        if case_place.is_ordinary_test and not whole_suites.with_tests:
            return False
        names_of_place = self._suites_of_place.get(case_place) or {frozenset((case_place.suite,))}
        return any(names <= {*whole_suites.names} for names in names_of_place)

    def last_forms(self, variant: str) -> dict[CasePlace, CaseForm]:
        """Returns the last planned `CaseForm` of each case of a variant, if the case's identity is current."""
        identities = self.identities()
        return {
            case_place: form
            for (planned_variant, case_place), form in self._last_form.items()
            if planned_variant == variant and identities.get(case_place, {}).get(variant) == form.identity
        }

    def last_record_of(self, form: CaseForm) -> int:
        """Returns the number of the record in which a form last became current for a variant; 0 if it never did."""
        return self._last_record_of_form.get(form, 0)

    def variant_record(self, variant: str, form: CaseForm) -> int:
        """Returns the number of the record in which a form last became current for a variant; 0 if it never did."""
        return self._record_of_form.get((variant, form), 0)

    def planned_record(self, sha256: str, variant: str, form: CaseForm) -> int:
        """Returns the number of the record in which a form was planned for a subject; 0 if it never was."""
        return self._planned_records.get((sha256, variant), {}).get(form, 0)

    def last_optimizer_hash(
        self, sha256: str, variant: str, identity: str, evaluated_hashes: Collection[str]
    ) -> str | None:
        """Returns the hash of the bindings that were planned last for a subject on a case; None if no plan decides.

        Args:
          sha256: Hash of the subject.
          variant: Key of its variant.
          identity: Identity of the case.
          evaluated_hashes: Hashes of the bindings with which the subject was evaluated on the case.
        """
        if variant not in self._variants:
            return None
        planned_orders = {
            form.optimizer_hash: order
            for form, order in self._planned_records.get((sha256, variant), {}).items()
            if form.identity == identity
        }
        orders = {
            optimizer_hash: max(
                planned_orders.get(optimizer_hash, 0),
                self._record_of_form.get((variant, CaseForm(identity, optimizer_hash)), 0),
            )
            for optimizer_hash in {*evaluated_hashes, *planned_orders}
        }
        last_hash = max(orders, key=lambda optimizer_hash: orders[optimizer_hash], default=None)
        return last_hash if last_hash is not None and orders[last_hash] else None

    @property
    def has_plans(self) -> bool:
        """Whether a variant has a plan. Without one, `optimizer_hash` is always None."""
        return bool(self._variants)

    def expected_programs(self) -> set[tuple[str, ...]]:
        """Returns the keys of the programs that the last plan of each variant expects, as a set of tuples."""
        return set(self._programs.values())

    def programs_of(self, variant: str) -> tuple[str, ...]:
        """Returns the keys of the programs that the last plan of a variant expects; () if unknown."""
        return self._programs.get(variant, ())


class CurrentCases:
    """Current cases of a store, by the rules in the module's docstring. Create it with `Ledger.current_cases`.

    Args:
      history: Plans of the ledger. None: no plans.
      accepted: Keys of the programs whose results count, by the keys of the programs that a plan expects.
    """

    def __init__(
        self,
        history: PlanHistory | None = None,
        accepted: Mapping[tuple[str, ...], Collection[str]] | None = None,
    ) -> None:
        self._history = history or PlanHistory()
        self._accepted_programs = accepted or {}
        self._last_entries: dict[CasePlace, tuple[int, int, str]] = {}  # id, arrival, identity
        self._is_partial: dict[str, bool] = {}
        self._hashes: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}  # by subject, then by case
        self._chosen_hashes: dict[tuple[str, str, str], str | None] = {}
        # Runs by their watched folders, as `watched_folder_of` returns them.
        self._first_runs: dict[tuple[str, str], str] = {}  # by subject
        self._shared_subjects = set[tuple[str, str]]()  # those of several runs
        self._hashes_in_runs: dict[tuple[str, str, str], str | None] = {}  # by run, variant and case
        # Subjects that no other run has, by run; None until they are needed.
        self._own_subjects: dict[str, list[tuple[str, str]]] | None = None
        self._runs_by_form: dict[CaseForm, set[str]] = {}  # of such subjects
        self._programs: dict[str, frozenset[str]] = {}
        self._identities: frozenset[str] | None = None
        self._num_seen = 0

    @classmethod
    def of_rows(cls, rows: Iterable[EvaluationRow]) -> CurrentCases:
        """Returns the current cases of evaluations without plans. `rows` are in the order of the ledger."""
        return cls().add_rows(rows)

    def add_rows(self, rows: Iterable[EvaluationRow]) -> CurrentCases:
        """Adds evaluations of the store, and returns this object."""
        places_by_case = dict[int, CasePlace]()  # by the id of the case, which thousands of rows share
        # By the id of `row.sightings`, which many rows share, too.
        hashes_by_sightings = dict[int, list[dict[str, tuple[str, ...]]]]()
        kept_alive = list[object]()  # so that no other object gets the same id
        for row in rows:
            case = row.case
            case_place = places_by_case.get(id(case))
            if case_place is None:
                case_place = places_by_case[id(case)] = place_of_case(case)
                kept_alive.append(case)
                self._is_partial[case.identity] = bool(case.whole)
            self._num_seen += 1
            entry = (row.id, self._num_seen, case.identity)
            last_entry = self._last_entries.get(case_place)
            if last_entry is None or last_entry < entry:
                self._last_entries[case_place] = entry
            sightings = row.sightings
            hashes_of_sightings = hashes_by_sightings.get(id(sightings))
            if hashes_of_sightings is None:
                variants = [(sighting.sha256, sighting.variant.key) for sighting in sightings]
                hashes_of_sightings = [self._hashes.setdefault(variant, {}) for variant in variants]
                hashes_by_sightings[id(sightings)] = hashes_of_sightings
                kept_alive.append(sightings)
                for sighting, variant in zip(sightings, variants, strict=True):
                    if sighting.has_theta and not sighting.variant.bindings:
                        run = watched_folder_of(sighting)
                        if self._first_runs.setdefault(variant, run) != run:
                            self._shared_subjects.add(variant)
            for hashes in hashes_of_sightings:
                optimizer_hashes = hashes.get(case.identity, ())
                if row.key.optimizer_hash not in optimizer_hashes:
                    hashes[case.identity] = (*optimizer_hashes, row.key.optimizer_hash)
        self._chosen_hashes.clear()
        self._hashes_in_runs.clear()
        self._own_subjects = None
        self._runs_by_form.clear()
        self._identities = None
        return self

    def take_over(self, other_cases: CurrentCases) -> CurrentCases:
        """Takes over the evaluations that another object has seen, and returns this object.

        The other object must not be used any more.
        """
        self._last_entries = other_cases._last_entries
        self._is_partial = other_cases._is_partial
        self._hashes = other_cases._hashes
        self._first_runs = other_cases._first_runs
        self._shared_subjects = other_cases._shared_subjects
        self._num_seen = other_cases._num_seen
        return self

    def accepts_same_programs(self, other_cases: CurrentCases) -> bool:
        """Returns whether both objects accept the same programs for the last plan of each variant."""
        variants = (*self._programs, *other_cases._programs)
        return all(
            self.accepted_programs_of(variant) == other_cases.accepted_programs_of(variant) for variant in variants
        )

    @property
    def identities(self) -> frozenset[str]:
        """Identities of the current cases, including cases without an evaluation."""
        if self._identities is None:
            planned_identities = self._history.identities()
            identities = set[str]()
            for case_place in {*planned_identities, *self._last_entries}:
                case_identities = (
                    {*planned_identities[case_place].values()}
                    if case_place in planned_identities
                    else {self._last_entries[case_place][2]}
                )
                whole_identities = {
                    identity for identity in case_identities if not self._is_partial.get(identity, False)
                }
                # A search may stop trainings early; tables leave these partial cases out.
                identities |= whole_identities or case_identities
            self._identities = frozenset(identities)
        return self._identities

    def is_current(self, row: EvaluationRow, subject: Subject | None = None) -> bool:
        """Returns whether an evaluation is of a current case, with the current bindings of its optimizer.

        Args:
          row: Evaluation.
          subject: Subject whose bindings count, one of the evaluation's. None: any of them.
        """
        if row.case.identity not in self.identities:
            return False
        return any(
            self.has_bindings(row, sighting) for sighting in ((subject,) if subject is not None else row.sightings)
        )

    def are_current(self, rows: Iterable[EvaluationRow]) -> list[bool]:
        """Returns `is_current` of each row. In a store without plans, only the case is compared."""
        if self._history.has_plans:
            return [self.is_current(row) for row in rows]
        identities = self.identities
        return [row.case.identity in identities for row in rows]

    def is_removed(self, case: CaseInfo) -> bool:
        """Returns whether a case is no longer in its suite, by the last start that asked for the whole suite."""
        return self._history.identities().get(place_of_case(case)) == {}

    def has_bindings(self, row: EvaluationRow, subject: Subject) -> bool:
        """Returns whether an evaluation has the current bindings of a subject's optimizer."""
        if not self._history.has_plans:
            return True
        key = (subject.sha256, subject.variant.key, row.case.identity)
        is_shared = key[:2] in self._shared_subjects and len(self._evaluated_hashes(key)) > 1
        chosen_hash = self._chosen_hash_in_run(key, watched_folder_of(subject)) if is_shared else self._chosen_hash(key)
        return chosen_hash in (None, row.key.optimizer_hash)

    def follows_its_runs(self, subject: Subject) -> bool:
        """Returns whether the current bindings of a subject depend on other subjects, those of its runs."""
        key = (subject.sha256, subject.variant.key)
        return key in self._shared_subjects and any(len(hashes) > 1 for hashes in self._hashes[key].values())

    def _evaluated_hashes(self, key: tuple[str, str, str]) -> tuple[str, ...]:
        """Returns the bindings with which a subject was evaluated on a case."""
        return self._hashes.get(key[:2], {}).get(key[2], ())

    def _chosen_hash(self, key: tuple[str, str, str]) -> str | None:
        """Returns the bindings that were planned last for a subject on a case, in whatever run; None if unknown."""
        if key not in self._chosen_hashes:
            self._chosen_hashes[key] = self._history.last_optimizer_hash(*key, self._evaluated_hashes(key))
        return self._chosen_hashes[key]

    def _chosen_hash_in_run(self, key: tuple[str, str, str], run: str) -> str | None:
        """Returns the bindings that count in a run for a subject of several runs, on a case; None if unknown."""
        sha256, variant, identity = key
        evaluated_hashes = self._evaluated_hashes(key)
        if (hash_in_run := self._hash_in_run(run, variant, identity)) in evaluated_hashes:
            return hash_in_run
        chosen_hash = self._chosen_hash(key)
        forms = [CaseForm(identity, optimizer_hash) for optimizer_hash in evaluated_hashes]
        forms_of_no_other = [form for form in forms if not self._runs_with(form)]
        if chosen_hash is None or not forms_of_no_other:
            return chosen_hash
        last_form = max(forms_of_no_other, key=lambda form: self._history.planned_record(sha256, variant, form))
        return last_form.optimizer_hash

    def _hash_in_run(self, run: str, variant: str, identity: str) -> str | None:
        """Returns the bindings planned last for the checkpoints that only this run has; None if none was evaluated."""
        run_key = (run, variant, identity)
        if run_key not in self._hashes_in_runs:
            forms = [
                (subject_key, CaseForm(identity, chosen_hash))
                for subject_key in self._subjects_by_run().get(run, ())
                if subject_key[1] == variant
                and (chosen_hash := self._chosen_hash((*subject_key, identity)))
                in self._evaluated_hashes((*subject_key, identity))
            ]
            last_form = max(forms, key=lambda pair: self._record_in_run(run, *pair), default=None)
            self._hashes_in_runs[run_key] = None if last_form is None else last_form[1].optimizer_hash
        return self._hashes_in_runs[run_key]

    def _subjects_by_run(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Returns the subjects that no other run has, by run. Fills `_runs_by_form` too: few stores need the two."""
        if self._own_subjects is None:
            self._own_subjects = {}
            for key, run in self._first_runs.items():
                if key in self._shared_subjects:
                    continue
                self._own_subjects.setdefault(run, []).append(key)
                for identity, optimizer_hashes in self._hashes[key].items():
                    for optimizer_hash in optimizer_hashes:
                        self._runs_by_form.setdefault(CaseForm(identity, optimizer_hash), set()).add(run)
        return self._own_subjects

    def _runs_with(self, form: CaseForm) -> Set[str]:
        """Returns the runs that have checkpoints of their own with results of a form."""
        self._subjects_by_run()  # fills `_runs_by_form`
        return self._runs_by_form.get(form, frozenset())

    def _record_in_run(self, run: str, subject_key: tuple[str, str], form: CaseForm) -> int:
        """Returns the number of the record in which a form was last planned for a subject or its run.

        Plans of a variant do not name a run. They are left out if checkpoints of other runs have the form too.
        """
        planned_record = self._history.planned_record(*subject_key, form)
        is_of_run_alone = self._runs_with(form) <= {run}
        variant_record = self._history.variant_record(subject_key[1], form)
        return max(planned_record, variant_record) if is_of_run_alone else planned_record

    def rows_with_bindings(self, rows: Sequence[EvaluationRow], subject: Subject) -> Sequence[EvaluationRow]:
        """Returns only the rows for which `has_bindings` is true, in the given order."""
        return [row for row in rows if self.has_bindings(row, subject)] if self._history.has_plans else rows

    def by_precedence(self, subject: Subject, rows: Iterable[EvaluationRow]) -> list[EvaluationRow]:
        """Returns evaluations of a subject in order of precedence: for each seed, the last one counts."""
        sorted_rows = sorted(rows, key=operator.attrgetter("id"))
        if accepted_programs := self.accepted_programs_of(subject.variant.key):
            sorted_rows.sort(key=lambda row: row.key.program_version in accepted_programs)
        return sorted_rows

    def accepted_programs_of(self, variant: str) -> frozenset[str]:
        """Returns the keys of the programs that the last plan of a variant accepts; empty if unknown."""
        if variant not in self._programs:
            self._programs[variant] = frozenset(self._accepted_programs.get(self._history.programs_of(variant), ()))
        return self._programs[variant]

    def plan_order(self, row: EvaluationRow) -> tuple[int, int]:
        """Returns a sort key for evaluations at one place: the order in which their forms were planned, then the id."""
        return self._history.last_record_of(CaseForm(row.case.identity, row.key.optimizer_hash)), row.id

    def plan_order_in_run(self, row: EvaluationRow, subject: Subject) -> tuple[bool, int, int]:
        """Returns a sort key for evaluations of checkpoints of one run at one place.

        It is the order in which their forms were planned for the run, then the id. Checkpoints that other runs have too
        come first.

        Args:
          row: Evaluation.
          subject: Checkpoint of the run, one of the evaluation's.
        """
        key = (subject.sha256, subject.variant.key)
        form = CaseForm(row.case.identity, row.key.optimizer_hash)
        return key not in self._shared_subjects, self._record_in_run(watched_folder_of(subject), key, form), row.id

    def cases_of(
        self, variant: str, known_cases: Iterable[CaseInfo], rows: Iterable[EvaluationRow]
    ) -> tuple[CaseInfo, ...]:
        """Returns the current cases of a variant.

        Args:
          variant: Key of the variant.
          known_cases: Cases as a worker described them last. Cases that a later plan changed are returned in their
            current form, and those that were removed are left out. If empty, as after a merge, the cases of the plans
            are returned.
          rows: Evaluations of the variant, from which cases that were not described since are taken.
        """
        forms = self._history.last_forms(variant)
        cases_by_place = {place_of_case(case): case for case in known_cases}
        evaluated_cases = {CaseForm(row.case.identity, row.key.optimizer_hash): row.case for row in rows}
        cases = list[CaseInfo | None]()
        present_places = [place for place, case in cases_by_place.items() if not self.is_removed(case)]
        for case_place in present_places if cases_by_place else forms:
            case = cases_by_place.get(case_place)
            is_current = case is not None and forms.get(case_place) in (
                None,
                CaseForm(case.identity, case.optimizer_hash),
            )
            cases.append(case if is_current else evaluated_cases.get(forms[case_place]))
        return tuple(case for case in cases if case is not None)
