"""Convolutional classifiers of images: a plain stack, and a residual network."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.tasks import arguments
from lobench.inner.tasks.classifier import Classifier
from lobench.inner.tasks.networks import Params, convolution3x3, dense_init
from lobench.inner.tasks.normalization import NORMS, norm_init, norm_of, normalized

__all__ = ["ConvClassifier", "ResNetClassifier"]


@configurable
class ConvClassifier(Classifier):
    """Image classification with a convolutional network of 3x3 layers.

    Layers have stride 2, except for the first; logits follow the last one.

    A norm is applied before each layer's activation, with parameters per channel, and replaces the layer's bias. Batch
    norm is over examples and positions, layer norm over the channels of a position.

    Args:
      data: digits, mnist8, mnist14 or mnist28.
      channels: Output channels of the layers, one to four.
      activation: relu, tanh, gelu, silu or sigmoid.
      batch_size: Examples per batch, in training and evaluation.
      norm: None, "layer" or "batch". The running statistics of "batch" are the model state and used by evaluations.
      norm_epsilon: Number added to a variance. With 0 the scale of a layer's weights has no effect.
    """

    kinds = ("image",)

    def __init__(
        self,
        *,
        data: str = "mnist14",
        channels: tuple[int, ...] = (8, 16),
        activation: str = "relu",
        batch_size: int = 32,
        norm: str | None = None,
        norm_epsilon: float = 1e-5,
    ) -> None:
        super().__init__(data=data, activation=activation, batch_size=batch_size)
        # Layers after the first halve the side, which is at least eight pixels.
        self._channels = arguments.sizes(self, "channels", channels, min_count=1, max_count=4)
        self.norm = norm_of(self, norm, norm_epsilon)

    def init_with_state(self, key: jax.Array) -> tuple[Params, PyTree]:
        key, head_key = jax.random.split(key)
        widths = (1, *self._channels)
        params: Params = {}
        state: Params = {}
        for layer, (fan_in, width) in enumerate(itertools.pairwise(widths)):
            layer_key = jax.random.fold_in(key, layer)
            params[f"kernel{layer}"] = dense_init(layer_key, 9 * fan_in, width, gain=self._gain)
            if self.norm.kind is None:
                params[f"bias{layer}"] = jnp.zeros(width, jnp.float32)
            norm_params, norm_state = norm_init(self.norm, str(layer), width)
            params, state = params | norm_params, state | norm_state
        side = self.data.shape[0]
        for _ in self._channels[1:]:
            side = -(-side // 2)
        params["w"] = dense_init(head_key, side * side * widths[-1], self.data.num_classes)
        params["b"] = jnp.zeros(self.data.num_classes, jnp.float32)
        return params, state or None

    def logits(self, params: Params, state: PyTree, inputs: jax.Array, *, training: bool) -> tuple[jax.Array, PyTree]:
        features = inputs.reshape(-1, *self.data.shape, 1)
        for layer in range(len(self._channels)):
            stride = 1 if layer == 0 else 2
            features = convolution3x3(features, params[f"kernel{layer}"], stride=stride)
            if self.norm.kind is None:
                features = features + params[f"bias{layer}"]
            features, state = normalized(self.norm, features, str(layer), params, state, training=training)
            features = self._activation(features)
        return features.reshape(inputs.shape[0], -1) @ params["w"] + params["b"], state


@configurable
class ResNetClassifier(Classifier):
    """Image classification with a residual network.

    A 3x3 layer, residual blocks of two layers, the mean over all positions, and logits.

    All blocks except the first have stride 2. If the shape changes, the skip connection is a linear map.

    Args:
      data: digits, mnist8, mnist14 or mnist28.
      channels: Output channels of the blocks, one to four.
      activation: relu, tanh, gelu, silu or sigmoid.
      batch_size: Examples per batch, in training and evaluation.
      norm: "batch" or "layer", after each 3x3 layer, as in ConvClassifier.
      norm_epsilon: As in ConvClassifier.
    Source: He et al. 2016, "Deep residual learning for image recognition", at a size for a CPU.
    """

    kinds = ("image",)

    def __init__(
        self,
        *,
        data: str = "mnist14",
        channels: tuple[int, ...] = (8, 16),
        activation: str = "relu",
        batch_size: int = 32,
        norm: str = "batch",
        norm_epsilon: float = 1e-5,
    ) -> None:
        super().__init__(data=data, activation=activation, batch_size=batch_size)
        self._channels = arguments.sizes(self, "channels", channels, min_count=1, max_count=4)
        arguments.choice(self, "norm", norm, NORMS[1:])
        self.norm = norm_of(self, norm, norm_epsilon)

    def init_with_state(self, key: jax.Array) -> tuple[Params, PyTree]:
        key, head_key = jax.random.split(key)
        first_width, last_width = self._channels[0], self._channels[-1]
        shapes = {"_stem": (1, first_width)}
        for block, (fan_in, width) in enumerate(itertools.pairwise((first_width, *self._channels))):
            shapes |= {f"{block}a": (fan_in, width), f"{block}b": (width, width)}
        params: Params = {}
        state: Params = {}
        for index, (name, (fan_in, width)) in enumerate(shapes.items()):
            layer_key = jax.random.fold_in(key, index)
            params[f"kernel{name}"] = dense_init(layer_key, 9 * fan_in, width, gain=self._gain)
            if name.endswith("a") and name != "0a":
                params[f"skip{name[:-1]}"] = dense_init(jax.random.fold_in(layer_key, 0), fan_in, width)
            norm_params, norm_state = norm_init(self.norm, name, width)
            params, state = params | norm_params, state | norm_state
        params["w"] = dense_init(head_key, last_width, self.data.num_classes)
        params["b"] = jnp.zeros(self.data.num_classes, jnp.float32)
        return params, state or None

    def logits(self, params: Params, state: PyTree, inputs: jax.Array, *, training: bool) -> tuple[jax.Array, PyTree]:
        def layer(x: jax.Array, state: PyTree, name: str, stride: int = 1) -> tuple[jax.Array, PyTree]:
            x = convolution3x3(x, params[f"kernel{name}"], stride=stride)
            return normalized(self.norm, x, name, params, state, training=training)

        features, state = layer(inputs.reshape(-1, *self.data.shape, 1), state, "_stem")
        features = self._activation(features)
        for block in range(len(self._channels)):
            stride = 1 if block == 0 else 2
            shortcut = features if block == 0 else features[:, ::2, ::2] @ params[f"skip{block}"]
            features, state = layer(features, state, f"{block}a", stride)
            features, state = layer(self._activation(features), state, f"{block}b")
            features = self._activation(features + shortcut)
        return jnp.mean(features, axis=(1, 2)) @ params["w"] + params["b"], state
