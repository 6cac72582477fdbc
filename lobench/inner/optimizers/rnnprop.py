"""RNNProp: a coordinate-wise LSTM on Adam's normalised momentum and gradient."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, PyTree, Theta
from lobench.inner.optimizers.lstm import HIDDEN, init_lstm, initial_state, two_layers

__all__ = ["RNNProp"]

_BETA = 0.95


@configurable
class RNNProp(LearnedOptimizer):
    """RNNProp.

    Args:
      step_mult: What multiplies the tanh of the network's output.
    Source: Lv, Jiang, Li 2017 (arXiv 1703.03633).
    """

    def __init__(self, step_mult: float = 0.01) -> None:
        self._step_mult = step_mult

    def init(self, key: jax.Array) -> Theta:
        projection_key, lstm_key = jax.random.split(key)
        projection = {"w": jax.random.normal(projection_key, (2, HIDDEN)) / np.sqrt(2), "b": jnp.zeros(HIDDEN)}
        return {"input_projection": projection, **init_lstm(lstm_key, HIDDEN)}

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        projection = theta["input_projection"]

        def init(params: PyTree) -> dict[str, Any]:
            sizes = [jnp.size(leaf) for leaf in jax.tree.leaves(params)]
            zeros = [jnp.zeros(size) for size in sizes]
            return {"step": jnp.int32(0), "m": zeros, "v": zeros, "lstm": [initial_state(size) for size in sizes]}

        def update(
            grads: PyTree, state: dict[str, Any], params: PyTree = None, **extra: Any
        ) -> tuple[PyTree, dict[str, Any]]:
            step = state["step"] + 1
            correction = 1 - _BETA ** step.astype(jnp.float32)
            updates, first, second, states = [], [], [], []
            for g, m, v, old in zip(jax.tree.leaves(grads), state["m"], state["v"], state["lstm"], strict=True):
                grad = jnp.ravel(g)
                m = _BETA * m + (1 - _BETA) * grad
                v = _BETA * v + (1 - _BETA) * grad * grad
                denominator = jnp.sqrt(v / correction) + 1e-8
                inputs = jnp.stack([m / correction / denominator, grad / denominator], axis=1)
                output, new = two_layers(theta, jax.nn.elu(inputs @ projection["w"] + projection["b"]), old)
                updates.append((self._step_mult * jnp.tanh(output)).reshape(jnp.shape(g)))
                first.append(m)
                second.append(v)
                states.append(new)
            new_state = {"step": step, "m": first, "v": second, "lstm": states}
            return jax.tree.unflatten(jax.tree.structure(grads), updates), new_state

        return optax.GradientTransformationExtraArgs(init, update)
