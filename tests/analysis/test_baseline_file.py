"""Baseline files: what is written is what is read, and what is stale says how to refresh it."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from case_infos import case_info
from shown import texts_of

from lobench.analysis.scores.baseline_file import (
    Baseline,
    BaselineCase,
    BaselineError,
    BaselineTraining,
    GridPoint,
    StaleBaseline,
    TunedCurves,
    find_baselines,
)
from lobench.core.case import CaseInfo

SHOWN = texts_of("analysis")

CASE = BaselineCase(
    problem="p1",
    training=BaselineTraining(num_inner_steps=100, horizon_factor=10, eval_every=10),
    seeds=(0, 1),
    grid=(
        GridPoint(values={"learning_rate": 0.1}, study=0, final=0.25, num_diverged=0),
        GridPoint(values={"learning_rate": 1.0}, study=0, final=math.nan, num_diverged=2),
    ),
    best=(0,),
    untrained={"train/loss": 2.5},
    tuned={"train/loss": (0.2, 0.3)},
    curves=TunedCurves(
        steps=np.asarray([0, 50, 100, 1000]),
        means={"train/loss": np.asarray([2.5, 1.0, 0.25, 0.1], np.float32)},
        envelope=np.linspace(2, 0.1, 512).astype(np.float32),
    ),
)
BASELINE = Baseline(optimizer="adam", protocol="velo", refresh="lobench baseline suites/x", cases={"x.gin:a": CASE})


def info(name: str = "a", problem: str = "p1") -> CaseInfo:
    return case_info(name, identity="i", suite="x", node_id="n", num_inner_steps=100, num_seeds=2, problem=problem)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "baselines" / "adam-velo.json"
    BASELINE.save(path)
    found = Baseline.load(path)
    case = found.case(info())
    assert (case.seeds, case.best, case.training.horizon, case.tuned) == ((0, 1), (0,), 1000, CASE.tuned)
    assert case.grid[0] == CASE.grid[0]
    assert math.isnan(case.grid[1].final)
    assert case.curves.steps.tolist() == [0, 50, 100, 1000]
    np.testing.assert_array_equal(case.curves.means["train/loss"], CASE.curves.means["train/loss"])
    np.testing.assert_array_equal(case.curves.envelope, CASE.curves.envelope)
    assert find_baselines(tmp_path) == [path]
    again = path.read_bytes()
    found.save(path)
    assert path.read_bytes() == again
    json.loads(again)  # NaN is not JSON


def test_tuned_adam_comes_first_and_of_its_files_that_of_the_default_grid(tmp_path: Path) -> None:
    for name in ("adafactor-velo", "adam-algoperf", "adam-velo", "adamw-velo"):
        BASELINE.save(tmp_path / "baselines" / f"{name}.json")
    assert [path.stem for path in find_baselines(tmp_path)] == [
        "adam-velo",
        "adam-algoperf",
        "adafactor-velo",
        "adamw-velo",
    ]


def test_a_changed_case_is_an_error_that_names_the_command() -> None:
    with pytest.raises(StaleBaseline, match=SHOWN["run-lobench-baseline-suites-x"]):
        BASELINE.case(info(problem="p2"))
    assert not BASELINE.has_problem("p2")


@pytest.mark.parametrize("name", ["a", "other"])
def test_a_case_of_another_suite_is_told_of_its_own_suites_baseline(name: str) -> None:
    elsewhere = dataclasses.replace(info(name, "p2"), suite="y", node_id="suites/y/y.gin::" + name)
    with pytest.raises(BaselineError, match=SHOWN["y-has-no-such-case"]) as caught:
        BASELINE.case(elsewhere)
    assert not isinstance(caught.value, StaleBaseline)


def test_a_changed_program_is_stale_too() -> None:
    old = dataclasses.replace(BASELINE, program_version="0")
    assert not old.has_problem("p1")
    with pytest.raises(StaleBaseline, match=SHOWN["inner-program"]):
        old.case(info())


def test_a_case_that_never_had_one_is_not_stale_but_missing() -> None:
    with pytest.raises(BaselineError, match=SHOWN["no-such-case"]) as caught:
        BASELINE.case(info(name="new", problem="p3"))
    assert not isinstance(caught.value, StaleBaseline)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', '{"format": 1, "cases": {"a": {}}}'])
def test_a_broken_file_is_one_clear_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "adam-velo.json"
    path.write_text(text)
    with pytest.raises(BaselineError, match=r"adam-velo\.json"):
        Baseline.load(path)
