"""`pytest experiment.gin`: an item for each method, case and session; real pytest processes, real ledgers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import lobench, pytest_session
from forked import ANEW
from shown import texts_of
from tiny import make_suite, write_checkpoint

from lobench.core.result import Curves
from lobench.engine.store.evaluation_row import EvaluationRow
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("pytest")

EXPERIMENT = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
adam/Method.optimizer = @adam()
sgd/Method.optimizer = @sgd()
sgd/sgd.learning_rate = 0.1
"""

LEARNED = """
learned/Method.checkpoint = "theta.npz"
learned/Case.learned_optimizer = @LearnableSGD()
"""
# A method's final loss and its bound, in a bare file.
BARE = """
import tiny_tasks
Case.num_inner_steps = 10
Case.eval_every = 5
own/Case.task = @Bowl()
Experiment.num_sessions = 2
sgd/Method.optimizer = @sgd()
sgd/sgd.learning_rate = 0.1
"""
# What a session of pytest says last.
SAYS_JAX = """
import sys
def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"jax is{'' if 'jax' in sys.modules else ' not'} imported")
"""


def run_pytest(folder: Path, *arguments: str) -> str:
    if "-n" in arguments:
        return run_apart(folder, *arguments)
    here = pytest_session(*arguments, cwd=folder)
    return here.stdout + here.stderr


def run_apart(folder: Path, *arguments: str, **environment: str) -> str:
    """Runs it in a process of its own."""
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments]
    env = {**os.environ, **environment}
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=env)
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_suite(tmp_path)
    (tmp_path / "x.gin").write_text(EXPERIMENT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def collected(folder: Path, *arguments: str) -> list[str]:
    lines = run_pytest(folder, *arguments, "--collect-only", "-q").splitlines()
    return [line for line in lines if "::" in line]


def test_ids_are_of_case_method_and_session(folder: Path) -> None:
    expected = [f"x.gin::tiny/{case}[{member}]" for case in "ab" for member in ("adam-0", "adam-1", "sgd-0", "sgd-1")]
    assert sorted(collected(folder, "x.gin")) == expected
    assert collected(folder, "x.gin", "-k", "sgd and tiny/b") == ["x.gin::tiny/b[sgd-0]", "x.gin::tiny/b[sgd-1]"]
    assert collected(folder, "x.gin::tiny/a[sgd-1]") == ["x.gin::tiny/a[sgd-1]"]
    assert SHOWN["not-found-x-gin-tiny"] in run_pytest(folder, "x.gin::tiny/a[sgd-7]", "--collect-only")


def test_a_gin_parameter_is_the_experiments_too(folder: Path) -> None:
    found = collected(folder, "x.gin", "--lobench-gin-param", "Experiment.num_sessions = 3", "-k", "tiny/a and adam")
    assert found == [f"x.gin::tiny/a[adam-{session}]" for session in range(3)]


def test_cases_of_the_very_file_have_their_own_number_of_seeds(folder: Path) -> None:
    case = "import nothing_of_that_name\nown/Case.task = @Bowl()\nCase.num_seeds = %n\nn = 2\n"
    (folder / "y.gin").write_text(case + "sgd/Method.optimizer = @sgd()\n")
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = tiny\n")
    name = folder.name  # a bare file's suite is named by the folder that it lies in
    assert collected(folder, "y.gin") == [f"y.gin::{name}/own[sgd-0]", f"y.gin::{name}/own[sgd-1]"]


def test_what_is_wrong_is_one_line(folder: Path) -> None:
    output = run_pytest(folder, "x.gin", "--collect-only", "--lobench-gin-param", "sgd/Case.num_inner_steps = 3")
    assert SHOWN["method-sgd-binds-case-num"] in output
    assert "Traceback" not in output


def test_a_folders_run_takes_no_experiment_that_nobody_named(folder: Path) -> None:
    (folder / "x.gin").rename(folder / "tiny" / "x.gin")
    assert sorted(collected(folder, "tiny")) == ["tiny/test_tiny.py::test_tiny[a]", "tiny/test_tiny.py::test_tiny[b]"]


@contextlib.contextmanager
def opened(store: Path) -> Iterator[Ledger]:
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        yield ledger


def held(store: Path) -> dict[object, tuple[str, object]]:
    """Returns outcome and bits of each evaluation, by its key."""
    with opened(store) as ledger:
        return {row.key: (row.outcome, bits(row)) for row in ledger.evaluations()}


def bits(row: EvaluationRow) -> object:
    if row.payload is None:
        return None
    curves = Curves.from_payload(row.payload)
    return {name: values.tobytes() for name, values in curves.metrics.items()}, curves.diverged_at


def members(store: Path) -> set[tuple[object, ...]]:
    """Returns an experiment's members: it has one form in the store."""
    with opened(store) as ledger:
        (form,) = ledger.experiments()
        return {(one.method, one.trial, one.session, one.evaluation) for one in ledger.memberships(form.id)}


def lobench_run(folder: Path, store: str, file: str = "x.gin") -> str:
    done = lobench("run", file, "--store", store, "--executor", "inline", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_pytest_records_is_what_lobench_run_records(folder: Path) -> None:
    write_checkpoint(folder / "theta.npz", -2.0)
    (folder / "x.gin").write_text(EXPERIMENT + LEARNED)
    output = run_pytest(folder, "x.gin", "--lobench-store", "S", "-k", "tiny/a and not learned-1")
    assert "5 passed" in output and len(held(folder / "S")) == 3, output  # a block is trained once for its sessions
    assert len(members(folder / "S")) == 5
    output = run_pytest(folder, "x.gin", "--lobench-store", "S", "--lobench-reuse", "--junitxml", "j.xml", "-n", "2")
    assert "12 passed" in output, output
    names = {case.get("name") for case in ET.parse(folder / "j.xml").iter("testcase")}
    assert {"tiny/a[adam-0]", "tiny/b[learned-1]"} < names and len(names) == 12

    lobench_run(folder, "T")
    assert held(folder / "S") == held(folder / "T") and len(held(folder / "S")) == 6
    assert members(folder / "S") == members(folder / "T") and len(members(folder / "S")) == 12
    assert SHOWN["nothing-new"] in lobench_run(folder, "S")


def test_what_is_there_is_not_trained_again_and_added_sessions_are_a_block_of_their_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "conftest.py").write_text(SAYS_JAX)
    tasks = folder / "tiny" / "tiny_tasks.py"
    refused = "int('it is trained') if __import__('os').environ.get('REFUSED') else jnp.sum(params**2)"
    tasks.write_text(tasks.read_text().replace("return jnp.sum(params**2)", f"return {refused}"))
    lobench_run(folder, "S")
    again = ("x.gin", "--lobench-store", "S", "--lobench-reuse")
    monkeypatch.setenv("REFUSED", "1")
    output = run_apart(folder, *again, **ANEW)  # a forked process has imported jax
    assert "8 passed" in output and SHOWN["jax-is-not-imported"] in output, output
    assert SHOWN["it-is-trained"] in run_pytest(folder, *again, "--lobench-gin-param", "Experiment.num_sessions = 3")
    monkeypatch.delenv("REFUSED")
    output = run_pytest(folder, *again, "--lobench-gin-param", "Experiment.num_sessions = 3", "-k", "tiny/a and sgd")
    assert "3 passed" in output, output
    with opened(folder / "S") as ledger:
        found = [row.key.seed_block for row in ledger.evaluations() if row.case.name == "a"]
    assert sorted(map(str, found)) == ["0+2", "0+2", "2+1", "2+1"]  # that of adam is from the call that failed


def test_a_session_is_judged_by_its_own_seed_and_its_block_as_lobench_run_does(folder: Path) -> None:
    file = folder / "tiny" / "y.gin"
    file.write_text(BARE)
    assert "2 passed" in run_pytest(folder, "tiny/y.gin", "--lobench-store", "S")
    with opened(folder / "S") as ledger:
        (row,) = ledger.evaluations()
    assert row.payload is not None
    finals = Curves.from_payload(row.payload).final("train/loss")
    bound = sum(finals) / 2 * 1.001  # the mean is below it, and one of the seeds
    file.write_text(f"{BARE}own/expect.max_final_loss = {bound}\n")
    output = run_pytest(folder, "tiny/y.gin", "--lobench-store", "S2")
    worse = finals.index(max(finals))
    assert "1 failed, 1 passed" in output and f"own[sgd-{worse}]" in output, output
    assert SHOWN["method-sgd-session-expect-max"].format(worse=worse) in output
    lobench_run(folder, "T2", "tiny/y.gin")
    assert held(folder / "S2") == held(folder / "T2")
    assert [outcome for outcome, _ in held(folder / "S2").values()] == ["passed"]


def test_an_item_that_diverges_or_breaks_says_which_method_it_is_of(folder: Path) -> None:
    test = folder / "tiny" / "test_tiny.py"
    test.write_text(test.read_text().replace("    evaluate(case)", "    assert not evaluate(case).diverged.any()"))
    hot = "hot/Method.optimizer = @sgd()\nhot/sgd.learning_rate = 1e30\n"
    broken = 'broken/Method.optimizer = @sgd()\nbroken/sgd.learning_rate = "much"\n'
    (folder / "x.gin").write_text(EXPERIMENT + hot + broken)
    output = run_pytest(folder, "x.gin", "--lobench-store", "S", "-k", "tiny/a")
    assert "4 failed, 4 passed" in output, output
    for method in ("hot", "broken"):
        assert (
            f"x.gin::tiny/a[{method}-1]" in output
            and SHOWN["method-session-1-seed-block"].format(method=method) in output
        )
    with opened(folder / "S") as ledger:
        assert sorted(row.outcome for row in ledger.evaluations()) == ["error", "failed", "passed", "passed"]


def test_a_command_is_left_to_lobench_run(folder: Path) -> None:
    command = 'mine/Method.command = "python train.py {session} {folder}"\n'
    (folder / "x.gin").write_text(EXPERIMENT + command)
    output = run_pytest(folder, "x.gin", "-k", "mine or (sgd and tiny/b)", "-rs")
    assert "2 passed, 4 skipped" in output, output
    assert SHOWN["mine-is-trained-by-a"] in output
    assert len(held(folder / ".lobench" / "x")) == 1


def test_two_tests_of_one_case_have_ids_of_their_own(folder: Path) -> None:
    test = folder / "tiny" / "test_tiny.py"
    test.write_text(test.read_text() + test.read_text().partition("\n")[2].replace("test_tiny", "test_more"))
    found = collected(folder, "x.gin", "-k", "tiny/a and adam-0")
    assert found == ["x.gin::tiny/a[adam-0]", "x.gin::tiny/a.test_more[adam-0]"]


def test_an_experiment_has_subjects_of_its_own(folder: Path) -> None:
    output = run_pytest(folder, "x.gin", "--lobench-optimizer", "adam()")
    assert SHOWN["experiment-s-methods-are-its"] in output


def test_methods_that_lobench_run_trains_are_skipped_on_bare_files_too(folder: Path) -> None:
    command = 'mine/Method.command = "python train.py {session} {folder}"\n'
    (folder / "tiny" / "bare.gin").write_text(BARE.partition("Experiment")[0])
    (folder / "x.gin").write_text(EXPERIMENT.replace('"tiny"', '"tiny/bare.gin"') + command)
    printed = run_pytest(folder, "x.gin", "-rs", "-k", "mine")
    assert "2 skipped" in printed and SHOWN["lobench-run-x-gin-runs"] in printed
    assert "INTERNALERROR" not in printed
