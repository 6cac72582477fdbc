"""Random sequences of changes: every reader shows the current form of each case, by a model of a few lines."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from case_infos import case_info
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from shown import texts_of

from lobench.analysis.comparisons.run_history import run_history
from lobench.analysis.scores.live_scores import StoreScores
from lobench.analysis.store.entrants import entrants_of
from lobench.analysis.store.methods import read_methods
from lobench.analysis.store.snapshot import Snapshot, read_store
from lobench.analysis.store.subjects import Cell, StoredSubject
from lobench.analysis.tables.frames import open_results
from lobench.api.compare import compare
from lobench.api.resolve import RunFolder
from lobench.core.case import CaseInfo
from lobench.core.checkpoint import Checkpoint
from lobench.core.errors import UsageError
from lobench.core.history import EvaluationId
from lobench.core.metric import Direction
from lobench.core.planner import Plan
from lobench.core.program import Program
from lobench.core.result import Curves, EvaluationKey, Outcome, Provenance
from lobench.core.subject import Subject
from lobench.engine.store.current import WholeSuites, codes_by_place, forms_by_place
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.merge import merge_stores
from lobench.engine.store.plans import suite_plan
from lobench.tools.alarm.evidence import read_run
from lobench.tools.best.best import rank_checkpoints
from lobench.tools.bisect.bisect import _stored_evaluations
from lobench.tools.bisect.probes import read_probed_case
from lobench.tools.history.history import history_of

SHOWN = texts_of("analysis")

Expected: TypeAlias = dict[tuple[str, str], tuple[tuple[str, str], float]]  # of a subject at a place: form and value

PLACES = ("s/a", "s/b", "t/c")  # two suites in one store
MACHINES = tuple(Program(jax=one, jaxlib=one, device="cpu: x86-64-v3") for one in ("0.7.0", "0.7.1"))


class Form(NamedTuple):
    """What a case binds, as numbers: of the case, and of its optimizer."""

    case: int
    optimizer: int


class Done(NamedTuple):
    """An evaluation of the model."""

    sha256: str
    place: str
    form: Form
    machine: int
    code: int


class Start(NamedTuple):
    """A start of the model: what it planned for which subjects."""

    number: int
    variant: str
    subjects: frozenset[str]
    forms: tuple[tuple[str, Form], ...]
    codes: tuple[tuple[str, int], ...]
    machine: int
    is_whole: bool  # whether it asked for all suites: other places were removed


@dataclasses.dataclass
class Model:
    """A store: evaluations in order, and the starts that changed what is current."""

    done: list[Done] = dataclasses.field(default_factory=list)
    starts: list[Start] = dataclasses.field(default_factory=list)

    def form_at(self, place: str) -> int | None:
        """Returns the form of a place's case; None if it was removed, or never planned."""
        last = next((one for one in reversed(self.starts) if one.is_whole or place in dict(one.forms)), None)
        return dict(last.forms)[place].case if last is not None and place in dict(last.forms) else None

    def current(self, variant: str, sha256: str, place: str) -> Done | None:
        """Returns the evaluation of a subject that counts at a place."""
        case = self.form_at(place)
        if case is None:
            return None
        mine = [one for one in self.done if (one.sha256, one.place, one.form.case) == (sha256, place, case)]
        own = [one for one in self.starts if one.variant == variant]
        planned = {dict(one.forms).get(place) for one in own if sha256 in one.subjects}
        known = {one.form for one in mine} | {form for form in planned if form is not None and form.case == case}
        last = next((form for one in reversed(own) if (form := dict(one.forms).get(place)) in known), None)
        counting = [one for one in mine if one.form == last]
        code = next((dict(one.codes)[place] for one in reversed(self.starts) if (place, last) in one.forms), -1)
        if all(one.code != code for one in counting):  # no result of the code that was planned last
            code = counting[-1].code if counting else -1
        counting = [one for one in counting if one.code == code]
        counting.sort(key=lambda one: one.machine == own[-1].machine)  # stable: else in the order of recording
        return counting[-1] if counting else None


def value_of(done: Done) -> float:
    digest = hashlib.sha256(repr(done).encode()).digest()
    return float(np.float32(0.1 + int.from_bytes(digest[:3], "big") / (1 << 24)))


def case_at(place: str, form: Form, code: int) -> CaseInfo:
    suite, name = place.split("/")
    return case_info(
        name,
        identity=f"{place} {form.case}",
        optimizer_hash=f"o{form.optimizer}",
        suite=suite,
        node_id=f"test_{suite}.py::test[{name}]",
        num_inner_steps=10,
        num_seeds=2,
        case_code=f"c{code}",
        subject_code="s",
    )


def curves_of(value: float, machine: int) -> Curves:
    rows = memoryview(np.asarray([[2.0, value]] * 2, np.float32))
    version = MACHINES[machine].jax
    provenance = Provenance(device="cpu: x86-64-v3", versions={"jax": version, "jaxlib": version})
    return Curves(
        seeds=(0, 1),
        metrics={"train/loss": rows},
        eval_steps=(0, 10),
        diverged_at=(-1, -1),
        directions={"train/loss": Direction.MIN},
        provenance=provenance,
    )


class Changes(RuleBasedStateMachine):
    """A run whose folder, suites, machines, clocks and stores change; each start does what a chief does."""

    stores = Bundle("stores")

    def __init__(self) -> None:
        super().__init__()
        self.home = Path.cwd()
        self.root = Path(tempfile.mkdtemp())
        self.models: dict[str, Model] = {}
        self.places: dict[str, Path] = {}
        self.forms = dict.fromkeys(PLACES, Form(0, 0))
        self.codes = dict.fromkeys(PLACES, 0)
        self.files: dict[int, str] = {}  # contents by outer step
        self.members: dict[str, tuple[int, str]] = {}  # generation and content of each member of a population
        self.clock, self.machine, self.count = 1e9, 0, 0

    def teardown(self) -> None:
        os.chdir(self.home)
        shutil.rmtree(self.root)

    @initialize(target=stores)
    def first_store(self) -> str:
        self.files = {1: "content 0", 2: "content 1"}
        self.count = 2
        return self._new_store()

    def _new_store(self) -> str:
        name = f"store{len(self.models)}"
        self.models[name], self.places[name] = Model(), self.root / name
        return name

    # What changes between two starts.

    @rule(place=st.sampled_from(PLACES), case=st.integers(0, 2), optimizer=st.integers(0, 1))
    def edit_or_return(self, place: str, case: int, optimizer: int) -> None:
        self.forms[place] = Form(case, optimizer)

    @rule(place=st.sampled_from(PLACES), code=st.integers(0, 2))
    def edit_code_or_return(self, place: str, code: int) -> None:
        self.codes[place] = code

    @rule(step=st.integers(1, 3))
    def write_or_overwrite(self, step: int) -> None:
        self.files[step] = f"content {self.count}"
        self.count += 1

    @rule()
    def restart_in_place(self) -> None:
        self.files = {1: f"content {self.count}", 2: f"content {self.count + 1}"}
        self.count += 2

    @rule(step=st.integers(1, 3))
    def delete(self, step: int) -> None:
        self.files.pop(step, None)

    @rule(member=st.sampled_from(["trial_0", "trial_1"]))
    def train_member(self, member: str) -> None:
        generation, _ = self.members.get(member, (-1, ""))
        self.members[member] = generation + 1, f"content {self.count}"
        self.count += 1

    @rule(seconds=st.sampled_from([-86400.0, -3600.0, 1.0, 3600.0]))
    def step_clock(self, seconds: float) -> None:
        self.clock += seconds

    @rule(machine=st.integers(0, 1))
    def take_machine(self, machine: int) -> None:
        self.machine = machine

    @rule(name=st.sampled_from(["here", "there"]))
    def change_folder(self, name: str) -> None:
        (self.root / name).mkdir(exist_ok=True)
        os.chdir(self.root / name)

    @rule(store=stores)
    def move(self, store: str) -> None:
        if self.places[store].exists():
            place = self.root / f"moved{self.count}" / store
            self.count += 1
            place.parent.mkdir()
            shutil.move(self.places[store], place)
            self.places[store] = place

    @rule(target=stores, store=stores)
    def copy(self, store: str) -> str:
        name = self._new_store()
        if self.places[store].exists():
            shutil.copytree(self.places[store], self.places[name])
        known = self.models[store]
        self.models[name] = Model(done=list(known.done), starts=list(known.starts))
        return name

    @rule(target=stores)
    def new_store(self) -> str:
        return self._new_store()

    @rule(one=stores, other=stores)
    def merge(self, one: str, other: str) -> None:
        if one == other or not (self.places[one].exists() and self.places[other].exists()):
            return
        merge_stores([self.places[other]], self.places[one])
        ours, theirs = self.models[one], self.models[other]
        ours.done += [each for each in theirs.done if each not in ours.done]
        ours.starts += [each for each in theirs.starts if each not in ours.starts]

    # Starts.

    @rule(
        store=stores,
        places=st.sets(st.sampled_from(PLACES), min_size=1),
        most=st.sampled_from([0, 1, 99]),
        is_whole=st.booleans(),
    )
    def watch(self, store: str, places: set[str], most: int, *, is_whole: bool) -> None:
        """Watches with all of the suites, or a part (`--case`); killed after a few evaluations."""
        found = [
            Subject.of_checkpoint(
                Checkpoint(uri=f"{self.root}/run/theta_{step}.npz", sha256=sha256, outer_step=step, run="run")
            )
            for step, sha256 in sorted(self.files.items())
        ]
        self._start(store, found, places, most, is_whole=is_whole)

    @rule(store=stores, places=st.sets(st.sampled_from(PLACES), min_size=1), most=st.sampled_from([0, 1, 99]))
    def watch_population(self, store: str, places: set[str], most: int) -> None:
        """Watches the members of a population, each with its last checkpoint, into a store that a run uses too."""
        found = [
            Subject.of_checkpoint(
                Checkpoint(
                    uri=f"{self.root}/population/generation_{generation}/{member}/theta_9.npz",
                    sha256=sha256,
                    outer_step=9,
                    generation=generation,
                    run=member,
                )
            )
            for member, (generation, sha256) in sorted(self.members.items())
        ]
        self._start(store, found, places, most)

    @rule(store=stores, optimizer=st.sampled_from(["adam()", "sgd()"]), most=st.sampled_from([0, 99]))
    def evaluate_optimizer(self, store: str, optimizer: str, most: int) -> None:
        """Evaluates an optimizer as `lobench compare` or pytest does, into a store that a watch uses too."""
        self._start(store, [Subject.of_optimizer(optimizer)], {"s/a", "s/b"}, most)

    def _start(
        self, store: str, subjects: list[Subject], places: set[str], most: int, *, is_whole: bool = False
    ) -> None:
        forms = {place: self.forms[place] for place in sorted(places)}
        codes = {place: self.codes[place] for place in forms}
        cases = [case_at(place, form, codes[place]) for place, form in forms.items()]
        todays = {case.key: case.code for case in cases}
        program, model = MACHINES[self.machine], self.models[store]
        variant = subjects[0].variant.key if subjects else ""
        with Ledger.open(self.places[store], name="test") as ledger:
            plan = suite_plan(cases, {})
            events = len(ledger.events("plan")) + len(ledger.events("current plan"))
            whole = WholeSuites(("s", "t")) if is_whole else WholeSuites()
            ledger.record_current(
                variant, forms_by_place(cases), lambda: plan, [program.key], codes_by_place(cases), whole
            )
            is_new = len(ledger.events("plan")) + len(ledger.events("current plan")) > events
            history = ledger.history(ledger.accepted_programs([program]))
            for subject in subjects:
                position = ledger.record_sighting(subject)
                ledger.record_admission(position, "admitted")
                ledger.record_plan(subject, plan, [program.key])
                for evaluation, case in Plan(history).missing_evaluations(subject.sha256, cases):
                    if most > 0:
                        most -= 1
                        self._evaluate(ledger, model, subject, evaluation, case, position)
                ledger.finish_checkpoint(
                    position, programs=ledger.accepted_programs([program]), case_keys=todays, codes=todays
                )
        hashes = frozenset(one.sha256 for one in subjects)
        number = len(model.starts) + 1000 * self.count
        start = Start(number, variant, hashes, tuple(forms.items()), tuple(codes.items()), self.machine, is_whole)
        self.count += 1
        self._note(model, start, is_new=is_new)
        with sqlite3.connect(self.places[store] / "ledger.sqlite") as database:
            database.execute("UPDATE evaluations SET recorded_at = ? WHERE recorded_at > 1.7e9", (self.clock,))
        database.close()

    def _note(self, model: Model, start: Start, *, is_new: bool) -> None:
        """Takes a start into the model, if it changes what is current."""
        own = [one for one in model.starts if one.variant == start.variant]
        forms = {place: form for one in own for place, form in one.forms}
        codes = {place: code for one in own for place, code in one.codes}
        is_same = all(forms.get(place) == form and model.form_at(place) == form.case for place, form in start.forms)
        is_same = is_same and all(codes.get(place) == code for place, code in start.codes)
        is_same = is_same and bool(own) and own[-1].machine == start.machine
        others = set(PLACES) - dict(start.forms).keys()
        is_same = is_same and not (start.is_whole and any(model.form_at(place) is not None for place in others))
        # A start that is like what is current writes nothing: a store does not grow by being looked after.
        assert is_new != is_same
        if is_same:
            for place, last in enumerate(model.starts):
                if last is own[-1]:
                    model.starts[place] = last._replace(subjects=last.subjects | start.subjects)
        else:
            model.starts.append(start)

    def _evaluate(
        self,
        ledger: Ledger,
        model: Model,
        subject: Subject,
        evaluation: EvaluationId,
        case: CaseInfo,
        position: int,
    ) -> None:
        place = f"{case.suite}/{case.name}"
        done = Done(subject.sha256, place, self.forms[place], self.machine, self.codes[place])
        program = MACHINES[self.machine]
        key = EvaluationKey.of(subject.sha256, case, evaluation.block, program.key)
        curves = curves_of(value_of(done), self.machine)
        if ledger.record_evaluation(
            key, case, Outcome.PASSED, curves=curves, program=program, expected=program, positions=[position]
        ):
            model.done.append(done)

    # Every reader.

    @invariant()
    def every_reader_shows_what_is_current(self) -> None:
        for name, model in self.models.items():
            store = Path(os.path.relpath(self.places[name])) if name != "store0" else self.places[name]
            if not model.done:
                continue
            with Ledger.open(store, read_only=True) as ledger:
                rows = list(ledger.evaluations())
                sightings = list(ledger.sightings().values())
                entrants = entrants_of(ledger, [(who, who.label) for who in sightings])
                live = [one.subject for one in StoreScores(ledger, []).scores_of(sightings)]
            expected = {
                (who.sha256, place): (self.key_of(found), value_of(found))
                for who in sightings
                for place in {done.place for done in model.done}
                if (found := model.current(who.variant.key, who.sha256, place)) is not None
            }
            snapshot = read_store(store)
            assert shown(snapshot.subjects) == expected
            assert shown(read_methods(store).subjects) == expected
            assert shown(open_results(store)._make_snapshot().subjects) == expected
            assert {key: value for key, (_, value) in expected.items()} == {
                (one.subject.sha256, f"{cell.case.suite}/{cell.case.name}"): cell.final_values["train/loss"][0]
                for one in live
                for cell in one.cells.values()
            }
            assert {case.identity for case in snapshot.cases} == {identity for (identity, _), _ in expected.values()}
            left_out = snapshot.left_out
            counts = [count for _, count in (*left_out.former_cases, *left_out.removed_cases)]
            assert sum(counts) + left_out.num_former_bindings == sum(
                ((row.case.key), row.key.checkpoint_sha256)
                not in {(f"{one[0]}:{one[1]}", sha256) for (sha256, _), (one, _) in expected.items()}
                for row in rows
            )
            for one in entrants:
                for row in one.rows:
                    place = f"{row.case.suite}/{row.case.name}"
                    key, value = expected.get((one.subject.sha256, place), (None, 0.0))
                    if key == (row.case.identity, row.key.optimizer_hash):
                        last = [each for each in one.rows if each.case.key == row.case.key][-1]
                        assert last.curves is not None and last.curves.final("train/loss")[0] == value
            self._check_tools(store, snapshot, expected, model)

    def _check_tools(self, store: Path, snapshot: Snapshot, expected: Expected, model: Model) -> None:
        run = RunFolder(location=str(self.root / "run"))
        thetas = [one for one in snapshot.subjects if one.subject.has_theta]
        try:
            stored = read_run(store, run, [], 4, set(), is_over=True)
        except UsageError as error:  # it is a folder of runs, each of which has alarms of its own
            assert SHOWN["several-runs"] in str(error)
        else:
            assert shown([*stored.results_by_hash.values()]) == expected
        if thetas:
            _, _, ranked = rank_checkpoints(read_store(store), [], "")
            # Only checkpoints that were evaluated on the most cases are ranked.
            assert shown([one.subject for one in ranked]).items() <= expected.items()
        self._check_compare(store, snapshot, expected)
        self._check_history(store, snapshot, expected, model)
        rows, current = _stored_evaluations(store, is_evaluated=False)
        checkpoints = list({one.subject.sha256: one.checkpoint for one in thetas}.values())
        for case in snapshot.cases:
            place = f"{case.suite}/{case.name}"
            seen = read_probed_case(store, rows, frozenset({place}), checkpoints, [], "", current=current)
            theirs = {checkpoints[one.checkpoint_index].sha256 for one in seen.probes}
            ours = {sha256 for sha256, where in expected if where == place}
            assert theirs <= ours

    def _check_compare(self, store: Path, snapshot: Snapshot, expected: Expected) -> None:
        by_place: dict[str, list[str]] = {}
        for sha256, place in expected:
            by_place.setdefault(place, []).append(sha256)
        both = max(by_place.values(), key=len, default=[])[-2:]
        if len(both) < 2:
            return
        found = compare(*both, store=store, metrics=["train/loss"])
        (pair,) = found.pairs
        of_both = {key: entry for key, entry in expected.items() if key[0] in both}
        assert shown([pair.a, pair.b]) == of_both

    def _check_history(self, store: Path, snapshot: Snapshot, expected: Expected, model: Model) -> None:
        runs = run_history([store])  # one for each version of the code
        assert sum(run.num_evaluations for run in runs) == len(model.done)
        if len(runs) == 1:
            assert runs[0].num_checkpoints == len({row.key.checkpoint_sha256 for row in snapshot.rows})
            shown_last = snapshot.subjects[snapshot.headline_index]
            assert runs[0].num_seeds == 2 * sum(sha256 == shown_last.subject.sha256 for sha256, _ in expected)
        labels = [one.label for one in snapshot.subjects]
        for one in snapshot.subjects:
            for cell in one.cells.values():
                place = f"{cell.case.suite}/{cell.case.name}"
                done = model.current(one.subject.variant.key, one.subject.sha256, place)
                if done is None or labels.count(one.label) > 1:
                    continue  # a name that several have
                found = history_of([store], place, subject=one.label).runs
                alike = (each for each in model.done if each._replace(machine=done.machine, code=done.code) == done)
                assert {run.program for run in found} == {MACHINES[each.machine] for each in alike}

    @staticmethod
    def key_of(done: Done) -> tuple[str, str]:
        case = case_at(done.place, done.form, done.code)
        return case.identity, case.optimizer_hash


def shown(subjects: list[StoredSubject] | tuple[StoredSubject, ...]) -> dict[tuple[str, str], tuple[object, float]]:
    """Returns what readers show: the form and the first seed's value, by subject and place."""

    def entry(one: StoredSubject, cell: Cell) -> tuple[tuple[str, str], tuple[object, float]]:
        place = one.subject.sha256, f"{cell.case.suite}/{cell.case.name}"
        return place, ((cell.case.identity, cell.case.optimizer_hash), cell.final_values["train/loss"][0])

    return dict(entry(one, cell) for one in subjects for cell in one.cells.values())


TestChanges = Changes.TestCase
TestChanges.settings = settings(
    max_examples=int(os.environ.get("LOBENCH_TEST_SEQUENCES", "15")),
    stateful_step_count=15,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink a sequence of starts takes minutes
)
