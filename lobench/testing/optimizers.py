"""Contract of learned and other optimizers: a test module subclasses `OptimizerContract` and defines `optimizer`.

class TestMyLOpt(OptimizerContract):
    def optimizer(self):
        return MyLOpt(hidden_size=4)
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench.core.errors import ThetaMismatch
from lobench.inner.adapters import Stepper, as_learned_optimizer, as_stepper
from lobench.inner.extra_inputs.task_side import BatchLosses, ExtraValues, Facts, extra_values_at, facts_of
from lobench.inner.task import Task
from lobench.inner.theta import leaf_paths, match_theta
from lobench.testing.bits import COMPILED_FAST, assert_same_bits, key_of, types_of

__all__ = ["OptimizerContract", "extra_values_for", "facts_for"]

_NUM_STEPS = 10


class OptimizerContract:
    """Tests that every optimizer must pass, be it an optax transformation, a LearnedOptimizer or a similar object."""

    @property
    def _cache_key(self) -> Any:
        """Key of the cache in which objects are kept between tests: the class of the contract."""
        return type(self)

    @abstractmethod
    def optimizer(self) -> Any:
        """Creates the optimizer as gin would. Every call must create an equal one."""

    def theta(self) -> Any:
        """Returns an initial theta; {} for an optimizer without theta."""
        return _init(self._cache_key)(key_of(7)) if self.is_learned() else {}

    def is_learned(self) -> bool:
        return callable(getattr(_cached_optimizer(self._cache_key), "opt_fn", None))

    def test_theta_depends_on_the_key_alone(self) -> None:
        if not self.is_learned():
            pytest.skip("the optimizer has no theta")
        init = _init(self._cache_key)
        first_theta = init(key_of(1))
        second_theta = init(key_of(1))
        other_theta = init(key_of(2))
        assert_same_bits(first_theta, second_theta)
        assert types_of(first_theta) == types_of(other_theta), "shapes or dtypes change with the key"
        assert jax.tree.leaves(first_theta), "theta is empty"
        for path, leaf in leaf_paths(first_theta).items():
            assert jnp.issubdtype(leaf.dtype, jnp.number), f"{path} is {leaf.dtype}"

    def test_theta_comes_back_from_a_checkpoint_and_another_one_is_refused(self) -> None:
        if not self.is_learned():
            pytest.skip("the optimizer has no theta")
        optimizer = as_learned_optimizer(_cached_optimizer(self._cache_key))
        theta = self.theta()
        leaves = {path: np.asarray(leaf) for path, leaf in leaf_paths(theta).items()}
        assert_same_bits(match_theta(leaves, optimizer, where="checkpoint"), theta)
        first_path = next(iter(leaves))
        renamed = {path if path != first_path else "no/such/leaf": leaf for path, leaf in leaves.items()}
        with pytest.raises(ThetaMismatch, match=r"is missing, .* is not expected"):
            match_theta(renamed, optimizer, where="checkpoint")

    def test_a_step_keeps_shapes_and_dtypes_and_gives_finite_parameters(self) -> None:
        params = _params(0)
        first_states, last_states = self._train(_grads(0))
        assert types_of(last_states["params"]) == types_of(params), "parameters change shape or dtype"
        assert types_of(last_states["state"]) == types_of(first_states["state"]), (
            "the state changes its structure, shapes or dtypes"
        )
        assert types_of(last_states["evaluated"]) == types_of(params), (
            "eval_params gives something else than parameters"
        )
        for leaf in jax.tree.leaves((last_states["params"], last_states["evaluated"])):
            assert np.isfinite(np.asarray(leaf)).all()

    def test_the_same_input_gives_the_same_bits(self) -> None:
        assert_same_bits(self._train(_grads(0)), self._train(_grads(0)))

    def test_it_moves_the_parameters_along_the_gradients(self) -> None:
        """The parameters must change, and differently for different gradients."""
        end_params = [self._train(_grads(seed))[1]["params"] for seed in (0, 1)]
        assert min(_distance(params, _params(0)) for params in end_params) > 0, "it does not move"
        assert _distance(*end_params) > 0, "it does not look at the gradients"

    def test_seeds_side_by_side_train_apart(self) -> None:
        """Under vmap, as in the inner program, seeds must not affect each other, not even by NaN."""
        nan_grads = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), _grads(0))
        expected = self._train(_grads(0), second_grads=_grads(1))
        assert_same_bits(self._train(_grads(0), second_grads=nan_grads), expected)

    def _train(self, grads: Any, second_grads: Any = None) -> Any:
        """Returns the result of `_program` for the first of two seeds.

        The second seed trains with `second_grads`.
        """
        params = _params(0)
        grads_of_seeds = (grads, grads if second_grads is None else second_grads)
        results = _program(self._cache_key)(self.theta(), _stack(params, params), _stack(*grads_of_seeds))
        return jax.tree.map(lambda leaf: np.asarray(leaf)[0], results)


@functools.cache
def _params(seed: int) -> dict[str, jax.Array]:
    """Returns parameters of every rank that a network has."""
    shapes = {"kernel": (2, 2, 1, 3), "weights": (3, 2), "bias": (2,), "scale": ()}
    keys = jax.random.split(key_of(seed), len(shapes))
    return {name: jax.random.normal(key, shape) for (name, shape), key in zip(shapes.items(), keys, strict=True)}


def _grads(seed: int) -> dict[str, jax.Array]:
    return _params(seed + 100)


@functools.cache
def _cached_optimizer(contract: Any) -> Any:
    return contract().optimizer()


@functools.cache
def _init(contract: Any) -> Callable[..., Any]:
    """Returns the compiled function key -> theta."""
    return jax.jit(as_learned_optimizer(_cached_optimizer(contract)).init, compiler_options=COMPILED_FAST)


def _stepper(contract: Any, theta: Any) -> Stepper:
    optimizer = _cached_optimizer(contract)
    if callable(getattr(optimizer, "opt_fn", None)):
        optimizer = as_learned_optimizer(optimizer).opt_fn(theta, _NUM_STEPS)
    return as_stepper(optimizer, _NUM_STEPS)


@functools.cache
def _program(contract: Any) -> Callable[..., Any]:
    """Returns a function (theta, params, grads) -> states before and after the steps, for two seeds."""

    def train_seed(theta: Any, params: Any, grads: Any) -> Any:
        stepper = _stepper(contract, theta)
        facts = facts_for(stepper, params)
        extra_values = extra_values_for(stepper, params, grads)
        initial_params = stepper.initial_params(params, facts)
        # A learned initialization has parameters of its own task, which these gradients do not fit.
        params = initial_params if types_of(initial_params) == types_of(params) else params
        state = stepper.init(params, None, key_of(0), facts)
        start = {"state": state}

        def step(index: Any, carry: Any) -> Any:
            state, params, _ = stepper.step(
                carry[0], carry[1], None, grads, _loss(grads), key_of(2), None, extra_values
            )
            return state, params

        carry = (state, params)
        try:
            state, params = jax.lax.fori_loop(0, _NUM_STEPS, step, carry)
        except TypeError:
            # A step that changes shapes or dtypes runs outside of a loop, so that a test reports it.
            state, params = step(0, carry)
        return start, {"state": state, "params": params, "evaluated": stepper.eval_params(state, params)}

    return jax.jit(jax.vmap(train_seed, in_axes=(None, 0, 0)), compiler_options=COMPILED_FAST)


def _loss(grads: Any) -> jax.Array:
    """Returns a loss that is NaN if a gradient is, as in training."""
    total: jax.Array = sum(leaf.sum() for leaf in jax.tree.leaves(grads))
    return 1 + 0 * total


def _stack(*trees: Any) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def _distance(tree: Any, other_tree: Any) -> float:
    leaf_pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other_tree), strict=True)
    return float(
        sum(np.abs(np.asarray(first_leaf) - np.asarray(second_leaf)).sum() for first_leaf, second_leaf in leaf_pairs)
    )


class _TaskWithEveryInput(Task):
    """Task that provides every extra input. Neurons are along the last axis of leaves with two or more axes."""

    num_losses = 2

    def __init__(self, grads: Any) -> None:
        self.grads = grads

    def losses(self, params: Any, state: Any, key: Any, data: Any) -> jax.Array:
        total = self.memory_loss(params, state, key)
        return jnp.stack([total, 2 * total])

    def memory_loss(self, params: Any, state: Any, key: Any) -> jax.Array:
        leaves = zip(jax.tree.leaves(params), jax.tree.leaves(self.grads), strict=True)
        total: jax.Array = sum((jnp.sum(leaf * grad, dtype=jnp.float32) for leaf, grad in leaves), jnp.float32(0))
        return total

    def scale_invariant(self, params: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim - 1 if leaf.ndim > 1 else None, params)


def facts_for(stepper: Stepper, params: Any) -> Facts:
    """Returns the facts that a task with every extra input passes once to the optimizer."""
    return facts_of(stepper.extra_inputs(params), lambda: _TaskWithEveryInput(params), params)


def extra_values_for(stepper: Stepper, params: Any, grads: Any) -> ExtraValues:
    """Returns the extra inputs of a step with given gradients: memories and losses consistent with them."""
    task = _TaskWithEveryInput(grads)
    batch = BatchLosses(
        loss=lambda at: (task.memory_loss(at, None, None), (None, {})),
        task=lambda: task,
        memory=lambda at: task.memory_loss(at, None, None),
        each=lambda at: task.losses(at, None, None, None),
    )
    return extra_values_at(stepper.extra_inputs(params), batch, params)
