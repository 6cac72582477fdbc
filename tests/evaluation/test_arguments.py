"""Optimizers of every kind whose settings are arguments: shipped, optax's, a user's own, learned, somebody else's."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

import lobench.inner.optimizers as shipped
from lobench.core.case import SeedBlock
from lobench.engine.config.bound import BoundCase, bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.evaluation.programs import Programs
from lobench.inner.adapters import as_stepper, as_task
from lobench.inner.optimizers import baselines
from lobench.inner.training.train import TrainingProgram

MODULES = ("lobench.inner.optimizers", "lobench.inner.schedules")
BLOCK = SeedBlock(start=0, size=2)
RULES = """
import gin, jax, jax.numpy as jnp, numpy as np, optax
from lobench import Task, configurable

@configurable
class Deep(Task):
    def init(self, key):
        return {"w": jnp.linspace(-1, 1, 20).reshape(5, 4), "b": jnp.zeros(4)}
    def loss(self, params, key, data):
        inputs = 2 * jnp.sin(jnp.arange(40.0)).reshape(8, 5)
        return jnp.mean((jnp.tanh(inputs @ params["w"] + params["b"]) - jnp.sin(inputs[:, :4])) ** 2)

@gin.register
def own_chain(parts=()):
    return optax.chain(*parts)

@gin.register
def own_decay(weight_decay=0.0, rate=0.1):
    '''Special in Python where there is no decay.'''
    parts = [optax.add_decayed_weights(weight_decay)] if weight_decay else []
    return optax.chain(*parts, optax.sgd(rate))

@gin.configurable
def read_in_python(scale=1.0):
    return scale

@gin.register
def reads_another(rate=0.1):
    return optax.sgd(rate * read_in_python())

BUILT = []

@gin.register
def built_once(rate=0.1):
    if rate in BUILT:
        raise RuntimeError("built again")
    BUILT.append(rate)
    return optax.sgd(rate)

READY = optax.sgd(0.3)

@gin.register
def ready_made(rate=0.1):
    return READY

KNOWN = {}

@gin.register
def remembered(rate=0.1):
    return KNOWN.setdefault("rule", optax.sgd(rate))

@gin.register
class Foreign:
    '''In the manner of google/learned_optimization.'''
    def __init__(self, learning_rate=0.1, beta=0.9):
        self.learning_rate, self.beta = learning_rate, beta
    def init(self, params, model_state=None, num_steps=None, key=None):
        return params, jax.tree.map(jnp.zeros_like, params), model_state
    def update(self, state, grads, loss=None, model_state=None, **rest):
        params, moving, _ = state
        moving = jax.tree.map(lambda m, g: self.beta * m + (1 - self.beta) * g, moving, grads)
        return jax.tree.map(lambda p, m: p - self.learning_rate * m, params, moving), moving, model_state
    def get_params(self, state):
        return state[0]
    def get_state(self, state):
        return state[2]

@gin.register
class ForeignLearned:
    def __init__(self, scale=1.0, width=1):
        self.scale, self.width = scale, width
    def init(self, key):
        return {"log_rate": jnp.zeros(self.width)}
    def opt_fn(self, theta, is_training=False):
        return optax.sgd(self.scale * jnp.exp(theta["log_rate"][0]))
"""
HEAD = """
import rules_of_a_user
Case.num_inner_steps = 6
Case.eval_every = 3
Case.num_seeds = 2
a/Case.task = @Deep()
"""
# `evaluated_at_average` wraps an optimizer of optax.
FACTORIES = [*sorted({*baselines.__all__} - {"evaluated_at_average"}), "psgd_kron", "shampoo", "soap"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    (folder / "rules_of_a_user.py").write_text(RULES)
    return folder


@pytest.fixture
def bound(tmp_path: Path, home: Path) -> Callable[[str], BoundCase]:
    """Returns gin text of an optimizer -> the case with it, built."""
    (tmp_path / "s").mkdir()
    suite = tmp_path / "s" / "x.gin"
    suite.write_text(HEAD)
    (spec,) = specs_in(suite)

    def bind(text: str) -> BoundCase:
        params = tuple(line for line in text.replace(";", "\n").splitlines() if line.strip())
        layers = Layers(import_folders=(str(home),), gin_modules=MODULES, gin_params=params)
        return bind_case(spec, layers)

    return bind


class Kept(Programs):
    """Programs of which none is forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Any] = []


def trained(programs: Kept, bound: BoundCase, theta: Any = None) -> np.ndarray:
    """Trains as a runner does, in this process however many threads it has."""
    warm = programs.warm_program(bound, BLOCK.size)
    programs.all.append(warm)
    warm.stepper_maker.bound_case = bound
    curves = warm.program.run({} if theta is None else theta, BLOCK, settings=bound.settings.values)
    assert curves is not None
    return np.asarray(curves.metrics["train/loss"])


def by_itself(bound: BoundCase, optimizer: Any) -> np.ndarray:
    """Trains with an optimizer as Python makes it, all of it constant."""
    case = bound.case
    program = TrainingProgram(
        case, as_task(case.task), lambda theta: as_stepper(optimizer, case.num_inner_steps), BLOCK.size
    )
    curves = program.run({}, BLOCK)
    assert curves is not None
    return np.asarray(curves.metrics["train/loss"])


def real_parameters(name: str) -> list[str]:
    """Returns the parameters of a shipped optimizer that take a real number."""
    found = inspect.signature(getattr(shipped, name)).parameters.values()
    return [one.name for one in found if type(one.default) is float or one.name == "momentum"]


def values_of(name: str, shift: float) -> dict[str, float]:
    """Returns a value for each, none of them its default."""
    return {one: round(shift + 0.05 * place, 6) for place, one in enumerate(real_parameters(name))}


@pytest.mark.parametrize("name", FACTORIES)
def test_every_real_setting_of_a_shipped_optimizer_is_an_argument(
    name: str, bound: Callable[[str], BoundCase], compiled: list[float]
) -> None:
    programs = Kept()
    assert real_parameters(name)
    for shift in (0.11, 0.37):
        values = values_of(name, shift)
        case = bound(f"Case.optimizer = @{name}()\n" + "".join(f"{name}.{k} = {v}\n" for k, v in values.items()))
        compiled.clear()
        losses = trained(programs, case)
        assert len(case.settings.values) == len(values)
        assert len(compiled) == (shift == 0.11)
    np.testing.assert_allclose(losses, by_itself(case, getattr(shipped, name)(**values)), rtol=2e-5)


SIDE_BY_SIDE = {
    "a chain of optax's": """
Case.optimizer = @optax.chain()
optax.chain.args = (@optax.clip_by_global_norm(), @optax.adamw())
optax.clip_by_global_norm.max_norm = {}
optax.adamw.learning_rate = {}
optax.adamw.weight_decay = 0.01
""",
    "a user's chain with scopes and a macro": """
Case.optimizer = @own_chain()
own_chain.parts = [@one/sgd(), @two/momentum()]
one/sgd.learning_rate = {}
two/momentum.learning_rate = %rate
two/momentum.decay = %rate
rate = {}
""",
    "a schedule of optax's": """
Case.optimizer = @sgd()
sgd.learning_rate = @optax.cosine_decay_schedule()
optax.cosine_decay_schedule.init_value = {}
optax.cosine_decay_schedule.alpha = {}
optax.cosine_decay_schedule.decay_steps = 4
""",
    "a cosine after a warm-up": """
Case.optimizer = @adam()
adam.learning_rate = @warmup()
warmup.steps = 2
warmup.then = @cosine()
cosine.peak = {}
cosine.final = {}
""",
    "a plateau": """
Case.optimizer = @optax.lamb()
optax.lamb.learning_rate = @plateau()
plateau.rate = {}
plateau.factor = {}
plateau.patience = 1
plateau.window = 1
""",
    "an object in google's manner": "Case.optimizer = @Foreign()\nForeign.learning_rate = {}\nForeign.beta = {}\n",
}


@pytest.mark.parametrize("text", SIDE_BY_SIDE.values(), ids=SIDE_BY_SIDE)
def test_settings_are_arguments_wherever_the_optimizer_comes_from(
    text: str, bound: Callable[[str], BoundCase], compiled: list[float]
) -> None:
    programs = Kept()
    for number, values in enumerate([(0.1, 0.2), (0.3, 0.2), (0.3, 0.6)]):
        case = bound(text.format(*values))
        compiled.clear()
        losses = trained(programs, case)
        assert number == 0 or not compiled
    np.testing.assert_allclose(losses, by_itself(case, case.case.optimizer), rtol=2e-5)


CONSTANT = {
    "one that is special where it is 0": ("own_decay", "weight_decay", [0.0, 0.1, 0.2], "rate"),
    "one that a schedule looks at in Python": ("optax.exponential_decay", "decay_rate", [0.5, 0.0], "init_value"),
}


@pytest.mark.parametrize(("name", "constant", "values", "argument"), CONSTANT.values(), ids=CONSTANT)
def test_what_is_asked_for_in_python_is_a_constant_alone(
    name: str,
    constant: str,
    values: list[float],
    argument: str,
    bound: Callable[[str], BoundCase],
    compiled: list[float],
) -> None:
    programs, rule = Kept(), f"Case.optimizer = @{name}()\n"
    if name.startswith("optax"):
        rule = f"Case.optimizer = @sgd()\nsgd.learning_rate = @{name}()\n{name}.transition_steps = 2\n"
    for value, rate in itertools.product(values, (0.1, 0.2)):
        case = bound(f"{rule}{name}.{constant} = {value}\n{name}.{argument} = {rate}\n")
        compiled.clear()
        losses = trained(programs, case)
        assert len(compiled) <= (rate == 0.1)
        if rate == 0.2:
            np.testing.assert_allclose(losses, by_itself(case, case.case.optimizer), rtol=2e-5)


@pytest.mark.parametrize("name", ["ready_made", "built_once"])
def test_what_is_not_made_anew_is_trained_as_it_is(name: str, bound: Callable[[str], BoundCase]) -> None:
    """Whatever it was made from: a value at import, or the one time that it can be made."""
    programs = Kept()
    for rate in (0.1, 0.2):
        case = bound(f"Case.optimizer = @{name}()\n{name}.rate = {rate}\n")
        losses = trained(programs, case)
    np.testing.assert_allclose(losses, by_itself(case, case.case.optimizer), rtol=2e-5)


def test_what_an_optimizer_reads_by_calling_another_in_python_parts_programs(bound: Callable[[str], BoundCase]) -> None:
    programs = Kept()
    for scale in (1.0, 2.0):
        case = bound(f"Case.optimizer = @reads_another()\nreads_another.rate = 0.1\nread_in_python.scale = {scale}\n")
        alone = by_itself(case, optax.sgd(0.1 * scale))
        np.testing.assert_allclose(trained(programs, case), alone, rtol=2e-5)


def test_an_optimizer_that_its_module_remembers_is_the_first_one(bound: Callable[[str], BoundCase]) -> None:
    """As it was when nothing was an argument: this module is at fault, and nothing of a trace stays in it."""
    programs = Kept()
    first = bound("Case.optimizer = @remembered()\nremembered.rate = 0.1\n")
    found = trained(programs, first)
    again = trained(programs, bound("Case.optimizer = @remembered()\nremembered.rate = 0.2\n"))
    assert found.tobytes() == again.tobytes()
    np.testing.assert_allclose(found, by_itself(first, optax.sgd(0.1)), rtol=2e-5)


LEARNED = {
    "shipped": ("MLPLOpt", "step_mult", "hidden_size"),
    "somebody else's": ("ForeignLearned", "scale", "width"),
}


@pytest.mark.parametrize(("name", "real", "whole"), LEARNED.values(), ids=LEARNED)
def test_settings_of_a_learned_optimizer(
    name: str, real: str, whole: str, bound: Callable[[str], BoundCase], compiled: list[float]
) -> None:
    programs = Kept()
    text = f"Case.learned_optimizer = @{name}()\n{name}.{whole} = 3\n{name}.{real} = "
    theta = jax.tree.map(np.asarray, bound(f"{text}0.1").case.learned_optimizer.init(jax.random.key(1)))
    found = []
    for number, value in enumerate((0.1, 0.2)):
        case = bound(f"{text}{value}\n")
        compiled.clear()
        found.append(trained(programs, case, theta))
        assert number == 0 or not compiled
    assert found[0].tobytes() != found[1].tobytes()
    other = bound(f"{text}0.1".replace("= 3", "= 2"))
    assert other.settings.program_hash != bound(f"{text}0.1").settings.program_hash


def test_a_setting_that_theta_has_taken_the_place_of_is_none(bound: Callable[[str], BoundCase]) -> None:
    """`LearnableSGD.initial_lr` is read by `init` alone: the program is the one without it, to the bit."""
    programs, theta = Kept(), {"log_lr": np.float32(-2.0)}
    plain = trained(programs, bound("Case.learned_optimizer = @LearnableSGD()\n"), theta)
    case = bound("Case.learned_optimizer = @LearnableSGD()\nLearnableSGD.initial_lr = 0.7\n")
    assert case.settings.values == (0.7,)
    assert trained(programs, case, theta).tobytes() == plain.tobytes()
