"""Time series: two real data sets to classify, and sinusoids to forecast."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Datasets, SampledDataset, Task, TaskFamily
from lobench.inner.tasks import arguments
from lobench.inner.tasks.data import load_arrays
from lobench.inner.tasks.measured import LossStateAux, MeasuredTask, ReferencedTask
from lobench.inner.tasks.networks import Params, two_layers_init
from lobench.inner.tasks.objectives import classification, log10_loss
from lobench.inner.tasks.recurrent import CELLS, recurrent_init, recurrent_outputs
from lobench.inner.tasks.splits import row_datasets

__all__ = ["SeriesClassifier", "SinusoidFamily"]

_NUM_CLASSES = {"vowels": 9, "power": 2}
_NETWORKS = (*CELLS, "conv", "mlp")
_NUM_TAPS = 5  # length of the convolution


@configurable
class SeriesClassifier(ReferencedTask, MeasuredTask):
    """Time series classification; mean softmax cross entropy and `accuracy`.

    The published training and test series are merged and shuffled. Seven tenths are train, each other split has one
    tenth. It is unknown whether the loss's floor is above 0. Batches have `series` float16[batch, length, channels] and
    `label` uint8[batch].

    Args:
      data: "vowels": speaker identification among nine men by a Japanese ae; 640 series of 25 x 12 cepstral
        coefficients (Kudo, Toyama and Shimbo 1999; published accuracies are 94 to 98%). "power": whether a day of
        Italy's power demand is in April to September or in October to March; 1,096 series of 24 x 1 (ItalyPowerDemand
        of the UCR archive; 94 to 97%).
      network: "gru" or "lstm", whose last output gives the logits; "conv", a convolution over five steps, its mean over
        time and a dense layer; "mlp", a hidden layer on all values.
      width: Width of the network's hidden layer.
      batch_size: Examples per batch, in training and evaluation.
    """

    datasets: Datasets

    def __init__(self, *, data: str = "vowels", network: str = "gru", width: int = 32, batch_size: int = 32) -> None:
        arguments.choice(self, "data", data, _NUM_CLASSES)
        arguments.choice(self, "network", network, _NETWORKS)
        self._network, self._num_classes = network, _NUM_CLASSES[data]
        self.reference_loss = math.log(self._num_classes)
        self._width = arguments.integer(self, "width", width)
        examples = _examples(data)
        self._shape = examples["series"].shape[1:]
        num_held_out = len(examples["label"]) // 10
        sizes = {"train": len(examples["label"]) - 3 * num_held_out}
        sizes |= dict.fromkeys(("inner_valid", "outer_valid", "test"), num_held_out)
        self.datasets = row_datasets(examples, sizes, arguments.integer(self, "batch_size", batch_size))

    def init(self, key: jax.Array) -> Params:
        length, channels = self._shape
        if self._network in CELLS:
            return recurrent_init(key, channels, self._width, self._num_classes, cell=self._network)
        num_inputs = channels * (_NUM_TAPS if self._network == "conv" else length)
        return two_layers_init(key, num_inputs, self._width, self._num_classes)

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        logits = self.logits(params, data["series"].astype(jnp.float32))
        labels = data["label"].astype(jnp.int32)
        loss, aux = classification(logits, labels)
        return loss, state, aux

    def logits(self, params: Params, series: jax.Array) -> jax.Array:
        """Returns logits float32[batch, classes] for series float32[batch, length, channels]."""
        batch, length, _ = series.shape
        if self._network in CELLS:
            outputs = recurrent_outputs(params, jnp.swapaxes(series, 0, 1), cell=self._network)
            return outputs[-1] @ params["w_out"] + params["b_out"]
        if self._network == "conv":
            # The convolution is computed as one matrix product, like convolutions of images.
            taps = [series[:, tap : length - _NUM_TAPS + 1 + tap] for tap in range(_NUM_TAPS)]
            hidden = jax.nn.relu(jnp.concatenate(taps, axis=-1) @ params["w0"] + params["b0"]).mean(axis=1)
        else:
            hidden = jax.nn.relu(series.reshape(batch, -1) @ params["w0"] + params["b0"])
        return hidden @ params["w1"] + params["b1"]


@functools.cache
def _examples(data: str) -> dict[str, np.ndarray]:
    arrays = load_arrays("series")
    order = np.random.default_rng(0).permutation(len(arrays[f"{data}_label"]))
    return {"series": arrays[f"{data}_series"][order], "label": arrays[f"{data}_label"][order]}


@configurable
class SinusoidFamily(TaskFamily):
    """Family of forecasting tasks, each of one noisy sinusoid with random phases.

    Amplitudes are uniform in 0.5 to 2, periods log-uniform in 6 to 48 steps. A GRU of `width` sees all earlier values.
    The loss is the mean squared error; its lowest possible expectation is `noise_std ** 2`. Batches have `phase`
    float32[batch] and `noise` float32[batch, sequence_length + 1], the same for all tasks of a seed's step.

    Args:
      width: Width of the GRU's state.
      sequence_length: Forecasts per window.
      noise_std: Standard deviation of the normal noise on each value.
      batch_size: Examples per batch, in training and evaluation.
    """

    def __init__(
        self, *, width: int = 16, sequence_length: int = 24, noise_std: float = 0.1, batch_size: int = 16
    ) -> None:
        self._width = arguments.integer(self, "width", width)
        length = arguments.integer(self, "sequence_length", sequence_length) + 1
        noise_std = arguments.number(self, "noise_std", noise_std)
        arguments.integer(self, "batch_size", batch_size)

        def sample(key: jax.Array) -> dict[str, jax.Array]:
            phase_key, noise_key = jax.random.split(key)
            return {
                "phase": jax.random.uniform(phase_key, (batch_size,), jnp.float32, 0.0, 2 * math.pi),
                "noise": noise_std * jax.random.normal(noise_key, (batch_size, length), jnp.float32),
            }

        self.datasets = Datasets(train=SampledDataset(sample), test=SampledDataset(sample))

    def sample(self, key: jax.Array) -> dict[str, jax.Array]:
        """Returns `amplitude` and `frequency` (radians per step), float32[]."""
        amplitude_key, frequency_key = jax.random.split(key)
        log_period = jax.random.uniform(frequency_key, (), jnp.float32, math.log(6.0), math.log(48.0))
        return {
            "amplitude": jax.random.uniform(amplitude_key, (), jnp.float32, 0.5, 2.0),
            "frequency": 2 * math.pi * jnp.exp(-log_period),
        }

    def task_fn(self, cfg: PyTree) -> Task:
        return _Sinusoid(cfg, self._width, self.datasets)


class _Sinusoid(Task):
    def __init__(self, cfg: PyTree, width: int, datasets: Datasets | None) -> None:
        self._cfg, self._width, self.datasets = cfg, width, datasets

    def init(self, key: jax.Array) -> Params:
        return recurrent_init(key, 1, self._width, 1, cell="gru")

    def loss(self, params: PyTree, key: jax.Array, data: Batch) -> jax.Array:
        steps = jnp.arange(data["noise"].shape[1], dtype=jnp.float32)
        waves = jnp.sin(self._cfg["frequency"] * steps + data["phase"][:, None])
        values = (self._cfg["amplitude"] * waves + data["noise"]).T[..., None]  # float32[length + 1, batch, 1]
        outputs = recurrent_outputs(params, values[:-1], cell="gru")
        return jnp.mean((outputs @ params["w_out"] + params["b_out"] - values[1:]) ** 2)

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Returns log10 of the loss, which makes amplitudes comparable."""
        return log10_loss(loss)
