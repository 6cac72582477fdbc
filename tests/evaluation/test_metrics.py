"""Plugins' metrics: next to the task's own, and never in the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from shown import texts_of
from tiny import ONE_CASE, make_run, make_suite, results, watch

from lobench.core.errors import PluginError
from lobench.core.metric import Direction, UnknownDirection
from lobench.core.result import Curves
from lobench.evaluation.plugin_metrics import with_metrics
from lobench.evaluation.result import Result
from lobench.hookspecs import Declaration
from lobench.plugins import PluginManager

SHOWN = texts_of("evaluation")


def curves(*finals: float) -> Curves:
    rows = np.asarray([[4.0, final] for final in finals], np.float32)
    return Curves(
        seeds=tuple(range(len(finals))),
        metrics={"train/loss": memoryview(rows)},
        eval_steps=(0, 5),
        diverged_at=(-1,) * len(finals),
    )


def manager_with(directions: dict[str, str] | None = None, **metrics: object) -> PluginManager:
    def declare() -> list[Declaration]:
        return [Declaration(name=name, factory=f":{name}", metric_directions=directions or {}) for name in metrics]

    manager = PluginManager()
    manager.register(SimpleNamespace(lobench_metrics=declare, **metrics), name="mine")
    return manager


def spoil(curves: Curves) -> dict[str, list[float]]:
    curves.metrics["train/loss"][0, 0] = 0.0  # type: ignore[index]
    return {}


def test_a_metric_is_a_value_a_seed_beside_the_tasks_own() -> None:
    manager = manager_with(
        {"drop": "max", "half": "min"},
        drop=lambda c: {"train/drop": [4 - x for x in c.final("train/loss")], "half": c.seeds},
    )
    found = with_metrics(curves(1.0, 2.0), manager.declarations("lobench_metrics"))
    again = Curves.from_payload(found.to_payload())
    assert again.metrics["train/drop"].tolist() == [[3.0], [2.0]]
    assert again.final("drop/half") == again.best("drop/half") == again.mean("drop/half") == [0.0, 1.0]
    assert again.problems == () and again.added == ("train/drop", "drop/half")
    assert again.directions == {"train/drop": Direction.MAX, "drop/half": Direction.MIN}
    assert Result([found]).final("train/drop").tolist() == [3.0, 2.0]


def test_what_raises_or_gives_something_else_is_named_and_changes_nothing() -> None:
    manager = manager_with(
        breaks=lambda c: 1 / 0,
        quits=lambda c: sys.exit(3),
        short=lambda c: {"a/b": [1.0]},
        list=lambda c: [1.0],
        thief=lambda c: {"train/loss": [0.0, 0.0]},
        spoils=spoil,
        works=lambda c: {"a/works": [1, 2]},
    )
    before = curves(1.0, 2.0)
    found = with_metrics(before, manager.declarations("lobench_metrics"))
    assert found.metrics["train/loss"].tolist() == [[4.0, 1.0], [4.0, 2.0]]
    assert set(found.metrics) == {"train/loss", "a/works"}
    problems = dict(problem.split("' of plugin 'mine': ") for problem in found.problems)
    assert {name.removeprefix("metric '"): text for name, text in problems.items()} == {
        "breaks": SHOWN["zerodivisionerror-division-by-zero"],
        "quits": "SystemExit: 3",
        "short": SHOWN["it-returned-something-else-for"],
        "list": SHOWN["it-returned-no-metrics-got"],
        "thief": SHOWN["there-is-a-metric-train"],
        "spoils": SHOWN["typeerror-cannot-modify-read-only"],
    }
    assert with_metrics(before, {}) is before


def test_of_what_nobody_declared_there_is_no_best() -> None:
    found = with_metrics(curves(1.0), manager_with(f1=lambda c: {"test/f1": [0.5]}).declarations("lobench_metrics"))
    assert found.final("test/f1") == [0.5] and found.direction("test/f1") is None
    with pytest.raises(UnknownDirection, match=r'metric_directions = \{"f1": "max"\}'):
        Result([found]).best("test/f1")
    wrong = with_metrics(
        curves(1.0), manager_with({"f1": "up"}, f1=lambda c: {"test/f1": [0.5]}).declarations("lobench_metrics")
    )
    assert SHOWN["metric-directions-f1-is-not"] in wrong.problems[0]
    assert set(wrong.metrics) == {"train/loss"} and wrong.added == ()


def test_a_metric_that_failed_for_one_block_is_no_metric_of_the_whole() -> None:
    manager = manager_with(picky=lambda c: {"a/b": [1 / value for value in c.final("train/loss")]})
    declared = manager.declarations("lobench_metrics")
    result = Result([with_metrics(curves(1.0), declared), with_metrics(curves(0.0), declared)])
    assert set(result.metrics) == {"train/loss"} and len(result.problems) == 1


def test_two_metrics_of_one_name_are_an_error_that_names_both() -> None:
    manager = manager_with(a=len)
    manager.register(SimpleNamespace(lobench_metrics=lambda: [Declaration(name="a", factory=":x")]), name="other")
    with pytest.raises(PluginError, match=SHOWN["two-plugins-declare-a-mine"]):
        manager.declarations("lobench_metrics")
    assert manager.usable_declarations("lobench_metrics") == {}
    assert SHOWN["two-plugins-declare-a"] in str(manager.broken[0])


CONFTEST = """
from lobench.hookspecs import Declaration

def lobench_metrics():
    return [
        Declaration(name="area", factory="beside:area"),
        Declaration(name="ratio", factory=":ratio"),
        Declaration(name="broken", factory=":broken"),
        Declaration(name="missing", factory="no_such_module:x"),
    ]

def ratio(curves):
    return {"train/ratio": [row[-1] / row[0] for row in curves.metrics["train/loss"].tolist()]}

def broken(curves):
    raise ValueError("no such curve")
"""
BESIDE = "def area(curves):\n    return {'train/area': curves.mean('train/loss')}\n"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    suite = make_suite(tmp_path, ONE_CASE)
    (suite / "conftest.py").write_text(CONFTEST)
    (suite / "beside.py").write_text(BESIDE)
    return suite


def check(store: Path) -> None:
    for record in results(store, "--curves"):
        (first, *_, last) = record["curves"]["train/loss"][0]
        assert record["metrics"]["train/ratio"]["per_seed"][0] == pytest.approx(last / first)
        assert record["metrics"]["train/area"]["final"] == pytest.approx(record["metrics"]["train/loss"]["mean"])
        assert record["outcome"] == "passed"
        assert (
            SHOWN["metric-broken-of-plugin"] in record["message"]
            and SHOWN["valueerror-no-such-curve"] in record["message"]
        )
        assert SHOWN["metric-missing-of-plugin"] in record["message"] and "no_such_module" in record["message"]


def test_a_suites_conftest_declares_metrics_for_a_watch(suite: Path, tmp_path: Path) -> None:
    from lobench_tensorboard.sink import written_scalars

    run = make_run(tmp_path, -3.0)
    done = watch(
        run, suite, "--once", "--verbose", "--workers", "1", "--sink", "tensorboard", "--store", str(tmp_path / "store")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert SHOWN["metric-broken-of-plugin"] in done.stdout
    check(tmp_path / "store")
    tags = {tag for tag, _ in written_scalars(tmp_path / "store" / "tensorboard")}
    assert {"tiny/a/train/ratio", "tiny/a/train/area", "tiny/a/train/loss"} <= tags


def test_and_for_pytest(suite: Path, tmp_path: Path) -> None:
    (suite / "test_tiny.py").write_text(
        "from lobench import cases\n\n@cases('tiny.gin')\ndef test_tiny(case, evaluate):\n"
        "    assert evaluate(case).final('train/ratio').max() < 1\n"
    )
    checkpoint = make_run(tmp_path, -3.0) / "theta_1.npz"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(suite), "-q"]
    options = ["--lobench-checkpoint", str(checkpoint), "--lobench-store", str(tmp_path / "store")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    check(tmp_path / "store")
    assert SHOWN["metric-broken-of-plugin"] in done.stdout
