"""Denoising of natural patches: small squares of two photographs with normal noise."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Datasets
from lobench.inner.tasks import arguments
from lobench.inner.tasks.data import load_arrays
from lobench.inner.tasks.measured import ReferencedTask
from lobench.inner.tasks.networks import ACTIVATIONS, Params, init_gain, layers_init, through_layers
from lobench.inner.tasks.splits import Splits, make_datasets

__all__ = ["PatchDenoiser", "patch_splits"]

_STRIDE = 4  # pixels from patch to patch
# Columns by split, without overlap.
_COLUMNS = {"train": (0, 224), "inner_valid": (224, 256), "outer_valid": (256, 288), "test": (288, 320)}


@functools.cache
def patch_splits(side: int) -> Splits:
    """Returns `patch` float32[n, side * side] of each split, standardized by the train split's pixels."""
    patches = {split: _patches(side, *columns) for split, columns in _COLUMNS.items()}
    mean = patches["train"].mean(dtype=np.float64)
    std = patches["train"].std(dtype=np.float64)
    return Splits(**{split: {"patch": ((patch - mean) / std).astype(np.float32)} for split, patch in patches.items()})


def _patches(side: int, first_column: int, last_column: int) -> np.ndarray:
    """Returns the patches of both photographs between two columns, uint8[n, side * side]."""
    photos = [load_arrays("photos")[name][:, first_column:last_column] for name in ("china", "flower")]
    windows = [np.lib.stride_tricks.sliding_window_view(photo, (side, side)) for photo in photos]
    return np.concatenate([window[::_STRIDE, ::_STRIDE].reshape(-1, side * side) for window in windows])


@configurable
class PatchDenoiser(ReferencedTask):
    """Denoising of patches of natural images with an MLP; mean squared error of the cleaned patch.

    Noise is new in every step. The cleaned patch is the noisy patch minus the output of the network. Patches have a
    variance of about 1, so `noise_std` squared is the loss without denoising. `linear_floor` is the lowest loss of a
    linear map.

    Args:
      side: Side of a patch in pixels, 4 to 16.
      hidden_sizes: Widths of the hidden layers; () is linear.
      noise_std: Standard deviation of the noise.
      activation: relu, tanh, gelu, silu or sigmoid.
      batch_size: Examples per batch, in training and evaluation.
    """

    datasets: Datasets

    def __init__(
        self,
        *,
        side: int = 8,
        hidden_sizes: tuple[int, ...] = (64, 64),
        noise_std: float = 0.5,
        activation: str = "relu",
        batch_size: int = 64,
    ) -> None:
        arguments.choice(self, "side", side, range(4, 17))
        arguments.choice(self, "activation", activation, ACTIVATIONS)
        self._side = side
        self._hidden_sizes = arguments.sizes(self, "hidden_sizes", hidden_sizes)
        self._noise_std = arguments.number(self, "noise_std", noise_std, at_least=1e-3)
        self.reference_loss = self._noise_std**2  # loss without denoising
        self._activation, self._gain = ACTIVATIONS[activation], init_gain(activation)
        self.datasets = make_datasets(_splits_of(side), arguments.integer(self, "batch_size", batch_size))

    @property
    def linear_floor(self) -> float:
        """Lowest expected loss of a linear map on the train split, that of the Wiener filter."""
        patches = patch_splits(self._side).train["patch"].astype(np.float64)
        spectrum = np.linalg.eigvalsh(np.cov(patches.T, bias=True))
        noise = self._noise_std**2
        return float(np.mean(spectrum * noise / (spectrum + noise)))

    def init(self, key: jax.Array) -> Params:
        pixels = self._side**2
        return layers_init(key, (pixels, *self._hidden_sizes, pixels), self._gain)

    def loss(self, params: PyTree, key: jax.Array, data: Batch) -> jax.Array:
        clean = data["patch"]
        noise = self._noise_std * jax.random.normal(key, clean.shape, jnp.float32)
        # The cleaned patch minus the clean one.
        return jnp.mean((noise - through_layers(params, clean + noise, self._activation)) ** 2)


@functools.cache
def _splits_of(side: int) -> functools.partial[Splits]:
    return functools.partial(patch_splits, side)
