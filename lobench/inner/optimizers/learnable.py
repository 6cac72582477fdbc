"""Hand-designed rules with learned hyperparameters, the simplest learned optimizers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, PyTree, Theta

__all__ = ["LearnableAdam", "LearnableSGD", "LearnableSGDM"]


@configurable
@dataclass(eq=False, repr=False)
class LearnableSGD(LearnedOptimizer):
    """SGD with a learned learning rate.

    Theta: `log_lr`, float32[], the natural logarithm of the learning rate.
    """

    initial_lr: float = 0.01

    def init(self, key: jax.Array) -> Theta:
        return {"log_lr": jnp.log(jnp.float32(self.initial_lr))}

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        return optax.with_extra_args_support(optax.sgd(jnp.exp(theta["log_lr"])))


@configurable
@dataclass(eq=False, repr=False)
class LearnableSGDM(LearnedOptimizer):
    """SGD with momentum, with learned learning rate and decay.

    Theta: `log_lr` and `one_minus_momentum`, float32[], the natural logarithms of the learning rate and of 1 - decay.
    """

    initial_lr: float = 0.01
    initial_momentum: float = 0.9

    def init(self, key: jax.Array) -> Theta:
        return {
            "log_lr": jnp.log(jnp.float32(self.initial_lr)),
            "one_minus_momentum": jnp.log(jnp.float32(1 - self.initial_momentum)),
        }

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        decay = 1 - jnp.exp(theta["one_minus_momentum"])
        return _in_float32(optax.chain(optax.trace(decay=decay), optax.scale(-jnp.exp(theta["log_lr"]))))


@configurable
@dataclass(eq=False, repr=False)
class LearnableAdam(LearnedOptimizer):
    """Adam with learned hyperparameters.

    Theta: `log_lr`, `one_minus_beta1`, `one_minus_beta2` and `log_epsilon`, float32[], natural logarithms.

    1e-8 is added to the second moment before the root, as in google/learned_optimization's class of the same name.
    """

    initial_lr: float = 1e-3
    initial_beta1: float = 0.9
    initial_beta2: float = 0.999
    initial_epsilon: float = 1e-8

    def init(self, key: jax.Array) -> Theta:
        initial_values = {
            "log_lr": self.initial_lr,
            "one_minus_beta1": 1 - self.initial_beta1,
            "one_minus_beta2": 1 - self.initial_beta2,
            "log_epsilon": self.initial_epsilon,
        }
        return {name: jnp.log(jnp.float32(value)) for name, value in initial_values.items()}

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        values = jax.tree.map(jnp.exp, theta)
        return _in_float32(
            optax.adam(
                values["log_lr"],
                b1=1 - values["one_minus_beta1"],
                b2=1 - values["one_minus_beta2"],
                eps=values["log_epsilon"],
                eps_root=1e-8,
            )
        )


def _in_float32(transformation: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """Computes in at least float32.

    Theta is float32, so averages of a shorter type would change their type at a step.
    """

    def as_float32(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.promote_types(jnp.result_type(leaf), jnp.float32)), tree)

    def update(updates: PyTree, state: PyTree, params: PyTree = None, **extra: Any) -> tuple[PyTree, PyTree]:
        return transformation.update(as_float32(updates), state)  # neither rule looks at parameters

    return optax.GradientTransformationExtraArgs(lambda params: transformation.init(as_float32(params)), update)
