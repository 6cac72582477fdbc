"""The explorer's data: what it holds, how long it may be, and that it repeats no number of its own making."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import report_store
from commands import lobench
from report_store import make_store
from shown import texts_of
from stores import add

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.comparisons.viewer_index import ViewerIndex
from lobench.core.result import Outcome
from lobench.core.step_cost import StepCost
from lobench.report.page.explorer import explorer_curves, explorer_data

SHOWN = texts_of("report")


def viewer_index(store: Path) -> ViewerIndex:
    return ViewerIndex(summary_of(store, []))


def test_final_values_are_those_of_results(tmp_path: Path) -> None:
    found = viewer_index(make_store(tmp_path))
    data = explorer_data(found, served=True)
    records = json.loads(lobench("results", "--store", tmp_path / "store", "--format", "json").stdout)
    names, num_cases = [name for name, _ in data["metrics"]], len(data["cases"])
    cases = [case["name"] for case in data["cases"]]
    for record in records:
        subject = record["checkpoint"]["outer_step"]
        place = 3 * (subject * num_cases + cases.index(f"{record['case']['suite']}/{record['case']['name']}"))
        for name, metric in record["metrics"].items():
            mean = data["finals"][names.index(name)][place]
            assert mean == (None if metric["final"] is None else pytest.approx(metric["final"], rel=1e-3))
    assert data["subjects"][3]["last"] and data["runs"] == [report_store.NASTY.rpartition("/")[2]]
    texts = [data["texts"][place] for place in data["cells"][::3]]
    assert SHOWN["seeds-0-to-3-seed"] in texts


def test_curves_of_a_file_and_of_a_server_are_the_same(tmp_path: Path) -> None:
    found = viewer_index(make_store(tmp_path))
    held, fetched = explorer_data(found, served=False)["curves"], explorer_curves(found, found.keys_of(3))
    assert len(fetched["of"]) == 6 and {key: held["of"][key] for key in fetched["of"]} == fetched["of"]
    grid, mean, *_ = held["of"]["3,1,1"]
    assert held["grids"][grid] == [0, 25, 50, 75, 100]
    assert mean[2:] == [None] * 3, "a seed diverged"


def test_a_long_file_thins_its_curves_and_says_whose_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_store, "STEPS", tuple(range(0, 2001, 10)))
    found = viewer_index(make_store(tmp_path, num_checkpoints=40, num_cases=25))
    data = explorer_data(found, served=False)
    assert len(json.dumps(data)) < 4_000_000
    held = [place for place, one in enumerate(data["subjects"]) if one["curves"]]
    assert {0, 39} < set(held) and len(held) < 40, "the first and the last, and some between"
    grids = {len(grid) for grid in data["curves"]["grids"]}
    assert grids == {24}
    assert all(grid[0] == 0 and grid[-1] == 2000 for grid in data["curves"]["grids"])
    served = explorer_data(found, served=True)
    assert all(one["curves"] for one in served["subjects"]) and served["curves"]["of"] == {}


def test_keys_of_a_link_stay_when_the_store_grows(tmp_path: Path) -> None:
    for step in (1, 2):
        add(tmp_path, step, {"a": {"train/loss": [1.0 / step, 0.5]}})
    before = [one["key"] for one in explorer_data(viewer_index(tmp_path), served=True)["subjects"]]
    add(tmp_path, 0, {"a": {"train/loss": [2.0, 2.0]}}, optimizer="adam()")
    add(tmp_path, 3, {"b": {"train/loss": [2.0, 2.0]}})
    after = [one["key"] for one in explorer_data(viewer_index(tmp_path), served=True)["subjects"]]
    assert set(before) < set(after) and len(set(after)) == 4


def test_a_case_without_curves_is_said_and_draws_nothing(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [1.0, math.nan]}, "b": Outcome.TIMEOUT})
    data = explorer_data(viewer_index(tmp_path), served=False)
    assert data["finals"] == [[None, None, None] * 2]
    assert [data["texts"][place] for place in data["cells"][::3]] == [
        SHOWN["seeds-0-to-1-seed"], SHOWN["no-curves-timeout-it-hung"]
    ]  # fmt: skip


def test_the_best_of_a_run_has_all_cases_and_the_last_may_lack_some(tmp_path: Path) -> None:
    for step, final in ((1, 1.0), (2, 0.5), (3, 1.5)):
        losses = {"train/loss": [final, final + 0.1]}
        add(tmp_path, step, {"a": losses, "b": losses}, uri=f"/x/theta_{step}.npz")
    add(tmp_path, 4, {"a": {"train/loss": [0.1, 0.1]}}, uri="/x/theta_4.npz")
    add(tmp_path, 0, {"a": {"train/loss": [0.2, 0.2]}}, optimizer="adam()")
    subjects = explorer_data(viewer_index(tmp_path), served=False)["subjects"]
    marks = {one["label"]: (one.get("best"), one.get("last"), one.get("run"), one.get("step")) for one in subjects}
    assert marks == {
        "adam()": (None, None, None, None),
        "outer step 1": (None, None, 0, 1),
        "outer step 2": (True, None, 0, 2),
        "outer step 3": (None, None, 0, 3),
        "outer step 4": (None, True, 0, 4),
    }


def test_an_inner_step_has_its_seconds_and_its_gradient_steps_where_they_were_measured(tmp_path: Path) -> None:
    gradient = StepCost(machine="cpu", num_together=1, samples=(0.01,))
    cost = StepCost(machine="cpu", num_together=1, samples=(0.03,), gradient=gradient)
    add(tmp_path, 1, {"a": {"train/loss": [1.0, 0.5]}}, cost=cost)
    add(tmp_path, 2, {"a": {"train/loss": [1.0, 0.5]}})
    data = explorer_data(viewer_index(tmp_path), served=True)
    assert data["seconds"] == [0.05, 0.05] and data["gradients"] == [pytest.approx(3.0), None]
