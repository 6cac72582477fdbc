"""Modules of flax.nnx, flax.linen, equinox and haiku as tasks, beside lobench's own networks of the same layers."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from shown import texts_of

from lobench.core.case import Case, SeedBlock
from lobench.core.errors import ConfigError
from lobench.core.result import Curves
from lobench.inner.adapters import as_stepper
from lobench.inner.tasks.image import DigitsMLP
from lobench.inner.tasks.modules import module_task
from lobench.inner.training.train import TrainingProgram
from lobench.testing.bits import COMPILED_FAST, assert_same_bits, key_of
from lobench.testing.tasks import TaskContract, _evaluate, _init, _losses

SHOWN = texts_of("inner")

FRAMEWORKS = {"nnx": "flax.nnx", "linen": "flax.linen", "equinox": "equinox", "haiku": "haiku"}


@functools.cache
def nets(framework: str, *, norm: bool = False, drop: float = 0.0) -> Any:
    """Returns a factory of a perceptron 64-32-10."""
    library = pytest.importorskip(FRAMEWORKS[framework], reason=f"{framework} is not installed")
    if framework == "nnx":

        class Nnx(library.Module):
            def __init__(self, *, rngs: Any) -> None:
                self.first, self.last = library.Linear(64, 32, rngs=rngs), library.Linear(32, 10, rngs=rngs)
                self.norm = library.BatchNorm(32, rngs=rngs) if norm else None
                self.drop = library.Dropout(drop, rngs=rngs)

            def __call__(self, x: jax.Array) -> jax.Array:
                x = self.first(x)
                x = x if self.norm is None else self.norm(x)
                return self.last(self.drop(jax.nn.relu(x)))

        return Nnx
    if framework == "linen":

        class Linen(library.Module):
            @library.compact
            def __call__(self, x: jax.Array, train: bool) -> jax.Array:
                x = library.Dense(32)(x)
                x = library.BatchNorm(use_running_average=not train)(x) if norm else x
                x = library.Dropout(drop, deterministic=not train)(jax.nn.relu(x))
                return library.Dense(10)(x)

        return Linen
    if framework == "haiku":

        class Haiku(library.Module):
            def __call__(self, x: jax.Array, is_training: bool) -> jax.Array:
                x = library.Linear(32)(x)
                x = library.BatchNorm(True, True, 0.9)(x, is_training) if norm else x
                x = jax.nn.relu(x)
                x = library.dropout(library.next_rng_key(), drop, x) if is_training and drop else x
                return library.Linear(10)(x)

        return Haiku

    class Equinox(library.Module):
        first: Any
        last: Any
        norm: Any
        drop: Any

        def __init__(self, key: jax.Array) -> None:
            one, other = jax.random.split(key)
            self.first, self.last = library.nn.Linear(64, 32, key=one), library.nn.Linear(32, 10, key=other)
            self.norm = library.nn.BatchNorm(32, axis_name="batch", mode="batch") if norm else None
            self.drop = library.nn.Dropout(drop)

        def __call__(self, x: jax.Array, state: Any = None, *, key: jax.Array) -> Any:
            x = self.first(x)
            if self.norm is not None:
                x, state = self.norm(x, state)
            x = self.last(self.drop(jax.nn.relu(x), key=key))
            return x if self.norm is None else (x, state)

    return Equinox


CASE, BLOCK, SGD = Case(num_inner_steps=20, eval_every=5, num_seeds=2), SeedBlock(start=0, size=2), optax.sgd(0.1)


def curves(task: Any, *, initial: Any = None) -> dict[str, np.ndarray]:
    from lobench import with_extra_inputs

    optimizer = SGD
    if initial is not None:
        optimizer = with_extra_inputs(
            SGD.init, optax.with_extra_args_support(SGD).update, initial_params=lambda params: initial
        )
    program = TrainingProgram(CASE, task, lambda theta: as_stepper(optimizer, CASE.num_inner_steps), BLOCK.size)
    return metrics_of(program.run({}, BLOCK))


def metrics_of(found: Curves | None) -> dict[str, np.ndarray]:
    assert found is not None
    return {name: np.asarray(values) for name, values in found.metrics.items()}


@functools.cache
def lobenchs_own() -> TrainingProgram:
    """Returns a program whose theta is the initial parameters."""
    from lobench import with_extra_inputs

    def stepper(theta: Any) -> Any:
        update = optax.with_extra_args_support(SGD).update
        return as_stepper(
            with_extra_inputs(SGD.init, update, initial_params=lambda params: theta), CASE.num_inner_steps
        )

    return TrainingProgram(CASE, DigitsMLP(hidden_sizes=(32,)), stepper, BLOCK.size)


class _Contract(TaskContract):
    framework = ""

    def task(self) -> Any:
        return module_task(nets.__wrapped__(self.framework, norm=True, drop=0.1), batch_size=16)

    def test_seeds_start_apart(self) -> None:
        losses = np.asarray(self._train(BLOCK, num_tasks=2).metrics["train/loss"])
        assert (losses[0] != losses[1]).all()

    def test_another_of_it_has_the_same_bits(self) -> None:
        """A task made later in the process, once the framework's counters have moved on, starts and trains the same."""
        other = type("Another", (type(self),), {})  # whose task and programs are its own
        params, state, batch = self._start()
        start = _init(other)(key_of(1))  # of equinox, parameters are an object of the factory's
        assert_same_bits(start, (params, state))
        losses = _losses(type(self))(params, state, key_of(4), batch)
        again = _losses(other)(*start, key_of(4), batch)
        assert_same_bits(again, losses)

    def test_statistics_move_in_training_and_dropout_rests_in_evaluations(self) -> None:
        params, state, batch = self._start()
        loss_of, evaluate = _losses(type(self)), _evaluate(type(self))
        losses, after = zip(*(loss_of(params, state, key_of(seed), batch)[0][:2] for seed in (2, 3)), strict=True)
        assert losses[0] != losses[1]  # by dropout
        leaves = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(each)]) for each in (state, *after)]
        assert (leaves[0] != leaves[1]).any() and (leaves[1] == leaves[2]).all()
        quiet = [evaluate(params, after[0], key_of(seed), batch)[0] for seed in (2, 3)]
        assert quiet[0] == quiet[1]


class TestNnx(_Contract):
    framework = "nnx"


class TestLinen(_Contract):
    framework = "linen"


class TestEquinox(_Contract):
    framework = "equinox"


class TestHaiku(_Contract):
    framework = "haiku"


def ours(framework: str, params: Any) -> Any:
    """Returns a module's parameters as those of DigitsMLP."""
    if framework == "equinox":
        return {
            "w0": params.first.weight.T,
            "b0": params.first.bias,
            "w1": params.last.weight.T,
            "b1": params.last.bias,
        }
    first, last, w, b = {
        "nnx": ("first", "last", "kernel", "bias"),
        "linen": ("Dense_0", "Dense_1", "kernel", "bias"),
        "haiku": ("haiku/linear", "haiku/linear_1", "w", "b"),
    }[framework]
    return {"w0": params[first][w], "b0": params[first][b], "w1": params[last][w], "b1": params[last][b]}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_from_the_same_parameters_it_trains_as_lobenchs_own(framework: str) -> None:
    task = module_task(nets(framework))
    params, state = jax.jit(task.init_with_state, compiler_options=COMPILED_FAST)(jax.random.key(3))
    assert state is None
    theirs = curves(task, initial=params)
    own = metrics_of(lobenchs_own().run(ours(framework, params), BLOCK))
    for name in ("train/loss", "test/loss", "test/accuracy"):
        np.testing.assert_allclose(theirs[name], own[name], rtol=2e-6, err_msg=name)


def test_a_loss_and_data_of_ones_own() -> None:
    from lobench import ArrayDataset, Datasets

    library = pytest.importorskip("flax.nnx")
    x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]

    def data() -> Any:
        return Datasets(train=ArrayDataset({"inputs": x, "target": x[:, 0] ** 2}, batch_size=16))

    class Net(library.Module):
        def __init__(self, *, rngs: Any) -> None:
            self.first, self.last = library.Linear(1, 16, rngs=rngs), library.Linear(16, 1, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.last(jnp.tanh(self.first(x)))

    def own(outputs: jax.Array, batch: Any) -> Any:
        wrong = outputs[:, 0] - batch["target"]
        return jnp.mean(wrong**2), {"worst": jnp.max(jnp.abs(wrong))}

    named, mine = (module_task(Net, data=data, loss=loss) for loss in ("mse", own))

    @jax.jit
    def losses(key: jax.Array) -> Any:
        params, batch = named.init_with_state(key)[0], jax.tree.map(lambda leaf: leaf[:16], data().train.arrays)
        return [task.loss_with_state_and_aux(params, None, key, batch)[::2] for task in (named, mine)]

    (loss, nothing), (same, aux) = losses(key_of(0))
    assert loss == same and not nothing and aux["worst"] ** 2 >= loss > 0
    assert "train/worst" in curves(mine)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"module": lambda: 3}, SHOWN["got-what-makes-a-int"]),
        ({"module": lambda rngs: 3, "framework": "nnx"}, SHOWN["got-a-int-expected-what"]),
        ({"data": "digit"}, "module_task.data"),
        ({"loss": "mae"}, "module_task.loss"),
        ({"loss": lambda outputs, batch: outputs}, SHOWN["an-array"]),
        ({"inputs": "picture"}, "module_task.inputs"),
        ({"input_shape": (8, 9)}, "module_task.input_shape"),
        ({"framework": "flux"}, "module_task.framework"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments: dict[str, Any], expected: str) -> None:
    given = {"module": nets("nnx"), **arguments}
    with pytest.raises(ConfigError, match=expected):
        curves(module_task(**given))


def test_a_framework_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "haiku", None)
    with pytest.raises(ConfigError, match=SHOWN["pip-install-dm-haiku"]):
        module_task(lambda: None, framework="haiku")
