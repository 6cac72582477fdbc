"""`pytest SUITE` compiles a program once for all its sessions and stores: they are in a folder of the user's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import lobench, lobench_here
from tiny import PATIENCE, make_suite

from lobench.engine.workers.child_python import cache_folder

GIN = """
import tiny_tasks
Case.num_inner_steps = 4
Case.num_seeds = 1
a/Case.task = @Bowl()
"""
TEST = """
import jax
from lobench import cases

@cases("tiny.gin")
def test_it(case, evaluate):
    before = jax.config.jax_compilation_cache_dir
    evaluate(case)
    assert jax.config.jax_compilation_cache_dir == before  # a user's own programs go where they went
"""
# That all programs are worth keeping jax is told there; lobench says so itself where it is not.
FORKED = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION_CACHE")}
BARE = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}


def compilations(suite: Path, store: Path, given: dict[str, str] = FORKED, **environment: str) -> list[int]:
    """Evaluates the suite in a process of its own; returns how many programs XLA compiled for each case."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(suite), f"--lobench-store={store}"]
    done = subprocess.run(
        [*command, "--lobench-optimizer=sgd()"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        cwd=suite.parent,
        env={**given, "JAX_PLATFORMS": "cpu", "LOBENCH_CACHE_DIR": str(suite.parent / "cache"), **environment},
    )
    assert done.returncode == 0, done.stdout
    return [
        row["num_compilations"] for row in json.loads(lobench("results", "--store", store, "--format", "json").stdout)
    ]


@pytest.mark.parametrize(
    ("conftest", "environment"),
    [("", BARE), ("import jax.numpy as jnp\nmade_before_lobench = jnp.zeros(3)\n", FORKED)],
    ids=["bare", "made before"],
)
def test_a_second_session_compiles_nothing(tmp_path: Path, conftest: str, environment: dict[str, str]) -> None:
    suite, store = make_suite(tmp_path, GIN), tmp_path / "store"
    (suite / "test_tiny.py").write_text(TEST)
    (suite / "conftest.py").write_text(conftest)
    assert compilations(suite, store, environment)[0] > 0
    assert any((tmp_path / "cache" / "xla_cache").iterdir()) and not (store / "xla_cache").exists()
    assert compilations(suite, tmp_path / "another", environment) == [0]


def test_where_jax_keeps_programs_is_for_the_user_to_say(tmp_path: Path) -> None:
    suite, store, own = make_suite(tmp_path, GIN), tmp_path / "store", tmp_path / "own"
    (suite / "test_tiny.py").write_text(TEST)
    assert compilations(suite, store, JAX_COMPILATION_CACHE_DIR=str(own))[0] > 0
    assert own.is_dir() and not any(path.name != ".swept" for path in (tmp_path / "cache" / "xla_cache").iterdir())


def test_a_folder_that_cannot_be_made_leaves_programs_in_the_store(tmp_path: Path) -> None:
    suite, store = make_suite(tmp_path, GIN), tmp_path / "store"
    (suite / "test_tiny.py").write_text(TEST)
    (tmp_path / "file").touch()
    assert compilations(suite, store, LOBENCH_CACHE_DIR=str(tmp_path / "file" / "cache"))[0] > 0
    assert any((store / "xla_cache").iterdir())


def test_comparison_with_an_unwritable_folder_of_programs_reports_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, store, blocked = make_suite(tmp_path, GIN), tmp_path / "store", tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("LOBENCH_CACHE_DIR", str(blocked / "cache"))
    methods = ("sgd()", "sgd(learning_rate=0.2)")
    done = lobench_here("compare", *methods, "--suite", suite, "--store", store)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(str(blocked)) == 1
    repeated = lobench_here("compare", *methods, "--suite", suite, "--store", store)
    assert str(blocked) not in repeated.stderr, "nothing is compiled"


def test_programs_that_nobody_has_read_for_a_month_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOBENCH_CACHE_DIR", str(tmp_path))
    kept = [cache_folder(tmp_path / "store") / name for name in ("jit_old-cache", "jit_new-cache", "executables/old")]
    kept[2].parent.mkdir()
    for path in kept:
        path.touch()
    for path in (kept[0], kept[2]):
        os.utime(path, (time.time() - 31 * 86400,) * 2)
    cache_folder(tmp_path / "store")
    assert all(path.exists() for path in kept)  # it was looked through today
    (tmp_path / "xla_cache" / ".swept").unlink()
    cache_folder(tmp_path / "store")
    assert [path.exists() for path in kept] == [False, True, False]
