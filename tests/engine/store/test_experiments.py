"""Experiments in the ledger: forms, trials and members; an evaluation may belong to many."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
from shown import texts_of
from stores import add, case_info

from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.experiment import SessionMember
from lobench.core.planner import EvaluationId
from lobench.core.result import EvaluationKey, Outcome
from lobench.core.subject import Subject, Variant
from lobench.engine.config.origin import Revision
from lobench.engine.store.experiments import TrialRow
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.merge import merge_stores
from lobench.hookspecs import CheckpointFinished, EvaluationFinished

SHOWN = texts_of("store")

PROGRAM = "3-x"
CLEAN = Revision(commit="abc")
DIRTY = Revision(commit="abc", is_dirty=True, patch=b"diff", patch_sha256="d", note="not tracked: 'x'")


def member(method: str, session: int, sha256: str, case: str = "a", trial: int = 0) -> SessionMember:
    block = SeedBlock(start=0, size=2)
    evaluation = EvaluationId(sha256, case_info(case).key, block)
    return SessionMember(method=method, trial=trial, session=session, evaluation=evaluation)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three subjects on a case of two seeds each."""
    for step in (1, 2, 3):
        add(
            tmp_path / "store",
            step,
            {"a": {"train/loss": [1.0, 0.5 * step]}},
            sha256=str(step),
            program_version=PROGRAM,
        )
    return tmp_path / "store"


def test_a_form_has_one_row_and_each_change_another(store: Path) -> None:
    with contextlib.closing(Ledger.open(store)) as ledger:
        first = ledger.record_experiment("e", "x = 1", revision=CLEAN, versions={"jax": "1"})
        assert ledger.record_experiment("e", "x = 1", revision=CLEAN, versions={"jax": "1"}) == first
        others = [
            ledger.record_experiment("e", "x = 2", revision=CLEAN, versions={}),
            ledger.record_experiment("e", "x = 1", revision=DIRTY, versions={}),
            ledger.record_experiment("e", "x = 1", revision=dataclasses.replace(CLEAN, commit="def"), versions={}),
            ledger.record_experiment("f", "x = 1", revision=CLEAN, versions={}),
            ledger.record_experiment("e", "x = 1", revision=Revision(), versions={}),
        ]
        assert len({first, *others}) == 6
        ledger.record_experiment("e", "x = 1", revision=CLEAN, versions={})
        rows = ledger.experiments()
        assert [row.id for row in rows] == [*others, first], "the one that was run last is the last"
        assert rows[-1].versions == {"jax": "1"} and rows[-1].created_at < rows[-1].last_at
        assert rows[1].revision == DIRTY and rows[0].config == "x = 2" and rows[3].name == "f"


def test_an_evaluation_is_a_member_of_many_and_only_once_of_each(store: Path) -> None:
    with contextlib.closing(Ledger.open(store)) as ledger:
        one, two = (ledger.record_experiment(n, "", revision=CLEAN, versions={}) for n in ("one", "two"))
        members = [member("adam", s, "1") for s in (0, 1)] + [member("celo", 0, "2"), member("none", 0, "unknown")]
        assert ledger.add_memberships(one, members, programs=[PROGRAM]) == 3, "what has no outcome is left out"
        assert ledger.add_memberships(one, members, programs=[PROGRAM]) == 0
        assert ledger.add_memberships(one, members, programs=["another"]) == 0
        assert ledger.add_memberships(two, [member("b", 0, "1", trial=4)], programs=[PROGRAM]) == 1
        found = [(m.method, m.trial, m.session, m.evaluation.sha256) for m in ledger.memberships(one)]
        assert found == [("adam", 0, 0, "1"), ("adam", 0, 1, "1"), ("celo", 0, 0, "2")]
        (shared,) = ledger.memberships(two)
        assert (shared.method, shared.trial, shared.evaluation) == ("b", 4, ledger.memberships(one)[0].evaluation)
        assert [row.labels.experiment for row in ledger.evaluations()] == ["one", "one", ""], (
            "the first one is its label"
        )
        # Tried again, it is no member until it has an outcome.
        ledger.forget_evaluations([shared.evaluation], programs=[PROGRAM])
        assert ledger.memberships(two) == [] and len(ledger.memberships(one)) == 1


def test_trials_are_recorded_and_change(store: Path) -> None:
    with contextlib.closing(Ledger.open(store)) as ledger:
        one = ledger.record_experiment("one", "", revision=CLEAN, versions={})
        ledger.record_trial(one, TrialRow(method="mine", parameters={"adam.learning_rate": 0.1}))
        ledger.record_trial(one, TrialRow(method="mine", number=1, parameters={}, state="running", wave=2))
        ledger.record_trial(
            one, TrialRow(method="mine", parameters={"adam.learning_rate": 0.1}, state="done", fitness=0.5)
        )
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        assert ledger.trials(one) == [
            TrialRow(method="mine", parameters={"adam.learning_rate": 0.1}, state="done", fitness=0.5),
            TrialRow(method="mine", number=1, parameters={}, state="running", wave=2),
        ]
        assert ledger.trials(one + 1) == []


def test_a_search_is_kept_in_a_form_with_more_sessions_and_not_mixed_with_one_on_these(store: Path) -> None:
    text = "m/Method.optimizer = @sgd()\nm/Method.search = @random()\nExperiment.num_sessions = {}\n"
    with contextlib.closing(Ledger.open(store)) as ledger:
        two, three = (ledger.record_experiment("e", text.format(n), revision=CLEAN, versions={}) for n in (2, 3))
        trial = TrialRow(method="m", parameters={"sgd.learning_rate": 0.1}, state="done", fitness=0.5)
        ledger.record_trial(two, trial)
        ledger.add_memberships(two, [member("m", 0, "1")], programs=[PROGRAM])
        ledger.keep_unchanged(three, ["m"])
        assert ledger.trials(three) == [trial] and ledger.memberships(three) == ledger.memberships(two)

        ledger.forget_trials(three, "m", 0)
        own = dataclasses.replace(trial, parameters={"sgd.learning_rate": 0.2})
        ledger.record_trial(three, own)
        ledger.add_memberships(three, [member("m", 0, "2")], programs=[PROGRAM])
        ledger.keep_unchanged(three, ["m"])
        assert ledger.trials(three) == [own] and [one.evaluation.sha256 for one in ledger.memberships(three)] == ["2"]


def test_two_stores_with_experiments_merge_without_loss_or_doubling(tmp_path: Path) -> None:
    stores = []
    for name, steps in (("left", (1, 2)), ("right", (2, 3))):
        store = tmp_path / name
        for step in steps:
            add(store, step, {"a": {"train/loss": [1.0, 0.5 * step]}}, sha256=str(step), program_version=PROGRAM)
        with contextlib.closing(Ledger.open(store)) as ledger:
            ledger.record_experiment(f"only {name}", "", revision=CLEAN, versions={})
            shared = ledger.record_experiment("shared", "x = 1", revision=DIRTY, versions={"jax": "1"})
            ledger.add_memberships(
                shared, [member("m", s, str(step)) for step in steps for s in (0, 1)], programs=[PROGRAM]
            )
            state = "running" if name == "left" else "done"
            ledger.record_trial(shared, TrialRow(method="m", parameters={"x": 1}, state=state))
            ledger.record_trial(shared, TrialRow(method=name, parameters={}))
        stores.append(store)
    for _ in range(2):
        merge_stores(stores, tmp_path / "both")
        with contextlib.closing(Ledger.open(tmp_path / "both", read_only=True)) as ledger:
            rows = {row.name: row for row in ledger.experiments()}
            assert sorted(row.name for row in ledger.experiments()) == [
                SHOWN["only-left"],
                SHOWN["only-right"],
                "shared",
            ]
            assert rows["shared"].revision == DIRTY and rows["shared"].versions == {"jax": "1"}
            found = [(m.evaluation.sha256, m.session) for m in ledger.memberships(rows["shared"].id)]
            assert sorted(found) == [(sha256, session) for sha256 in "123" for session in (0, 1)]
            trials = [(trial.method, trial.state) for trial in ledger.trials(rows["shared"].id)]
            assert trials == [("left", "waiting"), ("m", "done"), ("right", "waiting")]


def test_one_theta_with_several_bindings_is_several_subjects(tmp_path: Path) -> None:
    """Each is told of its own evaluations alone; labels and bindings come back, and survive a merge."""
    theta = Checkpoint(uri="theta.npz", sha256="t", outer_step=3)
    plain = Subject.of_checkpoint(theta)
    bound = Subject.of_checkpoint(theta, Variant(bindings=("Celo.width = 8",), trainer_config="x = 1"), label="wide")
    adam = Subject.of_optimizer("adam()", label="Adam")
    info = {False: case_info("a"), True: dataclasses.replace(case_info("a"), optimizer_hash="wide")}
    with contextlib.closing(Ledger.open(tmp_path / "store")) as ledger:
        positions = [ledger.record_sighting(subject) for subject in (plain, bound, adam, bound)]
        assert positions == [0, 1, 2, 1]
        for position in (0, 1):
            ledger.record_admission(position, "admitted")
        for subject, is_named in ((plain, True), (bound, False)):
            case = info[subject is bound]
            key = EvaluationKey(
                checkpoint_sha256="t",
                optimizer_hash=case.optimizer_hash,
                case_identity=case.identity,
                seed_block=SeedBlock(start=0, size=2),
                program_version=PROGRAM,
            )
            ledger.record_evaluation(key, case, Outcome.PASSED, curves=None, positions=[0] if is_named else None)
        for position, case in enumerate(info.values()):
            ledger.finish_checkpoint(position, programs=[PROGRAM], case_keys=[case.key])
    merge_stores([tmp_path / "store"], tmp_path / "copy")
    for store in ("store", "copy"):
        with contextlib.closing(Ledger.open(tmp_path / store, read_only=True)) as ledger:
            assert list(ledger.sightings().values()) == [plain, bound, adam]
            assert [row.recorded_sightings for row in ledger.evaluations()] == [(plain,), (bound,)]
            assert [row.recorded_sightings for row in ledger.evaluations(plain.sha256)] == [(plain,), (bound,)]
            assert not list(ledger.evaluations("0" * 64)) and not list(ledger.evaluations(outcome=Outcome.OOM))
            output = [
                (event.subject.label, type(event))
                for event in (delivery.event for delivery in ledger.deliveries_after(0))
            ]
            for subject in (plain, bound):
                for kind in (EvaluationFinished, CheckpointFinished):
                    assert output.count((subject.label, kind)) == 1, output
    with contextlib.closing(Ledger.open(tmp_path / "store")) as ledger:
        ledger.record_sighting(dataclasses.replace(adam, label="adam()"))
        assert ledger.sightings()[2].label == "Adam", "a name that says nothing new replaces none"
        ledger.record_sighting(dataclasses.replace(adam, label="tuned"))
        assert ledger.sightings()[2].label == "tuned"


def test_experiments_run_under_a_clock_that_steps_back_stay_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([1000.0, 500.0, 400.0, 2000.0])
    monkeypatch.setattr("lobench.engine.store.experiments.time", SimpleNamespace(time=lambda: next(clock)))
    with Ledger.open(tmp_path / "store") as ledger:
        orders = []
        for config in ("x = 1", "x = 2", "x = 1", "x = 2"):
            ledger.record_experiment("e", config, revision=CLEAN, versions={})
            orders.append([row.config for row in ledger.experiments()])
    assert orders == [["x = 1"], ["x = 1", "x = 2"], ["x = 2", "x = 1"], ["x = 1", "x = 2"]]
