"""Ordinary JAX code makes arrays where it likes; suites, packages and conftest files that do so are evaluated too.

Every way gives the bits of a suite that makes none.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import ANEW
from shown import texts_of
from tiny import make_run, results, watch_apart

import lobench

SHOWN = texts_of("evaluation")

TASK = """
import jax, jax.numpy as jnp
from lobench import Task, configurable
{top}

@configurable
class {name}(Task):
    def __init__(self):
        {first}
    def init(self, key):
        return jax.random.normal(key, (64, 64))
    def loss(self, params, key, data):
        return jnp.mean((params @ params.T - 1.0) ** 2)
"""
GIN = "import {module}\nCase.num_inner_steps = 10\nCase.num_seeds = 2\na/Case.task = @{name}()\n"
TEST = "{top}\nfrom lobench import cases\n\n@cases('x.gin')\ndef test_x(case, evaluate):\n    evaluate(case)\n"
ARRAY = "import jax.numpy as jnp; TABLE = jnp.arange(3.0)"


def make_suite(folder: Path, kind: str) -> Path:
    """Writes a suite that makes an array in the place that `kind` names, and returns its folder."""
    suite = folder / f"first_{kind}"
    suite.mkdir()
    name, module = f"Eager{kind.title()}", f"eager_{kind}"
    top = {"module": ARRAY, "package": f"import somebodys_{kind}", "everywhere": f"import somebodys_{kind}; {ARRAY}"}
    first = "self.table = jnp.arange(3.0)" if kind in ("constructor", "everywhere") else "pass"
    (suite / f"{module}.py").write_text(TASK.format(top=top.get(kind, ""), first=first, name=name))
    (suite / "x.gin").write_text(GIN.format(module=module, name=name))
    (suite / "test_x.py").write_text(TEST.format(top=ARRAY if kind in ("test", "everywhere") else ""))
    (suite / "conftest.py").write_text(ARRAY if kind in ("conftest", "everywhere") else "")
    (suite / f"somebodys_{kind}").mkdir()
    (suite / f"somebodys_{kind}" / "__init__.py").write_text(ARRAY)
    return suite


@functools.cache
def losses_of_a_clean_suite(folder: Path) -> str:
    found = lobench.evaluate(make_suite(folder, "clean") / "x.gin", optimizer="sgd()")
    return json.dumps(found.metrics["train/loss"].tolist())


@pytest.fixture(autouse=True)
def no_threads_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs these tests may have set it."""
    monkeypatch.delenv("NPROC", raising=False)


@pytest.fixture
def clean(tmp_path_factory: pytest.TempPathFactory) -> str:
    return losses_of_a_clean_suite(tmp_path_factory.getbasetemp())


def run_pytest(suite: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", str(suite), "-q", "--lobench-optimizer", "sgd()", *options]
    done = subprocess.run(
        [*command, "--lobench-store", str(suite / "store")],
        cwd=suite,
        env={**os.environ, **ANEW, "PYTHONPATH": str(suite)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(store: Path) -> set[str]:
    """What the evaluations of a store gave; each of them with one thread."""
    records = results(store, "--curves")
    assert {record["outcome"] for record in records} == {"passed"}, records
    assert all(record["provenance"]["device"].endswith(" x 1") for record in records), records
    return {json.dumps(record["curves"]["train/loss"]) for record in records}


@pytest.mark.parametrize("kind", ["constructor", "package"])
def test_in_a_notebook(tmp_path: Path, clean: str, kind: str) -> None:
    found = lobench.evaluate(make_suite(tmp_path, kind) / "x.gin", optimizer="sgd()")
    assert json.dumps(found.metrics["train/loss"].tolist()) == clean


def test_under_pytest(tmp_path: Path, clean: str) -> None:
    suite = make_suite(tmp_path, "module")
    assert SHOWN["process-of-its-own"] not in run_pytest(suite)
    assert losses(suite / "store") == {clean}


def test_what_touches_jax_before_lobench_can_is_named(tmp_path: Path, clean: str) -> None:
    suite = make_suite(tmp_path, "test")
    shown = run_pytest(suite)
    assert SHOWN["evaluated-in-a-process-of"].format(module="test_x") in shown
    assert "/test_x.py:1)" in shown
    assert losses(suite / "store") == {clean}


def test_under_xdist(tmp_path: Path, clean: str) -> None:
    suite = make_suite(tmp_path, "everywhere")
    assert "conftest.py:1)" in run_pytest(suite, "-n", "1")
    assert losses(suite / "store") == {clean}


def test_a_pytest_plugin_that_comes_before_lobenchs(tmp_path: Path, clean: str) -> None:
    suite = make_suite(tmp_path, "plugin")
    assert SHOWN["module-that-was-imported-before"] in run_pytest(suite, "-p", "somebodys_plugin")
    assert losses(suite / "store") == {clean}


@pytest.mark.parametrize("executor", ["local", "inline"])
def test_in_a_watch(tmp_path: Path, clean: str, executor: str) -> None:
    suite = make_suite(tmp_path, "everywhere")
    run = make_run(tmp_path, 0.0)
    (run / "config.gin").write_text("Case.optimizer = @sgd()\n")
    done = watch_apart(run, suite, "--once", "--workers", "1", "--executor", executor, "--store", str(suite / "store"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert losses(suite / "store") == {clean}
