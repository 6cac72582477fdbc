"""The root is the suites', wherever checkpoint, store and gin files lie and however their options are written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from shown import texts_of
from tiny import PATIENCE, make_run, make_suite, results

from lobench.pytest_plugin.session_arguments import join_option_paths

SHOWN = texts_of("pytest")

CONFTEST = """
import gin

@gin.configurable  # gin refuses a second one of this name
def conftest_of_the_suite(x=1):
    return x

def pytest_addoption(parser):
    parser.addoption("--mine", action="store_true")
"""


@pytest.fixture
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with an ini file and a suite, and far from it a run."""
    folder = tmp_path_factory.mktemp("places")
    suite = make_suite(folder / "project")
    (suite / "conftest.py").write_text(CONFTEST)
    (suite.parent / "pytest.ini").write_text("[pytest]\naddopts = -v\nmarkers = known\n")
    make_run(folder / "elsewhere", -3.0)
    return folder


def run_pytest(places: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "tiny", "--mine", "-p", "no:cacheprovider", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    folder, patience = places / "project", PATIENCE
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=patience, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["here", "xdist"])
def test_an_absolute_path_after_its_option_moves_neither_root_nor_ids_nor_store(
    places: Path, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    checkpoint = str(places / "elsewhere" / "run" / "theta_1.npz")
    (tmp_path / "more.gin").write_text("Case.num_inner_steps = 3\n")
    output = run_pytest(
        places, "--lobench-checkpoint", checkpoint, "--lobench-gin-file", str(tmp_path / "more.gin"), *workers
    )
    assert SHOWN["rootdir-configfile-pytest-ini"].format(folder=places / "project") in output
    assert "2 passed" in output and "Warning" not in output, output
    assert not list((places / "elsewhere").rglob(".lobench"))
    (first, second) = results(places / "project" / ".lobench" / "tiny")
    assert first["eval_steps"] == second["eval_steps"] == [0, 3]
    if workers:
        # Collecting needs no worker.
        return
    listed = run_pytest(places, "--collect-only", "-q", "-q", "--lobench-checkpoint", checkpoint).splitlines()
    assert {id.partition("::")[0] for id in listed[:2]} == {"tiny/test_tiny.py"}, listed
    assert "1 passed" in run_pytest(places, "--lobench-checkpoint", checkpoint, "--deselect", listed[0]), "an id exists"


def test_values_that_are_no_paths_and_options_of_others_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    path = str(tmp_path / "x")
    given = ["suite", "--lobench-optimizer", "adam()", "--other", path, "--lobench-strict", path, "--lobench-store"]
    assert join_option_paths(given) == given
    assert join_option_paths(
        ["--lobench-store", path, "--lobench-against", f"{path}::a", path, "--lobench-alpha=.1"]
    ) == [
        f"--lobench-store={path}",
        f"--lobench-against={path}::a",
        path,
        "--lobench-alpha=.1",
    ]
