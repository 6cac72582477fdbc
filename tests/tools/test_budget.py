"""`lobench budget` on a store that `lobench run` made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from tiny import ONE_CASE, make_suite

SHOWN = texts_of("budget")

SEARCHES = """
Experiment.suites = ["tiny"]
rates/Method.optimizer = @sgd()
rates/Method.search = @grid()
rates/sgd.learning_rate = @few/Discrete()
few/Discrete.values = [0.001, 0.01, 0.1]
both/Method.optimizer = @momentum()
both/Method.search = @grid()
both/momentum.learning_rate = @more/Discrete()
both/momentum.decay = @decay/Discrete()
more/Discrete.values = [0.001, 0.01, 0.1]
decay/Discrete.values = [0.0, 0.5]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("searched")
    make_suite(found, ONE_CASE)
    (found / "x.gin").write_text(SEARCHES)
    done = lobench("run", "x.gin", "--store", "store", "--workers", "1", "--executor", "inline", cwd=found)
    assert done.returncode == 0, done.stdout + done.stderr
    return found


def test_searches_are_shown_after_as_many_trials_as_the_others(folder: Path) -> None:
    output = lobench("budget", "store", cwd=folder)
    assert output.returncode == 0, output.stderr
    assert SHOWN["best-of-1"] in output.stdout and SHOWN["best-of-4"] in output.stdout
    assert output.stdout.startswith(SHOWN["no-search-is-shown-to"])
    assert SHOWN["spaces-or-budgets-differ-both"] in output.stdout
    assert SHOWN["spaces-differ"] not in output.stdout, "what they have in common has the same values"


def test_an_optimum_on_the_edge_is_said_wherever_a_search_is_shown(folder: Path) -> None:
    edge = SHOWN["the-best-sgd-learning-rate"]
    line = f"rates: {edge}"
    by_method = ("results", "--store", "store", "--by", "method")
    compared = ("compare", "both", "rates", "--store", "store")
    for words in (("budget", "store"), by_method, compared):
        assert line in lobench(*words, cwd=folder).stdout, words
    records = json.loads(lobench(*by_method, "--format", "json", cwd=folder).stdout)
    assert {tuple(one["edges"]) for one in records if one["method"] == "rates"} == {(edge,)}
    (record,) = json.loads(lobench(*compared, "--format", "json", cwd=folder).stdout)
    assert line in record["edges"]
    appendix = lobench("report", "--store", "store", "--format", "appendix", cwd=folder).stdout
    searches = appendix.split(SHOWN["searches-settings-that-were-tried"])[1].split("##")[0]
    assert SHOWN["the-largest-that-was-tried"] in searches


def test_the_record_has_all_numbers(folder: Path) -> None:
    found = json.loads(lobench("budget", "store", "--format", "json", cwd=folder).stdout)
    both, rates = found["searches"]
    assert (rates["num_trials"], both["num_trials"]) == (3, 6)
    means = [one["mean"] for one in both["expected_best"]]
    assert means == sorted(means), "more trials find no less"
    assert found["leads"][0]["first"] == 1 and found["leads"][-1]["last"] == 3


def test_searches_that_other_code_made_are_called_so(folder: Path) -> None:
    tasks = folder / "tiny" / "tiny_tasks.py"
    text = tasks.read_text()
    tasks.write_text(f"{text}\nEDITED = True\n")
    try:
        assert SHOWN["made-by-other-code-tiny"] in lobench("budget", "store", cwd=folder).stdout
        done = lobench("budget", "store", "--format", "json", cwd=folder)
        assert SHOWN["made-by-other-code-tiny"] in done.stderr and json.loads(done.stdout)["searches"]
    finally:
        tasks.write_text(text)
    assert SHOWN["made-by-other-code-tiny"] not in lobench("budget", "store", cwd=folder).stdout


def test_a_store_without_a_search_says_so(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "y.gin").write_text("Experiment.suites = ['tiny']\na/Method.optimizer = @sgd()\n")
    make_suite(tmp_path, ONE_CASE)
    lobench("run", "y.gin", "--store", "store", "--workers", "1", "--executor", "inline", cwd=tmp_path)
    done = lobench("budget", "store", cwd=tmp_path)
    assert done.returncode == 2 and SHOWN["no-search-has-a-trial"] in done.stderr


def test_a_search_without_a_fitness_is_left_out_in_words(tmp_path: Path) -> None:
    make_suite(tmp_path, ONE_CASE)
    broken = "broken/Method.optimizer = @sgd()\nbroken/Method.search = @grid()\n"
    broken += 'broken/sgd.learning_rate = @texts/Categorical()\ntexts/Categorical.values = ["a", "b"]\n'
    (tmp_path / "x.gin").write_text(SEARCHES.partition("both/")[0] + broken)
    lobench("run", "x.gin", "--store", "store", "--workers", "1", "--executor", "inline", cwd=tmp_path)
    done = lobench("budget", "store", cwd=tmp_path)
    assert SHOWN["left-out-broken-where-none"] in done.stdout, done.stdout + done.stderr
    assert json.loads(lobench("budget", "store", "--format", "json", cwd=tmp_path).stdout)["left_out"] == {"broken": 2}


DEPENDENT = """
Experiment.suites = ["tiny"]
drawn/Method.optimizer = @sgd()
drawn/Method.search = @random()
drawn/Method.num_trials = 20
drawn/sgd.learning_rate = @rate/Real()
spread/Method.optimizer = @sgd()
spread/Method.search = @grid()
spread/sgd.learning_rate = @points/Real()
points/Real.low = 0.001
points/Real.high = 0.1
points/Real.num_values = 20
rate/Real.low = 0.001
rate/Real.high = 0.1
rate/Real.scale = "log"
"""


def test_a_search_whose_trials_hang_on_each_other_has_intervals_up_to_a_tenth(folder: Path) -> None:
    (folder / "dependent.gin").write_text(DEPENDENT)
    done = lobench("run", "dependent.gin", "--store", "other", "--workers", "1", "--executor", "inline", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(lobench("budget", "other", "--format", "json", cwd=folder).stdout)
    assert record["differing_domains"] == {"learning_rate": {"drawn": "0.001 to 0.1, log", "spread": "0.001 to 0.1"}}
    line = SHOWN["spaces-differ-learning-rate-is"]
    assert line in lobench("budget", "other", cwd=folder).stdout
    found = record["searches"]
    with_interval = {one["method"]: sum(each["lower"] is not None for each in one["expected_best"]) for one in found}
    trials = {one["method"]: one["num_trials"] for one in found}
    assert with_interval == {"drawn": trials["drawn"] // 5, "spread": trials["spread"] // 10}
    assert trials == {"drawn": 20, "spread": 20}


STOPPED = """
Experiment.suites = ["tiny"]
tuned/Method.optimizer = @sgd()
tuned/Method.search = @grid()
tuned/sgd.learning_rate = @rate/Discrete()
rate/Discrete.values = [0.0001, 0.001, 0.01, 0.02, 0.05, 0.1]
"""


def test_budget_of_stopped_trials_gives_bounds_that_hold_the_search_without_stopping(tmp_path: Path) -> None:
    make_suite(tmp_path, ONE_CASE)
    found = {}
    for store, more in (("stopped", "tuned/Method.median_stopping = 0.5\n"), ("whole", "")):
        (tmp_path / "x.gin").write_text(STOPPED + more)
        done = lobench("run", "x.gin", "--store", store, "--workers", "1", "--executor", "inline", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        (found[store],) = json.loads(lobench("budget", store, "--format", "json", cwd=tmp_path).stdout)["searches"]
    stopped, whole = found["stopped"], found["whole"]
    assert (stopped["num_failed"], stopped["num_stopped"], whole["num_stopped"]) == (0, 3, 0)
    assert whole["at_most"] == [one["mean"] for one in whole["expected_best"]]
    bounds = list(zip([one["mean"] for one in stopped["expected_best"]], stopped["at_most"], strict=True))
    assert bounds[0][0] < bounds[0][1] and bounds[-1][0] == pytest.approx(bounds[-1][1])
    for (low, high), one in zip(bounds, whole["expected_best"], strict=True):
        assert low - 1e-9 <= one["mean"] <= high + 1e-9, (bounds, whole["expected_best"])
    text = lobench("budget", "stopped", cwd=tmp_path).stdout
    assert "6 (3 stopped)" in text and f"{bounds[0][0]:.3f} to {bounds[0][1]:.3f}" in text and "censored" in text
