"""optax's own optimizers and schedules, by their names in gin, in the compiled inner program."""

from __future__ import annotations

import itertools
from pathlib import Path

import gin
import numpy as np
import pytest
from shown import texts_of

from lobench.core.case import SeedBlock, UnboundDefault
from lobench.core.errors import ConfigError
from lobench.engine.config.binding import complete_selector
from lobench.engine.config.bound import BoundCase, bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.evaluation.programs import Programs
from lobench.inner.adapters import as_stepper, as_task
from lobench.inner.training.train import TrainingProgram

SHOWN = texts_of("inner")

MODULES = ("lobench.inner.optimizers", "lobench.inner.tasks")
NUM_STEPS = 8


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "s" / "x.gin"
    path.parent.mkdir()
    path.write_text(
        f"a/Case.task = @Quadratic()\nCase.num_inner_steps = {NUM_STEPS}\nCase.num_seeds = 2\nCase.eval_every = 4\n"
    )
    return path


def bind(suite: Path, optimizer: str, **layers: str) -> BoundCase:
    (spec,) = specs_in(suite)
    return bind_case(spec, Layers(gin_modules=MODULES, optimizer=optimizer, **layers))  # type: ignore[arg-type]


def train(suite: Path, optimizer: str) -> np.ndarray:
    case = bind(suite, optimizer).case
    program = TrainingProgram(case, as_task(case.task), lambda theta: as_stepper(case.optimizer, NUM_STEPS), 2)
    curves = program.run({}, SeedBlock(start=0, size=2))
    assert curves is not None
    return np.asarray(curves.metrics["train/loss"])


NETWORK = """
import jax, jax.numpy as jnp
from lobench import Task, configurable

@configurable
class NetworkOfTanh(Task):
    def init(self, key):
        return {"w": jax.random.normal(key, (5, 4)), "b": jnp.zeros(4)}
    def loss(self, params, key, data):
        inputs = jax.random.normal(jax.random.key(0), (8, 5))
        return jnp.mean((jnp.tanh(inputs @ params["w"] + params["b"]) - jnp.sin(inputs[:, :4])) ** 2)
"""
REQUIRED = {
    "optax.sgd": {"learning_rate": 0.1, "momentum": 0.9},
    "optax.adafactor": {
        "learning_rate": 0.1,
        "decay_rate": 0.7,
        "clipping_threshold": 0.9,
        "momentum": 0.5,
        "weight_decay_rate": 0.001,
        "eps": 1e-20,
    },
    "optax.contrib.schedule_free_adamw": {
        "learning_rate": 0.01,
        "b1": 0.8,
        "b2": 0.99,
        "eps": 1e-7,
        "weight_decay": 0.01,
        "weight_lr_power": 1.0,
    },
    "optax.contrib.muon": {
        "learning_rate": 0.01,
        "beta": 0.9,
        "eps": 1e-7,
        "weight_decay": 0.01,
        "adam_b1": 0.8,
        "adam_b2": 0.9,
        "adam_weight_decay": 0.01,
        "adam_learning_rate": 0.02,
        "consistent_rms": 0.3,
    },
    "optax.contrib.prodigy": {
        "learning_rate": 0.9,
        "beta3": 0.9,
        "eps": 1e-7,
        "estim_lr0": 1e-3,
        "estim_lr_coef": 1.1,
        "weight_decay": 0.01,
    },
    "optax.lbfgs": {"learning_rate": 0.9},
}


@pytest.mark.parametrize("name", REQUIRED)
def test_a_required_one_trains_a_network_with_all_its_real_settings_as_arguments(suite: Path, name: str) -> None:
    (suite.parent / "network_of_tanh.py").write_text(NETWORK)
    lines = suite.read_text().replace("Quadratic", "NetworkOfTanh")
    suite.write_text(f"import network_of_tanh\n{lines}Case.eval_batches = 0\n")
    settings = "".join(f"; {name}.{setting} = {value}" for setting, value in REQUIRED[name].items())
    bound = bind(suite, f"{name}(){settings}")
    is_bound = [not isinstance(value, UnboundDefault) for value in bound.settings.values]
    assert sorted(itertools.compress(bound.settings.values, is_bound)) == sorted(REQUIRED[name].values())
    warm = Programs().warm_program(bound, 2)
    curves = warm.program.run({}, SeedBlock(start=0, size=2), settings=bound.settings.values)
    assert curves is not None
    losses = np.asarray(curves.metrics["train/loss"])
    assert np.isfinite(losses).all() and (losses[:, -1] < losses[:, 0]).all(), losses
    [[(_, constants)]] = [compiled._programs for compiled in warm.program._compile_caches]
    assert set(itertools.compress(constants, is_bound)) == {None}, "all are arguments"


@pytest.mark.parametrize(
    "optimizer",
    [
        "dog()",
        "polyak_sgd(); polyak_sgd.max_learning_rate = 0.01",
        "mechanize(); mechanize.base_optimizer = @adam(); mechanize.s_init = 0.01",
        "chain(); chain.args = (@clip(), @optax.sgd()); optax.clip.max_delta = 1.0; optax.sgd.learning_rate = 0.01",
    ],
)
def test_it_trains(suite: Path, optimizer: str) -> None:
    losses = train(suite, optimizer)
    assert np.isfinite(losses).all() and (losses[:, -1] < losses[:, 0]).all(), losses


def test_ours_keeps_its_name_and_its_hash_beside_optaxs(suite: Path) -> None:
    ours = "adamw(); adamw.learning_rate = 0.01"
    before = bind(suite, ours)
    theirs = bind(suite, "optax.adamw(); optax.adamw.learning_rate = 0.01")
    after = bind(suite, ours)
    assert before.info.optimizer_hash == after.info.optimizer_hash != theirs.info.optimizer_hash
    assert "lobench.Case.optimizer = @adamw()" in after.bindings and "lobench.adamw.learning_rate" in after.bindings
    assert "lobench.Case.optimizer = @optax.adamw()" in theirs.bindings
    assert "optax.adamw.learning_rate = 0.01" in theirs.bindings.splitlines()


def test_optaxs_adam_is_ours(suite: Path) -> None:
    ours, theirs = (train(suite, f"{name}(); {name}.learning_rate = 0.01") for name in ("adam", "optax.adam"))
    assert ours.tobytes() == theirs.tobytes()


def test_a_schedule_by_name(suite: Path) -> None:
    schedule = "linear_schedule.init_value = 0.1; linear_schedule.end_value = 0.0; linear_schedule.transition_steps = 4"
    losses = train(suite, f"adam(); adam.learning_rate = @optax.schedules.linear_schedule(); {schedule}")
    assert losses[0, 0] > losses[0, 1] == losses[0, 2], "the rate is 0 from step 4 on"


@pytest.mark.parametrize(
    "optimizer",
    [
        "schedule_free_sgd(); schedule_free_sgd.learning_rate = 0.01; schedule_free_sgd.b1 = 0.5",
        "lookahead(); lookahead.fast_optimizer = @sgd(); lookahead.sync_period = 3; lookahead.slow_step_size = 0.5; "
        "sgd.learning_rate = 0.01",
    ],
)
def test_it_is_evaluated_where_it_averages(suite: Path, optimizer: str) -> None:
    made = bind(suite, optimizer).case.optimizer
    params, gradient = np.float32([1.0, -2.0]), np.float32([0.5, 1.0])
    state, at = made.init(params), params
    for _ in range(2):
        updates, state = made.update(gradient, state, at)
        at = at + updates
    assert not np.allclose(made.eval_params(state, at), at)


def test_somebodys_own_name_comes_before_optaxs(suite: Path) -> None:
    (suite.parent / "own_signum.py").write_text(
        "import optax\nfrom lobench import configurable\n\n@configurable\ndef signum(rate=0.5):\n"
        "    return optax.sgd(rate)\n"
    )
    bind(suite, "optax.signum(); optax.signum.learning_rate = 0.1")
    suite.write_text("import own_signum\n" + suite.read_text())
    assert bind(suite, "signum(); signum.rate = 0.25").bindings.endswith("lobench.signum.rate = 0.25")


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ("prodgy()", SHOWN["unknown-name-prodgy-did-you"]),
        ("optax.muon()", SHOWN["unknown-name-optax-muon-did"]),
        ("optax.contrib.MuonState()", SHOWN["unknown-name-optax-contrib-muonstate"]),
        ("optax.os.getcwd()", SHOWN["unknown-name-optax-os-getcwd"]),
        ("optax.adamw(); optax.adamw.lr = 1", SHOWN["optax-adamw-has-no-parameter"]),
    ],
)
def test_a_wrong_name_is_one_line(suite: Path, optimizer: str, message: str) -> None:
    with pytest.raises(ConfigError) as output:
        bind(suite, optimizer)
    assert message in str(output.value) and "\n" not in str(output.value)


def test_a_trainers_binding_of_optax_that_is_wrong_is_told(suite: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.gin"
    config.write_text("optax.lamb.rate = 1.0\nlars.rate = 1.0\n")
    (problem,) = bind(suite, "adam()", trainer_config=str(config)).problems
    assert SHOWN["optax-lamb-has-no-parameter"] in problem, "a name without optax may be the trainer's own"


def test_nothing_is_registered_before_it_is_named(suite: Path) -> None:
    bind(suite, "adam()")
    assert not gin.config._REGISTRY.matching_selectors("optax.novograd")
    assert complete_selector("novograd", "here") == "optax.novograd"
