"""Ordinary tests as cases of the commands that evaluate checkpoints again: compare, bisect, best and alarm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from tiny import results

SHOWN = texts_of("lobench")

TESTS = """
import json
import pytest

def loss_of(checkpoint):
    return json.loads((checkpoint.path / "model.json").read_text())["loss"]

@pytest.mark.lobench(num_seeds=4)
@pytest.mark.parametrize("corpus", ["short", "long"])
def test_loss(checkpoint, record, corpus):
    for seed in range(4):
        record("valid/loss", loss_of(checkpoint) * len(corpus) + seed % 2 / 10, seed=seed)

class TestGroup:
    def test_inside(self, checkpoint, record):
        record("valid/loss", loss_of(checkpoint))
"""
LOSSES = (1.0, 0.9, 0.8, 3.0, 3.1, 3.0)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    suite = tmp_path / "lm"
    suite.mkdir()
    (suite / "test_lm.py").write_text(TESTS)
    return suite


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step, loss in enumerate(LOSSES, 1):
        folder = tmp_path / f"run/checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "model.json").write_text(json.dumps({"loss": loss, "step": step}))
        (folder / "trainer_state.json").write_text("{}")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("test_loss[long]", {"test_loss[long]"}),
        ("test_loss", {"test_loss[long]", "test_loss[short]"}),
        ("lm/test_lm.py::test_loss[short]", {"test_loss[short]"}),
        ("test_lm.TestGroup::test_inside", {"TestGroup::test_inside"}),
    ],
)
def test_compare_of_one_test_evaluates_it_alone(
    tmp_path: Path, suite: Path, run: Path, name: str, cases: set[str]
) -> None:
    paths = [run / f"checkpoint-{step}" for step in (4, 3)]
    done = lobench("compare", *paths, "--suite", suite, "--store", tmp_path / "store", "--case", name, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {one["case"]["name"] for one in results(tmp_path / "store")} == cases
    assert {one["case"]["name"] for one in results(tmp_path / "store", "--case", name)} == cases


OUTCOMES = """
import json
import pytest

def model(checkpoint):
    return json.loads((checkpoint.path / "model.json").read_text())

def test_exists(checkpoint):
    assert model(checkpoint)

def test_small(checkpoint):
    assert model(checkpoint)["loss"] < 2

def test_early(checkpoint):
    if model(checkpoint)["step"] > 4:
        pytest.skip("too late")
"""


@pytest.mark.parametrize(
    ("steps", "verdict", "code", "words"),
    [
        ((3, 4), "REGRESSED", 1, SHOWN["passed-under-checkpoint-3-a"]),
        ((4, 3), "PASS", 0, SHOWN["failed-under-checkpoint-4-a"]),
        ((4, 5), "INCONCLUSIVE", 0, SHOWN["without-an-outcome-on-a"]),
    ],
)
def test_compare_reports_a_test_that_fails_under_b_alone_as_a_regression(
    tmp_path: Path, suite: Path, run: Path, steps: tuple[int, int], verdict: str, code: int, words: str
) -> None:
    (suite / "test_lm.py").write_text(OUTCOMES)
    paths = [run / f"checkpoint-{step}" for step in steps]
    done = lobench("compare", *paths, "--suite", suite, "--store", tmp_path / "store", cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert text.startswith(f"{verdict}: tests: ") and words in text


def test_bisect_of_a_test_finds_the_broken_checkpoint(tmp_path: Path, suite: Path, run: Path) -> None:
    options = ("--suite", suite, "--store", tmp_path / "store", "--case", "test_loss[long]", "--format", "json")
    done = lobench("bisect", run, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["status"] == "found" and found["broken"]["outer_step"] == 4


def test_commands_with_an_unknown_test_name_the_known_ones(tmp_path: Path, suite: Path, run: Path) -> None:
    done = lobench("bisect", run, "--suite", suite, "--case", "test_los", cwd=tmp_path)
    assert done.returncode == 2 and SHOWN["expected-one-of-test-loss"] in done.stderr


FRESH = """
import hashlib
import json
import pytest

def loss_of(checkpoint, seed):
    noise = int(hashlib.sha256(f"{checkpoint.outer_step} {seed}".encode()).hexdigest(), 16) % 1000 / 1e5
    return json.loads((checkpoint.path / "model.json").read_text())["loss"] + noise

@pytest.mark.lobench(num_seeds=4)
def test_fresh(checkpoint, record):
    for seed in record.seeds:
        record("valid/loss", loss_of(checkpoint, seed), seed=seed)
"""
FIXED = """
def test_fixed(checkpoint, record):
    record("valid/loss", loss_of(checkpoint, 0))
"""


def watched(run: Path, suite: Path, tests: str) -> Path:
    (suite / "test_lm.py").write_text(tests)
    done = lobench("watch", run, "--suite", suite, "--once", "--checkpoints", "all")
    assert done.returncode == 0, done.stdout + done.stderr
    return run / "lobench_results/lm"


def test_best_takes_fresh_seeds_of_tests_that_read_them(run: Path, suite: Path) -> None:
    store = watched(run, suite, FRESH + FIXED)
    done = lobench("best", run, "--suite", suite, "--top", "2", "--seeds", "3", "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["best"].endswith("checkpoint-3")
    assert SHOWN["no-fresh-seeds-of-lm-test"] in done.stderr
    fresh, further = (
        [(one["case"]["name"], one["checkpoint"]["outer_step"], tuple(one["seeds"])) for one in results(folder)]
        for folder in (store / "best", store / "best/winner")
    )
    assert sorted(fresh) == [("test_fresh", step, (4, 5, 6)) for step in (2, 3)]
    assert further == [("test_fresh", 3, (7, 8, 9))]


def test_best_of_tests_with_fixed_seeds_is_one_line(run: Path, suite: Path) -> None:
    watched(run, suite, FRESH.replace("record.seeds", "range(4)"))
    done = lobench("best", run, "--suite", suite)
    assert done.returncode == 2 and SHOWN["no-fresh-seeds-of-lm-test-fresh"] in done.stderr, done.stderr
    assert "`record.seeds`" in done.stderr and len(done.stderr.splitlines()) == 1


def test_alarm_confirms_on_seeds_that_a_test_reads(run: Path, suite: Path) -> None:
    store = watched(run, suite, FRESH + FIXED)
    done = lobench("alarm", run, "--suite", suite, "--seeds", "4", "--format", "json")
    assert done.returncode == 1, done.stdout + done.stderr
    (alarm,) = json.loads(done.stdout)["alarms"]
    assert (alarm["outer_step"], alarm["reference_outer_step"]) == (4, 3)
    assert done.stderr.count(SHOWN["no-fresh-seeds-of-lm-test"]) == 1
    found = results(store / "alarm")
    assert {one["case"]["name"] for one in found} == {"test_fresh"}
    assert all(one["seeds"][0] > 1000 and len(one["seeds"]) == 4 for one in found)


def test_alarm_of_tests_with_fixed_seeds_is_refused_with_the_reason(run: Path, suite: Path) -> None:
    store = watched(run, suite, FRESH.replace("record.seeds", "range(4)"))
    done = lobench("alarm", run, "--suite", suite, "--seeds", "4")
    assert done.returncode == 2 and not done.stdout and not (store / "alarm/ledger.sqlite").exists()
    (line,) = done.stderr.splitlines()
    assert SHOWN["no-case-has-them"] in line and SHOWN["no-fresh-seeds-of-lm-test-fresh"] in line
    assert lobench("alarm", run, "--suite", suite, "--alarm", "stall").returncode == 0


@pytest.mark.parametrize("seeds", ["record.seeds", "range(4)"])
def test_bisect_asks_a_test_for_further_seeds_if_it_reads_them(run: Path, suite: Path, seeds: str) -> None:
    for step in range(1, 7):
        (run / f"checkpoint-{step}/model.json").write_text(json.dumps({"loss": 1.0, "step": step}))
    store = watched(run, suite, FRESH.replace("record.seeds", seeds))
    done = lobench("bisect", run, "--suite", suite, "--case", "test_fresh", "--probability", "0.999", "--most", "3")
    assert done.returncode == 4, done.stdout + done.stderr
    further = [one["seeds"] for one in results(store / "bisect")] if (store / "bisect").exists() else []
    if seeds == "record.seeds":
        assert further and min(map(min, further)) >= 4 and SHOWN["no-fresh-seeds"] not in done.stderr
    else:
        assert not further and SHOWN["no-fresh-seeds-of-lm-test-fresh"] in done.stderr
