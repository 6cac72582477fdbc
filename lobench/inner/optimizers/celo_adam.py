"""Celo-Adam: Adam with learning rates per tensor from Celo's scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, OptimizerState, PyTree, Theta
from lobench.inner.optimizers.celo import initial_schedule_state, require_horizon, schedule_step
from lobench.inner.optimizers.tensor_lstm import new_linear, zero_lstm_theta

__all__ = ["CeloAdam"]

_LSTM = 64
_INPUTS = 18


@configurable
@dataclass(eq=False, repr=False)
class CeloAdam(LearnedOptimizer):
    """Celo's scheduler with Adam in place of its network.

    Args:
      learning_rate, beta1, beta2: Parameters of Adam. The scheduler multiplies the learning rate.
    Source: Moudgil et al. 2025 (arXiv 2501.12670).
    """

    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999

    def init(self, key: jax.Array) -> Theta:
        """Returns scaled normal weights and zero biases, in the structure of the published checkpoint."""
        sizes = {"linear": (_INPUTS, _LSTM), "linear_1": (_INPUTS, _LSTM), "linear_2": (_INPUTS, _LSTM)}
        sizes |= {"rnn/linear": (2 * _LSTM, 4 * _LSTM), "step_size": (_LSTM, 1)}
        keys = jax.random.split(key, len(sizes))
        return {
            "lstm_init_state": zero_lstm_theta(_LSTM),
            "rnn_params": {name: new_linear(key, *size) for (name, size), key in zip(sizes.items(), keys, strict=True)},
        }

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        horizon = require_horizon(self, num_steps)
        beta1 = jnp.float32(self.beta1)
        beta2 = jnp.float32(self.beta2)

        def init(params: PyTree) -> OptimizerState:
            zeros = [jnp.zeros(jnp.shape(leaf)) for leaf in jax.tree.leaves(params)]
            return {**initial_schedule_state(theta, len(zeros), horizon), "m": zeros, "v": zeros}

        def update(
            grads: PyTree, state: OptimizerState, params: PyTree = None, *, value: jax.Array, **extra: Any
        ) -> tuple[PyTree, OptimizerState]:
            schedule, rates = schedule_step(theta, state, value, horizon)
            leaves, structure = jax.tree.flatten(grads)
            clipped_grads = [jnp.clip(leaf.astype(jnp.float32), -1000.0, 1000.0) for leaf in leaves]
            momenta = [beta1 * m + (1 - beta1) * g for m, g in zip(state["m"], clipped_grads, strict=True)]
            second_moments = [beta2 * v + (1 - beta2) * (g * g) for v, g in zip(state["v"], clipped_grads, strict=True)]
            num_updates = schedule["step"].astype(jnp.float32)
            momentum_correction, second_correction = 1 - beta1**num_updates, 1 - beta2**num_updates
            scales = [
                self.learning_rate * rates[index] / (1e-8 + jnp.sqrt(v / second_correction + 1e-10))
                for index, v in enumerate(second_moments)
            ]
            updates = [-(m / momentum_correction) * scale for m, scale in zip(momenta, scales, strict=True)]
            return jax.tree.unflatten(structure, updates), {**schedule, "m": momenta, "v": second_moments}

        return optax.GradientTransformationExtraArgs(init, update)
