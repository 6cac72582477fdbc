"""Items that other plugins repeat or rename are the case that they evaluate, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import pytest_session
from shown import texts_of
from tiny import ONE_CASE, make_run, make_suite

from lobench.analysis.store.snapshot import read_store
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("pytest")

FLAVOURS = """
def pytest_generate_tests(metafunc):
    metafunc.parametrize("flavour", ["x", "y"])
"""
TEST = """
from lobench import cases

@cases("tiny.gin")
def test_tiny(case, evaluate, flavour):
    evaluate(case)
"""


FORKS = """
import pytest
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.forked)
"""


def session(folder: Path, *options: str) -> None:
    given = ("--lobench-store=store", "--lobench-checkpoint=run/theta_1.npz")
    done = pytest_session("-q", "tiny", *given, *options, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_items_that_pytest_repeat_repeats_are_one_case(tmp_path: Path) -> None:
    make_suite(tmp_path, ONE_CASE)
    make_run(tmp_path, -1.5)
    session(tmp_path, "--count=3")
    with Ledger.open(tmp_path / "store", read_only=True) as ledger:
        rows, (plan,) = list(ledger.evaluations()), ledger.planned_subjects()
    nodes = sorted(row.case.node_id for row in rows)
    assert nodes == ["tiny/test_tiny.py::test_tiny[a]"]
    assert [one.name for one in plan.cases] == ["tiny/a"]
    identities = {row.case.identity for row in rows}
    session(tmp_path)
    with Ledger.open(tmp_path / "store", read_only=True) as ledger:
        assert {row.case.identity for row in ledger.evaluations()} == identities, "as without the plugin"


@pytest.mark.parametrize("how", ["option", "marker"])
def test_items_that_pytest_forked_would_fork_are_refused_with_the_reason(tmp_path: Path, how: str) -> None:
    pytest.importorskip("pytest_forked")
    suite, run = make_suite(tmp_path), make_run(tmp_path, -1.5)
    if how == "marker":
        (suite / "conftest.py").write_text(FORKS)
    options = ("--forked",) if how == "option" else ()
    done = pytest_session("-q", suite, f"--lobench-checkpoint={run / 'theta_1.npz'}", *options, cwd=tmp_path)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert SHOWN["forked-process-cannot-use-jax-so"] in done.stdout + done.stderr


def test_items_with_a_parameter_of_the_suite_are_two_cases_whose_bits_count_once(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, ONE_CASE)
    make_run(tmp_path, -1.5)
    (suite / "conftest.py").write_text(FLAVOURS)
    (suite / "test_tiny.py").write_text(TEST)
    session(tmp_path)
    snapshot = read_store(tmp_path / "store")
    assert len(snapshot.rows) == 2 and [case.name for case in snapshot.cases] == ["a"]
    assert len(snapshot.subjects[0].cells) == 1
    assert len(snapshot.left_out.repeated_cases) == 1 and snapshot.left_out.former_cases == ()
