"""Classifiers of signals: a convolutional and a recurrent network, as compared by the authors of MNIST-1D."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.tasks import arguments
from lobench.inner.tasks.classifier import Classifier
from lobench.inner.tasks.networks import Params, convolution1d, dense_init
from lobench.inner.tasks.recurrent import recurrent_outputs

__all__ = ["SignalConv", "SignalGRU"]

_WIDTHS = (5, 3, 3)  # lengths of the kernels


@configurable
class SignalConv(Classifier):
    """Signal classification with a convolutional network of three layers.

    Layers have stride 2 and kernels of 5, 3 and 3; logits follow.

    Args:
      data: mnist1d.
      channels: Output channels of each layer.
      activation: relu, tanh, gelu, silu or sigmoid.
      batch_size: Examples per batch, in training and evaluation.
    Source: Greydanus and Kobak 2024.
    """

    kinds = ("signal",)

    def __init__(
        self, *, data: str = "mnist1d", channels: int = 25, activation: str = "relu", batch_size: int = 100
    ) -> None:
        super().__init__(data=data, activation=activation, batch_size=batch_size)
        self._channels = arguments.integer(self, "channels", channels)

    def init(self, key: jax.Array) -> Params:
        key, head_key = jax.random.split(key)
        params: Params = {}
        channels, (length,) = 1, self.data.shape
        for layer, width in enumerate(_WIDTHS):
            layer_key = jax.random.fold_in(key, layer)
            params[f"kernel{layer}"] = dense_init(layer_key, width * channels, self._channels, gain=self._gain)
            params[f"bias{layer}"] = jnp.zeros(self._channels, jnp.float32)
            channels = self._channels
            length = (length + 2 - width) // 2 + 1
        params["w"] = dense_init(head_key, length * channels, self.data.num_classes)
        params["b"] = jnp.zeros(self.data.num_classes, jnp.float32)
        return params

    def logits(self, params: Params, state: PyTree, inputs: jax.Array, *, training: bool) -> tuple[jax.Array, PyTree]:
        features = inputs[:, :, None]
        for layer in range(len(_WIDTHS)):
            features = convolution1d(features, params[f"kernel{layer}"], stride=2)
            features = self._activation(features + params[f"bias{layer}"])
        return features.reshape(inputs.shape[0], -1) @ params["w"] + params["b"], state


@configurable
class SignalGRU(Classifier):
    """Signal classification with two gated recurrent units, one in each direction.

    Args:
      data: mnist1d.
      width: Width of the state of each unit.
      batch_size: Examples per batch, in training and evaluation.
    Source: Greydanus and Kobak 2024.
    """

    kinds = ("signal",)

    def __init__(self, *, data: str = "mnist1d", width: int = 6, batch_size: int = 100) -> None:
        super().__init__(data=data, activation="tanh", batch_size=batch_size)
        self._width = arguments.integer(self, "width", width)

    def init(self, key: jax.Array) -> Params:
        in_key, state_key, out_key = jax.random.split(key, 3)
        (length,), width = self.data.shape, self._width

        def init_both_directions(key: jax.Array, fan_in: int) -> jax.Array:
            return jnp.stack([dense_init(part_key, fan_in, 3 * width) for part_key in jax.random.split(key)])

        return {
            "w_in": init_both_directions(in_key, 1),
            "w_state": init_both_directions(state_key, width),
            "b": jnp.zeros((2, 3 * width), jnp.float32),
            "w_out": dense_init(out_key, 2 * length * width, self.data.num_classes),
            "b_out": jnp.zeros(self.data.num_classes, jnp.float32),
        }

    def logits(self, params: Params, state: PyTree, inputs: jax.Array, *, training: bool) -> tuple[jax.Array, PyTree]:
        gru_params = {name: params[name] for name in ("w_in", "w_state", "b")}
        both_directions = jnp.stack([inputs.T, inputs.T[::-1]])[..., None]  # float32[2, length, batch, 1]
        outputs = jax.vmap(functools.partial(recurrent_outputs, cell="gru"))(gru_params, both_directions)
        flat_outputs = outputs.transpose(2, 0, 1, 3).reshape(inputs.shape[0], -1)
        return flat_outputs @ params["w_out"] + params["b_out"], state
