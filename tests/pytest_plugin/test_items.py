"""Ordinary tests of a suite, as a watch runs them: each one, under a name of its own."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from shown import texts_of
from tiny import make_run, make_suite, results, watch

from lobench.pytest_plugin.items import files_of_test

SHOWN = texts_of("pytest")

TESTS = """
import pytest
from lobench import cases

@cases("tiny.gin")
def test_one(case, evaluate):
    evaluate(case)

@cases("tiny.gin")
@pytest.mark.parametrize("bound", [0.0, 1e9])
def test_bound(case, evaluate, bound):
    assert evaluate(case).final("train/loss").mean() < bound

@pytest.mark.xfail(reason="not yet")
@cases("tiny.gin")
def test_hope(case, evaluate):
    evaluate(case)
    assert False
"""
SAME = """
from lobench import cases

@cases("tiny.gin")
def test_one(case, evaluate):
    raise AssertionError("this one counts too")
"""
ONE_CASE = "import tiny_tasks\nCase.num_inner_steps = 10\nCase.num_seeds = 1\na/Case.task = @Bowl()\n"


def test_every_test_of_a_case_is_run_under_its_own_name(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0)
    (suite / "test_tiny.py").write_text(TESTS)
    done = watch(run, suite, "--once", "--workers", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    records = results(run / "lobench_results" / "tiny")
    found = {record["case"]["name"]: (record["outcome"], record["message"]) for record in records}
    assert found == {
        "test_tiny.test_one[a]": ("passed", ""),
        "test_tiny.test_bound[0.0-a]": ("failed", found["test_tiny.test_bound[0.0-a]"][1]),
        "test_tiny.test_bound[1000000000.0-a]": ("passed", ""),
        "test_tiny.test_hope[a]": ("skipped", SHOWN["xfail-not-yet"]),
    }
    assert len({record["case"]["identity"] for record in records}) == 4


def test_two_tests_of_one_name_on_one_case_are_named_and_neither_is_left_out_unseen(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0)
    (suite / "test_tiny.py").write_text(SAME.replace("raise", "evaluate(case)  #"))
    (suite / "test_more.py").write_text(SAME)
    done = watch(run, suite, "--once", "--workers", "1")
    assert done.returncode == 2
    for text in ("test_tiny.py::test_one[a]", "test_more.py::test_one[a]", SHOWN["rename-one"]):
        assert text in done.stderr, done.stderr


def test_files_of_a_test_hold_the_pytest_plugins_of_the_user(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fixtures_of_user.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    plugins = request.config.pluginmanager
    plugins.register(module := importlib.import_module("fixtures_of_user"))
    try:
        found = files_of_test(request.node)
    finally:
        plugins.unregister(module)
    assert found[0] == __file__ and str(tmp_path / "fixtures_of_user.py") in found
    assert not any("site-packages" in file for file in found)
