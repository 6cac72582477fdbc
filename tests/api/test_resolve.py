"""What people may call a subject, wherever they name one."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from tiny import make_run, make_suite, write_checkpoint

import lobench as package
from lobench.api.compare import named_subjects
from lobench.api.resolve import find_request, find_run, find_stored_subject, find_training_setup
from lobench.core.errors import UsageError
from lobench.core.subject import GivenCheckpoint
from lobench.engine.chief.interfaces import WatchProgress
from lobench.pytest_plugin.references import check_reference
from lobench.tools.history.history import history_of

SHOWN = texts_of("api")

# A label with spaces, a scope that is another one's label, and a label that is the name of a file.
EXPERIMENT = """
Experiment.suites = ["tiny"]
slow/Method.optimizer = @sgd()
slow/Method.label = "SGD, tuned"
slow/sgd.learning_rate = 0.01
adam/Method.optimizer = @adam()
adam/Method.label = "slow"
moment/Method.optimizer = @sgd()
moment/Method.label = "notes.txt"
moment/sgd.learning_rate = 0.5
given/Method.checkpoint = "theta_7.npz"
given/Case.learned_optimizer = @LearnableSGD()
mine/Method.command = "cp theta_8.npz {folder}"
mine/Method.label = "My training"
mine/Case.learned_optimizer = @LearnableSGD()
"""
TUNED = "sgd(); sgd.learning_rate = 0.01"
# By a subject's path or text, what it is called.
FORMS = {
    TUNED: ["SGD, tuned", TUNED, "@sgd(); sgd.learning_rate=0.01", "sgd();sgd.learning_rate = 0.01"],
    "adam()": ["adam", "adam()", "@adam()"],
    "sgd(); sgd.learning_rate = 0.5": ["moment"],
    "theta_7.npz": ["given", "theta_7.npz", "7", "{sha256}", "{folder}/theta_7.npz"],
}


@dataclass(frozen=True)
class World:
    folder: Path
    store: Path
    sha256: str

    def named(self, form: str) -> str:
        return form.replace("{sha256}", self.sha256[:8]).replace("{folder}", str(self.folder))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    make_suite(folder)
    write_checkpoint(folder / "theta_7.npz", -1.0)
    write_checkpoint(folder / "theta_8.npz", -2.0)
    (folder / "notes.txt").touch()
    (folder / "x.gin").write_text(EXPERIMENT)
    done = lobench("run", "x.gin", "--executor", "inline", "--store", "store", cwd=folder)
    assert done.returncode == 0, done.stderr
    (given,) = {
        who for row in package.open_results(folder / "store").rows for who in row.sightings if who.outer_step == 7
    }
    return World(folder, folder / "store", given.sha256)


def _of_compare(world: World, form: str) -> str:
    other = "mine" if form != "mine" else "adam"
    (pair,) = package.compare(other, form, store=world.store).pairs
    return pair.b.subject.uri


def _of_report(world: World, form: str) -> str:
    done = lobench("report", "--store", world.store, "--method", form, "--format", "json")
    assert done.returncode == 0, done.stderr
    (label,) = [one["label"] for one in json.loads(done.stdout)["subjects"]]
    seen = {who for row in package.open_results(world.store).rows for who in row.sightings}
    return next(who.uri for who in seen if label in (who.label, f"outer step {who.outer_step}"))


def _of_debug_and_pytest(world: World, form: str) -> str:
    given = find_request(form, world.store)
    kind = "checkpoint" if given.uri.endswith(".npz") else "optimizer"
    found = find_training_setup(form, kind, world.store)  # type: ignore[arg-type]  # one of the two
    assert (found.checkpoint or found.optimizer) in (given.uri, form)
    return find_stored_subject(given.uri, world.store).subject.subject.uri


def _of_curves(world: World, form: str) -> str:
    found = package.open_results(world.store).curves("train/loss", case="a", checkpoint=form)
    (uri,) = {one.subject.uri for one in found}
    return uri


def _of_history(world: World, form: str) -> str:
    (run,) = history_of([world.store], "a", subject=form).runs
    seen = {who for row in package.open_results(world.store).rows for who in row.sightings}
    return next(who.uri for who in seen if run.subject == who.label)


@pytest.mark.parametrize("place", [_of_compare, _of_report, _of_debug_and_pytest, _of_curves, _of_history])
def test_each_place_takes_each_form(
    place: Callable[[World, str], str], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.folder)
    for expected, forms in FORMS.items():
        for form in map(world.named, forms):
            uri = place(world, form)
            assert uri == expected or uri == str(world.folder / expected), form


def test_what_is_ambiguous_or_missing_says_candidates_and_the_next_step(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.folder)

    def refused(find: Callable[[], object]) -> str:
        with pytest.raises(UsageError) as error:
            find()
        assert "\n" not in str(error.value)
        return str(error.value)

    both = refused(lambda: find_stored_subject("slow", world.store))
    assert SHOWN["several-are-called-slow"] in both and both.endswith(SHOWN["say-sgd-tuned-or-adam"])
    file = refused(lambda: find_request("notes.txt", world.store))
    assert SHOWN["notes-txt-is-a-path"] in file and SHOWN["say-notes-txt-or"] in file
    missing = refused(lambda: find_stored_subject("adma", world.store))
    assert SHOWN["nothing-here-is-called-adma"] in missing and missing.endswith(SHOWN["did-you-mean-adam"])
    curves = functools.partial(package.open_results(world.store).curves, "train/loss")
    assert refused(lambda: curves(checkpoint="slow")) == both and refused(lambda: curves(checkpoint="adma")) == missing
    assert SHOWN["adam-is-no-checkpoint"] in refused(lambda: find_training_setup("adam", "checkpoint", world.store))
    assert SHOWN["give-that-store"] in refused(lambda: find_request("SGD, tuned", None))


def test_a_gate_takes_a_name_for_its_reference(world: World) -> None:
    for name, store in (("SGD, tuned", str(world.store)), ("adam", str(world.store)), (f"{world.store}@given", "")):
        check_reference(name, store)
    with pytest.raises(UsageError, match=SHOWN["did-you-mean-adam-2"]):
        check_reference("adma", str(world.store))
    with pytest.raises(UsageError, match=SHOWN["no-such-reference"]):
        check_reference("adma", "")


def test_find_stored_takes_a_store_whose_path_contains_an_at_sign(world: World, tmp_path: Path) -> None:
    store = tmp_path / "a@b" / "run@2"
    store.parent.mkdir()
    store.symlink_to(world.store)
    assert (
        find_stored_subject(f"{store}@moment", None).subject.label
        == find_stored_subject("moment", world.store).subject.label
    )
    assert find_stored_subject(f"{store}@@adam()", None).subject.subject.uri == "adam()"
    assert find_run(f"{store}@mine", None).shares_store
    with pytest.raises(UsageError, match=SHOWN["neither-a-store-nor-a"]):
        find_stored_subject(f"{tmp_path}/none@7", None)


def test_find_given_takes_an_optimizer_longer_than_a_path_may_be(world: World) -> None:
    long = TUNED + "; sgd.learning_rate = 0.01" * 200
    assert find_request(long, world.store) == find_request(long, None)
    assert find_training_setup(long, "optimizer", world.store).optimizer
    with pytest.raises(UsageError, match=SHOWN["nothing-here-is-called"]):
        find_stored_subject("x" * 5000, world.store)
    check_reference(long, str(world.store))


def test_the_sessions_of_a_command_are_runs(world: World) -> None:
    for name in ("mine", "My training", "mine-0", "My training-0"):
        run = find_run(name, world.store)
        assert (Path(run.location) / "theta_8.npz").is_file() and run.bindings == (
            "Case.learned_optimizer = @LearnableSGD()",
        )
        assert find_run(f"{world.store}@{name}", None) == run
    with pytest.raises(UsageError, match=SHOWN["unknown-run-mien-one-of"]):
        find_run("mien", world.store)
    done = lobench("best", "mine", "--suite", world.folder / "tiny", "--store", world.store, "--workers", "1")
    assert done.returncode == 0 and "theta_8.npz" in done.stdout and "theta_7" not in done.stdout, done.stderr
    one = lobench("bisect", "mine", "--suite", world.folder / "tiny", "--case", "a", "--store", world.store)
    assert SHOWN["bisecting-takes-two-checkpoints-or"] in one.stderr


def test_a_session_of_pytest_and_a_notebook_evaluate_what_a_label_names(world: World) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "tiny", "--lobench-store=store", "--lobench-reuse"]
    for name in ("--lobench-optimizer=SGD, tuned", "--lobench-optimizer=store@SGD, tuned"):
        done = subprocess.run([*words, name], cwd=world.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
    wrong = subprocess.run(
        [*words, "--lobench-optimizer=SDG, tuned"], cwd=world.folder, capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 4 and SHOWN["did-you-mean-sgd-tuned"] in wrong.stderr, wrong.stdout + wrong.stderr
    suite = world.folder / "tiny" / "tiny.gin"
    found = package.evaluate(suite, case="a", optimizer="SGD, tuned", store=world.store, test="test_tiny")
    (stored,) = package.open_results(world.store).curves("train/loss", case="a", checkpoint="SGD, tuned")
    assert found.final("train/loss").tolist() == stored.values[:, -1].tolist()


def test_run_folder_stands_for_the_checkpoint_with_the_highest_number(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0, -2.0)
    (run / "theta_1.npz.done").unlink()  # the second look finds it
    write_checkpoint(run / "best.npz", -1.5)
    ((given, _),) = named_subjects([str(run)], tmp_path / "store", [str(suite)], WatchProgress())
    assert isinstance(given, GivenCheckpoint) and Path(given.uri).name == "theta_2.npz"
