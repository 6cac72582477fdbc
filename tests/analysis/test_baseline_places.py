"""Baselines of a store's suites are the same from every folder, or a line says that they are not."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Done, lobench
from shown import texts_of
from tiny import make_run, make_suite

import lobench as api
from lobench.analysis.comparisons.summary import summary_of
from lobench.core.suite_place import possible_paths
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("analysis")

GRID = [{"learning_rate": rate} for rate in (0.001, 0.01, 0.1)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project: a suite with a tuned baseline in `suites`, and in `work` a run that was watched from there."""
    project = tmp_path_factory.mktemp("made") / "project"
    make_suite(project / "suites")
    work = project / "work"
    make_run(work, -3.0, -2.0)
    (work / "grid.json").write_text(json.dumps(GRID))
    ran(lobench("baseline", "../suites/tiny", "--grid", "grid.json", "--seeds", "2", cwd=work))
    ran(watched(work))
    return project


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    """A copy of the project that a test may change, at a path of its own; the store was written at the old path."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def ran(done: Done) -> Done:
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def watched(work: Path, *options: str) -> Done:
    """A watch whose suite and store are named as people type them, relative to the folder that they are in."""
    words = ("--suite", "../suites/tiny", "--store", "store", "--workers", "1", "--executor", "inline", *options)
    return lobench("watch", "run", "--once", "--checkpoints", "all", *words, cwd=work)


def score_of(store: Path) -> tuple[str, float]:
    summary = summary_of(store)
    return summary.scales.baseline_label, summary.mean_score(summary.snapshot.headline_index, "primary").interval.mean


def other_folders(project: Path, tmp_path: Path) -> list[Path]:
    """The project's folders, and one with another suite of the same name and path, and another baseline."""
    other = tmp_path / "elsewhere"
    folder = other / "tiny" / "baselines"
    folder.mkdir(parents=True)
    (file,) = (project / "suites" / "tiny" / "baselines").glob("*.json")
    record = json.loads(file.read_text())
    (folder / "adam-velo.json").write_text(json.dumps(record | {"optimizer": "other"}))
    (other / "tiny" / "tiny.gin").write_text((project / "suites" / "tiny" / "tiny.gin").read_text())
    return [project, project / "work", project / "suites", tmp_path, other]


RESULTS: dict[str, Callable[[Path, Path], str]] = {
    "results": lambda store, cwd: lobench("results", "--store", store, "--by", "method", cwd=cwd).stdout,
    "report": lambda store, cwd: lobench("report", "--store", store, "--format", "text", cwd=cwd).stdout,
    "compare": lambda store, cwd: lobench("compare", "1", "2", "--store", store, cwd=cwd).stdout,
    "history": lambda store, cwd: lobench("results", "--store", store, "--history", cwd=cwd).stdout,
    "one case": lambda store, cwd: lobench("history", store, "--case", "tiny/a", cwd=cwd).stdout,
}


@pytest.mark.parametrize("command", RESULTS)
def test_command_in_another_folder_gives_the_same_numbers(made: Path, tmp_path: Path, command: str) -> None:
    store = made / "work" / "store"
    texts = {RESULTS[command](store, folder) for folder in other_folders(made, tmp_path)}
    assert len(texts) == 1, texts
    assert SHOWN["tuned-adam"] in texts.pop()


def test_summary_of_watched_store_has_the_suites_baseline(made: Path) -> None:
    label, score = score_of(made / "work" / "store")
    assert label.startswith(SHOWN["tuned-adam"]) and score > 0
    done = lobench("best", "run", "--suite", "../suites/tiny", "--store", "store", "--workers", "1", cwd=made / "work")
    assert SHOWN["tuned-adam"] in ran(done).stdout


def test_project_that_was_copied_has_its_own_suites_baseline(made: Path, project: Path) -> None:
    before = score_of(made / "work" / "store")
    assert score_of(project / "work" / "store") == before
    (copied,) = (project / "suites" / "tiny" / "baselines").glob("*.json")
    text = copied.read_text()
    copied.write_text(text + "\n")
    # The copy's own file is another one now; the recorded one is still at the recorded place.
    assert score_of(project / "work" / "store") == before
    assert not summary_of(project / "work" / "store").scales.baselines.moved_notes
    watched(project / "work")
    with Ledger.open(project / "work" / "store", read_only=True) as ledger:
        (case, *_) = {row.case for row in ledger.evaluations()}
    assert case.places[0].path == str(project / "suites" / "tiny")


def test_store_that_was_moved_alone_has_the_suites_baseline(made: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(made / "work" / "store", tmp_path / "a" / "b" / "c")
    assert score_of(Path(moved)) == score_of(made / "work" / "store")


def moved_away(made: Path, tmp_path: Path) -> Path:
    """Returns a project that was moved: nothing is at the recorded places any more."""
    first = Path(shutil.copytree(made, tmp_path / "first"))
    ran(watched(first / "work"))
    return first.rename(tmp_path / "second")


def test_project_that_was_moved_has_the_suites_baseline(made: Path, tmp_path: Path) -> None:
    second = moved_away(made, tmp_path)
    shutil.rmtree(tmp_path / "first", ignore_errors=True)
    with Ledger.open(second / "work" / "store", read_only=True) as ledger:
        (place, *_) = next(iter(ledger.evaluations())).case.places
    assert place.candidate_paths()[0] == str(second / "suites" / "tiny")
    assert score_of(second / "work" / "store") == score_of(made / "work" / "store")


@pytest.mark.parametrize("change", ["suite gone", "baseline gone", "baseline changed"])
def test_baseline_that_is_gone_or_changed_is_reported_in_one_line(made: Path, tmp_path: Path, change: str) -> None:
    second = moved_away(made, tmp_path)
    suite, store = second / "suites" / "tiny", second / "work" / "store"
    with sqlite3.connect(store / "ledger.sqlite") as db:  # what was recorded in the first project is not there either
        db.execute("DELETE FROM suites WHERE path LIKE ?", (f"{made}%",))
        db.execute("DELETE FROM locations WHERE path LIKE ?", (f"{made}%",))
    (file,) = (suite / "baselines").glob("*.json")
    if change == "suite gone":
        shutil.rmtree(suite)
    elif change == "baseline gone":
        file.unlink()
    else:
        file.write_text(file.read_text() + "\n")
    words = {
        "suite gone": "suite 'tiny' is gone",
        "baseline gone": f"the baseline {file.name} of suite 'tiny'",
        "baseline changed": "the baselines of suite 'tiny' changed",
    }[change]
    for command, called in RESULTS.items():
        lines = [line for line in called(store, second / "work").splitlines() if words in line]
        assert len(lines) == 1, (command, lines)
    if change == "baseline changed":  # the next watch, which trains nothing, takes it for the store's
        assert SHOWN["nothing-new"] in ran(watched(second / "work")).stdout
        assert not summary_of(store).scales.baselines.moved_notes


def test_notebook_page_and_frame_have_the_suites_baseline(made: Path, tmp_path: Path) -> None:
    store = made / "work" / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert SHOWN["tuned-adam"] in api.open_results(store)._repr_html_()


def test_pytest_session_records_where_its_suite_lies(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    words = ["--lobench-checkpoint", str(made / "work" / "run" / "theta_1.npz"), "--lobench-store", str(store)]
    monkeypatch.setattr(sys, "path", list(sys.path))
    code = pytest.main([str(made / "suites" / "tiny"), *words, "-p", "no:cacheprovider", "-q", "-n0"])
    assert code == 0
    assert score_of(store)[0].startswith(SHOWN["tuned-adam"])


def test_merged_stores_have_the_suites_baseline(made: Path, tmp_path: Path) -> None:
    ran(lobench("merge", made / "work" / "store", "--output", tmp_path / "merged"))
    assert score_of(tmp_path / "merged") == score_of(made / "work" / "store")


def test_bundle_has_the_baseline_it_was_published_with_and_no_path(made: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "x.lobench"
    project = Path(shutil.copytree(made, tmp_path / "published"))
    ran(lobench("publish", project / "work" / "store", "--output", bundle, cwd=tmp_path))
    expected = score_of(made / "work" / "store")
    shutil.rmtree(project)
    assert score_of(bundle) == expected
    assert not summary_of(bundle).scales.baselines.moved_notes


def test_store_of_an_older_lobench_has_the_baseline_of_the_files_that_workers_read(made: Path, tmp_path: Path) -> None:
    old = Path(shutil.copytree(made, tmp_path / "old"))
    with sqlite3.connect(old / "work" / "store" / "ledger.sqlite") as db:
        db.execute("DROP TABLE suites")
        db.execute("DROP TABLE locations")
    assert score_of(old / "work" / "store") == score_of(made / "work" / "store")


def test_relocated_gives_the_moved_path_first() -> None:
    assert possible_paths("/a/s", "/b/w/x", ("/a/w/x",)) == ["/b/s", "/a/s"]
    assert possible_paths("/a/s", "/a/w/x", ("/a/w/x",)) == ["/a/s"]
    assert possible_paths("", "/a", ("/b",)) == []
