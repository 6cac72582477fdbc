"""Kept executables in real processes: a warm one traces nothing, an edit is seen, and a wrong hit is told."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from commands import lobench
from forked import ANEW, python
from reference import ROOT
from shown import texts_of
from tiny import PATIENCE

SHOWN = texts_of("pytest")

GIN = """
import near
Case.num_inner_steps = 4
Case.num_seeds = 1
a/Case.task = @near.Slope()
"""
NEAR = """
import gin, jax, jax.numpy as jnp
import lobench
import far

@gin.configurable(module="near")
class Slope(lobench.Task):
    datasets = None

    def init(self, key):
        return jnp.ones(3)

    def loss(self, params, key, data):
        return jnp.sum(params) * far.slope()
"""
FARTHER = "SLOPE = 2.0\n"


def write(suite: Path, **files: str) -> None:
    """Writes files as if they had been there before any process of the test began."""
    suite.mkdir(exist_ok=True)
    for name, text in files.items():
        path = suite / name.replace("_", ".")
        path.write_text(text)
        os.utime(path, (time.time() - 60,) * 2)


def evaluated(suite: Path, *options: str, case: str = "tiny.gin", **environment: str) -> tuple[list[float], str]:
    """Evaluates the case in a process of its own; returns its curve, and what became of executables."""
    store = suite.parent / "store"
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", case, f"--lobench-store={store}"]
    without = ("JAX_", "LOBENCH_", "PYTEST_")
    given = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    given |= ANEW  # what is forked has other modules that a trace may reach
    given["LOBENCH_CACHE_DIR"] = str(suite.parent / "cache")
    done = python(
        *command,
        "--lobench-optimizer=sgd(); sgd.learning_rate = 0.5",
        "--log-cli-level=INFO",
        *options,
        timeout=PATIENCE,
        cwd=suite,
        env=given | {"JAX_PLATFORMS": "cpu", "LOBENCH_EXECUTABLES": "unchecked"} | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows: list[dict[str, Any]] = json.loads(lobench("results", "--store", store, "--format", "json", "--curves").stdout)
    return rows[-1]["curves"]["train/loss"][0], done.stdout


def kept(suite: Path) -> list[Path]:
    return sorted((suite.parent / "cache" / "xla_cache" / "executables").glob("*"))


FOUND = SHOWN["an-executable-is-there"]


@pytest.mark.long
def test_a_warm_process_takes_the_executable_an_edit_two_imports_away_is_seen_and_the_check_finds_what_no_hash_tells(
    tmp_path: Path,
) -> None:
    """Whether a file is there is asked without a trace: only tracing again can tell."""
    suite, flag = tmp_path / "suite", tmp_path / "flag"
    factor = f"2.5 if os.path.exists({str(flag)!r}) else 1.0"
    far = f"import os\nimport farther\n\ndef slope():\n    return farther.SLOPE * ({factor})\n"
    write(suite, tiny_gin=GIN, near_py=NEAR, far_py=far, farther_py=FARTHER)
    cold, output = evaluated(suite)
    assert FOUND not in output and len(kept(suite)) == 2, output
    warm, output = evaluated(suite)
    assert FOUND in output and warm == cold
    without, output = evaluated(suite, "--lobench-no-executables")
    assert FOUND not in output and without == cold

    write(suite, farther_py=FARTHER.replace("2.0", "3.0"))
    edited, output = evaluated(suite)
    assert FOUND not in output and edited == [1.5 * cold[0], *edited[1:]] and edited != cold
    flag.touch()
    checked, output = evaluated(suite, LOBENCH_EXECUTABLES="checked")
    assert FOUND in output and SHOWN["is-not-what-its-case"] in output
    assert checked[0] == 2.5 * edited[0]
    flag.unlink()

    write(suite, farther_py=FARTHER)
    for path in kept(suite):  # damaged: it is made again
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    again, output = evaluated(suite)
    assert again == cold and FOUND not in output


@pytest.mark.long
def test_what_looks_elsewhere_while_it_is_traced_is_not_kept(tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    by_chance = "import random\n\ndef slope():\n    return random.random()\n"
    from_file = "def slope():\n    return float(open(__file__ + '.txt').read())\n"
    other = {"other_py": NEAR.replace("near", "other").replace("far", "read"), "read_py": from_file}
    text = f"import other\n{GIN}b/Case.task = @other.Slope()\n"
    write(suite, tiny_gin=text, near_py=NEAR, far_py=by_chance, **other)
    (suite / "read.py.txt").write_text("2.0")
    _, output = evaluated(suite)
    assert output.count(SHOWN["not-kept-it-reaches"]) == 2 and not kept(suite), output


@pytest.mark.long
def test_each_case_of_quick_is_found_and_is_what_its_code_compiles_to(tmp_path: Path) -> None:
    options = [f"--lobench-gin-param=Case.{name} = 1" for name in ("num_inner_steps", "num_seeds", "eval_every")]
    suite = tmp_path / "quick"
    shutil.copytree(ROOT / "suites" / "quick", suite)
    for path in suite.glob("*.*"):
        os.utime(path, (time.time() - 60,) * 2)
    _, output = evaluated(suite, *options, case="test_quick.py")
    assert SHOWN["not-kept"] not in output and FOUND not in output
    _, output = evaluated(suite, *options, case="test_quick.py", LOBENCH_EXECUTABLES="checked")
    assert output.count(FOUND) == 6 and SHOWN["is-not-what-its-case"] not in output
    assert (
        SHOWN["of-other-packages"] not in output
    )  # what the first of them leaves behind is no reason to trace the others
