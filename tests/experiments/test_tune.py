"""`lobench tune` is an experiment with one method, which it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from tiny import ONE_CASE, make_suite

from lobench.core.experiment import Search
from lobench.core.search.space import Kind, Scale
from lobench.engine.config.experiment.file import read_experiment

SHOWN = texts_of("tune")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_suite(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_it_prints_is_the_experiment_that_it_would_run(folder: Path) -> None:
    space = 'learning_rate = Real(1e-4, high=0.1, scale="log")'
    varied = ("--vary", space, "--vary", "b1 = [0.5, 0.9]", "--vary", 'outer/adam.kind=["a", "b"]')
    done = lobench("tune", "tiny", "--optimizer", "adam; adam.b2 = 0.99", *varied, "--num-trials", "4", "--print")
    assert done.returncode == 0, done.stderr
    (folder / "kept.gin").write_text(done.stdout)
    kept = read_experiment(folder / "kept.gin")
    method = kept.method("adam")
    assert (kept.experiment.name, method.search, method.num_trials) == ("tune-adam", Search(name="random"), 4)
    rate, b1, kind = method.space
    assert (rate.path, rate.low, rate.high, rate.scale) == ("adam.learning_rate", 1e-4, 0.1, Scale.LOG)
    assert (b1.path, b1.kind, b1.values) == ("adam.b1", Kind.DISCRETE, (0.5, 0.9))
    assert (kind.path, kind.kind) == ("outer/adam.kind", Kind.CATEGORICAL)
    assert "adam.b2 = 0.99" in method.bindings
    assert sorted(path.name for path in folder.iterdir()) == ["kept.gin", "tiny"]


def test_without_more_it_varies_the_learning_rate_and_a_plan_leaves_nothing_behind(folder: Path) -> None:
    done = lobench("tune", "tiny", "--optimizer", "adam", "--check", "--workers", "1", "--sessions", "3")
    assert done.returncode == 0, done.stderr
    assert "adam/adam.learning_rate = @learning_rate/Real()" in done.stdout
    assert SHOWN["adam-11-trials-24-evaluations"] in done.stdout
    assert [path.name for path in folder.iterdir()] == ["tiny"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--vary", "learning_rate = Rel(1, 2)"), SHOWN["vary-got-learning-rate-rel"]),
        (("--vary", "learning rate = [1]"), SHOWN["vary-got-learning-rate-1"]),
        (("--vary", "b1 = Real(0.9, 0.5)"), SHOWN["range-is-reversed"]),
        (("--search", "optimal"), SHOWN["unknown-search-optimal"]),
        (("--search", "random"), SHOWN["this-search-needs-a-number"]),
        (("--search", "grid", "--num-trials", "3"), SHOWN["num-trials-got-3-expected"]),
    ],
)
def test_what_is_wrong_is_one_line(folder: Path, options: tuple[str, ...], expected: str) -> None:
    done = lobench("tune", "tiny", "--optimizer", "adam", "--check", *options)
    assert done.returncode == 2 and expected in done.stderr, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_search_without_a_feasible_trial_has_no_winner_in_tables_and_on_the_page(folder: Path) -> None:
    varied = ("--vary", "learning_rate = ['x', 'y']")
    done = lobench("tune", "tiny", "--optimizer", "adam", *varied, "--store", "s", "--executor", "inline")
    assert done.returncode == 3 and done.stdout.count(SHOWN["adam-none-of-2-trials"]) == 1, done.stdout
    table = lobench("results", "--store", "s", "--by", "method").stdout
    report = lobench("report", "--store", "s", "--format", "text").stdout
    assert lobench("report", "--store", "s", "--output", "page.html").returncode == 0
    page = (folder / "page.html").read_text()
    for text in (done.stdout.partition(SHOWN["none-of-2-trials"])[2], table, report):
        assert "learning_rate = 'x'" not in text and "(s)" not in text, text
    for text in (table, page):
        assert SHOWN["adam-none-of-2-trials-is"] in text
    assert SHOWN["trained-with-adam-adam"] not in page


def test_a_search_of_which_every_trial_diverges_names_no_best_one(folder: Path) -> None:
    varied = ("--vary", "learning_rate = [1e30, 1e35]")
    done = lobench("tune", "tiny", "--optimizer", "sgd", *varied, "--store", "s", "--executor", "inline")
    assert SHOWN["sgd-all-2-trials-diverged"] in done.stdout, done.stdout


def test_a_race_of_a_search_has_its_settings_as_methods(folder: Path) -> None:
    words = ("tune", "tiny", "--optimizer", "adam; adam.b2 = 0.99", "--race", "--sessions", "8")
    varied = ("--vary", "learning_rate = [0.0003, 0.1]")
    printed = lobench(*words, *varied, "--print")
    assert printed.returncode == 0, printed.stderr
    (folder / "kept.gin").write_text(printed.stdout)
    kept = read_experiment(folder / "kept.gin").experiment
    assert kept.race is not None and (kept.name, kept.race.rounds) == ("race-adam", 4)
    fixed = "adam.b2 = 0.99"
    rates = [f"adam.learning_rate = {rate}" for rate in (0.0003, 0.1)]
    assert [method.bindings for method in kept.methods] == [(fixed, rate) for rate in rates]
    done = lobench(*words, *varied, "--workers", "1", "--executor", "inline")
    assert done.returncode == 0, done.stderr
    left = SHOWN["adam-0-learning-rate-0"]
    assert re.search(left, done.stdout), done.stdout


@pytest.mark.parametrize(
    ("options", "output"),
    [
        (
            ("--search", "ic_grid", "--vary", "b1 = [0.5, 0.9]", "--vary", "b2 = [0.5, 0.9]"),
            SHOWN["does-not-race"],
        ),
        (("--report-sessions", "3"), SHOWN["report-sessions-needs-a-search"]),
    ],
)
def test_what_learns_from_its_trials_does_not_race_them(folder: Path, options: tuple[str, ...], output: str) -> None:
    done = lobench("tune", "tiny", "--optimizer", "adam", "--race", "--print", *options)
    assert done.returncode == 2 and output in done.stderr


def test_the_kept_experiment_has_what_gin_param_says_and_a_plan_finds_all_results(folder: Path) -> None:
    (folder / "tiny" / "tiny.gin").write_text(ONE_CASE)
    words = ("tune", "tiny", "--optimizer", "momentum", "--store", "s", "--executor", "inline")
    words += ("--vary", "learning_rate = [0.1, 0.4]", "--vary", "decay = [0.5, 0.9]", "--sessions", "1")
    words += ("--gin-param", "import tiny_tasks", "--gin-param", "Case.num_inner_steps = 3")
    done = lobench(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = (folder / "s" / "experiment.gin").read_text()
    assert kept.endswith("\nimport tiny_tasks\nCase.num_inner_steps = 3\n") and kept.splitlines()[-1] in done.stdout
    plan = lobench(*words, "--check").stdout
    assert SHOWN["of-4-evaluations-are-missing"] in plan, plan
    again = lobench("run", "s/experiment.gin", "--store", "s", "--executor", "inline").stdout
    assert SHOWN["of-4-evaluations-nothing-new"] in again, again
