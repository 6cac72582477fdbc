"""HyperV2, VeLO's architecture: an LSTM per tensor mixes the weights of the network that updates its parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, OptimizerState, PyTree, Theta
from lobench.inner.optimizers.celo import (
    BLOCK_CHANNELS,
    FACTORED_ROWS,
    block_accumulators,
    block_features,
    require_horizon,
)
from lobench.inner.optimizers.factored import TensorValues
from lobench.inner.optimizers.features import LayerOutputs, feature_layout, network_outputs, weighted_sum
from lobench.inner.optimizers.tensor_lstm import (
    clipped_log,
    initial_lstm_states,
    linear,
    loss_features,
    means_and_variances,
    mixed_lstm,
    new_linear,
    new_loss_buffer,
    progress_features,
    zero_lstm_theta,
)

__all__ = ["HyperV2", "VeLO"]

_NUM_INPUTS = 30
_NUM_RANKS = 5
_BUGGED_HORIZON = 10  # horizon of the loss features with the original's error, by which all decays are equal


@configurable
@dataclass(eq=False, repr=False)
class HyperV2(LearnedOptimizer):
    """Hypernetwork optimizer: the architecture of VeLO.

    Args:
      lstm_hidden_size: Width of the LSTM, which has a state per tensor.
      param_inits: Number of networks in theta. Each tensor's network is a mixture of them.
      ff_hidden_size, ff_hidden_layers: Width and number of hidden layers of these networks.
      exp_mult, step_mult: Scale of the log magnitude, and of the step.
      use_bugged_loss_features, use_bugged_next_lstm_state: Errors of the original, kept for thetas trained with them:
        equal decays of the loss, and an LSTM that forgets its state.
      rnn_state_decay: Decay of the LSTM's state per step.
    Source: Metz et al. 2022 (arXiv 2211.09760).
    """

    lstm_hidden_size: int = 128
    param_inits: int = 64
    ff_hidden_size: int = 4
    ff_hidden_layers: int = 2
    exp_mult: float = 0.001
    step_mult: float = 0.001
    use_bugged_loss_features: bool = True
    use_bugged_next_lstm_state: bool = False
    rnn_state_decay: float = 0.0

    @property
    def _widths(self) -> list[int]:
        """Returns the widths of the layers of a tensor's network."""
        return [self.ff_hidden_size] * self.ff_hidden_layers + [3]

    def init(self, key: jax.Array) -> Theta:
        """Returns scaled normal weights and zero biases."""
        hidden = self.lstm_hidden_size
        keys = iter(jax.random.split(key, len(BLOCK_CHANNELS) + len(self._widths) + 6))
        widths = self._widths
        inputs = sum(BLOCK_CHANNELS)
        shapes = {f"w0__{index}": (channels, widths[0]) for index, channels in enumerate(BLOCK_CHANNELS)}
        shapes |= {f"w{layer}": (widths[layer - 1], widths[layer]) for layer in range(1, len(widths))}
        network = {
            name: jax.random.truncated_normal(next(keys), -2, 2, (self.param_inits, *shape))
            / np.sqrt(inputs if name.startswith("w0") else shape[0])
            for name, shape in shapes.items()
        }
        network |= {f"b{layer}": jnp.zeros((self.param_inits, width)) for layer, width in enumerate(widths)}
        recurrent = {name: new_linear(next(keys), _NUM_INPUTS, hidden) for name in _LAYERS}
        recurrent["rnn/linear"] = new_linear(next(keys), 2 * hidden, 4 * hidden)
        recurrent["rnn_to_controls"] = new_linear(next(keys), hidden, self.param_inits)
        recurrent["step_size"] = new_linear(next(keys), hidden, 1)
        return {"ff_mod_stack": {"~": network}, "lstm_init_state": zero_lstm_theta(hidden), "rnn_params": recurrent}

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        horizon = require_horizon(self, num_steps)
        networks = _Networks(theta["ff_mod_stack"]["~"], self._widths)
        accumulators = block_accumulators(_float32_layout)

        def init(params: PyTree) -> OptimizerState:
            return {
                "step": jnp.int32(0),
                "losses": new_loss_buffer(_BUGGED_HORIZON if self.use_bugged_loss_features else horizon),
                "rows": initial_lstm_states(theta["lstm_init_state"], len(jax.tree.leaves(params))),
                **accumulators.init(params),
            }

        def update(
            grads: PyTree, state: OptimizerState, params: PyTree = None, *, value: jax.Array, **extra: Any
        ) -> tuple[PyTree, OptimizerState]:
            schedule, controls, rates = self._schedule(theta["rnn_params"], state, params, value, horizon)
            network_rows = networks.mix(controls)
            leaves = [jnp.clip(_float32_layout(leaf), -1000.0, 1000.0) for leaf in jax.tree.leaves(grads)]

            def step(index: int, tensor: TensorValues) -> jax.Array:
                direction, magnitude = networks.apply(network_rows[index], block_features(tensor), tensor.factor_sums)
                scale = jnp.sqrt(jnp.mean(tensor.param * tensor.param) + 1e-9) * self.step_mult * rates[index]
                return -scale * direction * jnp.exp(self.exp_mult * magnitude)

            factored_weights = networks.first_layers(network_rows)[:, FACTORED_ROWS]
            updates, new_accumulators = accumulators.update(state, leaves, params, factored_weights, step)
            return updates, {**schedule, **new_accumulators}

        return optax.GradientTransformationExtraArgs(init, update)

    def _schedule(
        self, theta: Theta, state: OptimizerState, params: PyTree, loss: jax.Array, horizon: int
    ) -> tuple[OptimizerState, jax.Array, jax.Array]:
        """Returns the next state of the LSTM and its inputs, controls [num_tensors, K] and rates [num_tensors]."""
        step = state["step"]
        losses, loss_inputs = loss_features(state["losses"], step, loss)
        shared_inputs = jnp.concatenate([progress_features(step, horizon), loss_inputs])
        tensors = zip(jax.tree.leaves(params), state["momentum"], state["rms"], strict=True)
        inputs_of_lstm = jnp.stack([jnp.concatenate([shared_inputs, _tensor_inputs(*tensor)]) for tensor in tensors])
        h, c = mixed_lstm(theta, inputs_of_lstm, state["rows"])
        controls = linear(theta["rnn_to_controls"], h)
        rates = linear(theta["step_size"], h)[:, 0]
        lstm_states = state["rows"] if self.use_bugged_next_lstm_state else (h, c)
        lstm_states = jax.tree.map(lambda leaf: leaf * (1 - self.rnn_state_decay), lstm_states)
        return {"step": step + 1, "losses": losses, "rows": lstm_states}, controls, rates


@configurable
@dataclass(eq=False, repr=False)
class VeLO(HyperV2):
    """VeLO: HyperV2 in the size that was meta-trained and published.

    Args:
      lstm_hidden_size, param_inits, ff_hidden_size, ff_hidden_layers, exp_mult, step_mult: As in HyperV2.
    Source: Metz et al. 2022 (arXiv 2211.09760).
    """

    lstm_hidden_size: int = 512
    param_inits: int = 256
    use_bugged_loss_features: bool = field(default=False, init=False)
    use_bugged_next_lstm_state: bool = field(default=False, init=False)
    rnn_state_decay: float = field(default=0.0, init=False)


_LAYERS = ("linear", "linear_1", "linear_2")


class _Networks:
    """Networks of all tensors. Each is a mixture of theta's networks.

    Networks are stored as rows of numbers, so that a single matrix product computes all mixtures.

    Args:
      stack: Networks of theta by leaf, with a leading axis over networks.
      widths: Widths of the layers.
    """

    def __init__(self, stack: dict[str, jax.Array], widths: list[int]) -> None:
        self._widths = widths
        layers = [jnp.concatenate([stack[f"w0__{index}"] for index in range(len(BLOCK_CHANNELS))], axis=1)]
        layers += [stack[f"w{layer}"] for layer in range(1, len(widths))]
        weights_and_biases = [array for layer, weights in enumerate(layers) for array in (weights, stack[f"b{layer}"])]
        num_networks = layers[0].shape[0]
        self._stacked_networks = jnp.concatenate(
            [array.reshape(num_networks, -1) for array in weights_and_biases], axis=1
        ) * (100 / num_networks)

    def mix(self, controls: jax.Array) -> jax.Array:
        """Returns the mixed networks, float32[num_tensors, size], for controls float32[num_tensors, K]."""
        return controls @ self._stacked_networks

    def first_layers(self, rows: jax.Array) -> jax.Array:
        """Returns the first layers' weights, float32[num_tensors, 30, width]."""
        inputs = sum(BLOCK_CHANNELS)
        width = self._widths[0]
        return rows[:, : inputs * width].reshape(-1, inputs, width)

    def apply(self, network_row: jax.Array, features: list[jax.Array], factor_sums: list[jax.Array]) -> LayerOutputs:
        """Returns direction and magnitude of one tensor's step."""
        inputs = sum(BLOCK_CHANNELS)
        start = 0
        layers = []
        for width in self._widths:
            weights = network_row[start : start + inputs * width].reshape(inputs, width)
            layers.append((weights, network_row[start + inputs * width : start + (inputs + 1) * width]))
            start, inputs = start + (inputs + 1) * width, width
        (first_layer, bias), *hidden, (last_layer, last_bias) = layers
        full_shape_weights = jnp.concatenate([first_layer[: FACTORED_ROWS.start], first_layer[FACTORED_ROWS.stop :]])
        return network_outputs(
            weighted_sum(features, full_shape_weights, factor_sums), bias, *hidden, (last_layer[:, :2], last_bias[:2])
        )


def _tensor_inputs(tensor: jax.Array, momenta: jax.Array, second_moments: jax.Array) -> jax.Array:
    """Returns the inputs that belong to a single tensor, float32[12], from the accumulators before this update."""
    param = tensor.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.maximum(jnp.sum(param * param) / max(param.size, 1), 1e-9))
    means, variances = means_and_variances(
        [momenta.reshape(momenta.shape[0], -1), second_moments.reshape(second_moments.shape[0], -1)]
    )
    # A factor of the accumulators multiplies means, and its square variances.
    mean_m = means[:3] * scale
    mean_r = means[3:] * scale
    var_m = variances[:3] * scale**2
    var_r = variances[3:]
    # The original computes r's variance around the mean of m, for three decays.
    var_r = var_r * scale**2 + jnp.square(mean_r - mean_m)
    rank = (np.arange(_NUM_RANKS) == sum(size > 1 for size in tensor.shape)).astype(np.float32)
    return jnp.concatenate([_log_feature(mean_r), rank, _log_feature(var_m), _log_feature(var_r)])


def _float32_layout(leaf: jax.Array) -> jax.Array:
    return feature_layout(leaf).astype(jnp.float32)


def _log_feature(x: jax.Array) -> jax.Array:
    return 0.5 * clipped_log(10 * x)
