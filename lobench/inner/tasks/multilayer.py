"""Multilayer perceptrons: classifiers, including logistic regression, and a regression."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Datasets
from lobench.inner.tasks import arguments
from lobench.inner.tasks.classifier import Classifier
from lobench.inner.tasks.measured import ReferencedTask
from lobench.inner.tasks.networks import ACTIVATIONS, Params, init_gain, layers_init, through_layers
from lobench.inner.tasks.normalization import norm_init, norm_of, normalized
from lobench.inner.tasks.splits import make_datasets
from lobench.inner.tasks.tables import diabetes_splits

__all__ = ["DiabetesMLP", "MLPClassifier"]


@configurable
class MLPClassifier(Classifier):
    """Classification of images, signals or features with a multilayer perceptron.

    Parameters are `w0` [num_inputs, hidden], `b0`, `w1`, `b1`, .... With a norm, which is applied before the activation
    of each hidden layer, there are also `scale0`, `shift0`, .... Biases start at zero. Weights are normal with variance
    2 / fan_in for ReLU and similar activations, else 1 / fan_in.

    Args:
      data: digits, mnist8, mnist14, mnist28, mnist1d, breast_cancer or wine.
      hidden_sizes: Widths of the hidden layers; () is logistic regression.
      activation: relu, tanh, gelu, silu or sigmoid.
      batch_size: Examples per batch, in training and evaluation.
      norm: None, "layer" or "batch". The running statistics of "batch" are the model state and used by evaluations.
      norm_epsilon: Number added to a variance. With 0 the scale of a layer's weights has no effect.
      hidden_biases: Whether hidden layers have biases. They have no effect before a norm.
    """

    def __init__(
        self,
        *,
        data: str = "mnist8",
        hidden_sizes: tuple[int, ...] = (32,),
        activation: str = "relu",
        batch_size: int = 64,
        norm: str | None = None,
        norm_epsilon: float = 1e-5,
        hidden_biases: bool = True,
    ) -> None:
        super().__init__(data=data, activation=activation, batch_size=batch_size)
        self._hidden_sizes = arguments.sizes(self, "hidden_sizes", hidden_sizes)
        self.norm = norm_of(self, norm, norm_epsilon)
        self._hidden_biases = hidden_biases

    def init_with_state(self, key: jax.Array) -> tuple[Params, PyTree]:
        params = layers_init(key, (self.data.num_inputs, *self._hidden_sizes, self.data.num_classes), self._gain)
        state: Params = {}
        for layer, size in enumerate(self._hidden_sizes):
            if not self._hidden_biases:
                del params[f"b{layer}"]
            norm_params, norm_state = norm_init(self.norm, str(layer), size)
            params, state = params | norm_params, state | norm_state
        return params, state or None

    def logits(self, params: Params, state: PyTree, inputs: jax.Array, *, training: bool) -> tuple[jax.Array, PyTree]:
        features = inputs
        for layer in range(len(self._hidden_sizes)):
            features = features @ params[f"w{layer}"]
            if self._hidden_biases:
                features = features + params[f"b{layer}"]
            features, state = normalized(self.norm, features, str(layer), params, state, training=training)
            features = self._activation(features)
        last_layer = len(self._hidden_sizes)
        return features @ params[f"w{last_layer}"] + params[f"b{last_layer}"], state


@configurable
class DiabetesMLP(ReferencedTask):
    """Regression of diabetes progression on ten features; mean squared error divided by the variance.

    Predicting the mean has a loss of 1. Without hidden layers the least-squares solution is known: `floor`.

    Args:
      hidden_sizes: Widths of the hidden layers; () is linear regression.
      activation: relu, tanh, gelu, silu or sigmoid.
      batch_size: Examples per batch, in training and evaluation.
    Source: Efron et al. 2004, "Least angle regression".
    """

    datasets: Datasets
    reference_loss = 1.0  # loss of a model that predicts the mean

    def __init__(self, *, hidden_sizes: tuple[int, ...] = (), activation: str = "tanh", batch_size: int = 64) -> None:
        self._hidden_sizes = arguments.sizes(self, "hidden_sizes", hidden_sizes)
        arguments.choice(self, "activation", activation, ACTIVATIONS)
        self._activation, self._gain = ACTIVATIONS[activation], init_gain(activation)
        self.datasets = make_datasets(diabetes_splits, arguments.integer(self, "batch_size", batch_size))

    @property
    def floor(self) -> float:
        """Lowest possible loss on the train split: that of least squares, or 0 with hidden layers."""
        if self._hidden_sizes:
            return 0.0
        train = diabetes_splits().train
        inputs = np.column_stack([train["features"], np.ones(len(train["target"]))])
        solution = np.linalg.lstsq(inputs, train["target"], rcond=None)[0]
        return float(np.mean((inputs @ solution - train["target"]) ** 2))

    def init(self, key: jax.Array) -> Params:
        return layers_init(key, (10, *self._hidden_sizes, 1), self._gain)

    def loss(self, params: PyTree, key: jax.Array, data: Batch) -> jax.Array:
        outputs = through_layers(params, data["features"], self._activation)[:, 0]
        return jnp.mean((outputs - data["target"]) ** 2)
