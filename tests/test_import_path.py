"""Modules of the working directory and of pytest's `pythonpath`, in every process that binds a case."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from tiny import PATIENCE, TASKS, write_checkpoint

SHOWN = texts_of("lobench")

LOBENCH = Path(sys.executable).with_name("lobench")
OPTIMIZER = """
import optax
from lobench import configurable
from lobench.inner.optimizers.learnable import LearnableSGD

@configurable
class MySGD(LearnableSGD):
    def __init__(self, unused=0):
        super().__init__(initial_lr=0.1)
    def opt_fn(self, theta, num_steps=None):
        import my_rates  # when the program is traced, after the case was bound
        return super().opt_fn(theta, num_steps)

@configurable
def my_adam(*, learning_rate=0.01):
    return optax.adam(learning_rate)
"""
GIN = """
import tiny_tasks
Case.num_inner_steps = 8
Case.num_seeds = 2
Case.eval_every = 4
a/Case.task = @Bowl()
"""
BINDINGS = "import my_optimizer; Case.learned_optimizer = @MySGD()"
NOTEBOOK = """
import lobench
result = lobench.evaluate("suites/bowls", checkpoint="theta.npz",
                          gin_params=["import my_optimizer", "Case.learned_optimizer = @MySGD()"])
print(result.eval_steps.tolist())
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the optimizer at its top, the suite two folders below, and one checkpoint."""
    folder = tmp_path_factory.mktemp("project")
    write_project(folder, modules=folder)
    return folder


def write_project(folder: Path, *, modules: Path) -> None:
    suite = folder / "suites" / "bowls"
    suite.mkdir(parents=True)
    modules.mkdir(exist_ok=True)
    (modules / "my_optimizer.py").write_text(OPTIMIZER)
    (modules / "my_rates.py").write_text("")
    (suite / "tiny_tasks.py").write_text(TASKS)
    (suite / "bowls.gin").write_text(GIN)
    write_checkpoint(folder / "theta.npz", -2.3)


def called(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program as its installed script, whose import path lacks the working directory."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, words)), cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


DEBUG = "debug suites/bowls/a --checkpoint theta.npz --gin-param 'import my_optimizer' --home '' "
DEBUG += "--gin-param 'Case.learned_optimizer = @MySGD()'"
PYTEST = "suites/bowls --lobench-checkpoint theta.npz --lobench-gin-param 'import my_optimizer' "
PYTEST += "--lobench-gin-param 'Case.learned_optimizer = @MySGD()' -p no:cacheprovider"
FALSIFY = f"falsify 'theta.npz; {BINDINGS}' --suite suites/bowls --axes 'Bowl.dim = [1, 3]' --seeds 4 --most-cells 2 "
FALSIFY += "--most-tests 1 --workers 1 --executor inline --grid grid.json"
ABLATE = "ablate 'my_adam()' 'my_adam(); my_adam.learning_rate = 0.1' --suite suites/bowls --seeds 4 "
ABLATE += "--gin-param 'import my_optimizer' --executor inline"


@pytest.mark.parametrize("command", [DEBUG, FALSIFY, ABLATE], ids=lambda text: text.split()[0])
def test_command_with_optimizer_in_working_directory_finds_it(project: Path, command: str) -> None:
    (project / "grid.json").write_text(json.dumps([{"learning_rate": 0.1}, {"learning_rate": 0.01}]))
    done = called(LOBENCH, *shlex.split(command), cwd=project)
    assert done.returncode in (0, 1, 4), done.stdout + done.stderr
    assert SHOWN["cannot-import"] not in done.stdout + done.stderr


def test_pytest_with_optimizer_in_working_directory_finds_it(project: Path) -> None:
    for processes in ("-n0", "-n1"):
        done = called(Path(sys.executable).with_name("pytest"), *shlex.split(PYTEST), processes, cwd=project)
        assert done.returncode == 0, done.stdout + done.stderr


def test_script_elsewhere_with_optimizer_in_working_directory_finds_it(project: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(NOTEBOOK)
    done = called(sys.executable, tmp_path / "script.py", cwd=project)
    assert done.stdout == "[0, 4, 8]\n", done.stderr


def test_audit_with_optimizer_in_working_directory_repeats_its_results(project: Path, tmp_path: Path) -> None:
    own = project / "suites" / "own"
    own.mkdir(exist_ok=True)
    (own / "tiny_tasks.py").write_text(TASKS)
    (own / "own.gin").write_text(f"import my_optimizer\n{GIN.replace('a/', 'own/')}")
    watch = f"watch theta.npz --once --suite suites/own/own.gin --store {tmp_path}/store --workers 1 "
    watch += "--executor inline --gin-param 'Case.learned_optimizer = @MySGD()'"
    for words in (shlex.split(watch), ["publish", tmp_path / "store", "--output", tmp_path / "x.lobench"]):
        made = lobench(*words, cwd=project)
        assert made.returncode == 0, made.stdout + made.stderr
    done = called(LOBENCH, "audit", tmp_path / "x.lobench", cwd=project)
    assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr
    assert SHOWN["cannot-import"] not in done.stdout and SHOWN["not-auditable"] not in done.stdout


def test_debug_with_optimizer_in_pytests_pythonpath_finds_it(tmp_path: Path) -> None:
    write_project(tmp_path, modules=tmp_path / "src")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["src"]\n')
    done = called(LOBENCH, *shlex.split(DEBUG), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_falsify_with_module_that_is_missing_evaluates_nothing(project: Path) -> None:
    command = FALSIFY.replace("my_optimizer", "my_absent_optimizer") + " --store absent"
    done = lobench(*shlex.split(command), cwd=project)
    assert done.returncode == 2 and SHOWN["cannot-import-my-absent-optimizer"] in done.stderr, done.stderr
    assert not (project / "absent").exists()


@pytest.mark.parametrize(
    "command",
    [
        f"{DEBUG} --output suites",
        f"{DEBUG} --output theta.npz/page.html",
        f"{FALSIFY} --output theta.npz --store refused",
        "compare 'sgd()' 'adam()' --suite suites/bowls --store refused --target nonsense=",
        "compare 'sgd()' 'adam()' --suite suites/bowls --store refused --baseline broken.json",
        "ablate 'adam()' 'adam(); adam.b1 = 0.5' --suite suites/bowls --store refused --baseline broken.json",
        "debug suites/bowls/a --optimizer 'adam()' --home no_such_suite",
    ],
)
def test_command_with_argument_that_cannot_work_fails_before_the_work(project: Path, command: str) -> None:
    (project / "broken.json").write_text("{")
    done = lobench(*shlex.split(command), cwd=project)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stdout + done.stderr
    assert not (project / "refused").exists() and "replaying" not in done.stderr
