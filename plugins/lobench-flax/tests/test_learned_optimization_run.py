"""Run folders of google/learned_optimization's trainer, watched as they are: thetas, trainer states and config.gin."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import flax.serialization
import flax.struct
import flax.training.checkpoints
import jax.numpy as jnp
import numpy as np
import pytest
from reference import reference_data
from tiny import make_suite, results, watch

GIN = "import tiny_tasks\nCase.num_inner_steps = 5\nCase.num_seeds = 1\na/Case.task = @Bowl()\n"
ONCE = ("--once", "--checkpoints", "all", "--workers", "1")
CONFIG = """\
# Parameters for GradientLearner:
# ==============================================================================
GradientLearner.meta_init = @{0}()
GradientLearner.theta_opt = @Adam()

# Parameters for run_train:
# ==============================================================================
run_train.lopt = @{0}()
run_train.num_steps = 60
run_train.outer_learner_fn = @GradientLearner
"""
# A stand-in for the package: nobody imports it, its optimizers refuse arguments that its trainer does not give.
THEIRS = """
from typing import Any, NamedTuple
import gin
import jax.numpy as jnp

class State(NamedTuple):
    params: Any
    state: Any
    iteration: Any

class NAdamW:
    def __init__(self, rate):
        self.rate = rate
    def get_params(self, state):
        return state.params
    def get_state(self, state):
        return state.state
    def init(self, params, model_state=None, num_steps=None):
        assert num_steps == 5
        return State(params, model_state, jnp.int32(0))
    def update(self, opt_state, grads, model_state=None, **kwargs):
        return State(opt_state.params - self.rate * grads + 0 * kwargs["loss"], model_state, opt_state.iteration + 1)

class WeightDecayWrapper(NAdamW):
    def init(self, params, model_state=None, **kwargs):
        return super().init(params, model_state=model_state, **kwargs)
    def update(self, opt_state, grads, model_state=None, loss=None, **kwargs):
        return super().update(opt_state, grads, model_state=model_state, loss=loss + 0.0, **kwargs)

@gin.configurable
class TheirLOpt:
    def init(self, key):
        return {"log_lr": jnp.float32(0)}
    def opt_fn(self, theta, is_training=False):
        return WeightDecayWrapper(jnp.exp(theta["log_lr"]))
"""


@flax.struct.dataclass
class ParameterCheckpoint:
    params: Any
    gen_id: str
    step: Any


@flax.struct.dataclass
class OptCheckpoint:
    gradient_learner_state: Any
    elapsed_time: Any
    total_inner_steps: Any


def write_run(run: Path, name: str, thetas: list[Any]) -> None:
    """Writes what the trainer does: `params_0` first, later `checkpoint_N` before `params_N`."""
    run.mkdir()
    (run / "config.gin").write_text(CONFIG.format(name))
    for index, theta in enumerate(thetas):
        moments = {"mu": theta, "nu": theta}
        opt_state = {"params": theta, "optax_opt_state": moments, "iteration": jnp.int32(10 * index)}
        states = {
            "params_": ParameterCheckpoint(theta, "no_gen_id", jnp.int32(10 * index)),
            "checkpoint_": OptCheckpoint({"theta_opt_state": opt_state}, jnp.float32(1.5), 100),
        }
        for prefix, state in states.items():
            (run / f"{prefix}{index}").write_bytes(flax.serialization.to_bytes(state))


def finals(store: Path) -> dict[str, float]:
    """Returns the final losses by the checkpoint's name."""
    return {Path(r["checkpoint"]["uri"]).name: r["metrics"]["train/loss"]["per_seed"][0] for r in results(store)}


def test_an_optimizer_of_the_package_itself_is_imported_and_called_as_it_wants(tmp_path: Path) -> None:
    run, suite = tmp_path / "run", make_suite(tmp_path, GIN)
    package = tmp_path / "learned_optimization" / "learned_optimizers"
    package.mkdir(parents=True)
    (package / "their_lopt.py").write_text(THEIRS)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    write_run(run, "TheirLOpt", [{"log_lr": jnp.float32(np.log(rate))} for rate in (0.1, 0.4)])
    done = watch(run, suite, *ONCE, "--store", str(tmp_path / "store"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = finals(tmp_path / "store")
    assert set(found) == {"params_0", "params_1"} and found["params_1"] < 0.01 * found["params_0"]


@pytest.mark.parametrize(
    ("folder", "steps"),
    [
        ("orbax", {"params_0": 0, "params_2": 1, "params_4": 3}),
        ("msgpack/AdafacMLPLOpt", {"params_0": 0, "params_1": 10}),
    ],
)
def test_recorded_runs_of_its_trainer(tmp_path: Path, folder: str, steps: dict[str, int]) -> None:
    source = reference_data() / "lo_run" / folder
    run, suite = tmp_path / "run", make_suite(tmp_path, GIN)
    shutil.copytree(source, run, copy_function=shutil.copyfile)
    done = watch(run, suite, *ONCE, "--store", str(tmp_path / "store"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert {
        Path(r["checkpoint"]["uri"]).name: r["checkpoint"]["outer_step"] for r in results(tmp_path / "store")
    } == steps
