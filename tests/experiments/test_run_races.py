"""Experiments that race their methods: who left when, with the decisions and bits of `lobench compare --race`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from commands import Done, lobench
from races import noisy_suite
from shown import texts_of
from tiny import killed_chief

from lobench.core.experiment import SessionMember
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("run")

RATES = {"good": 0.1, "near": 0.09, "slow": 0.03, "slowest": 0.0003}
METHODS = "".join(
    f"{name}/Method.optimizer = @sgd()\n{name}/sgd.learning_rate = {rate}\n" for name, rate in RATES.items()
)
RACE = f"""Experiment.suites = ["tiny"]
Experiment.num_sessions = 8
Experiment.race = @race()
{METHODS}"""
OPTIONS = ("--workers", "1", "--executor", "inline")


def run(folder: Path, *options: str) -> Done:
    return lobench("run", "x.gin", *OPTIONS, *options, cwd=folder)


def table(folder: Path) -> list[dict[str, Any]]:
    done = lobench("results", "--by", "method", "--store", ".lobench/x", "--format", "json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def notes(folder: Path) -> str:
    """Returns the text of the table, which says below it who left when."""
    return lobench("results", "--store", ".lobench/x", "--cases", cwd=folder).stdout


def members(folder: Path) -> list[SessionMember]:
    with contextlib.closing(Ledger.open(folder / ".lobench" / "x", read_only=True)) as ledger:
        return ledger.memberships(ledger.experiments()[-1].id)


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("raced")
    noisy_suite(folder)
    (folder / "x.gin").write_text(RACE)
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done


def test_an_experiment_decides_as_a_race_of_its_methods_and_says_who_left_when(raced: tuple[Path, Done]) -> None:
    folder, done = raced
    texts = [f"sgd(); sgd.learning_rate = {rate}" for rate in RATES.values()]
    options = ("--race", "--suite", "tiny", "--seeds", "8", "--format", "json", *OPTIONS)
    record = json.loads(lobench("compare", *texts, *options, cwd=folder).stdout)
    by_name = dict(zip(RATES, record["methods"], strict=True))
    out = {name: one["out_at"] for name, one in by_name.items() if one["out_at"]}
    assert "slowest" in out
    text = notes(folder)
    for name, look in out.items():
        assert SHOWN["left-at-look-seeds-a"].format(name=name, look=look, num_seeds=2 * look) in text
    bounds, no_bounds = SHOWN["against-its-score-less-the"], SHOWN["worse-by-bounds-that-hold"]
    assert bounds in text and no_bounds not in text
    assert no_bounds in done.stdout and bounds not in done.stdout, "the ranking has no cells with bounds"
    held = {(one.method, one.session) for one in members(folder)}
    looks = {name: out.get(name, record["looks"]) for name in RATES}
    assert held == {(name, seed) for name, look in looks.items() for seed in range(2 * look)}
    scores = {(one["method"], one["case"]): one for one in table(folder) if one["case"] == "mean score"}
    for name, one in scores.items():
        gap = by_name[name[0]]["gap"] if name[0] in out else None
        assert bool(one["against"]) == (gap is not None)
        assert gap is None or (one["mean"], one["lower"], one["upper"]) == (None, gap["lower"], gap["upper"])
    assert not [one for one in table(folder) if one["method"] in out and one["case"] != "mean score"]
    for name in ("latex", "appendix"):
        lobench("report", "--store", ".lobench/x", "--format", name, "--output", name, cwd=folder)
    assert "--: not evaluated, or left the race" in (folder / "latex").read_text()
    appendix = (folder / "appendix").read_text()
    assert "without a result" not in appendix, "a race plans no more seeds of a method that left it"
    assert ", 8 seeds, by" in appendix
    done = lobench("report", "--store", ".lobench/x", "--format", "text", cwd=folder)
    num_raced = len(RATES) - len(out)
    expected = "is the only method" if num_raced == 1 else f"has the highest mean score of {num_raced} methods"
    assert f"{expected} still in the race" in done.stdout, done.stdout


def test_a_race_of_an_experiment_goes_on_with_nothing_lost_and_nothing_twice(raced: tuple[Path, Done]) -> None:
    folder, done = raced
    before, count = table(folder), len(members(folder))
    again = run(folder)
    assert SHOWN["nothing-new"] in again.stdout and f"done: {count // 2} of {count // 2} evaluations" in again.stdout
    assert f"done: {count // 2} of {count // 2} evaluations, {count // 2} passed" in done.stdout
    assert table(folder) == before and len(members(folder)) == count


def test_an_experiment_that_is_killed_races_to_the_same_end(tmp_path: Path, raced: tuple[Path, Done]) -> None:
    noisy_suite(tmp_path)
    (tmp_path / "x.gin").write_text(RACE)
    killed = killed_chief(30, 1, "run", "x.gin", *OPTIONS, cwd=tmp_path)
    assert killed.returncode == -9, killed.stderr
    assert run(tmp_path).returncode == 0
    assert table(tmp_path) == table(raced[0])
    assert set(members(tmp_path)) == set(members(raced[0]))


def test_where_nobody_converges_nothing_is_decided_and_the_store_can_be_read(tmp_path: Path) -> None:
    noisy_suite(tmp_path)
    (tmp_path / "x.gin").write_text(RACE + "".join(f"{name}/sgd.learning_rate = 1e9\n" for name in RATES))
    done = run(tmp_path)
    assert done.returncode == 2 and SHOWN["no-case-has-a-scale"] in done.stderr, done.stdout + done.stderr
    assert {one["diverged"] > 0 for one in table(tmp_path)} == {True}


def test_what_gives_no_result_ends_a_race_and_is_tried_again(tmp_path: Path) -> None:
    suite = noisy_suite(tmp_path)
    with (suite / "tiny.gin").open("a") as file:
        file.write("b/Case.task = @Stopped()\n")
    (tmp_path / "x.gin").write_text(RACE)
    (tmp_path / "stop").touch()
    for output in ("8 error, 8 passed", SHOWN["nothing-new"]):
        done = run(tmp_path)
        assert done.returncode == 3 and SHOWN["race-stops"] in done.stdout and output in done.stdout, done.stdout
    (tmp_path / "stop").unlink()
    done = run(tmp_path, "--retry-errors")
    assert done.returncode == 0 and SHOWN["slowest-left-at-look"] in notes(tmp_path), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("lines", "output"),
    [
        ("race.block = 3", SHOWN["sessions-in-blocks-of-3"]),
        ("race.margin = -1", "race.margin"),
        ("race.looks = 3", SHOWN["nothing-reads-race-looks"]),
        ("Experiment.race = @races()", "expected @race()"),
        ("Experiment.fixed = []", SHOWN["race-needs-cases-that-are"]),
        ("slow/Method.search = @random()\nslow/sgd.learning_rate = @rate/Real()", SHOWN["method-slow-does-not-race"]),
    ],
)
def test_what_does_not_race_is_refused(raced: tuple[Path, Done], lines: str, output: str) -> None:
    params = [word for line in lines.splitlines() for word in ("--gin-param", line)]
    rate = ("--gin-param", "rate/Real.low = 0.1", "--gin-param", "rate/Real.high = 0.2") if "Real" in lines else ()
    done = run(raced[0], *params, *rate)
    assert done.returncode == 2 and output in done.stderr, done.stdout + done.stderr


def test_a_plan_of_a_race_is_the_most_that_it_can_cost(raced: tuple[Path, Done]) -> None:
    done = run(raced[0], "--check", "--offline")
    assert SHOWN["4-methods-x-2-cases"] in done.stdout and SHOWN["largest-possible-cost"] in done.stdout


def test_a_race_is_of_all_methods_on_all_cases(raced: tuple[Path, Done]) -> None:
    for options in (("--method", "good"), ("--case", "tiny/a")):
        assert SHOWN["race-is-of-all-methods"] in run(raced[0], *options).stderr
