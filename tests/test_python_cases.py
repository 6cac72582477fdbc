"""Cases in Python are the cases of the gin file that they would be in."""

from __future__ import annotations

import copy
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest
from commands import lobench_here, pytest_session
from shown import texts_of
from tiny import PATIENCE, make_run, make_suite, results, watch_here

import lobench
from lobench.core.case import CaseSpec
from lobench.core.configurables import call_of
from lobench.core.errors import ConfigError, SuiteError, UsageError
from lobench.engine.config.python_cases import case_statements, gin_text_of_case, specs_of_python_cases
from lobench.engine.config.suite import specs_of_suites
from lobench.engine.config.syntax import Binding

SHOWN = texts_of("lobench")

IN_PYTHON = """
from lobench import Case, cases
from tiny_tasks import Bowl

a = Case(task=Bowl(), num_inner_steps=10, num_seeds=2, eval_every=5)


@cases(a=a, b=a.replace(task=Bowl(dim=5)))
def test_tiny(case, evaluate):
    evaluate(case)
"""


def write_in_python(suite: Path) -> None:
    (suite / "tiny.gin").unlink()
    (suite / "test_tiny.py").write_text(IN_PYTHON)


def recorded(store: Path) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Returns of each evaluation what must not depend on how its case was written."""
    return {
        (one["case"]["name"], one["label"]): (one["case"], one["outcome"], one["curves"], one["program_version"])
        for one in results(store, "--curves")
    }


def test_watch_and_pytest_of_cases_in_python_have_the_identity_and_bits_of_gin(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -1.5, -1.4)
    found: dict[str, list[dict[tuple[str, str], tuple[Any, ...]]]] = {}
    for written in ("gin", "python"):
        watched, tested = tmp_path / f"{written}-watch", tmp_path / f"{written}-pytest"
        how = ("--once", "--checkpoints", "all", "--gin-param", "b/Bowl.dim = 4")
        assert watch_here(run, suite, "--store", str(watched), *how).returncode == 0
        given = ("--lobench-optimizer", "sgd()", "--lobench-store", tested, "--lobench-gin-param", "Bowl.dim = 2")
        done = pytest_session(suite, "-q", "-k", "b", *given, cwd=tmp_path)
        assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
        found[written] = [recorded(watched), recorded(tested)]
        if written == "gin":
            write_in_python(suite)
    assert found["python"] == found["gin"]
    assert len(found["gin"][0]) == 4 and [*found["gin"][1]] == [("b", "sgd()")]


PARTS_IN_GIN = """
import tiny_tasks
Case.num_seeds = 2
Case.eval_every = 5
Case.optimizer = @adam()
adam.learning_rate = 0.1
phased/Case.task = @Bowl()
phased/Case.phases = [@warm/Phase(), @cool/Phase(), @end/Phase()]
warm/Phase.num_inner_steps = 6
cool/Phase.num_inner_steps = 4
cool/Phase.opt_state = "reset"
cool/Phase.optimizer = @sgd()
cool/sgd.learning_rate = 0.01
end/Phase.num_inner_steps = 2
end/Phase.optimizer = @adam()
end/adam.learning_rate = 0.001
grid/Case.task = @Bowl()
grid/Case.axes = {"dim": [3, 4], "horizon": [5]}
grid/Bowl.dim = %dim
grid/Case.num_inner_steps = %horizon
split/Case.task = @SplitDigits()
split/Case.phases = @task_sequence()
split/task_sequence.num_tasks = 5
split/Case.num_inner_steps = 10
"""
PARTS_IN_PYTHON = """
from lobench import Case, Phase, cases
from tiny_tasks import Bowl

plain = Case(num_seeds=2, eval_every=5, optimizer="adam(learning_rate=0.1)")
cool = Phase(num_inner_steps=4, opt_state="reset", optimizer="sgd(learning_rate=0.01)")
end = Phase(num_inner_steps=2, optimizer="adam(learning_rate=0.001)")
phased = plain.replace(task=Bowl(), phases=[Phase(num_inner_steps=6), cool, end])
grid = plain.replace(task="Bowl(dim=%dim)", num_inner_steps="%horizon", axes={"dim": [3, 4], "horizon": (5,)})
split = plain.replace(task="SplitDigits()", phases="task_sequence(num_tasks=5)", num_inner_steps=10)


@cases(phased=phased, grid=grid, split=split)
def test_tiny(case, evaluate):
    evaluate(case)
"""
CELLS = {f"grid-dim{dim}-horizon5" for dim in (3, 4)}


def test_phases_axes_and_streams_in_python_are_the_cases_of_gin(tmp_path: Path) -> None:
    suite, found = make_suite(tmp_path, gin=PARTS_IN_GIN), list[dict[tuple[str, str], tuple[Any, ...]]]()
    for written in ("gin", "python"):
        done = pytest_session(suite, "-q", "--lobench-store", tmp_path / written, cwd=tmp_path)
        assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr
        found.append(recorded(tmp_path / written))
        (suite / "tiny.gin").unlink(missing_ok=True)
        (suite / "test_tiny.py").write_text(PARTS_IN_PYTHON)
    assert found[1] == found[0]
    assert {name for name, _ in found[0]} == {"phased", "split", *CELLS}
    assert {spec.name for spec in specs_of_suites(suite)} == {"phased", "split", *CELLS}


@pytest.mark.long
def test_workers_of_xdist_and_of_a_watch_run_cases_in_python(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -1.5)
    write_in_python(suite)
    words = [sys.executable, "-m", "pytest", "-q", "-n", "2", str(suite), "--lobench-store", str(tmp_path / "xdist")]
    words += ["--lobench-checkpoint", str(run / "theta_1.npz")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert watch_here(run, suite, "--once", "--workers", "2", "--store", str(tmp_path / "watch")).returncode == 0
    assert recorded(tmp_path / "watch") == recorded(tmp_path / "xdist")


def test_chief_knows_names_of_cases_in_python_without_importing_them(tmp_path: Path) -> None:
    suite = make_suite(tmp_path)
    write_in_python(suite)
    sys.modules.pop("tiny_tasks", None)
    assert [spec.name for spec in specs_of_suites(suite)] == ["a", "b"]
    assert "tiny_tasks" not in sys.modules
    unknown = lobench_here("compare", "sgd()", "adam()", "--suite", suite, "--case", "c", cwd=tmp_path)
    assert unknown.returncode == 2 and SHOWN["no-case-c"] in unknown.stderr


def test_run_of_an_experiment_finds_cases_in_python(tmp_path: Path) -> None:
    write_in_python(make_suite(tmp_path))
    (tmp_path / "x.gin").write_text("Experiment.suites = ['tiny']\nplain/Method.optimizer = @sgd()\n")
    done = lobench_here("run", "x.gin", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = recorded(tmp_path / ".lobench/x")
    assert {name for name, _ in found} == {"a", "b"} and {row[1] for row in found.values()} == {"passed"}


@lobench.configurable
class Ridge(lobench.Task):
    """Task with arguments of several kinds."""

    def __init__(self, width: int = 3, *, slopes: tuple[float, ...] = (1.0,), inner: object = None) -> None:
        self.width, self.slopes, self.inner = width, slopes, inner

    def init(self, key: jax.Array) -> jax.Array:
        return jax.random.normal(key, (self.width,))

    def loss(self, params: jax.Array, key: jax.Array, data: object) -> jax.Array:
        slope = self.inner() if callable(self.inner) else self.slopes[0]
        return slope * (params**2).sum()


@lobench.configurable
class Slope(NamedTuple):
    """Class whose arguments its `__new__` takes."""

    size: float = 1.0


class Steep(Ridge):
    """Subclass that gin does not know."""


def text_of(case: lobench.Case) -> list[str]:
    return gin_text_of_case(case, "mine", "here").splitlines()


def test_text_has_what_the_constructors_were_given() -> None:
    inner = Ridge(np.int64(2), slopes=(0.5, 2.0))
    case = lobench.Case(task=Ridge(inner=inner), num_seeds=4, optimizer="adam(); adam.learning_rate = 0.1")
    assert text_of(case) == [
        f"import {__name__}",
        "mine/Case.task = @Ridge()",
        "mine/Case.num_seeds = 4",
        "mine/Case.optimizer = @adam()",
        "mine/adam.learning_rate = 0.1",
        "mine_1/Ridge.width = 2",
        "mine_1/Ridge.slopes = (0.5, 2.0)",
        "mine/Ridge.inner = @mine_1/Ridge()",
    ]
    shipped = lobench.Case(task="DigitsMLP(hidden_sizes=(8,))")
    assert text_of(shipped) == ["mine/Case.task = @DigitsMLP()", "mine/DigitsMLP.hidden_sizes = (8,)"]
    wider = case.replace(num_seeds=8)
    assert wider.num_seeds == 8 and wider.task is case.task and "mine/Case.num_seeds = 8" in text_of(wider)


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (lambda: Ridge(inner=lambda: 1.0), "<lambda>"),
        (lambda: Ridge(slopes=np.ones(2)), "numpy.ndarray"),  # type: ignore[arg-type]
        (lambda: copy.deepcopy(Ridge(width=5)), "Ridge"),  # of which the arguments are not known
        (lambda: types.SimpleNamespace(), "types.SimpleNamespace"),
        (lambda: Ridge(slopes=(float("nan"),)), "nan"),
        (lambda: Ridge(inner=Slope(2.0)), "Slope"),
    ],
)
def test_value_without_a_name_is_refused_in_one_line(make: Any, got: str) -> None:
    with pytest.raises(ConfigError, match=SHOWN["has-no-name-by-which"]) as raised:
        text_of(lobench.Case(task=make()))
    assert got in str(raised.value) and "\n" not in str(raised.value)


def test_cases_that_belong_to_an_existing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.gin").touch()
    with pytest.raises(SuiteError, match=SHOWN["cases-in-python-belong-to"]):
        specs_of_python_cases(tmp_path / "test_mine.py", {"a": lobench.Case(task=Ridge())})
    with pytest.raises(SuiteError, match=SHOWN["not-a-case"]):
        specs_of_python_cases(tmp_path / "test_yours.py", {"a": Ridge()})


def test_test_file_that_skips_itself_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "test_skipped.py").write_text("import pytest\npytest.importorskip('not_there')\n")
    with pytest.raises(ConfigError, match=SHOWN["cannot-import-the-file-of"]) as raised:
        case_statements(CaseSpec(path=str(tmp_path / "skipped.gin"), scope="a", root=str(tmp_path)))
    assert "not_there" in str(raised.value) and "\n" not in str(raised.value)


def test_cases_after_an_edit_of_a_module_that_their_file_imports_are_todays(tmp_path: Path) -> None:
    (tmp_path / "sizes_of_lab.py").write_text("STEPS = 10\n")
    text = IN_PYTHON.replace("num_inner_steps=10", "num_inner_steps=STEPS").replace("tiny_tasks", "tasks_of_lab")
    (tmp_path / "test_lab.py").write_text(f"from sizes_of_lab import STEPS\n{text}")
    task = "@configurable\nclass Bowl(Task):\n    def __init__(self, *, dim=3): ...\n"
    (tmp_path / "tasks_of_lab.py").write_text(f"from lobench import Task, configurable\n{task}")
    spec, found = CaseSpec(path=str(tmp_path / "lab.gin"), scope="a", root=str(tmp_path)), []
    for steps in (10, 20, 10):
        (tmp_path / "sizes_of_lab.py").write_text(f"STEPS = {steps}\n")
        bindings = (one for one in case_statements(spec) if isinstance(one, Binding))
        found.append(next(one.value for one in bindings if one.parameter == "num_inner_steps"))
    assert found == [10, 20, 10]


def test_objects_without_a_name_train_in_this_process() -> None:
    case = lobench.Case(num_inner_steps=3, num_seeds=2, eval_every=3, task=Ridge(inner=lambda: 1.0))
    plain = lobench.evaluate(case=case, optimizer=optax.sgd(0.1))
    steeper = lobench.evaluate(case=case.replace(task=Ridge(inner=lambda: 2.0)), optimizer=optax.sgd(0.1))
    np.testing.assert_allclose(plain.final("train/loss"), plain.metrics["train/loss"][:, 0] * 0.8**6, rtol=1e-5)
    np.testing.assert_allclose(steeper.final("train/loss"), steeper.metrics["train/loss"][:, 0] * 0.6**6, rtol=1e-5)
    for wrong in ({}, {"suite": "quick/quick.gin", "task": Ridge()}, {"task": Ridge()}, {"task": Ridge(), "case": "a"}):
        with pytest.raises(UsageError):
            lobench.evaluate(**wrong)


def test_constructor_of_a_configurable_keeps_its_signature_and_its_calls_are_forgotten() -> None:
    made = Ridge(4)
    assert call_of(made) == ((4,), {}) and call_of(copy.copy(made)) is None
    del made
    assert call_of(Ridge()) == ((), {})
    assert call_of(Steep(width=2)) is None  # nobody registered it
    assert CaseSpec(path="a/b.gin", scope="c", root="a").text == ""
