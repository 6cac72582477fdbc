"""The same checkpoint, case and seeds give the same bits, however they are run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shown import texts_of
from tiny import content, make_run, make_suite, results, watch

SHOWN = texts_of("lobench")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    suite, run = make_suite(folder), make_run(folder, -3.0)
    (folder / "other").mkdir()
    done = watch(run, suite, "--once", "--workers", "1", "--store", str(folder / "store"))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run_pytest(place: Path, store: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", str(place / "tiny"), "--rootdir", str(place), "-p", "no:cacheprovider"]
    command += ["--lobench-checkpoint", str(place / "run" / "theta_1.npz"), "--lobench-store", str(store), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=place / "other")


@pytest.mark.parametrize(
    "options",
    [(), ("-p", "randomly", "--randomly-seed=2", "-n", "2")],
    ids=["alone", "randomly and xdist"],
)
def test_pytest_gives_the_bits_of_a_watch(place: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run_pytest(place, tmp_path / "store", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row[1:] for row in content(tmp_path / "store")] == [row[1:] for row in content(place / "store")]
    assert SHOWN["train-final"] in done.stdout and "tiny/a" in done.stdout


NOTEBOOK = """
import json, sys
import jax
jax.devices()  # the notebook's own backend, with all its threads
import lobench
result = lobench.evaluate(sys.argv[1], case="a", checkpoint=sys.argv[2], test="test_tiny")
print(json.dumps(result.metrics["train/loss"].tolist()))
"""


def curves(store: Path, case: str) -> Any:
    (record,) = (r for r in results(store, "--curves") if r["case"]["name"] == case)
    return record["curves"]["train/loss"]


def test_a_notebook_with_a_backend_of_its_own_gives_the_same_bits(place: Path) -> None:
    arguments = [str(place / "tiny" / "tiny.gin"), str(place / "run" / "theta_1.npz")]
    done = subprocess.run([sys.executable, "-c", NOTEBOOK, *arguments], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == curves(place / "store", "a")


def test_a_test_session_whose_backend_exists_evaluates_in_another_process(place: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "early_jax.py"
    plugin.write_text("import jax\njax.devices()\n")
    command = [sys.executable, "-m", "pytest", str(place / "tiny"), "--rootdir", str(place), "-p", "early_jax"]
    command += ["--lobench-checkpoint", str(place / "run" / "theta_1.npz"), "--lobench-store", str(tmp_path / "store")]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-k", "test_tiny[a]"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ((*_, found),) = content(tmp_path / "store")
    assert json.loads(found)["train/loss"] == curves(place / "store", "a")
