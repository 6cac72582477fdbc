"""A run and its store, used from several folders and after both were moved: the same checkpoints, evaluated once."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Done, lobench, lobench_here
from shown import texts_of
from stores import add
from tiny import ONE_CASE, PATIENCE, make_run, make_suite

from lobench.analysis.store.reference import REFERENCE_EVENT, ReferenceChoice, choose_reference, recorded_choices
from lobench.analysis.store.snapshot import read_store
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("lobench")

WATCH = ("--once", "--checkpoints", "all", "--workers", "1", "--executor", "inline")
STORE = Path("run", "lobench_results", "tiny")


@pytest.fixture(scope="module")
def watched_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose run was watched by a relative path."""
    project = tmp_path_factory.mktemp("watched") / "project"
    make_suite(project / "suites", ONE_CASE)
    make_run(project / "done", -3.0, -2.0)
    ran(lobench("watch", "run", "--suite", "../suites/tiny", *WATCH, cwd=project / "done"))
    return project


@pytest.fixture
def project(watched_project: Path, tmp_path: Path) -> Path:
    """The project at another path: nothing lies at the recorded paths of this one's checkpoints."""
    first = Path(shutil.copytree(watched_project, tmp_path / "first"))
    ran(lobench("watch", first / "done" / "run", "--suite", first / "suites" / "tiny", *WATCH))
    return first.rename(tmp_path / "second")


def ran(done: Done) -> Done:
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def counts(store: Path) -> list[int]:
    """Returns how many subjects, evaluations and deliveries a store has."""
    with sqlite3.connect(store / "ledger.sqlite") as db:
        return [
            db.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0]
            for name in ("subjects", "evaluations", "deliveries")
        ]


def test_watch_of_relative_path_in_another_folder_sees_the_same_checkpoints(watched_project: Path) -> None:
    store = watched_project / "done" / STORE
    before = counts(store)
    for folder, run, suite in (
        (watched_project, "done/run", "suites/tiny"),
        (watched_project / "suites", "../done/run", "tiny"),
        (watched_project / "done" / "run", ".", "../../suites/tiny"),
    ):
        done = ran(lobench("watch", run, "--suite", suite, *WATCH, cwd=folder))
        assert SHOWN["nothing-new"] in done.stdout, done.stdout
        assert counts(store) == before


def test_commands_in_another_folder_find_the_checkpoints(watched_project: Path, tmp_path: Path) -> None:
    store = watched_project / "done" / STORE
    words = ("--suite", watched_project / "suites" / "tiny", "--workers", "1")
    ran(lobench("best", watched_project / "done" / "run", *words, cwd=tmp_path))
    debug = ("debug", "tiny/a", *words[:2], "--store", store, "--checkpoint", "theta_1.npz", "--home", "")
    ran(lobench(*debug, cwd=tmp_path))
    again = ("compare", f"{store}@theta_1.npz", f"{store}@theta_2.npz", *words, "--store", "again")
    ran(lobench(*again, "--executor", "inline", cwd=tmp_path))


def test_watch_of_moved_project_sees_the_same_checkpoints(project: Path) -> None:
    store = project / "done" / STORE
    before = counts(store)
    done = ran(lobench("watch", "run", "--suite", "../suites/tiny", *WATCH, cwd=project / "done"))
    assert SHOWN["nothing-new"] in done.stdout
    assert counts(store) == before


def test_commands_on_moved_project_find_the_checkpoints_before_it_is_watched_again(
    project: Path, tmp_path: Path
) -> None:
    ran(lobench_here("best", project / "done" / "run", "--suite", project / "suites" / "tiny", cwd=tmp_path))


def test_paths_as_older_versions_recorded_them_become_absolute(project: Path, tmp_path: Path) -> None:
    store = project / "done" / STORE
    before = counts(store)
    with sqlite3.connect(store / "ledger.sqlite") as db:
        for table in ("subjects", "fingerprints"):
            db.execute(f"UPDATE {table} SET uri = 'run/' || substr(uri, -11)")
        db.execute("DROP TABLE suites")
        db.execute("DROP TABLE locations")
    ran(lobench_here("best", project / "done" / "run", "--suite", project / "suites" / "tiny", cwd=tmp_path))
    done = ran(lobench("watch", "done/run", "--suite", "suites/tiny", *WATCH, cwd=project))
    assert SHOWN["nothing-new"] in done.stdout
    assert counts(store) == before
    with sqlite3.connect(store / "ledger.sqlite") as db:
        uris = [uri for (uri,) in db.execute("SELECT uri FROM subjects")]
    assert uris == [str(project / "done" / "run" / f"theta_{step}.npz") for step in (1, 2)]


@pytest.mark.parametrize("command", ["compare", "pytest"])
def test_checkpoint_given_by_a_relative_path_is_recorded_by_one_that_is_right_everywhere(
    watched_project: Path, tmp_path: Path, command: str
) -> None:
    suite, store = watched_project / "suites" / "tiny", tmp_path / "elsewhere" / "store"

    def evaluate(cwd: Path, run: str) -> None:
        if command == "compare":
            paths, options = (f"{run}/theta_1.npz", f"{run}/theta_2.npz"), ("--workers", "1", "--executor", "inline")
            ran(lobench("compare", *paths, "--suite", suite, "--store", store, *options, cwd=cwd))
        else:
            options = (f"--lobench-store={store}", "--lobench-reuse", "-p", "no:cacheprovider")
            words = [sys.executable, "-m", "pytest", suite, "--lobench-checkpoint", f"{run}/theta_1.npz", *options]
            done = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, done.stdout + done.stderr

    evaluate(watched_project / "done", "run")
    before = counts(store)
    with sqlite3.connect(store / "ledger.sqlite") as db:
        uris = [uri for (uri,) in db.execute("SELECT uri FROM subjects ORDER BY uri")]
        assert uris == [str(watched_project / "done" / "run" / f"theta_{step}.npz") for step in range(1, len(uris) + 1)]
        db.execute("UPDATE subjects SET uri = replace(uri, ?, '')", (f"{watched_project / 'done'}/",))  # as it once was
    db.close()
    evaluate(watched_project / "done", "run")
    evaluate(watched_project, "done/run")
    assert counts(store) == before


def test_reference_of_a_gate_stays_after_the_store_was_moved(tmp_path: Path) -> None:
    first, second = tmp_path / "first" / "store", tmp_path / "second" / "store"
    for step in (1, 2, 3):
        add(first, step, {"a": {"train/loss": [0.5, 0.6]}})
    reference, _, candidate = (subject.subject.key for subject in read_store(first).subjects)
    choice = ReferenceChoice(candidate=candidate, chosen_in=str(first), reference=reference)
    with Ledger.open(first) as ledger:
        ledger.record_suites({})
        ledger.record_event(REFERENCE_EVENT, **choice.to_event())
    first.parent.rename(second.parent)
    chosen = choose_reference(read_store(second), [candidate], recorded_choices([second]))
    assert chosen.subject.key == reference
