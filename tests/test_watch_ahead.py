"""A worker that compiles the next cases beside the present one: real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny import PATIENCE, content, make_run, make_suite, results, watch_command

# On a machine of so many cores, whatever this one has.
ON_CORES = """
import sys
from lobench.sessions import places
num_cores = int(sys.argv.pop(1))
places.num_cores = lambda: num_cores
from lobench.cli import main
sys.argv[0] = "lobench"
main()
"""
# The first one's run waits until the second one is being compiled; where that never happens, for so many seconds.
LIMIT = 600
TASKS = f'''
import os, time

@configurable
class Waits(Bowl):
    """Its run waits for a file that the compilation of `Writes` makes."""
    def __init__(self, *, file):
        super().__init__()
        self.file = file
    def eval_loss_with_aux(self, params, model_state, key, data):
        def wait(x):
            deadline = time.monotonic() + {LIMIT}
            while not os.path.exists(self.file) and time.monotonic() < deadline:
                time.sleep(0.02)
            return (x**2).sum()
        return jax.pure_callback(wait, jax.ShapeDtypeStruct((), jnp.float32), params, vmap_method="sequential"), {{}}

@configurable
class Writes(Bowl):
    def __init__(self, *, file, how):
        super().__init__(dim=7)
        self.file, self.how = file, how
    def init(self, key):
        first = not os.path.exists(self.file)
        with open(self.file, "a") as file:
            file.write("x")
        if self.how == "raise":
            raise RuntimeError("no initial parameters")
        if self.how == "die" and first:
            os._exit(7)
        return super().init(key)
'''
GIN = """
import tiny_tasks
Case.num_inner_steps = 10
Case.num_seeds = 2
Case.eval_every = 5
first/Case.task = @Waits()
first/Case.num_inner_steps = 20
Waits.file = {file!r}
second/Case.task = @Writes()
Writes.file = {file!r}
Writes.how = {how!r}
"""


def make(folder: Path, how: str = "") -> tuple[Path, Path]:
    """Writes a suite of two cases, the longer one first, and a run of one checkpoint."""
    suite = make_suite(folder, GIN.format(file=str(folder / "file"), how=how))
    (suite / "tiny_tasks.py").write_text((suite / "tiny_tasks.py").read_text() + TASKS)
    return suite, make_run(folder, -3.0)


def watch(suite: Path, run: Path, store: Path, num_cores: int = 2) -> str:
    """Runs a watch with one worker on a machine of so many cores; returns what it said."""
    command = [sys.executable, "-c", ON_CORES, str(num_cores), *watch_command(run, suite)[3:]]
    command += ["--once", "--workers", "1", "--store", str(store)]
    env = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=env)
    return done.stdout + done.stderr


def by_case(store: Path) -> dict[str, dict[str, Any]]:
    return {record["case"]["name"]: record for record in results(store)}


@pytest.fixture(scope="module")
def ahead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store of a watch that compiled the second case while the first one ran."""
    folder = tmp_path_factory.mktemp("ahead")
    suite, run = make(folder)
    said = watch(suite, run, folder / "store")
    assert "done: 2 passed" in said, said
    return folder


def test_the_next_case_is_compiled_while_the_present_one_runs(ahead: Path) -> None:
    found = by_case(ahead / "store")
    first, second = found["first"], found["second"]
    assert first["wall_seconds"] < LIMIT, "it ends when the second one is compiled, or after its limit"
    assert first["ahead_seconds"] == 0.0 < second["ahead_seconds"] <= second["compile_seconds"]
    assert first["num_compilations"] >= 1 and second["num_compilations"] >= 1


def test_it_changes_no_bit_and_does_not_happen_where_no_core_is_free(ahead: Path, tmp_path: Path) -> None:
    said = watch(ahead / "tiny", ahead / "run", tmp_path, num_cores=1)
    assert "done: 2 passed" in said, said
    assert content(tmp_path) == content(ahead / "store")
    found = by_case(tmp_path)
    assert {name: record["ahead_seconds"] for name, record in found.items()} == {"first": 0.0, "second": 0.0}


@pytest.mark.parametrize(("how", "expected"), [("raise", "error"), ("die", "passed")])
def test_what_goes_wrong_ahead_is_told_of_its_own_case_alone(how: str, expected: str, tmp_path: Path) -> None:
    suite, run = make(tmp_path, how)
    said = watch(suite, run, tmp_path / "store")
    found = by_case(tmp_path / "store")
    assert {name: record["outcome"] for name, record in found.items()} == {"first": "passed", "second": expected}, said
    assert len((tmp_path / "file").read_text()) > 1, "it was not tried ahead"
    assert ("no initial parameters" in found["second"]["message"]) == (how == "raise")


def test_a_case_whose_fixtures_may_set_something_up_is_not_compiled_before_them(tmp_path: Path) -> None:
    suite, run = make(tmp_path)
    (suite / "conftest.py").write_text("import pytest\n\n@pytest.fixture(autouse=True)\ndef data():\n    pass\n")
    (tmp_path / "file").touch()
    said = watch(suite, run, tmp_path / "store")
    assert "done: 2 passed" in said, said
    assert by_case(tmp_path / "store")["second"]["ahead_seconds"] == 0.0
