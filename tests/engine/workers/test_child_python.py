"""Called in a folder that holds anything, lobench runs none of it that nobody asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from shown import texts_of
from tiny import ONE_CASE, PATIENCE, make_run, make_suite, results

SHOWN = texts_of("workers")

SHIPPED = ("queue", "optax", "json", "sklearn", "pytest")
EVALUATE = """
import lobench
print(lobench.evaluate({suite!r}, case="a", optimizer="sgd()").eval_steps.tolist())
"""
EVOLVE = """
import tiny_tasks
Case.learned_optimizer = @LearnableAdam()
Case.num_inner_steps = 2
Case.num_seeds = 2
a/Case.task = @Bowl()
Evolve.num_generations = 1
TruncationGA.population_size = 2
TruncationGA.num_parents = 1
"""


@pytest.fixture
def littered(tmp_path: Path) -> Path:
    """A run's folder with files of the names of modules, each of which fails."""
    run = make_run(tmp_path, -3.0)
    for name in SHIPPED:
        (run / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the current folder was run')\n")
    make_suite(tmp_path, ONE_CASE)
    return run


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As the commands that pip installs do, which have the folder of their own file first on their path."""
    command = [sys.executable, "-P", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)


def watch(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return call(folder, "-m", "lobench.cli", "watch", ".", "--suite", "../tiny", "--once", "--workers", "1", *options)


def test_watch(littered: Path) -> None:
    """Nor is a module run from there that the run's config names, or that the suite has too."""
    for name in ("mine", "tiny_tasks"):
        (littered / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the current folder was run')\n")
    with (littered / "config.gin").open("a") as config:
        config.write("import mine\n")
    done = watch(littered, "--report")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record["outcome"] for record in results(littered / "lobench_results" / "tiny")] == ["passed"]
    assert (littered / "lobench_results" / "tiny" / "report.html").is_file()
    asked = watch(littered, "--gin-param", "import mine")
    assert asked.returncode and SHOWN["mine-py-of-the-current"] in asked.stdout + asked.stderr


def test_evaluate(littered: Path) -> None:
    done = call(littered, "-c", EVALUATE.format(suite="../tiny/tiny.gin"))
    assert done.stdout == "[0, 5, 10]\n", done.stderr


def test_doctor_and_evolve(littered: Path) -> None:
    done = call(littered, "-m", "lobench.cli", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    (littered.parent / "tiny" / "evolve.gin").write_text(EVOLVE)
    done = call(littered, "-m", "lobench.cli", "evolve", "../tiny/evolve.gin", "--store", "evolved", "--workers", "1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_module_of_the_current_folder_that_a_suite_names_is_found(littered: Path) -> None:
    (littered.parent / "tiny" / "tiny_tasks.py").rename(littered / "tiny_tasks.py")
    done = watch(littered)
    assert done.returncode == 0, done.stdout + done.stderr
