"""The shipped optimizers keep the optimizers' contract, and the contract notices what does not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from shown import texts_of

from lobench.inner import optimizers
from lobench.inner.optimizer import LearnedOptimizer
from lobench.testing.optimizers import OptimizerContract

SHOWN = texts_of("testing")

SMALL = {"MuLO": {"hidden_size": 4}, "VeLO": {"lstm_hidden_size": 16, "param_inits": 8}}  # they compile faster
WITHOUT_THETA = ["adafactor", "adam", "adamw", "lion", "momentum", "nadamw", "nesterov", "rmsprop"]
WITHOUT_THETA += ["adam_g", "agem", "psi_sgd", "schedule_free_adamw", "sgd", "sgd_g"]


class Shipped(OptimizerContract):
    name: str

    def optimizer(self) -> Any:
        return getattr(optimizers, self.name)(**SMALL.get(self.name, {}))


WITHOUT_THETA += optimizers.weighters.__all__

for _name in sorted({*optimizers.__all__} - {"opt_list"}):  # its settings are a file that is not here
    globals()[f"Test{_name}"] = type(f"Test{_name}", (Shipped,), {"name": _name})

# What the contract asks about a theta asks nothing of these.
for _name in WITHOUT_THETA:
    globals()[f"Test{_name}"].test_theta_depends_on_the_key_alone = None
    globals()[f"Test{_name}"].test_theta_comes_back_from_a_checkpoint_and_another_one_is_refused = None


class Mixing(LearnedOptimizer):
    """Averages its step over the seeds of a block: what one meets reaches all."""

    def init(self, key: jax.Array) -> Any:
        return {"rate": jnp.float32(0.1)}

    def opt_fn(self, theta: Any, num_steps: int | None = None) -> Any:
        @jax.custom_batching.custom_vmap
        def mean(leaf: Any) -> Any:
            return leaf

        @mean.def_vmap
        def over_seeds(size: int, batched: Any, leaf: Any) -> Any:
            return jnp.broadcast_to(leaf.mean(axis=0, keepdims=True), leaf.shape), True

        def update(grads: Any, state: Any, params: Any = None, **_: Any) -> Any:
            return jax.tree.map(lambda leaf: -theta["rate"] * mean(leaf), grads), state

        return optax.GradientTransformationExtraArgs(lambda params: (), update)


class Idle(Mixing):
    def opt_fn(self, theta: Any, num_steps: int | None = None) -> Any:
        def update(grads: Any, state: Any, params: Any = None, **_: Any) -> Any:
            return jax.tree.map(jnp.zeros_like, grads), (state, state)

        return optax.GradientTransformationExtraArgs(lambda params: (), update)


def contract_of(made: Any) -> OptimizerContract:
    return type("Contract", (OptimizerContract,), {"optimizer": lambda self: made})()


def test_the_contract_notices() -> None:
    with pytest.raises(AssertionError):
        contract_of(Mixing()).test_seeds_side_by_side_train_apart()
    with pytest.raises(AssertionError, match=SHOWN["does-not-move"]):
        contract_of(Idle()).test_it_moves_the_parameters_along_the_gradients()
    with pytest.raises(AssertionError, match=SHOWN["state-changes"]):
        contract_of(Idle()).test_a_step_keeps_shapes_and_dtypes_and_gives_finite_parameters()
