"""A command or a test that changes its process: it is as before afterwards, and a test that did it is named."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gin
import pytest
from left_behind import as_before, forget_suites
from shown import texts_of

SHOWN = texts_of("lobench")

ROOT = Path(__file__).parents[1]
SUITE = """
import gin, optax

@gin.configurable
class Named:
    pass

gin.external_configurable(optax.sgd, name="from_elsewhere", module=__name__)
"""


def replace_a_module() -> None:
    sys.modules["colorsys"] = sys.modules["json"]


CHANGES: dict[str, Callable[[], object]] = {
    "the process: working folder": lambda: os.chdir("/"),
    "the process: sys.path": lambda: sys.path.append("/elsewhere"),
    "the process: SIGTERM": lambda: signal.signal(signal.SIGTERM, signal.default_int_handler),
    "the environment: LEFT_BEHIND": lambda: os.environ.update(LEFT_BEHIND="1"),
    "modules that are gone or others: colorsys": replace_a_module,
    "gin: _CONFIG": lambda: gin.bind_parameter(("left", "gin.macro", "value"), 1),
    "gin: _INTERACTIVE_MODE": gin.enter_interactive_mode,
}


@pytest.mark.parametrize("output", CHANGES)
def test_what_is_changed_is_told_and_as_before(output: str) -> None:
    importlib.import_module("colorsys")
    with as_before() as found:
        CHANGES[output]()
    assert found == [output]
    with as_before() as found:
        pass
    assert found == [] and "LEFT_BEHIND" not in os.environ and not gin.config._INTERACTIVE_MODE


def test_suites_are_forgotten_with_their_names_in_gin_and_their_packages(tmp_path: Path) -> None:
    found = []
    for folder in ("one", "other"):
        package = tmp_path / folder / "suites_of_this_test"  # no __init__.py
        package.mkdir(parents=True)
        (package / "tasks.py").write_text(SUITE)
        with as_before() as output:
            sys.path.insert(0, str(tmp_path / folder))
            found.append(importlib.import_module("suites_of_this_test.tasks").__file__)
            assert gin.config._REGISTRY.matching_selectors("from_elsewhere")
        assert output == ["the process: sys.path"], "what a suite names is no fault of who imports it"
        assert not [name for name in ("Named", "from_elsewhere") if gin.config._REGISTRY.matching_selectors(name)]
        assert not [name for name in sys.modules if name.startswith("suites_of_this_test")]
    assert found[0] != found[1]
    assert "left_behind" in sys.modules, "what a checkout holds stays"
    forget_suites()
    assert "left_behind" in sys.modules


def test_a_package_without_a_file_outlives_its_parent(tmp_path: Path) -> None:
    (tmp_path / "parent_of_this_test" / "child").mkdir(parents=True)
    with as_before() as output:
        sys.path.insert(0, str(tmp_path))
        importlib.import_module("parent_of_this_test.child")
        with as_before() as inner_output:
            del sys.modules["parent_of_this_test"]
            sys.path.append("/elsewhere")  # Python looks up the folders again
    assert (inner_output, output) == (["the process: sys.path"], ["the process: sys.path"])
    assert not [name for name in sys.modules if name.startswith("parent_of_this_test")]


def run_tests_in(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs tests in a folder that has this repository's configuration of its own tests."""
    (folder / "tests").mkdir()
    shutil.copy(ROOT / "conftest.py", folder)
    for name in ("forked.py", "left_behind.py", "lowered.py"):  # imported by conftest.py
        shutil.copy(ROOT / "tests" / name, folder / "tests")
    (folder / "tests" / "test_here.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=900)


LEAKING = """
import os

def test_which_leaves_something(): os.environ["LEFT_BEHIND"] = "1"

def test_which_comes_next(): assert "LEFT_BEHIND" not in os.environ
"""


@pytest.mark.parametrize(
    ("options", "ended"),
    [([], "2 passed, 1 warning"), (["--shuffle=1"], "2 passed, 1 error")],
)
def test_what_a_test_leaves_meets_no_other_in_any_order(tmp_path: Path, options: list[str], ended: str) -> None:
    done = run_tests_in(tmp_path, LEAKING, *options)
    assert ended in done.stdout, done.stdout + done.stderr
    assert "test_which_leaves_something" in done.stdout
    assert SHOWN["left-behind-in-the-process"] in done.stdout


ENDLESS = """
import itertools, pytest

@pytest.mark.timeout(1)
def test_without_an_end():
    for number in itertools.repeat(0):
        if number:
            print(number)

def test_which_comes_next(): pass
"""


def test_loop_that_a_timeout_ends_fails_its_test_alone(tmp_path: Path) -> None:
    done = run_tests_in(tmp_path, ENDLESS, "-n", "0")
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("asked", "is_of_tests"), [("suites/bare", False), ("tests/core/test_result.py", True)])
def test_suites_of_a_checkout_are_compiled_as_a_watch_compiles_them(asked: str, is_of_tests: bool) -> None:
    code = (
        "import os, pytest, sys; pytest.main(['--collect-only', '-q', sys.argv[1]]); print(os.environ.get('XLA_FLAGS'))"
    )
    own = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, "-c", code, asked], cwd=ROOT, env=own, capture_output=True, text=True)
    assert ("codegen_split_count=1" in done.stdout.splitlines()[-1]) is is_of_tests, done.stdout + done.stderr
