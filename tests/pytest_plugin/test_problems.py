"""What is wrong and stops nothing is said in pytest's last lines, and stands in the store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from commands import Done, pytest_session
from shown import texts_of
from tiny import GIN, ONE_CASE, TASKS, make_run, make_suite, results

SHOWN = texts_of("pytest")


def test_a_misspelled_binding_of_a_trainers_and_flags_that_come_too_late(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0)
    (suite / "late_flags.py").write_text("import os\nos.environ['XLA_FLAGS'] = '--xla_cpu_enable_fast_math=false'\n")
    (suite / "tiny.gin").write_text("import late_flags\n" + (suite / "tiny.gin").read_text())
    (run / "config.gin").write_text("LearnableSGD.log_rate = 1\nCase.learned_optimizer = @LearnableSGD()\n")
    store = tmp_path / "store"
    given = (f"--lobench-checkpoint={run / 'theta_1.npz'}", f"--lobench-store={store}")
    done = pytest_session("-q", suite, *given, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    misspelled = SHOWN["not-bound-learnablesgd-has-no"].format(config=run / "config.gin")
    late = SHOWN["a-module-of-the-suite"]
    lines = done.stdout.splitlines()
    assert lines.count(misspelled) == lines.count(late) == 1, done.stdout
    assert {record["message"] for record in results(store)} == {f"{misspelled}; {late}"}


def test_what_no_case_can_be_evaluated_with_is_no_verdict(tmp_path: Path) -> None:
    suite, store = make_suite(tmp_path), tmp_path / "store"
    missing, given = f"--lobench-checkpoint={tmp_path / 'no.npz'}", f"--lobench-checkpoint={suite / 'tiny.gin'}"
    for options, output in (
        ([missing], f"--lobench-checkpoint: no checkpoint found; got {tmp_path / 'no.npz'}"),
        ([given, "--lobench-optimizer=sgd()"], SHOWN["lobench-checkpoint-and-lobench-optimizer"]),
    ):
        done = pytest_session("-q", suite, *options, f"--lobench-store={store}", cwd=tmp_path)
        assert done.returncode == 4 and output in done.stderr, done.stdout + done.stderr
    assert not store.exists()


def test_a_session_to_which_nothing_was_given_ends_with_one_line_and_evaluates_what_insists_on_its_own(
    tmp_path: Path,
) -> None:
    suite, store = make_suite(tmp_path, extra="b/Case.optimizer = @sgd()\nb/sgd.learning_rate = 0.1\n"), tmp_path / "s"
    words = ("-q", f"--lobench-store={store}", str(suite))
    output = "ERROR: nothing to evaluate tiny/a with; give --lobench-checkpoint PATH or --lobench-optimizer 'adam()'"
    done: Done | subprocess.CompletedProcess[str]
    for options, code in (([], 4), (["-n", "2"], 4), (["-k", "b]"], 0)):
        if "-n" in options:
            command = [sys.executable, "-m", "pytest", *words, *options]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        else:
            done = pytest_session(*words, *options, cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        assert done.stderr.strip().splitlines() == ([output] if code else []), done.stderr
        assert "Traceback" not in done.stdout and store.exists() == (code == 0), done.stdout
    (found,) = results(store)
    assert (found["case"]["name"], found["outcome"]) == ("b", "passed")
    # Ordinary tests beside the cases run.
    (suite / "test_more.py").write_text("def test_more():\n    pass\n")
    beside = pytest_session(*words, cwd=tmp_path)
    assert beside.returncode == 1 and "1 failed, 2 passed" in beside.stdout, beside.stdout
    assert SHOWN["no-optimizer-put-case-learned"] in beside.stdout


def test_a_scope_that_is_no_case_ends_the_session_before_anything_is_trained(tmp_path: Path) -> None:
    suite, store = make_suite(tmp_path), tmp_path / "store"
    words = ("-q", suite, "--lobench-optimizer=sgd()", f"--lobench-store={store}", "-k", "a]")
    misspelled = pytest_session(*words, "--lobench-gin-param", "bb/Bowl.dim = 3", cwd=tmp_path)
    assert misspelled.returncode == 4 and SHOWN["bb-is-not-a-case"] in misspelled.stderr, misspelled.stderr
    assert not store.exists()
    left_out = pytest_session(*words, "--lobench-gin-param", "b/Bowl.dim = 3", cwd=tmp_path)
    assert left_out.returncode == 0, left_out.stdout + left_out.stderr


def test_a_module_of_the_same_name_never_stands_for_the_one_beside_the_gin_file(tmp_path: Path) -> None:
    for suite, module in (("one", "own_tasks"), ("copy", "own_tasks"), ("two", "own_tasks"), ("three", "random")):
        (tmp_path / suite).mkdir()
        (tmp_path / suite / f"{module}.py").write_text(TASKS + "# another one" * (suite == "two"))
        (tmp_path / suite / "tiny.gin").write_text(GIN.replace("tiny_tasks", module))
    items = [f"{suite}/tiny.gin::a" for suite in ("one", "copy", "two", "three")]
    done = pytest_session("-q", "--lobench-optimizer=sgd()", *items, cwd=tmp_path)
    assert SHOWN["two-tiny-gin-2-import"].format(tmp_path=tmp_path) in done.stdout, done.stdout
    assert SHOWN["three-tiny-gin-2-import"].format(tmp_path=tmp_path) in done.stdout
    assert "2 failed, 2 passed" in done.stdout, done.stdout


def test_an_optimizer_that_is_none_is_told_without_an_option_that_pytest_has_not(tmp_path: Path) -> None:
    suite = make_suite(tmp_path) / "tiny.gin"
    done = pytest_session("-q", f"{suite}::a", "--lobench-optimizer=adamm()", cwd=tmp_path)
    assert SHOWN["optimizer-adamm-unknown-name-adamm"] in done.stdout, done.stdout
    assert " --optimizer" not in done.stdout
