"""Autoencoders of images: a deep autoencoder with a narrow layer, and a variational autoencoder."""

from __future__ import annotations

import math
import types

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Datasets
from lobench.inner.tasks import arguments
from lobench.inner.tasks.labelled import LABELLED, Labelled
from lobench.inner.tasks.measured import LossStateAux, MeasuredTask, ReferencedTask
from lobench.inner.tasks.networks import ACTIVATIONS, Params, init_gain, layers_init, through_layers
from lobench.inner.tasks.objectives import sigmoid_cross_entropy
from lobench.inner.tasks.splits import make_datasets

__all__ = ["ImageAutoencoder", "ImageVAE"]

_IMAGES = [name for name, data in LABELLED.items() if data.kind == "image"]


class _Reconstruction(ReferencedTask):
    """Base of autoencoders: images and settings of the layers."""

    data: Labelled
    datasets: Datasets

    def __init__(self, *, data: str, hidden_sizes: tuple[int, ...], activation: str, batch_size: int) -> None:
        arguments.choice(self, "data", data, _IMAGES)
        arguments.choice(self, "activation", activation, ACTIVATIONS)
        self.data = LABELLED[data]
        self._hidden_sizes = arguments.sizes(self, "hidden_sizes", hidden_sizes)
        self._activation, self._gain = ACTIVATIONS[activation], init_gain(activation)
        self.datasets = make_datasets(self.data.splits, arguments.integer(self, "batch_size", batch_size))


@configurable
class ImageAutoencoder(_Reconstruction):
    """Image autoencoder with a bottleneck layer. The loss is the mean over pixels and examples.

    The lowest possible loss is `floor`: 0 for "mse", the entropy of the grey values for "bernoulli".

    Args:
      data: digits, mnist8, mnist14 or mnist28.
      hidden_sizes: Widths of the hidden layers, including the bottleneck.
      activation: relu, tanh, gelu, silu or sigmoid.
      batch_size: Examples per batch, in training and evaluation.
      loss: "mse" (on a linear output) or "bernoulli" (cross entropy in nats of the grey values, sigmoid output).
    """

    def __init__(
        self,
        *,
        data: str = "mnist8",
        hidden_sizes: tuple[int, ...] = (32, 8, 32),
        activation: str = "relu",
        batch_size: int = 64,
        loss: str = "mse",
    ) -> None:
        super().__init__(data=data, hidden_sizes=hidden_sizes, activation=activation, batch_size=batch_size)
        arguments.choice(self, "loss", loss, ("mse", "bernoulli"))
        self._loss = loss

    @property
    def floor(self) -> float:
        """Loss on the train split of a perfect reconstruction."""
        return 0.0 if self._loss == "mse" else grey_entropy(self.data)

    def init(self, key: jax.Array) -> Params:
        return layers_init(key, (self.data.num_inputs, *self._hidden_sizes, self.data.num_inputs), self._gain)

    def loss(self, params: PyTree, key: jax.Array, data: Batch) -> jax.Array:
        output = through_layers(params, data["image"], self._activation)
        if self._loss == "bernoulli":
            return sigmoid_cross_entropy(output, data["image"])
        return jnp.mean((output - data["image"]) ** 2)

    @property
    def reference_loss(self) -> float:  # type: ignore[override]
        """Loss of an output of zeros: the mean square of the train split's pixels, or log 2."""
        if self._loss == "bernoulli":
            return math.log(2.0)
        return float(np.mean(self.data.splits().train["image"] ** 2, dtype=np.float64))


@configurable
class ImageVAE(_Reconstruction, MeasuredTask):
    """Variational autoencoder of images; negative evidence bound in nats per pixel, one latent sample per example.

    The metrics are its two terms, `reconstruction` (cross entropy of the grey values) and `kl` (of the code's
    distribution from a standard normal), which add up to the loss. The loss is at least `floor`, the grey values'
    entropy.

    Args:
      data: digits, mnist8, mnist14 or mnist28.
      hidden_sizes: Widths of the encoder's hidden layers; the decoder has them in reverse order.
      code_size: Length of the code.
      activation: relu, tanh, gelu, silu or sigmoid.
      batch_size: Examples per batch, in training and evaluation.
    Source: Kingma and Welling 2014.
    """

    metric_directions = types.MappingProxyType({"reconstruction": "min", "kl": "min"})
    reference_loss = math.log(2.0)  # loss of an output of zeros

    def __init__(
        self,
        *,
        data: str = "mnist14",
        hidden_sizes: tuple[int, ...] = (64,),
        code_size: int = 8,
        activation: str = "relu",
        batch_size: int = 64,
    ) -> None:
        super().__init__(data=data, hidden_sizes=hidden_sizes, activation=activation, batch_size=batch_size)
        self._code_size = arguments.integer(self, "code_size", code_size)

    @property
    def floor(self) -> float:
        """Loss on the train split of a perfect reconstruction at no cost. It cannot be reached."""
        return grey_entropy(self.data)

    def init(self, key: jax.Array) -> dict[str, Params]:
        encoder_key, decoder_key = jax.random.split(key)
        pixels, code = self.data.num_inputs, self._code_size
        return {
            "encoder": layers_init(encoder_key, (pixels, *self._hidden_sizes, 2 * code), self._gain),
            "decoder": layers_init(decoder_key, (code, *reversed(self._hidden_sizes), pixels), self._gain),
        }

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        image = data["image"]
        mean, log_variance = jnp.split(through_layers(params["encoder"], image, self._activation), 2, axis=-1)
        code = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape, jnp.float32)
        reconstruction = sigmoid_cross_entropy(through_layers(params["decoder"], code, self._activation), image)
        divergences = 0.5 * (mean**2 + jnp.exp(log_variance) - 1.0 - log_variance)
        kl = jnp.mean(jnp.sum(divergences, axis=-1)) / image.shape[-1]
        return reconstruction + kl, state, {"reconstruction": reconstruction, "kl": kl}


def grey_entropy(data: Labelled) -> float:
    """Returns the entropy of a pixel of the train split in nats, with its grey value as the probability of white."""
    white = data.splits().train["image"].astype(np.float64)
    grey_values = white[(white > 0) & (white < 1)]
    return float(-np.sum(grey_values * np.log(grey_values) + (1 - grey_values) * np.log1p(-grey_values)) / white.size)
