"""RNNMLPLOpt: an LSTM per tensor and an MLP per parameter, which exchange messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, OptimizerState, PyTree, Theta
from lobench.inner.optimizers.features import moving_averages, rms_norm, tanh_scales
from lobench.inner.optimizers.tensor_lstm import (
    clipped_log,
    initial_lstm_states,
    linear,
    lstm,
    means_and_variances,
    new_linear,
    zero_lstm_theta,
)

__all__ = ["RNNMLPLOpt"]

_LOSS_DECAY = 0.9
_CLIP_DECAY = 0.99
_NUM_SHAPE = 4  # axes whose lengths the LSTM sees


@configurable
@dataclass(eq=False, repr=False)
class RNNMLPLOpt(LearnedOptimizer):
    """Hierarchical optimizer of "Tasks, stability, architecture, and compute".

    Args:
      step_multiplier, magnitude_rate: Scale of the step, and of the log magnitude.
      hidden_size, hidden_layer: Width and number of the MLP's hidden layers.
      from_mlp_size: Number of values from a tensor's MLP to its LSTM.
      from_lstm_size: Number of values from the LSTMs to all of them.
      lstm_to_ff: Number of values from an LSTM to its MLP.
      lstm_hidden_size: Width of the LSTM.
      decays: Decays of the momenta, and of the second moments.
    Source: Metz et al. 2020 (arXiv 2009.11243). Validation losses, an optional input there, are not used.
    """

    step_multiplier: float = 0.001
    magnitude_rate: float = 0.001
    hidden_size: int = 32
    hidden_layer: int = 2
    from_mlp_size: int = 16
    from_lstm_size: int = 18
    lstm_to_ff: int = 17
    lstm_hidden_size: int = 64
    decays: Sequence[float] = (0.5, 0.9, 0.99, 0.999, 0.9999)

    @property
    def _widths(self) -> list[int]:
        """Returns the widths of the MLP's layers."""
        return [self.hidden_size] * self.hidden_layer + [2 + self.from_mlp_size]

    def init(self, key: jax.Array) -> Theta:
        """Returns scaled normal weights and zero biases."""
        hidden = self.lstm_hidden_size
        keys = iter(jax.random.split(key, 5 + len(self._widths)))
        inputs = 3 + 4 * len(self.decays) + 14 + self.lstm_to_ff
        layers = {}
        for layer, width in enumerate(self._widths):
            layers[f"linear_{layer}"] = new_linear(next(keys), inputs, width)
            inputs = width
        tensor_inputs = 18 + self.from_lstm_size + self.from_mlp_size + hidden
        return {
            "initial_from_lstm": jax.random.normal(next(keys), (self.from_lstm_size,)) / np.sqrt(self.from_lstm_size),
            "initial_from_mlp": jax.random.normal(next(keys), (self.from_mlp_size,)) / np.sqrt(self.from_mlp_size),
            "lstm_init_state": zero_lstm_theta(hidden),
            "rnn_params": {"rnn/linear": new_linear(next(keys), tensor_inputs, 4 * hidden)},
            "rnn_to_ff_params": {"rnn_to_ff": new_linear(next(keys), hidden, self.lstm_to_ff)},
            "rnn_to_in_params": {"rnn_to_in": new_linear(next(keys), hidden, self.from_lstm_size)},
            "ffmod_params": {"mlp": {"~": layers}},
        }

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        decays = jnp.asarray(self.decays, jnp.float32)

        def init(params: PyTree) -> OptimizerState:
            sizes = [jnp.size(leaf) for leaf in jax.tree.leaves(params)]
            return {
                "step": jnp.int32(0),
                "loss": jnp.zeros(2),  # mean and variance
                "norm": jnp.float32(1 - _CLIP_DECAY),
                "m": [jnp.zeros((len(decays), size)) for size in sizes],
                "r": [jnp.zeros((len(decays), size)) for size in sizes],
                "rows": initial_lstm_states(theta["lstm_init_state"], len(sizes)),
                "from_mlp": jnp.tile(theta["initial_from_mlp"], (len(sizes), 1)),
                "from_lstm": jnp.asarray(theta["initial_from_lstm"]),
            }

        def update(
            grads: PyTree, state: OptimizerState, params: PyTree = None, *, value: jax.Array, **extra: Any
        ) -> tuple[PyTree, OptimizerState]:
            leaves, structure = jax.tree.flatten(grads)
            step = state["step"]
            loss, loss_inputs = _loss_features(state["loss"], value, step)
            norm, clipped_grads = _clip_grads(state["norm"], [_row(leaf) for leaf in leaves], step)
            momenta = [
                moving_averages(old, clipped_grad[0], decays)
                for old, clipped_grad in zip(state["m"], clipped_grads, strict=True)
            ]
            squares = [
                moving_averages(old, clipped_grad[0] * clipped_grad[0], decays)
                for old, clipped_grad in zip(state["r"], clipped_grads, strict=True)
            ]
            param_rows = [_row(leaf) for leaf in jax.tree.leaves(params)]
            shapes = [jnp.shape(leaf) for leaf in leaves]
            tensor_inputs = [
                _tensor_inputs(*tensor_values)
                for tensor_values in zip(clipped_grads, param_rows, momenta, squares, shapes, strict=True)
            ]
            inputs_of_lstm = _lstm_inputs(jnp.stack(tensor_inputs), state["from_lstm"], state["from_mlp"], loss_inputs)
            lstm_states = lstm(theta["rnn_params"]["rnn/linear"], inputs_of_lstm, state["rows"])
            to_ff = linear(theta["rnn_to_ff_params"]["rnn_to_ff"], lstm_states[0])
            features = [
                _features(*tensor_values)
                for tensor_values in zip(clipped_grads, param_rows, momenta, squares, strict=True)
            ]
            steps, from_mlp = self._apply(
                theta["ffmod_params"]["mlp"]["~"], features, _shared_mlp_inputs(param_rows, to_ff, step)
            )
            new_state = {
                "step": step + 1,
                "loss": loss,
                "norm": norm,
                "m": momenta,
                "r": squares,
                "rows": lstm_states,
                "from_mlp": from_mlp,
                "from_lstm": jnp.mean(linear(theta["rnn_to_in_params"]["rnn_to_in"], lstm_states[0]), axis=0),
            }
            updates = [-step.reshape(shape) for step, shape in zip(steps, shapes, strict=True)]
            return jax.tree.unflatten(structure, updates), new_state

        return optax.GradientTransformationExtraArgs(init, update)

    def _apply(
        self, layers: dict[str, dict[str, jax.Array]], features: list[jax.Array], tensor_inputs: jax.Array
    ) -> tuple[list[jax.Array], jax.Array]:
        """Returns each tensor's step, float32[size], and messages from MLP to LSTM, float32[num_tensors, ...].

        Args:
          layers: Layers of the MLP.
          features: Features by tensor, float32[num_features, size].
          tensor_inputs: Inputs shared by all parameters of a tensor, float32[num_tensors, ...].
        """
        # All tensors in one product, with coordinates last: the cost of a small network is its number of products.
        sizes = [feature.shape[1] for feature in features]
        first_layer = layers["linear_0"]
        last_layer = layers[f"linear_{len(self._widths) - 1}"]
        num_features = features[0].shape[0]
        biases = tensor_inputs @ first_layer["w"][num_features:] + first_layer["b"]
        bias = jnp.concatenate(
            [jnp.broadcast_to(row[:, None], (row.size, size)) for row, size in zip(biases, sizes, strict=True)], axis=1
        )
        hidden = jax.nn.relu(first_layer["w"][:num_features].T @ jnp.concatenate(features, axis=1) + bias)
        for layer in range(1, len(self._widths) - 1):
            layer_weights = layers[f"linear_{layer}"]
            hidden = jax.nn.relu(layer_weights["w"].T @ hidden + layer_weights["b"][:, None])
        direction, magnitude = last_layer["w"][:, :2].T @ hidden + last_layer["b"][:2, None]
        steps = direction * jnp.exp(magnitude * self.magnitude_rate) * self.step_multiplier
        tensor_ends = np.cumsum(sizes)[:-1]
        # The mean of the other outputs is the output of the mean, since the last layer is linear.
        means = [
            jnp.sum(hidden_of_tensor, axis=1) / max(hidden_of_tensor.shape[1], 1)
            for hidden_of_tensor in jnp.split(hidden, tensor_ends, axis=1)
        ]
        return jnp.split(steps, tensor_ends), jnp.stack(means) @ last_layer["w"][:, 2:] + last_layer["b"][2:]


def _row(leaf: jax.Array) -> jax.Array:
    """Returns a vector as a row, float32[1, size]."""
    return jnp.reshape(leaf, (1, -1)).astype(jnp.float32)


def _loss_features(old: jax.Array, loss: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the new mean and variance of the loss, and two features: the loss, and 0 as the validation loss."""
    mean = _LOSS_DECAY * old[0] + (1 - _LOSS_DECAY) * loss
    variance = _LOSS_DECAY * old[1] + (1 - _LOSS_DECAY) * jnp.square(mean - loss)
    new_moments = jnp.stack([mean, variance]).astype(jnp.float32)
    corrected_moments = new_moments / (1 - _LOSS_DECAY ** (step + 1).astype(jnp.float32) + 1e-8)
    losses = jnp.stack([loss, jnp.zeros_like(loss)])
    return new_moments, jnp.clip((losses - corrected_moments[0]) * jax.lax.rsqrt(corrected_moments[1] + 1e-8), -5, 5)


def _clip_grads(norm: jax.Array, grads: list[jax.Array], step: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
    """Returns the new average size of gradients, and the gradients, clipped at ten times the previous average."""
    limit = 10 * norm / (1 - _CLIP_DECAY ** (step + 1).astype(jnp.float32))
    grads = [jnp.clip(grad, -limit, limit) for grad in grads]
    mean_square = sum(jnp.sum(jnp.square(grad)) / max(grad.size, 1) for grad in grads) / len(grads)
    return _CLIP_DECAY * norm + (1 - _CLIP_DECAY) * jnp.sqrt(1e-8 + mean_square), grads


def _tensor_inputs(
    grad: jax.Array, param: jax.Array, momenta: jax.Array, second_moments: jax.Array, shape: tuple[int, ...]
) -> jax.Array:
    """Returns the LSTM's inputs for a tensor's values and shape, float32[16], in the order of the original's names."""
    (mean_p,), (var_p,) = means_and_variances([param])
    (mean_m, mean_r), (var_m, var_r) = means_and_variances([momenta.reshape(1, -1), second_moments.reshape(1, -1)])
    sizes = [max(size, 1) for size in (*shape, 1, 1, 1, 1)[:_NUM_SHAPE]]
    return jnp.stack(
        [
            clipped_log(jnp.sqrt(jnp.sum(grad * grad))),
            jnp.float32(1.0 if len(shape) == 0 else -1.0),
            *(value for mean in (mean_m, mean_r, mean_p) for value in (clipped_log(mean), jnp.sign(mean))),
            clipped_log(jnp.sqrt(jnp.sum(param * param))),
            *(jnp.float32(np.log(np.float32(size)) - 1) for size in sizes),
            *(clipped_log(variance) for variance in (var_m, var_r, var_p)),
        ]
    )


def _lstm_inputs(
    tensor_inputs: jax.Array, lstm_outputs: jax.Array, mlp_outputs: jax.Array, loss_inputs: jax.Array
) -> jax.Array:
    """Returns the LSTM's inputs, float32[num_tensors, 52]. Losses come before the three variances."""
    tiled_inputs = [
        jnp.tile(shared_inputs, (tensor_inputs.shape[0], 1)) for shared_inputs in (lstm_outputs, loss_inputs)
    ]
    return jnp.concatenate(
        [tiled_inputs[0], mlp_outputs, tensor_inputs[:, :-3], tiled_inputs[1], tensor_inputs[:, -3:]], axis=1
    )


def _features(g: jax.Array, p: jax.Array, m: jax.Array, r: jax.Array) -> jax.Array:
    """Returns the inputs of the MLP for each parameter, float32[23, size]."""
    r_scale = jax.lax.rsqrt(r + 1e-6)
    channels = jnp.concatenate([g, p, jnp.log(jnp.abs(p) + 1e-8), m, r, m * r_scale, r_scale])
    return rms_norm(channels, axes=(1,))


def _shared_mlp_inputs(param_rows: list[jax.Array], to_ff: jax.Array, step: jax.Array) -> jax.Array:
    """Returns the inputs of the MLP from the step, the tensor and its LSTM, float32[num_tensors, 31]."""
    step_features = jnp.sin(step.astype(jnp.float32) / (tanh_scales * np.float32(np.pi)))
    norms = jnp.log(jnp.stack([jnp.sqrt(jnp.sum(param_row * param_row)) for param_row in param_rows]) + 1e-8)
    sizes = np.log(np.maximum([param_row.size for param_row in param_rows], 1)).astype(np.float32)
    shared_inputs = jnp.concatenate([step_features, jnp.full(1, np.log(len(param_rows)) - 1, jnp.float32)])
    return jnp.concatenate(
        [jnp.tile(shared_inputs, (len(param_rows), 1)), norms[:, None], sizes[:, None], to_ff], axis=1
    )
