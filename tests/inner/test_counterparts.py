"""An object of google/learned_optimization runs as lobench's of the same class, unless anything about it differs.

A package of the same name stands in for it. Its rules are made wrong, so that results tell which program ran.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shown import texts_of

from lobench.core.case import SeedBlock
from lobench.engine.config.bound import bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.evaluation.programs import Programs
from lobench.inner.adapters import as_learned_optimizer, as_stepper, counterparts, program_description
from lobench.inner.adapters.counterparts import ConversionRule
from lobench.inner.optimizers import AdafacMLPLOpt, RNNMLPLOpt

SHOWN = texts_of("inner")

PLACE = "learned_optimization.learned_optimizers"
COMMON = """
def decay(leaf):
    return leaf * 0.5
"""
LOPT = """
import functools, jax, jax.numpy as jnp
from learned_optimization.learned_optimizers import common

def configurable(cls):
    # Wraps the constructor in place, as gin does.
    init = cls.__init__
    @functools.wraps(init)
    def wrapped(*args, **kwargs):
        return init(*args, **kwargs)
    cls.__init__ = wrapped
    return cls

def shapes(hidden_size, hidden_layers):
    sizes = [39] + [hidden_size] * hidden_layers + [2]
    pairs = list(zip(sizes, sizes[1:]))
    return {f"w{i}": p for i, p in enumerate(pairs)}, {f"b{i}": p[1:] for i, p in enumerate(pairs)}

@configurable
class AdafacMLPLOpt:
    def __init__(self, exp_mult=0.001, step_mult=0.001, hidden_size=4, hidden_layers=2, decays=(0.9, 0.99), verbose=0):
        self._exp_mult, self._step_mult, self._hidden_size = exp_mult, step_mult, hidden_size
        self._hidden_layers, self._decays, self.verbose = hidden_layers, decays, verbose
        self._mod, self._scales = lambda x: x, jnp.asarray((1.0, 2.0))

    def init(self, key):
        weights, biases = shapes(self._hidden_size, self._hidden_layers)
        network = {k: 0.5 * jax.random.normal(key, s) for k, s in weights.items()}
        network |= {k: jnp.ones(s) for k, s in biases.items()}
        decays = {"momentum_decays": jnp.zeros(3), "rms_decays": jnp.zeros(1), "adafactor_decays": jnp.zeros(3)}
        return {**decays, "nn": {"~": network}}

    def opt_fn(self, theta, is_training=False):
        class _Opt:
            def init(self, params, model_state=None, num_steps=None, key=None):
                return params, model_state
            def update(self, opt_state, grad, loss, model_state=None, key=None):
                return jax.tree.map(common.decay, opt_state[0]), model_state
            def get_params(self, state):
                return state[0]
            def get_state(self, state):
                return state[1]
        return _Opt()

    @property
    def name(self):
        return None
"""


class Theirs:
    """The modules of the stand-in."""

    def __init__(self) -> None:
        self.common = importlib.import_module(f"{PLACE}.common")
        self.lopt = importlib.import_module(f"{PLACE}.adafac_mlp_lopt")


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Theirs]:
    folder = tmp_path / "packages" / "learned_optimization" / "learned_optimizers"
    folder.mkdir(parents=True)
    texts = {"adafac_mlp_lopt": LOPT, "common": COMMON}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder.parents[1])
    known = {f"{PLACE}.{name}": hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    of_class = ConversionRule(source_hashes=known, ignored=frozenset({"verbose"}))
    monkeypatch.setattr(counterparts, "CONVERSION_RULES", {f"{PLACE}.adafac_mlp_lopt.AdafacMLPLOpt": of_class})
    yield Theirs()
    for name in [name for name in sys.modules if name.startswith("learned_optimization")]:
        del sys.modules[name]


PARAMS = {"w": jnp.ones((3, 2))}


def stepped(optimizer: Any, theta: Any) -> dict[str, np.ndarray]:
    stepper = as_stepper(as_learned_optimizer(optimizer).opt_fn(theta, 10), 10)
    key = jax.random.key(0)
    step = jax.jit(lambda params: stepper.step(stepper.init(params, None, key), params, None, params, 1.0, key)[1])
    return jax.tree.map(np.asarray, step(PARAMS))


def ran_itself(optimizer: Any) -> bool:
    params = stepped(optimizer, optimizer.init(jax.random.key(1)))
    return bool((params["w"] == 0.5).all())


def test_it_runs_as_ours_with_its_own_settings_and_its_own_initial_theta(theirs: Theirs) -> None:
    made = theirs.lopt.AdafacMLPLOpt(step_mult=0.5, exp_mult=0.1, hidden_size=3, verbose=1)
    theta = made.init(jax.random.key(1))
    assert as_learned_optimizer(made).init(jax.random.key(1))["nn"]["~"]["b0"].tolist() == [1.0] * 3
    ours = AdafacMLPLOpt(step_mult=0.5, exp_mult=0.1, hidden_size=3)
    expected = stepped(ours, theta)
    assert np.array_equal(stepped(made, theta)["w"], expected["w"])
    assert not np.allclose(stepped(theirs.lopt.AdafacMLPLOpt(hidden_size=3), theta)["w"], expected["w"])
    # haiku's containers say the same paths in other levels.
    flat = {**theta, "nn/~": types.MappingProxyType(theta["nn"]["~"])}
    del flat["nn"]
    flat = {name: dict(part) if name == "nn/~" else part for name, part in flat.items()}
    assert np.array_equal(stepped(made, flat)["w"], expected["w"])
    assert program_description(made) == SHOWN["lobench-s-adafacmlplopt-in-place"].format(place=PLACE)
    assert program_description(ours) == ""


def a_subclass(theirs: Theirs) -> Any:
    class AdafacMLPLOpt(theirs.lopt.AdafacMLPLOpt):  # type: ignore[name-defined,misc]
        __module__ = theirs.lopt.__name__

    AdafacMLPLOpt.__qualname__ = "AdafacMLPLOpt"
    return AdafacMLPLOpt()


def a_replaced_method(theirs: Theirs) -> Any:
    opt_fn = theirs.lopt.AdafacMLPLOpt.opt_fn
    theirs.lopt.AdafacMLPLOpt.opt_fn = lambda self, theta, is_training=False: opt_fn(self, theta)
    return theirs.lopt.AdafacMLPLOpt()


def a_replaced_function_of_its_module(theirs: Theirs) -> Any:
    shapes = theirs.lopt.shapes
    theirs.lopt.shapes = lambda *args: shapes(*args)
    return theirs.lopt.AdafacMLPLOpt()


def a_replaced_function_of_another_module(theirs: Theirs) -> Any:
    theirs.common.decay = lambda leaf: 0.5 * leaf
    return theirs.lopt.AdafacMLPLOpt()


def a_replaced_module(theirs: Theirs) -> Any:
    theirs.lopt.common = types.SimpleNamespace(decay=theirs.common.decay)
    return theirs.lopt.AdafacMLPLOpt()


def another_text(theirs: Theirs) -> Any:
    for module in (theirs.common, theirs.lopt):
        path = Path(module.__file__ or "")
        path.write_text(path.read_text().replace("0.5", "0.50"))
    import linecache

    linecache.checkcache()
    return theirs.lopt.AdafacMLPLOpt()


def an_objects_own_method(theirs: Theirs) -> Any:
    made = theirs.lopt.AdafacMLPLOpt()
    made.opt_fn = type(made).opt_fn.__get__(made)
    return made


def an_attribute_set(theirs: Theirs) -> Any:
    made = theirs.lopt.AdafacMLPLOpt()
    made._mod = lambda x: 2 * x
    return made


def a_setting_that_ours_lacks(theirs: Theirs) -> Any:
    return theirs.lopt.AdafacMLPLOpt(decays=(0.9, 0.999))


def another_structure(theirs: Theirs) -> Any:
    return theirs.lopt.AdafacMLPLOpt(hidden_layers=3)


@pytest.mark.parametrize(
    "changed",
    [
        a_subclass,
        a_replaced_method,
        a_replaced_function_of_its_module,
        a_replaced_function_of_another_module,
        a_replaced_module,
        another_text,
        an_objects_own_method,
        an_attribute_set,
        a_setting_that_ours_lacks,
        another_structure,
    ],
)
def test_what_differs_runs_itself(theirs: Theirs, changed: Any) -> None:
    assert not ran_itself(theirs.lopt.AdafacMLPLOpt())
    made = changed(theirs)
    assert ran_itself(made)
    assert SHOWN["in-place-of"] not in program_description(made)


def test_the_reason_is_told(theirs: Theirs) -> None:
    name = f"{PLACE}.adafac_mlp_lopt.AdafacMLPLOpt"
    assert program_description(a_setting_that_ours_lacks(theirs)) == SHOWN["itself-lobench-has-no-decays"].format(
        name=name
    )
    assert program_description(an_attribute_set(theirs)) == SHOWN["itself-mod-has-been-set"].format(name=name)
    changed = a_replaced_function_of_another_module(theirs)
    assert program_description(changed) == SHOWN["itself-common-decay-has-been"].format(name=name, place=PLACE)


def test_an_object_that_fails_when_it_is_looked_at_runs_itself(theirs: Theirs) -> None:
    made = theirs.lopt.AdafacMLPLOpt(hidden_size="two")
    assert " itself: " in program_description(made)


SUITE = """
import lobench.inner.tasks.quadratic
import theirs_by_name
Case.num_inner_steps = 4
Case.num_seeds = 1
a/Case.task = @Quadratic()
Case.learned_optimizer = @theirs_by_name()
theirs_by_name.step_mult = 0.01
"""
BY_NAME = """
import gin
from learned_optimization.learned_optimizers.adafac_mlp_lopt import AdafacMLPLOpt

@gin.register
def theirs_by_name(step_mult=0.001):
    return AdafacMLPLOpt(step_mult=step_mult)
"""


def test_a_program_says_what_ran_in_it(theirs: Theirs, tmp_path: Path) -> None:
    (tmp_path / "cases.gin").write_text(SUITE)
    (tmp_path / "theirs_by_name.py").write_text(BY_NAME)
    (spec,) = specs_in(tmp_path / "cases.gin")
    bound = bind_case(spec, Layers())
    warm, theta = Programs().warm_program(bound, 1), theirs.lopt.AdafacMLPLOpt().init(jax.random.key(1))
    curves = warm.program.run(theta, SeedBlock(start=0, size=1), settings=bound.settings.values)
    assert curves is not None
    assert warm.stepper_maker.program_description == program_description(theirs.lopt.AdafacMLPLOpt())
    assert SHOWN["in-place-of"] in warm.stepper_maker.program_description


def test_decays_may_be_numbers_of_the_program() -> None:
    """An object of theirs holds them as an array, which is traced where the object is made inside of a program."""

    def params(decays: Any) -> Any:
        optimizer = RNNMLPLOpt(decays=decays)
        return optimizer.opt_fn(optimizer.init(jax.random.key(0)), 10).init(PARAMS)

    assert jax.eval_shape(params, jnp.ones(5))["m"][0].shape == (5, 6)
