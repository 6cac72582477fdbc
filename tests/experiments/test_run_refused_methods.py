"""Methods that cannot be evaluated: the others train, and `--check` names all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Done, lobench
from shown import texts_of
from tiny import make_suite

from lobench.engine.config.experiment.file import read_experiment
from lobench.experiments.run import RunSettings, _check_devices

SHOWN = texts_of("run")

SOUND = "sound/Method.optimizer = @sgd()\nsound/sgd.learning_rate = 0.1\n"
UNKNOWN = "unknown/Method.optimizer = @no_such_optimizer()\n"
WRONG = 'wrong/Method.optimizer = @adam()\nwrong/adam.b1 = "text"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_suite(tmp_path)
    return tmp_path


def run(folder: Path, methods: str, *options: str) -> Done:
    (folder / "x.gin").write_text(f'Experiment.suites = ["tiny"]\nExperiment.num_sessions = 1\n{methods}')
    return lobench("run", folder / "x.gin", "--workers", "1", "--executor", "inline", *options, cwd=folder)


def test_check_names_all_methods_that_cannot_be_evaluated(folder: Path) -> None:
    done = run(folder, UNKNOWN + SOUND + WRONG, "--check")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert SHOWN["unknown-name-no-such-optimizer"] in done.stderr
    assert "'wrong'" in done.stderr and "'sound'" not in done.stderr


def test_run_evaluates_the_other_methods(folder: Path) -> None:
    done = run(folder, UNKNOWN + SOUND + WRONG, "--format", "json")
    assert done.returncode == 3, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["refused"].keys() == {"unknown", "wrong"}
    assert found["num_done"] == found["num_planned"] > 0
    assert {one["method"] for one in found["methods"]} == {"sound"}
    again = run(folder, SOUND)
    assert again.returncode == 0 and SHOWN["nothing-new"] in again.stdout


COMMAND = """gpu/Method.command = "python -c 'raise SystemExit(1)' {folder}"
gpu/Method.num_gpus = 1
gpu/Case.learned_optimizer = @LearnableSGD()
"""


def test_a_method_that_needs_a_missing_device_is_named_at_the_start(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    checked = run(folder, SOUND + COMMAND, "--check")
    assert checked.returncode == 2 and SHOWN["gpu-method-num-gpus-got"] in checked.stderr
    done = run(folder, SOUND + COMMAND, "--format", "json")
    assert done.returncode == 3, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["refused"].keys() == {"gpu"} and not found["trials"]
    assert found["num_done"] == found["num_planned"] > 0
    alone = run(folder, COMMAND)
    assert alone.returncode == 2 and "Method.num_gpus" in alone.stderr


def test_a_case_that_needs_a_missing_device_is_named_before_any_case_trains(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for device, options in (("1", ("--check",)), ("0.5", ())):
        done = run(folder, f"Case.num_gpus = {device}\n{SOUND}", *options)
        assert done.returncode == 2 and SHOWN["case-num-gpus-got-expected"].format(device=device) in done.stderr


@pytest.mark.parametrize(
    ("suite", "method"),
    [
        ({"test_own.py": "def test_own(): ...\n"}, "a/Method.optimizer = @sgd()"),  # the worker collects its cases
        ({"own.gin": "x/Case.task = @Quadratic()\nx/Case.num_gpus = 4\n"}, 'a/Method.curves = "a.csv"'),
    ],
)
def test_check_of_devices_leaves_suites_of_tests_and_methods_that_train_no_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: dict[str, str], method: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "own").mkdir()
    for name, text in suite.items():
        (tmp_path / "own" / name).write_text(text)
    (tmp_path / "a.csv").write_text("step,loss\n0,1.0\n")
    (tmp_path / "x.gin").write_text(f'Experiment.suites = ["own"]\n{method}\n')
    file = read_experiment(tmp_path / "x.gin")
    _check_devices(file, file.experiment.methods, RunSettings(experiment=str(tmp_path / "x.gin")), ())


def test_run_without_a_method_left_is_refused(folder: Path) -> None:
    done = run(folder, UNKNOWN + WRONG)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stdout + done.stderr
    assert "'unknown': " in done.stderr and "'wrong': " in done.stderr
