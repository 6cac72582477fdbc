"""NNAdam: Adam whose four hyperparameters are changed per tensor by an LSTM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, OptimizerState, PyTree, Theta
from lobench.inner.optimizers.tensor_lstm import (
    clipped_log,
    initial_lstm_states,
    linear,
    lstm,
    means_and_variances,
    new_linear,
    zero_lstm_theta,
)

__all__ = ["NNAdam"]

_NAMES = ("lr", "beta1", "beta2", "epsilon")  # in the order in which the network moves them
_NUM_INPUTS = 19


@configurable
@dataclass(eq=False, repr=False)
class NNAdam(LearnedOptimizer):
    """Adam without bias correction, with hyperparameters per tensor on a logarithmic scale.

    Args:
      output_scale: Factor of the network's changes.
      initial_learning_rate, initial_beta1, initial_beta2, initial_epsilon: Initial values in theta.
      decay_strength: Rate at which a step pulls hyperparameters back to theta's.
      lstm_hidden_size: Width of the LSTM.
    Source: google/learned_optimization's class of the same name.
    """

    output_scale: float = 0.01
    initial_learning_rate: float = 1e-4
    initial_beta1: float = 0.9
    initial_beta2: float = 0.999
    initial_epsilon: float = 1e-8
    decay_strength: float = 0.0
    lstm_hidden_size: int = 32

    def init(self, key: jax.Array) -> Theta:
        """Returns scaled normal weights. Output weights are zero, so that Adam keeps its initial hyperparameters."""
        hidden = self.lstm_hidden_size
        values = (self.initial_learning_rate, self.initial_beta1, self.initial_beta2, self.initial_epsilon)
        initial_hyper = _log_scaled(jnp.asarray(values, jnp.float32)[:, None])[:, 0]
        control_layer = {"w": jnp.zeros((hidden, len(_NAMES))), "b": jnp.zeros(len(_NAMES))}
        return {
            "lstm_init_state": zero_lstm_theta(hidden),
            "rnn_params": {"rnn/linear": new_linear(key, _NUM_INPUTS + hidden, 4 * hidden)},
            "rnn_to_controls_params": {"rnn_to_controls": control_layer},
            **{f"per_layer_{name}": initial_hyper[index] for index, name in enumerate(_NAMES)},
        }

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        initial = jnp.stack([theta[f"per_layer_{name}"] for name in _NAMES])[:, None]
        recurrent = theta["rnn_params"]["rnn/linear"]
        controls = theta["rnn_to_controls_params"]["rnn_to_controls"]

        def init(params: PyTree) -> OptimizerState:
            zeros = [jnp.zeros(jnp.shape(leaf)) for leaf in jax.tree.leaves(params)]
            return {
                "m": zeros,
                "r": zeros,
                "hyper": jnp.tile(initial, (1, len(zeros))),  # float32[4, num_tensors]
                "rows": initial_lstm_states(theta["lstm_init_state"], len(zeros)),
            }

        def update(
            grads: PyTree, state: OptimizerState, params: PyTree = None, **extra: Any
        ) -> tuple[PyTree, OptimizerState]:
            values = _from_log_scale(state["hyper"])
            updates, momenta, squares, tensor_moments = [], [], [], []
            tensors = zip(jax.tree.leaves(grads), jax.tree.leaves(params), state["m"], state["r"], strict=True)
            for index, (grad, p, m, r) in enumerate(tensors):
                lr, beta1, beta2, epsilon = values[:, index]
                g = jnp.clip(grad.astype(jnp.float32), -1000.0, 1000.0)
                m = beta1 * m + (1 - beta1) * g
                r = beta2 * r + (1 - beta2) * (g * g)
                updates.append(-(lr * (1 + epsilon) / (epsilon + jnp.sqrt(r + 1e-10)) * m))
                tensor_moments.append(_tensor_moments(g, m, p.astype(jnp.float32), r))
                momenta.append(m)
                squares.append(r)
            ranks = np.asarray([jnp.ndim(leaf) for leaf in jax.tree.leaves(params)])
            lstm_states = lstm(
                recurrent, _lstm_inputs(state["hyper"], ranks, jnp.stack(tensor_moments, axis=1)), state["rows"]
            )
            hyper = state["hyper"] + self.output_scale * linear(controls, lstm_states[0]).T
            hyper = hyper - self.decay_strength * (hyper - initial)
            new_state = {"m": momenta, "r": squares, "hyper": _log_scaled(_from_log_scale(hyper)), "rows": lstm_states}
            return jax.tree.unflatten(jax.tree.structure(grads), updates), new_state

        return optax.GradientTransformationExtraArgs(init, update)


def _log_scaled(values: jax.Array) -> jax.Array:
    """Returns hyperparameters, float32[4, num_tensors], on the logarithmic scale of the network."""
    lr, beta1, beta2, epsilon = values
    return 0.1 * jnp.log(jnp.stack([lr, 1 - beta1, 1 - beta2, epsilon]))


def _from_log_scale(hyper: jax.Array) -> jax.Array:
    """Inverts `_log_scaled`, with values clipped to valid ranges."""
    lr, beta1, beta2, epsilon = 10 * hyper
    betas = [1 - jnp.exp(jnp.clip(beta, -10, 0)) for beta in (beta1, beta2)]
    return jnp.stack([jnp.clip(jnp.exp(lr), 1e-8, 1e3), *betas, jnp.clip(jnp.exp(epsilon), 1e-11, 1e4)])


def _tensor_moments(g: jax.Array, m: jax.Array, p: jax.Array, r: jax.Array) -> jax.Array:
    """Returns the network's inputs for one tensor: means of g, m, p, r and |g|, then variances of the first four."""
    means, variances = means_and_variances([leaf.reshape(1, -1) for leaf in (g, m, p, r, jnp.abs(g))])
    return jnp.concatenate([means, variances[:4]])


def _lstm_inputs(hyper: jax.Array, ranks: np.ndarray, tensor_moments: jax.Array) -> jax.Array:
    """Returns the LSTM's inputs, float32[num_tensors, 19], in the order of their names in the original."""
    lr, beta1, beta2, epsilon = 0.2 * jnp.clip(hyper, -5, 5)
    is_bias, is_scalar = (np.where(ranks == rank, 1.0, -1.0).astype(np.float32) for rank in (1, 0))
    (sign_g, sign_m, sign_p, sign_r, _), (log_g, log_m, log_p, log_r, log_abs) = (
        jnp.sign(tensor_moments[:5]),
        0.5 * clipped_log(tensor_moments[:5]),
    )
    variances = 0.5 * clipped_log(tensor_moments[5:])
    columns = [
        beta1,
        beta2,
        epsilon,
        is_bias,
        is_scalar,
        lr,
        log_g,
        sign_g,
        log_abs,
        log_m,
        sign_m,
        log_p,
        sign_p,
        log_r,
        sign_r,
    ]
    # The variances have the same order as these columns: g, m, p, r.
    return jnp.concatenate([jnp.stack(columns), variances]).T
