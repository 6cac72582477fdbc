"""`lobench run --check` starts nothing and says what is planned; what is wrong is one line and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import lobench
from tiny import make_suite

EXPERIMENT = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 3
adam/Method.optimizer = @adam()
adam/Method.label = "Adam"
mine/Method.command = "python train.py {session} {folder}"
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    make_suite(tmp_path)
    (tmp_path / "x.gin").write_text(EXPERIMENT)
    return tmp_path / "x.gin"


def test_a_plan_is_said_and_nothing_is_made(experiment: Path) -> None:
    store = experiment.parent / "store"
    done = lobench("run", experiment, "--check", "--store", store, "--workers", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Adam: 2 evaluations, 0 of them recorded (@adam())"
    assert lines[1].startswith("mine: 3 trainings and 6 evaluations, 0 of them recorded (python train.py")
    assert lines[2] == f"2 methods x 2 cases: 8 of 8 evaluations are missing in {store}"
    assert "tiny/a, tiny/b, which never ran here" in lines[3]
    assert not store.exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--method", "adm"], "there is no method 'adm'; expected one of adam, mine; did you mean 'adam'?"),
        (["--gin-param", "adam/Case.num_inner_steps = 3"], "binds Case.num_inner_steps, which must be equal for all"),
        (["--gin-param", "Experiment.num_session = 3"], "did you mean 'num_sessions'?"),
    ],
)
def test_what_is_wrong_is_one_line(experiment: Path, options: list[str], expected: str) -> None:
    done = lobench("run", experiment, "--check", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr and done.stderr.count("\n") == 1


def test_one_method_is_planned_alone(experiment: Path) -> None:
    done = lobench("run", experiment, "--check", "--method", "adam")
    assert "1 method x 2 cases: 2 of 2 evaluations" in done.stdout
