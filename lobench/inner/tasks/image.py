"""Tasks on the 8x8 digits: classifiers with and without norms, a convolutional one, an autoencoder, a family."""

from __future__ import annotations

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Datasets, Task, TaskFamily
from lobench.inner.tasks import arguments
from lobench.inner.tasks.digits import NUM_CLASSES, NUM_PIXELS, SIDE, digits_datasets, digits_splits
from lobench.inner.tasks.networks import (
    ACTIVATIONS,
    Params,
    batch_norm_inference,
    batch_norm_training,
    convolution3x3,
    dense_init,
    init_gain,
    layer_norm,
)
from lobench.inner.tasks.objectives import accuracy, relative_loss, sigmoid_cross_entropy, softmax_cross_entropy

__all__ = ["DigitsAutoencoder", "DigitsConv", "DigitsMLP", "PermutedDigits"]

Aux = dict[str, jax.Array]


class _DigitsClassifier(Task):
    """Mean softmax cross entropy and `accuracy` of `logits`, which a subclass gives."""

    datasets: Datasets

    def __init__(self, batch_size: int, activation: str) -> None:
        name = type(self).__name__
        arguments.choice(name, "activation", activation, ACTIVATIONS)
        self._activation = ACTIVATIONS[activation]
        self._gain = init_gain(activation)
        self.datasets = digits_datasets(arguments.integer(name, "batch_size", batch_size))

    def logits(self, params: Params, state: PyTree, image: jax.Array, *, training: bool) -> tuple[jax.Array, PyTree]:
        """Returns logits float32[batch, 10] for images float32[batch, 64], and the state after them."""
        raise NotImplementedError(f"{type(self).__name__} defines no logits")

    def loss_with_state(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, PyTree]:
        loss, state, _ = self.loss_with_state_and_aux(params, state, key, data)
        return loss, state

    def loss_with_state_and_aux(
        self, params: PyTree, state: PyTree, key: jax.Array, data: Batch
    ) -> tuple[jax.Array, PyTree, Aux]:
        logits, state = self.logits(params, state, data["image"], training=True)
        loss = softmax_cross_entropy(logits, data["label"])
        return loss, state, {"accuracy": accuracy(logits, data["label"])}

    def eval_loss_with_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, Aux]:
        logits, _ = self.logits(params, state, data["image"], training=False)
        return softmax_cross_entropy(logits, data["label"]), {"accuracy": accuracy(logits, data["label"])}

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Returns the loss as a share of a uniform guess's, log 10: 1 is untrained, 0 perfect, 2 the worst."""
        return relative_loss(loss, math.log(NUM_CLASSES))


@configurable
class DigitsMLP(_DigitsClassifier):
    """A multilayer perceptron on the digits.

    Parameters are `w0` [64, hidden], `b0`, `w1`, `b1`, ...; with a norm, which sits before the activation of each
    hidden layer, also `scale0`, `shift0`, ... Biases start at zero, weights normal with variance 2 / fan_in before
    ReLU and its kin, else 1 / fan_in.

    Args:
      hidden_sizes: Widths of the hidden layers; () is logistic regression.
      activation: relu, tanh, gelu, silu or sigmoid.
      batch_size: Of training and evaluation.
      norm: None, "layer", or "batch": that one's running statistics are the model state, and evaluations use them.
    """

    def __init__(
        self,
        *,
        hidden_sizes: tuple[int, ...] = (32,),
        activation: str = "relu",
        batch_size: int = 64,
        norm: str | None = None,
    ) -> None:
        super().__init__(batch_size, activation)
        name = type(self).__name__
        self._hidden_sizes = arguments.sizes(name, "hidden_sizes", hidden_sizes)
        arguments.choice(name, "norm", norm, (None, "layer", "batch"))
        self._norm = norm

    def init_with_state(self, key: jax.Array) -> tuple[Params, PyTree]:
        params = _init_layers(key, (NUM_PIXELS, *self._hidden_sizes, NUM_CLASSES), self._gain)
        state: Params = {}
        for layer, size in enumerate(self._hidden_sizes if self._norm else ()):
            params[f"scale{layer}"] = jnp.ones(size, jnp.float32)
            params[f"shift{layer}"] = jnp.zeros(size, jnp.float32)
            if self._norm == "batch":
                state[f"mean{layer}"] = jnp.zeros(size, jnp.float32)
                state[f"variance{layer}"] = jnp.ones(size, jnp.float32)
        return params, state or None

    def logits(self, params: Params, state: PyTree, image: jax.Array, *, training: bool) -> tuple[jax.Array, PyTree]:
        x, new_state = image, dict(state) if state else state
        for layer in range(len(self._hidden_sizes)):
            x = x @ params[f"w{layer}"] + params[f"b{layer}"]
            if self._norm:
                scale, shift = params[f"scale{layer}"], params[f"shift{layer}"]
            if self._norm == "layer":
                x = layer_norm(x, scale, shift)
            elif self._norm == "batch":
                mean, variance = state[f"mean{layer}"], state[f"variance{layer}"]
                if training:
                    x, mean, variance = batch_norm_training(x, scale, shift, mean, variance)
                    new_state |= {f"mean{layer}": mean, f"variance{layer}": variance}
                else:
                    x = batch_norm_inference(x, scale, shift, mean, variance)
            x = self._activation(x)
        last = len(self._hidden_sizes)
        return x @ params[f"w{last}"] + params[f"b{last}"], new_state


@configurable
class DigitsConv(_DigitsClassifier):
    """A convolutional net on the digits: 3x3 layers, from the second on of stride 2, then logits.

    Args:
      channels: Output channels of the layers, one to four.
      activation: relu, tanh, gelu, silu or sigmoid.
      batch_size: Of training and evaluation.
    """

    def __init__(self, *, channels: tuple[int, ...] = (8, 16), activation: str = "relu", batch_size: int = 32) -> None:
        super().__init__(batch_size, activation)
        # From the second layer on each halves the eight pixels of a side.
        self._channels = arguments.sizes(type(self).__name__, "channels", channels, min_count=1, max_count=4)

    def init(self, key: jax.Array) -> Params:
        key, head_key = jax.random.split(key)
        widths = (1, *self._channels)
        params: Params = {}
        for layer, (fan_in, width) in enumerate(itertools.pairwise(widths)):
            layer_key = jax.random.fold_in(key, layer)
            params[f"kernel{layer}"] = dense_init(layer_key, 9 * fan_in, width, gain=self._gain)
            params[f"bias{layer}"] = jnp.zeros(width, jnp.float32)
        side = SIDE >> (len(self._channels) - 1)
        params["w"] = dense_init(head_key, side * side * widths[-1], NUM_CLASSES)
        params["b"] = jnp.zeros(NUM_CLASSES, jnp.float32)
        return params

    def logits(self, params: Params, state: PyTree, image: jax.Array, *, training: bool) -> tuple[jax.Array, PyTree]:
        x = image.reshape(-1, SIDE, SIDE, 1)
        for layer in range(len(self._channels)):
            x = convolution3x3(x, params[f"kernel{layer}"], stride=1 if layer == 0 else 2)
            x = self._activation(x + params[f"bias{layer}"])
        return x.reshape(image.shape[0], -1) @ params["w"] + params["b"], state


@configurable
class DigitsAutoencoder(Task):
    """Reconstructs the digits through a narrow layer; mean loss over pixels and examples.

    Args:
      hidden_sizes: Widths of the hidden layers, the code among them.
      activation: relu, tanh, gelu, silu or sigmoid.
      batch_size: Of training and evaluation.
      loss: "mse" (on a linear output) or "bernoulli" (cross entropy in nats of the grey values, sigmoid output).
    """

    datasets: Datasets

    def __init__(
        self,
        *,
        hidden_sizes: tuple[int, ...] = (32, 8, 32),
        activation: str = "relu",
        batch_size: int = 64,
        loss: str = "mse",
    ) -> None:
        name = type(self).__name__
        self._hidden_sizes = arguments.sizes(name, "hidden_sizes", hidden_sizes)
        arguments.choice(name, "activation", activation, ACTIVATIONS)
        arguments.choice(name, "loss", loss, ("mse", "bernoulli"))
        self._activation, self._gain, self._loss = ACTIVATIONS[activation], init_gain(activation), loss
        self.datasets = digits_datasets(arguments.integer(name, "batch_size", batch_size))

    def init(self, key: jax.Array) -> Params:
        return _init_layers(key, (NUM_PIXELS, *self._hidden_sizes, NUM_PIXELS), self._gain)

    def loss(self, params: PyTree, key: jax.Array, data: Batch) -> jax.Array:
        x, last = data["image"], len(self._hidden_sizes)
        for layer in range(last):
            x = self._activation(x @ params[f"w{layer}"] + params[f"b{layer}"])
        output = x @ params[f"w{last}"] + params[f"b{last}"]
        if self._loss == "bernoulli":
            return sigmoid_cross_entropy(output, data["image"])
        return jnp.mean((output - data["image"]) ** 2)

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Returns the loss as a share of an output of zeros': near 1 is untrained, 2 the worst."""
        return relative_loss(loss, _blank_loss(self._loss))


@configurable
class PermutedDigits(TaskFamily):
    """DigitsMLP with the pixels and the labels of each task permuted: a family to meta-train on.

    Args:
      hidden_sizes, activation, batch_size: As of DigitsMLP.
    """

    datasets: Datasets

    def __init__(
        self, *, hidden_sizes: tuple[int, ...] = (16,), activation: str = "relu", batch_size: int = 64
    ) -> None:
        self._task = DigitsMLP(hidden_sizes=hidden_sizes, activation=activation, batch_size=batch_size)
        self.datasets = self._task.datasets

    def sample(self, key: jax.Array) -> Params:
        """Returns `pixel_perm` int32[64] and `label_perm` int32[10]."""
        pixel_key, label_key = jax.random.split(key)
        return {
            "pixel_perm": jax.random.permutation(pixel_key, NUM_PIXELS),
            "label_perm": jax.random.permutation(label_key, NUM_CLASSES),
        }

    def task_fn(self, cfg: PyTree) -> Task:
        return _PermutedTask(self._task, cfg)


class _PermutedTask(Task):
    """Pixel i of a task is pixel `pixel_perm[i]` of the digits; label l becomes `label_perm[l]`."""

    def __init__(self, task: DigitsMLP, cfg: PyTree) -> None:
        self._task, self._cfg = task, cfg
        self.datasets = task.datasets

    def init_with_state(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        return self._task.init_with_state(key)

    def loss_with_state(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, PyTree]:
        return self._task.loss_with_state(params, state, key, self._permuted(data))

    def loss_with_state_and_aux(
        self, params: PyTree, state: PyTree, key: jax.Array, data: Batch
    ) -> tuple[jax.Array, PyTree, Aux]:
        return self._task.loss_with_state_and_aux(params, state, key, self._permuted(data))

    def eval_loss_with_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, Aux]:
        return self._task.eval_loss_with_aux(params, state, key, self._permuted(data))

    def normalizer(self, loss: jax.Array) -> jax.Array:
        return self._task.normalizer(loss)

    def _permuted(self, data: Batch) -> Batch:
        return {
            "image": data["image"][:, self._cfg["pixel_perm"]],
            "label": self._cfg["label_perm"][data["label"]],
        }


def _init_layers(key: jax.Array, widths: tuple[int, ...], gain: float) -> Params:
    """Returns weights and zero biases between the widths; `gain` is of all layers but the last."""
    params: Params = {}
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        is_last = layer == len(widths) - 2
        layer_key = jax.random.fold_in(key, layer)
        params[f"w{layer}"] = dense_init(layer_key, fan_in, fan_out, gain=1.0 if is_last else gain)
        params[f"b{layer}"] = jnp.zeros(fan_out, jnp.float32)
    return params


@functools.cache
def _blank_loss(loss: str) -> float:
    """Returns what an output of zeros gets: the mean square of the train split's pixels, or log 2."""
    if loss == "bernoulli":
        return math.log(2.0)
    return float(np.mean(digits_splits().train["image"] ** 2, dtype=np.float64))
