"""Effect of a change between two calls on a stored result: the key, the page about it, and rows without other tests."""

from __future__ import annotations

import ast
import dataclasses
import re
import sqlite3
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from tiny import ONE_CASE, make_run, make_suite, results, write_checkpoint

from lobench.core.case import SeedBlock
from lobench.core.program import Program
from lobench.core.result import EvaluationKey, Provenance
from lobench.engine.config.bound import bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.engine.store.programs import program_here
from lobench.engine.store.provenance import versions_here

SHOWN = texts_of("lobench")

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| (?P<change>[^|]+?) \| (?P<effect>[^|]+?) \| (?P<why>[^|]+?) <!-- (?P<tests>[^>]+) --> \|$", re.M)
PROVENANCE = Provenance(
    versions={"lobench": "1.0", "jax": "0.5.0", "jaxlib": "0.5.0", "numpy": "2.0", "optax": "0.2"},
    device="cpu: x86-64-v3 x 1",
    host="one",
)


def rows_of_page() -> list[re.Match[str]]:
    return list(ROW.finditer((ROOT / "docs" / "identity.md").read_text()))


@pytest.mark.parametrize("row", rows_of_page(), ids=lambda row: row["change"])
def test_row_of_the_page_names_tests_that_exist(row: re.Match[str]) -> None:
    for name in row["tests"].split():
        file, _, function = name.partition("::")
        assert (ROOT / file).is_file(), name
        functions = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(node, "name")}
        assert function in functions, name


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "x.gin").write_text("a/Case.task = @Quadratic()\n")
    return tmp_path / "s" / "x.gin"


def key(suite: Path, *params: str, sha256: str = "t", optimizer: str = "sgd()", program: str = "p") -> EvaluationKey:
    """Returns the key of the first seed block of the suite's case."""
    layers = Layers(
        gin_modules=("lobench.inner.optimizers", "lobench.inner.tasks"), optimizer=optimizer, gin_params=params
    )
    (spec,) = specs_in(suite)
    info = bind_case(spec, layers, build=False).info
    return EvaluationKey.of(sha256, info, info.blocks()[0], program)


@pytest.mark.parametrize(
    "changed",
    [
        {"sha256": "u"},
        {"optimizer": "sgd(); sgd.learning_rate = 0.1"},
        {"program": "q"},
        *["Case.num_inner_steps = 7", "Quadratic.dim = 3", "Case.num_seeds = 3", "Case.seed_block = 1"],
        *["Case.first_seed = 100", "Case.num_cpus = 2"],
    ],
    ids=str,
)
def test_key_after_change_is_another(suite: Path, changed: dict[str, str] | str) -> None:
    other = key(suite, changed) if isinstance(changed, str) else key(suite, **changed)
    assert other != key(suite)


@pytest.mark.parametrize("params", [('Case.scale = "linear"',), ("Case.minimum = 0.5",), ("Rosenbrock.dim = 3",)])
def test_key_after_change_of_what_trains_nothing_is_the_same(suite: Path, params: tuple[str, ...]) -> None:
    assert key(suite, *params) == key(suite)


def program_with(*, device: str = PROVENANCE.device, host: str = "one", **versions: str) -> str:
    made = dataclasses.replace(
        PROVENANCE, versions={**PROVENANCE.versions, **versions}, device=device, host=host, worker="7"
    )
    return Program.of(made).key


@pytest.mark.parametrize("changed", [{"jax": "0.6.0"}, {"jaxlib": "0.6.0"}, {"device": "cpu: x86-64-v4 x 1"}], ids=str)
def test_program_of_other_jax_or_device_is_another(changed: dict[str, str]) -> None:
    assert program_with(**changed) != program_with()


def test_program_of_other_version_is_another() -> None:
    assert Program.of(PROVENANCE, version="4").key != Program.of(PROVENANCE, version="5").key


@pytest.mark.parametrize(
    "changed",
    [{"lobench": "2.0"}, {"numpy": "3.0"}, {"optax": "1.0"}, {"host": "another"}, {"device": "cpu: x86-64-v3 x 8"}],
    ids=str,
)
def test_program_of_other_packages_machine_or_workers_is_the_same(changed: dict[str, str]) -> None:
    assert program_with(**changed) == program_with()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JAX_ENABLE_X64", "1"),
        ("JAX_ENABLE_X64", "True"),
        ("JAX_DEFAULT_MATMUL_PRECISION", "bfloat16"),
        ("JAX_DEFAULT_PRNG_IMPL", "rbg"),
        ("JAX_THREEFRY_PARTITIONABLE", "false"),
        ("XLA_FLAGS", "--xla_dump_to=/tmp/x --xla_cpu_enable_fast_math=true"),
    ],
)
def test_program_after_a_setting_of_jax_in_the_environment_is_another(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.delenv(name, raising=False)
    before = program_here()
    monkeypatch.setenv(name, value)
    assert program_here().key != before.key
    assert Program.of(dataclasses.replace(PROVENANCE, versions=versions_here())).jax == program_here().jax


@pytest.mark.parametrize(
    ("name", "value"),
    [("JAX_ENABLE_X64", "0"), ("JAX_DEFAULT_PRNG_IMPL", ""), ("XLA_FLAGS", "--xla_dump_to=/tmp/x"), ("MY_LR", "0.1")],
)
def test_program_after_a_setting_without_effect_is_the_same(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.delenv(name, raising=False)
    before = program_here()
    monkeypatch.setenv(name, value)
    assert program_here() == before


WATCH = ("--once", "--checkpoints", "all", "--workers", "1", "--executor", "inline")


def watched(folder: Path) -> str:
    done = lobench("watch", "run", "--suite", "tiny", "--store", "store", *WATCH, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("seconds", [-3600, 86400])
def test_watch_after_a_step_of_the_clock_keeps_results(tmp_path: Path, seconds: int) -> None:
    make_suite(tmp_path, ONE_CASE)
    make_run(tmp_path, -3.0)
    watched(tmp_path)
    before = results(tmp_path / "store")
    with sqlite3.connect(tmp_path / "store" / "ledger.sqlite") as db:
        for table, column in (("evaluations", "recorded_at"), ("subjects", "seen_at"), ("events", "at")):
            db.execute(f"UPDATE {table} SET {column} = {column} + ?", (seconds,))
    assert SHOWN["nothing-new"] in watched(tmp_path)
    assert len(results(tmp_path / "store")) == len(before) == 1


def test_watch_after_change_of_a_data_file_keeps_results_with_a_line(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, ONE_CASE)
    make_run(tmp_path, -3.0)
    (suite / "numbers.csv").write_text("1, 2\n")
    (suite / "notes.md").write_text("a note\n")

    assert SHOWN["data-file"] not in watched(tmp_path)
    (suite / "notes.md").write_text("another note\n")
    assert SHOWN["data-file"] not in (text := watched(tmp_path)) and SHOWN["nothing-new"] in text
    (suite / "numbers.csv").write_text("3, 4\n")
    text = watched(tmp_path)
    assert SHOWN["data-file-changed"] in text and "tiny/numbers.csv" in text and SHOWN["nothing-new"] in text
    assert len(results(tmp_path / "store")) == 1
    assert SHOWN["data-file"] not in watched(tmp_path)
    (suite / "numbers.csv").unlink()
    assert "tiny/numbers.csv" in watched(tmp_path)


def test_watch_after_a_checkpoint_was_overwritten_evaluates_the_new_theta(tmp_path: Path) -> None:
    make_suite(tmp_path, ONE_CASE)
    run = make_run(tmp_path, -3.0)
    watched(tmp_path)
    write_checkpoint(run / "theta_1.npz", -2.0)
    assert "1 passed" in watched(tmp_path)
    hashes = {record["checkpoint"]["sha256"] for record in results(tmp_path / "store")}
    assert len(hashes) == 2


def test_block_of_other_seeds_is_another_evaluation(suite: Path) -> None:
    found = key(suite)
    assert dataclasses.replace(found, seed_block=SeedBlock(start=9, size=found.seed_block.size)) != found
