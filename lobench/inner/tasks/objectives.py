"""Loss components of tasks: cross entropy, accuracy, gradient noise, comparison scales."""

from __future__ import annotations

import abc
import math

import jax
import jax.numpy as jnp

from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Task

__all__ = [
    "NoisyFunction",
    "accuracy",
    "classification",
    "gradient_noise",
    "log10_loss",
    "relative_loss",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
]

# Bound of relative losses, so that one diverging task does not dominate a mean.
_WORST_RELATIVE_LOSS = 2.0
_SMALLEST_LOSS = 1e-12


def softmax_cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Returns the mean cross entropy in nats, float32[].

    Args:
      logits: float32[..., num_classes].
      labels: int[...].
    """
    # A product with a one-hot, not a gather: the gradient of a gather is a scatter, which is slow on a CPU.
    one_hot = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
    return -jnp.mean(jnp.sum(one_hot * jax.nn.log_softmax(logits), axis=-1))


def sigmoid_cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Returns the mean cross entropy in nats of Bernoulli variables, float32[]; targets [...] lie in [0, 1]."""
    return jnp.mean(jax.nn.softplus(logits) - targets * logits)


def accuracy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Returns the fraction of examples whose highest logit is that of the label, float32[]."""
    return jnp.mean((jnp.argmax(logits, axis=-1) == labels).astype(jnp.float32))


def classification(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns the mean cross entropy in nats, float32[], and the metric `accuracy`."""
    return softmax_cross_entropy(logits, labels), {"accuracy": accuracy(logits, labels)}


def gradient_noise(params: PyTree, key: jax.Array, std: float | jax.Array) -> jax.Array:
    """Returns a term for a loss: its value is zero, its gradient is normal with standard deviation `std`.

    Args:
      params: Parameters that the gradient is taken of. Each leaf gets independent noise.
      key: PRNG key; consumed.
      std: Standard deviation of each component of the gradient.
    """
    leaves = jax.tree.leaves(params)
    keys = jax.random.split(key, len(leaves))
    term = jnp.zeros((), jnp.float32)
    for leaf, leaf_key in zip(leaves, keys, strict=True):
        noise = std * jax.random.normal(leaf_key, leaf.shape, leaf.dtype)
        term = term + jnp.sum(noise * (leaf - jax.lax.stop_gradient(leaf)))
    return term


def relative_loss(loss: jax.Array, reference: float) -> jax.Array:
    """Returns `loss / reference`, at most 2; a non-finite loss counts as 2."""
    relative = jnp.nan_to_num(loss / reference, nan=_WORST_RELATIVE_LOSS, posinf=_WORST_RELATIVE_LOSS)
    return jnp.minimum(relative, _WORST_RELATIVE_LOSS)


def log10_loss(loss: jax.Array) -> jax.Array:
    """Returns log10 of a loss whose minimum is zero; losses below 1e-12 count as 1e-12, NaN stays NaN."""
    return jnp.log(jnp.maximum(loss, _SMALLEST_LOSS)) / math.log(10.0)


class NoisyFunction(Task, abc.ABC):
    """A function of x, float32[dim], whose training gradient may have noise. Losses are exact.

    Args:
      dim: Length of x.
      noise_std: Standard deviation of normal noise on each component of the training gradient. None: no noise.
    """

    def __init__(self, *, dim: int, noise_std: float | jax.Array | None) -> None:
        self._dim, self._noise_std = dim, noise_std

    @abc.abstractmethod
    def value(self, x: jax.Array) -> jax.Array:
        """Returns the function at x float32[dim], float32[]."""

    def loss(self, params: PyTree, key: jax.Array, data: Batch) -> jax.Array:
        loss = self.value(params["x"])
        return loss if self._noise_std is None else loss + gradient_noise(params, key, self._noise_std)

    def eval_loss_with_aux(
        self, params: PyTree, state: PyTree, key: jax.Array, data: Batch
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        return self.value(params["x"]), {}

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Returns log10 of the loss, which makes functions of different heights and condition comparable."""
        return log10_loss(loss)
