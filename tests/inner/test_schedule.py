"""Schedules as gin files say them, optax's too, in whatever takes a rate, and kinds of one's own."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from shown import texts_of

import lobench
from lobench.core.case import SeedBlock
from lobench.core.errors import ConfigError
from lobench.engine.config.bound import BoundCase, bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.inner import optimizers, schedules
from lobench.inner.adapters import as_stepper, as_task
from lobench.inner.schedules.schedule import Schedule
from lobench.inner.training.train import TrainingProgram
from lobench.testing.bits import types_of
from lobench.testing.optimizers import extra_values_for, facts_for

SHOWN = texts_of("inner")

MODULES = ("lobench.inner.optimizers", "lobench.inner.schedules", "lobench.inner.tasks")


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "s" / "x.gin"
    path.parent.mkdir()
    path.write_text("a/Case.task = @Quadratic()\nCase.num_inner_steps = 8\nCase.num_seeds = 2\nCase.eval_every = 4\n")
    return path


def bind(suite: Path, optimizer: str, modules: tuple[str, ...] = MODULES) -> BoundCase:
    (spec,) = specs_in(suite)
    return bind_case(spec, Layers(gin_modules=modules, optimizer=optimizer))


def train(suite: Path, optimizer: str) -> np.ndarray:
    case = bind(suite, optimizer).case
    program = TrainingProgram(case, as_task(case.task), lambda theta: as_stepper(case.optimizer, 8), 2)
    curves = program.run({}, SeedBlock(start=0, size=2))
    assert curves is not None
    return np.asarray(curves.metrics["train/loss"])


def test_a_gin_file_says_it_and_it_is_the_same_as_optaxs(suite: Path) -> None:
    ours = train(suite, "adam(); adam.learning_rate = @cosine(); cosine.peak = 0.1; cosine.final = 0.01")
    ended = "adam(); adam.learning_rate = @optax.cosine_decay_schedule(); cosine_decay_schedule.init_value = 0.1"
    theirs = train(suite, f"{ended}; cosine_decay_schedule.alpha = 0.1")
    written = train(suite, f"{ended}; cosine_decay_schedule.alpha = 0.1; cosine_decay_schedule.decay_steps = 7")
    assert theirs.tobytes() == written.tobytes()
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert not np.allclose(ours, train(suite, "adam(); adam.learning_rate = 0.1"))


@pytest.mark.parametrize(
    "schedule",
    [
        "optax.linear_onecycle_schedule(); linear_onecycle_schedule.peak_value = 0.1",
        "warmup_cosine_decay_schedule(); warmup_cosine_decay_schedule.init_value = 0.0; "
        "warmup_cosine_decay_schedule.peak_value = 0.1; warmup_cosine_decay_schedule.warmup_steps = 2",
        "optax.join_schedules(); join_schedules.schedules = [@linear(), @cosine()]; join_schedules.boundaries = [4]",
        "warmup(); warmup.steps = 2; warmup.then = @plateau(); plateau.rate = 0.1",
        "warmup(); warmup.steps = 2; warmup.then = @optax.polynomial_schedule(); polynomial_schedule.init_value = 0.1; "
        "polynomial_schedule.end_value = 0.01; polynomial_schedule.power = 2",
    ],
)
def test_optaxs_own_and_nested_ones_run(suite: Path, schedule: str) -> None:
    losses = train(suite, f"adam(); adam.learning_rate = @{schedule}")
    assert np.isfinite(losses).all() and (losses[:, -1] < losses[:, 0]).all(), losses


def test_a_kind_of_ones_own_is_a_function_in_the_suites_module(suite: Path) -> None:
    (suite.parent / "square_roots.py").write_text(
        "import jax.numpy as jnp\nimport lobench\n\n"
        "@lobench.configurable\n"
        "def square_root_of_a_test(peak=0.1):\n"
        '    """One over the square root of the update\'s number."""\n'
        "    return lobench.Schedule(lambda num_steps: lambda count: peak / jnp.sqrt(count + 1), 'square_root')\n"
    )
    suite.write_text("import square_roots\n" + suite.read_text())
    ours = train(suite, "sgd(); sgd.learning_rate = @square_root_of_a_test(); square_root_of_a_test.peak = 0.01")
    assert not np.allclose(ours, train(suite, "sgd(); sgd.learning_rate = 0.01"))
    assert isinstance(lobench.Schedule(lambda n: lambda t: n), Schedule)


PLUGIN = """
import lobench
from lobench.hookspecs import Declaration

def lobench_gin_modules():
    return [Declaration(name="schedules of a stranger", factory="stranger:")]

@lobench.configurable
def halved(rate=0.1):
    return lobench.Schedule(lambda num_steps: lambda count: rate / (1 + (count >= num_steps // 2)), "halved")
"""


def test_a_kind_of_a_plugins_is_one_file_and_one_entry_point(tmp_path: Path, suite: Path) -> None:
    (tmp_path / "stranger.py").write_text(PLUGIN)
    (tmp_path / "stranger-1.0.dist-info").mkdir()
    (tmp_path / "stranger-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n"
    )
    (tmp_path / "stranger-1.0.dist-info" / "entry_points.txt").write_text("[lobench]\nstranger = stranger\n")
    optimizers = [f"sgd(); sgd.learning_rate = {rate}" for rate in ("@halved(); halved.rate = 0.01", "0.01")]
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import lobench;"
        f"found = [lobench.evaluate({str(suite)!r}, optimizer=each) for each in {optimizers!r}];"
        "print(*[each.metrics['train/loss'].tobytes().hex() for each in found])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    halved, fixed = (np.frombuffer(bytes.fromhex(word), np.float32).reshape(2, 3) for word in done.stdout.split())
    np.testing.assert_allclose(halved[:, :2], fixed[:, :2], rtol=1e-6)
    assert (halved[:, 2] != fixed[:, 2]).all()


def test_what_is_not_there_is_suggested(suite: Path) -> None:
    with pytest.raises(ConfigError, match=SHOWN["unknown-name-cosin-did-you"]):
        bind(suite, "adam(); adam.learning_rate = @cosin()")
    with pytest.raises(ConfigError, match=SHOWN["has-no-parameter-pek-did"]):
        bind(suite, "adam(); adam.learning_rate = @cosine(); cosine.pek = 1.0")
    with pytest.raises(ConfigError, match=SHOWN["missing-a-required-argument-init"]):
        bind(suite, "adam(); adam.learning_rate = @optax.cosine_decay_schedule()")


def takers() -> dict[str, Callable[..., Any]]:
    """Returns every optimizer of lobench's and of optax's that takes a learning rate and single gradients."""
    homes = {"lobench": optimizers, "optax": optax, "optax.contrib": optax.contrib}
    found = {}
    for home, module in homes.items():
        for name in (name for name in dir(module) if re.match(r"(?!.*(dpsgd|private))[a-z]", name)):
            function = getattr(module, name)
            if inspect.isfunction(function) and "learning_rate" in inspect.signature(function).parameters:
                found[f"{home}.{name}"] = function
    return found


TAKERS = takers()
REFUSED = {"optax.optimistic_adam": SHOWN["does-not-support-learning-rate"]}  # says optax
NEEDS: dict[str, dict[str, Any]] = {
    "optax.contrib.schedule_free": {"base_optimizer": optax.sgd(0.1)},
    "optax.noisy_sgd": {"key": 0},
}


@pytest.mark.parametrize("name", sorted(TAKERS))
def test_whatever_takes_a_rate_takes_a_schedule(name: str) -> None:
    params = {"w": jnp.ones((3, 4)), "b": jnp.ones(4)}
    key = jax.random.key(0)
    for make in (schedules.cosine, schedules.plateau):
        if name in REFUSED:
            with pytest.raises(ValueError, match=REFUSED[name]):
                TAKERS[name](learning_rate=make())
            continue
        stepper = as_stepper(TAKERS[name](learning_rate=make(), **NEEDS.get(name, {})), 10)

        def step(params: Any, stepper: Any = stepper) -> Any:
            def loss(at: Any) -> jax.Array:
                return jnp.sum(at["w"]) + jnp.sum(at["b"])

            start = stepper.init(params, None, key, facts_for(stepper, params))
            extra_values = extra_values_for(stepper, params, params)
            end = stepper.step(start, params, None, params, jnp.float32(1), key, loss, extra_values)
            return start, end[0], end[1]

        start, end, moved = jax.eval_shape(step, params)
        assert moved["w"].shape == (3, 4) and types_of(end) == types_of(start)
