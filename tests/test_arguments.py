"""Trials that differ in real numbers compile nothing after the first, in every way of running."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import python
from tiny import GIN, ONE_CASE, PATIENCE, make_suite, results

RATES = [(0.1, 0.9), (0.2, 0.8), (0.05, 0.95)]
TRIALS = [f"adam(); adam.learning_rate = {rate}; adam.b1 = {decay}" for rate, decay in RATES]
# Programs that a cache on disk has are not counted as compiled.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION_CACHE")}
NOTEBOOK = """
import json, sys
import lobench
suite, *trials = sys.argv[1:]
found = [lobench.evaluate(suite, case="a", optimizer=trial, test="test_tiny") for trial in trials]
print(json.dumps([sum(block.num_compilations for block in each.blocks) for each in found]))
"""
EXPERIMENT = """
Experiment.suites = ["tiny"]
""" + "\n".join(
    f"m{number}/Method.optimizer = @adam()\nm{number}/adam.learning_rate = {rate}\nm{number}/adam.b1 = {decay}"
    for number, (rate, decay) in enumerate(RATES)
)


SEARCH = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
s/Method.optimizer = @adam()
s/Method.search = @random()
s/Method.num_trials = 6
s/adam.learning_rate = @rate/Real()
s/adam.b1 = @decay/Real()
rate/Real.low = 1e-3
rate/Real.high = 1.0
rate/Real.scale = "log"
decay/Real.low = 0.5
decay/Real.high = 0.99
"""
SCALED = """
import optax
from lobench import LearnedOptimizer

@configurable
class Scaled(LearnedOptimizer):
    def __init__(self, scale=1.0):
        self.scale = scale
    def init(self, key):
        return {"log_rate": jnp.float32(0.0)}
    def opt_fn(self, theta, num_steps=None):
        return optax.sgd(self.scale * jnp.exp(theta["log_rate"]))
"""


def run(*words: str | Path, cwd: Path, chooses_cache: bool = False, **environment: str) -> str:
    """Runs a program.

    Args:
      chooses_cache: Whether its workers choose the folder of jax's cache, which is the same one. They are not forked.
    """
    own = {} if chooses_cache else {"JAX_COMPILATION_CACHE_DIR": str(cwd / "cache" / "xla_cache")}
    given = {**ENVIRONMENT, "LOBENCH_CACHE_DIR": str(cwd / "cache"), **own, **environment}
    done = python(*words, timeout=PATIENCE, cwd=cwd, env=given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compiled_once(store: Path, most: int = 1) -> bool:
    """Says whether one trial of each case compiled its program, and no other trial any.

    Args:
      most: Programs that the one may have compiled: theta's first way to the device takes a few small ones.
    """
    counts: dict[str, list[int]] = {}
    for row in results(store):
        counts.setdefault(row["case"]["name"], []).append(row["num_compilations"])
    assert {len(each) for each in counts.values()} == {3}
    return all(sorted(each)[:2] == [0, 0] and 1 <= max(each) <= most for each in counts.values())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a suite, and an experiment of three trials."""
    make_suite(tmp_path, ONE_CASE)
    (tmp_path / "e.gin").write_text(EXPERIMENT)
    return tmp_path


def test_a_worker_compiles_each_case_once(place: Path) -> None:
    (place / "tiny" / "tiny.gin").write_text(GIN)
    run("-m", "lobench.cli", "run", "e.gin", "--workers", "1", "--store", "store", cwd=place)
    assert compiled_once(place / "store") and len(results(place / "store")) == 6


def test_a_search_of_six_trials_compiles_its_case_once(place: Path) -> None:
    (place / "s.gin").write_text(SEARCH)
    run("-m", "lobench.cli", "run", "s.gin", "--workers", "1", "--store", "store", cwd=place)
    counts = [row["num_compilations"] for row in results(place / "store")]
    assert len(counts) >= 6 and sorted(counts)[-1] == sum(counts) == 1


def test_checkpoints_with_real_numbers_of_their_own_share_a_program(place: Path) -> None:
    """As the members of a population have them."""
    folder = place / "run"
    folder.mkdir()
    (folder / "config.gin").write_text("Case.learned_optimizer = @Scaled()\n")
    (place / "tiny" / "tiny_tasks.py").open("a").write(SCALED)
    for step, scale in enumerate((0.5, 0.25, 0.125), 1):
        np.savez(folder / f"theta_{step}.npz", log_rate=np.float32(-2.0), gin_bindings=f"Scaled.scale = {scale}")
        (folder / f"theta_{step}.npz.done").touch()
    words = ("watch", "run", "--suite", "tiny", "--once", "--checkpoints", "all", "--workers", "1", "--store", "store")
    run("-m", "lobench.cli", *words, cwd=place)
    assert compiled_once(place / "store", most=5)
    rows = [row for row in results(place / "store") if row["case"]["name"] == "a"]
    assert len({tuple(row["metrics"]["train/loss"]["per_seed"]) for row in rows}) == 3


def test_so_does_a_test_session(place: Path) -> None:
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "e.gin", "--lobench-store", "store", cwd=place)
    assert compiled_once(place / "store")


def test_so_does_the_process_beside_a_test_session_whose_backend_is_another(place: Path) -> None:
    (place / "early_jax.py").write_text("import jax\njax.devices()\n")
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "early_jax", "e.gin", "--lobench-store", "store")
    run(*words, cwd=place, PYTHONPATH=str(place))
    assert compiled_once(place / "store")


def test_so_does_a_notebook(place: Path) -> None:
    assert json.loads(run("-c", NOTEBOOK, place / "tiny" / "tiny.gin", *TRIALS, cwd=place)) == [1, 0, 0]


def test_a_trial_has_the_bits_of_the_same_optimizer_by_itself(place: Path) -> None:
    """Whatever was trained before it in the same process, and however it was run."""
    run("-m", "lobench.cli", "run", "e.gin", "--workers", "1", "--store", "store", cwd=place)
    together = {(row["label"], row["case"]["name"]): row["curves"] for row in results(place / "store", "--curves")}
    for number, trial in list(enumerate(TRIALS))[1:]:
        words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tiny", "--lobench-optimizer", trial)
        run(*words, "--lobench-store", f"store_{number}", cwd=place)
        for row in results(place / f"store_{number}", "--curves"):
            assert together[f"m{number}", row["case"]["name"]] == row["curves"]


OWN = """
import gin, jax, jax.numpy as jnp, optax
@gin.configurable
class OwnScaled:
    def __init__(self, scale=1.0, bound=0.5):
        self.scale, self.bound = scale, bound
    def init(self, key):
        return {"log_rate": jnp.float32(0.0)}
    def opt_fn(self, theta, is_training=False):
        def update(grads, state, params=None):
            rate = -self.scale * jnp.exp(theta["log_rate"])
            return jax.tree.map(lambda grad: jnp.clip(rate * grad, -1.0, self.bound), grads), state
        return optax.GradientTransformation(lambda params: (), update)
"""


def test_the_next_command_and_a_default_compile_nothing_new(place: Path) -> None:
    """An optimizer of a user's package, which the run's own configuration alone imports."""
    folder = place / "run"
    folder.mkdir()
    (place / "own_scaled.py").write_text(OWN)
    (folder / "config.gin").write_text("import own_scaled\nCase.learned_optimizer = @OwnScaled()\n")
    for step in (1, 2):
        np.savez(folder / f"theta_{step}.npz", log_rate=np.float32(-step), outer_step=step)
    common = ("--suite", "tiny", "--workers", "1")
    own: dict[str, Any] = {"PYTHONPATH": str(place)}
    cli = ("-m", "lobench.cli")
    watch = ("watch", "run", *common, "--once", "--checkpoints", "all", "--store", "w")
    run(*cli, *watch, cwd=place, chooses_cache=True, **own)
    assert sum(row["num_compilations"] for row in results(place / "w")) > 0
    run(*cli, "best", "run", *common, "--store", "w", cwd=place, **own)
    bound = ("--once", "--gin-param", "OwnScaled.scale = 0.5", "--store", "bound")
    run(*cli, "watch", "run/theta_1.npz", *common, *bound, cwd=place, chooses_cache=True, **own)
    for store in ("w/best", "w/best/winner", "bound"):
        assert [row["num_compilations"] for row in results(place / store)] == [0] * len(results(place / store)), store
