"""RNNProp: a coordinate-wise LSTM on Adam's normalised momentum and gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, OptimizerState, PyTree, Theta
from lobench.inner.optimizers.lstm import HIDDEN, init_lstm, initial_state, two_layers

__all__ = ["RNNProp"]

_BETA = 0.95


@configurable
@dataclass(eq=False, repr=False)
class RNNProp(LearnedOptimizer):
    """RNNProp: an LSTM optimizer on inputs normalized as in Adam and RMSProp.

    Args:
      step_mult: Factor of the tanh of the network's output.
    Source: Lv, Jiang, Li 2017 (arXiv 1703.03633).
    """

    step_mult: float = 0.01

    def init(self, key: jax.Array) -> Theta:
        projection_key, lstm_key = jax.random.split(key)
        projection = {"w": jax.random.normal(projection_key, (2, HIDDEN)) / np.sqrt(2), "b": jnp.zeros(HIDDEN)}
        return {"input_projection": projection, **init_lstm(lstm_key, HIDDEN)}

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        projection = theta["input_projection"]

        def init(params: PyTree) -> OptimizerState:
            size = sum(jnp.size(leaf) for leaf in jax.tree.leaves(params))
            return {"step": jnp.int32(0), "m": jnp.zeros(size), "v": jnp.zeros(size), "lstm": initial_state(size)}

        def update(
            grads: PyTree, state: OptimizerState, params: PyTree = None, **extra: Any
        ) -> tuple[PyTree, OptimizerState]:
            grad, unravel = ravel_pytree(grads)
            step = state["step"] + 1
            correction = 1 - _BETA ** step.astype(jnp.float32)
            m = _BETA * state["m"] + (1 - _BETA) * grad
            v = _BETA * state["v"] + (1 - _BETA) * grad * grad
            denominator = jnp.sqrt(v / correction) + 1e-8
            inputs = jnp.stack([m / correction / denominator, grad / denominator], axis=1)
            output, lstm = two_layers(theta, jax.nn.elu(inputs @ projection["w"] + projection["b"]), state["lstm"])
            return unravel(self.step_mult * jnp.tanh(output)), {"step": step, "m": m, "v": v, "lstm": lstm}

        return optax.GradientTransformationExtraArgs(init, update)
