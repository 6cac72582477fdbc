"""Tasks with several losses on shared parameters: regressions of different scales, and four questions about a digit."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Datasets, SampledDataset
from lobench.inner.tasks import arguments
from lobench.inner.tasks.digits import NUM_CLASSES, NUM_PIXELS, digits_splits
from lobench.inner.tasks.measured import Aux, LossStateAux, MeasuredTask
from lobench.inner.tasks.networks import ACTIVATIONS, Params, dense_init, init_gain, layers_init, through_layers
from lobench.inner.tasks.objectives import accuracy, relative_loss, sigmoid_cross_entropy, softmax_cross_entropy
from lobench.inner.tasks.splits import make_datasets

__all__ = ["MultiTask", "MultiTaskDigits", "MultiTaskRegression"]


class MultiTask(MeasuredTask):
    """Base of tasks with several losses. A subclass defines `init`, `num_losses` and `losses`.

    The task's loss is the mean of the losses. Each of them is a metric: `loss_task_1`, `loss_task_2`, ... Optimizers
    that request them may weight them differently. A subclass with further metrics defines `losses_with_aux` instead of
    `losses`, and declares their directions.

    Attributes:
      num_losses: Number of losses.

    >>> class TwoBowls(lobench.MultiTask):
    ...     num_losses = 2
    ...
    ...     def init(self, key):
    ...         return jnp.ones(2)
    ...
    ...     def losses(self, params, state, key, batch):
    ...         return params**2
    >>> float(TwoBowls().loss_with_state(jnp.array([1.0, 3.0]), None, None, None)[0])
    5.0
    """

    num_losses: int = 0

    def losses(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> jax.Array:
        """Returns the losses, float32[num_losses].

        Args:
          params, state, key, data: As in `Task.loss_with_state`.
        """
        return self.losses_with_aux(params, state, key, data)[0]

    def losses_with_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, Aux]:
        """Returns the losses, float32[num_losses], and further metrics, float32[] by name.

        Args:
          params, state, key, data: As in `Task.loss_with_state`.
        """
        if type(self).losses is MultiTask.losses:
            raise NotImplementedError(f"{type(self).__name__} defines no losses")
        return self.losses(params, state, key, data), {}

    @property
    def metric_directions(self) -> Mapping[str, str]:  # type: ignore[override]
        return {f"loss_task_{number}": "min" for number in range(1, self.num_losses + 1)}

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        losses, aux = self.losses_with_aux(params, state, key, data)
        if losses.shape != (self.num_losses,) or losses.dtype != jnp.float32:
            raise ConfigError(
                f"{type(self).__name__}.losses",
                got=f"{losses.dtype}{list(losses.shape)}",
                expected=f"float32[{self.num_losses}], a number for each of its num_losses",
            )
        return (
            losses.mean(),
            state,
            {**{f"loss_task_{index + 1}": losses[index] for index in range(self.num_losses)}, **aux},
        )


def _net_init(key: jax.Array, widths: tuple[int, ...], output_sizes: tuple[int, ...], gain: float) -> dict[str, Params]:
    """Returns a `trunk` of hidden layers, and the `heads`: a linear layer with consecutive columns for each loss.

    The columns of a head depend on its number and width only, and the trunk does not depend on the heads.
    """
    trunk_key, heads_key = jax.random.split(key)
    columns = [
        dense_init(jax.random.fold_in(heads_key, index), widths[-1], width) for index, width in enumerate(output_sizes)
    ]
    heads = {"w0": jnp.concatenate(columns, axis=1), "b0": jnp.zeros(sum(output_sizes), jnp.float32)}
    return {"trunk": layers_init(trunk_key, widths, gain), "heads": heads}


@configurable
class MultiTaskRegression(MultiTask):
    """Regressions that share a structure and differ in scale: `scale_i * tanh((B + e_i) x)`, mean square of the error.

    B has a standard deviation of 10 and is shared; e_i has 3.5 and belongs to regression i. Regression i does not
    depend on `num_losses`. Inputs have a standard deviation of 0.01; the network sees them multiplied by 100. Batches
    have `input` float32[batch, num_inputs], new in each step. The metric `task_normalized_loss` is the mean of the
    losses divided by their squared scales, by which the source compares methods.

    Args:
      num_losses: Number of regressions.
      scales: Scale of each regression. None: 1, 2, 3, ...
      hidden_sizes: Widths of the shared layers. Each regression has its own linear layer after the last one.
      num_inputs, num_outputs: Number of inputs and outputs of each regression.
      batch_size: Examples per batch, in training and evaluation.
      problem_seed: Seed of B and e_i.
    Source: Chen et al. 2018, "GradNorm", section 4.
    """

    datasets: Datasets

    def __init__(
        self,
        *,
        num_losses: int = 10,
        scales: tuple[float, ...] | None = None,
        hidden_sizes: tuple[int, ...] = (100, 100, 100, 100),
        num_inputs: int = 250,
        num_outputs: int = 100,
        batch_size: int = 64,
        problem_seed: int = 0,
    ) -> None:
        self.num_losses = arguments.integer(self, "num_losses", num_losses)
        self._scales = self._checked_scales(scales)
        self._hidden_sizes = arguments.sizes(self, "hidden_sizes", hidden_sizes, min_count=1)
        self._num_inputs = arguments.integer(self, "num_inputs", num_inputs)
        self._num_outputs = arguments.integer(self, "num_outputs", num_outputs)
        seed = arguments.integer(self, "problem_seed", problem_seed, at_least=0)
        self._matrices = _matrices(self.num_losses, self._num_inputs, self._num_outputs, seed)
        shape = (arguments.integer(self, "batch_size", batch_size), self._num_inputs)

        def sample(key: jax.Array) -> dict[str, jax.Array]:
            return {"input": _INPUT_STD * jax.random.normal(key, shape, jnp.float32)}

        self.datasets = Datasets(train=SampledDataset(sample), test=SampledDataset(sample))

    def _checked_scales(self, scales: object) -> np.ndarray:
        if scales is None:
            return np.arange(1, self.num_losses + 1, dtype=np.float32)
        name = type(self).__name__
        scales_text = repr(scales)
        if not isinstance(scales, list | tuple) or len(scales) != self.num_losses:
            raise ConfigError(
                f"{name}.scales", got=scales_text, expected=f"{self.num_losses} numbers, one for each loss"
            )
        checked_scales = [arguments.number(self, "scales", scale) for scale in scales]
        if 0 in checked_scales:
            raise ConfigError(f"{name}.scales", got=scales_text, expected="numbers > 0")
        return np.asarray(checked_scales, np.float32)

    @property
    def metric_directions(self) -> Mapping[str, str]:  # type: ignore[override]
        return {**super().metric_directions, "task_normalized_loss": "min"}

    def init(self, key: jax.Array) -> dict[str, Params]:
        widths = (self._num_inputs, *self._hidden_sizes)
        return _net_init(key, widths, (self._num_outputs,) * self.num_losses, init_gain("relu"))

    def targets(self, inputs: jax.Array) -> jax.Array:
        """Returns the targets, float32[batch, num_losses, num_outputs], of inputs float32[batch, num_inputs]."""
        return jnp.asarray(self._scales)[:, None] * jnp.tanh(jnp.einsum("bi,lio->blo", inputs, self._matrices))

    def losses_with_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, Aux]:
        inputs = data["input"]
        hidden = jax.nn.relu(through_layers(params["trunk"], inputs / _INPUT_STD, jax.nn.relu))
        predicted = through_layers(params["heads"], hidden, jax.nn.relu).reshape(-1, self.num_losses, self._num_outputs)
        losses = jnp.mean((predicted - self.targets(inputs)) ** 2, axis=(0, 2))
        return losses, {"task_normalized_loss": jnp.mean(losses / self._scales**2)}

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Returns the loss relative to an output of zeros, at most 2; an untrained network is near 1."""
        points, weights = np.polynomial.hermite_e.hermegauss(64)
        # Standard deviation of tanh's argument, [num_losses, num_outputs].
        std = _INPUT_STD * np.linalg.norm(self._matrices, axis=1)
        squares = (np.tanh(std[..., None] * points) ** 2 @ weights / weights.sum()).mean(axis=1)
        return relative_loss(loss, float(np.mean(self._scales**2 * squares)))


_INPUT_STD, _COMMON_STD, _OWN_STD = 0.01, 10.0, 3.5


@functools.cache
def _matrices(num_losses: int, num_inputs: int, num_outputs: int, seed: int) -> np.ndarray:
    """Returns B + e_i of each regression, float32[num_losses, num_inputs, num_outputs]."""

    def draw(index: int) -> np.ndarray:
        return np.random.default_rng((seed, index)).standard_normal((num_inputs, num_outputs), np.float32)

    common_matrix = _COMMON_STD * draw(0)
    return np.stack([common_matrix + _OWN_STD * draw(index) for index in range(1, num_losses + 1)])


@configurable
class MultiTaskDigits(MultiTask):
    """Multi-task network on the digits, with four losses: class, parity, 5 or more, reconstruction of the pixels.

    The losses are, in this order, the cross entropies of the ten digits, of odd and of 5 or more, and the mean squared
    error of the reconstruction. Hidden layers of a perceptron are shared; each loss has its own linear layer after the
    last one. Further metrics are `accuracy` (of the digit), `accuracy_odd` and `accuracy_high`.

    Args:
      hidden_sizes: Widths of the shared layers.
      activation: relu, tanh, gelu, silu or sigmoid.
      batch_size: Examples per batch, in training and evaluation.
    """

    num_losses = 4
    datasets: Datasets

    def __init__(
        self, *, hidden_sizes: tuple[int, ...] = (32,), activation: str = "relu", batch_size: int = 64
    ) -> None:
        self._hidden_sizes = arguments.sizes(self, "hidden_sizes", hidden_sizes, min_count=1)
        arguments.choice(self, "activation", activation, ACTIVATIONS)
        self._activation, self._gain = ACTIVATIONS[activation], init_gain(activation)
        self.datasets = make_datasets(digits_splits, arguments.integer(self, "batch_size", batch_size))

    @property
    def metric_directions(self) -> Mapping[str, str]:  # type: ignore[override]
        return {**super().metric_directions, "accuracy_odd": "max", "accuracy_high": "max"}

    def init(self, key: jax.Array) -> dict[str, Params]:
        return _net_init(key, (NUM_PIXELS, *self._hidden_sizes), _HEADS, self._gain)

    def losses_with_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, Aux]:
        label = data["label"]
        hidden = self._activation(through_layers(params["trunk"], data["image"], self._activation))
        predicted = through_layers(params["heads"], hidden, self._activation)
        digit, odd_logit, high_logit, pixels = jnp.split(predicted, list(itertools.accumulate(_HEADS[:-1])), axis=-1)
        odd_logit, high_logit = odd_logit[:, 0], high_logit[:, 0]
        is_odd = (label % 2).astype(jnp.float32)
        is_high = (label >= 5).astype(jnp.float32)
        losses = [
            softmax_cross_entropy(digit, label),
            sigmoid_cross_entropy(odd_logit, is_odd),
            sigmoid_cross_entropy(high_logit, is_high),
            jnp.mean((pixels - data["image"]) ** 2),
        ]
        return jnp.stack(losses), {
            "accuracy": accuracy(digit, label),
            "accuracy_odd": jnp.mean(((odd_logit > 0) == is_odd).astype(jnp.float32)),
            "accuracy_high": jnp.mean(((high_logit > 0) == is_high).astype(jnp.float32)),
        }

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Returns the loss relative to that of guesses and an empty image: 1 is untrained, 2 the maximum."""
        blank = float(np.mean(digits_splits().train["image"] ** 2, dtype=np.float64))
        return relative_loss(loss, (math.log(NUM_CLASSES) + 2 * math.log(2) + blank) / 4)


_HEADS = (NUM_CLASSES, 1, 1, NUM_PIXELS)
