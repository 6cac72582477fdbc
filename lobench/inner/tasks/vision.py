"""Classifiers that process an image as a sequence of square patches."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.tasks import arguments
from lobench.inner.tasks.classifier import Classifier
from lobench.inner.tasks.networks import Params, dense_init, layers_init, through_layers
from lobench.inner.tasks.normalization import layer_norm
from lobench.inner.tasks.transformer import transformer_blocks, transformer_init

__all__ = ["MixerClassifier", "ViTClassifier"]


class _PatchClassifier(Classifier):
    """Base of patch classifiers: a linear map of patches, a subclass's layers, the mean over patches, logits."""

    kinds = ("image",)

    def __init__(
        self,
        *,
        data: str = "mnist28",
        patch: int = 7,
        width: int = 32,
        num_layers: int = 2,
        activation: str = "gelu",
        batch_size: int = 32,
    ) -> None:
        super().__init__(data=data, activation=activation, batch_size=batch_size)
        name = type(self).__name__
        side = self.data.shape[0]
        self._patch = arguments.integer(self, "patch", patch)
        if side % patch:
            raise ConfigError(f"{name}.patch", got=repr(patch), expected=f"a divisor of the {side} pixels of a side")
        self._width = arguments.integer(self, "width", width)
        self._num_layers = arguments.integer(self, "num_layers", num_layers)
        self._length = (side // patch) ** 2

    def init(self, key: jax.Array) -> dict[str, PyTree]:
        keys = jax.random.split(key, 3)
        return {
            "w_patch": dense_init(keys[0], self._patch**2, self._width),
            "b_patch": jnp.zeros(self._width, jnp.float32),
            "layers": self.layers_init(keys[1]),
            "w": dense_init(keys[2], self._width, self.data.num_classes),
            "b": jnp.zeros(self.data.num_classes, jnp.float32),
        }

    def logits(self, params: PyTree, state: PyTree, inputs: jax.Array, *, training: bool) -> tuple[jax.Array, PyTree]:
        sequence = self._patches(inputs) @ params["w_patch"] + params["b_patch"]
        sequence = self.layers(params["layers"], sequence)
        return jnp.mean(sequence, axis=1) @ params["w"] + params["b"], state

    def layers_init(self, key: jax.Array) -> PyTree:
        raise NotImplementedError

    def layers(self, params: PyTree, x: jax.Array) -> jax.Array:
        """Returns the sequence after the layers, with the shape of x, float32[batch, length, width]."""
        raise NotImplementedError

    def _patches(self, images: jax.Array) -> jax.Array:
        """Returns the patches row by row, float32[batch, length, patch * patch]."""
        patches_per_side = self.data.shape[0] // self._patch
        patch_grid = images.reshape(-1, patches_per_side, self._patch, patches_per_side, self._patch)
        return patch_grid.transpose(0, 1, 3, 2, 4).reshape(-1, self._length, self._patch**2)


@configurable
class MixerClassifier(_PatchClassifier):
    """Image classification with an MLP-Mixer, alternating between patches and features.

    Args:
      data: digits, mnist8, mnist14 or mnist28.
      patch: Side of a patch in pixels, a divisor of the image's side.
      width: Number of features of a patch. Hidden layers have twice as many units as inputs.
      num_layers: Number of layers of each kind.
      activation: relu, tanh, gelu, silu or sigmoid.
      batch_size: Examples per batch, in training and evaluation.
    Source: Tolstikhin et al. 2021, "MLP-Mixer: an all-MLP architecture for vision".
    """

    def layers_init(self, key: jax.Array) -> dict[str, Params]:
        identity = jnp.stack([jnp.ones(self._width, jnp.float32), jnp.zeros(self._width, jnp.float32)])
        params: dict[str, Params] = {"norms": {"last": identity}}
        for layer in range(self._num_layers):
            patch_key, feature_key = jax.random.split(jax.random.fold_in(key, layer))
            length, width = self._length, self._width
            params[f"patches{layer}"] = layers_init(patch_key, (length, 2 * length, length), self._gain)
            params[f"features{layer}"] = layers_init(feature_key, (width, 2 * width, width), self._gain)
            params["norms"] |= {f"patches{layer}": identity, f"features{layer}": identity}
        return params

    def layers(self, params: dict[str, Params], x: jax.Array) -> jax.Array:
        norms = params["norms"]
        for layer in range(self._num_layers):
            transposed = jnp.swapaxes(layer_norm(x, *norms[f"patches{layer}"]), 1, 2)
            x = x + jnp.swapaxes(through_layers(params[f"patches{layer}"], transposed, self._activation), 1, 2)
            normed = layer_norm(x, *norms[f"features{layer}"])
            x = x + through_layers(params[f"features{layer}"], normed, self._activation)
        return layer_norm(x, *norms["last"])


@configurable
class ViTClassifier(_PatchClassifier):
    """Image classification with a vision transformer.

    Args:
      data: digits, mnist8, mnist14 or mnist28.
      patch: Side of a patch in pixels, a divisor of the image's side.
      width: Number of features of a patch, a multiple of `num_heads`.
      num_layers: Number of blocks.
      num_heads: Number of attention heads of each block.
      batch_size: Examples per batch, in training and evaluation.
    Source: Dosovitskiy et al. 2021, "An image is worth 16x16 words", with the mean in place of a class token.
    """

    def __init__(
        self,
        *,
        data: str = "mnist28",
        patch: int = 7,
        width: int = 32,
        num_layers: int = 2,
        num_heads: int = 2,
        batch_size: int = 32,
    ) -> None:
        super().__init__(data=data, patch=patch, width=width, num_layers=num_layers, batch_size=batch_size)
        self._num_heads = arguments.integer(self, "num_heads", num_heads)
        if width % num_heads:
            expected = f"a multiple of its {num_heads} heads"
            raise ConfigError(f"{type(self).__name__}.width", got=repr(width), expected=expected)

    def layers_init(self, key: jax.Array) -> Params:
        position_key, block_key = jax.random.split(key)
        positions = 0.02 * jax.random.normal(position_key, (self._length, self._width), jnp.float32)
        return {"positions": positions, **transformer_init(block_key, self._width, self._num_layers)}

    def layers(self, params: Params, x: jax.Array) -> jax.Array:
        x = x + params["positions"]
        return transformer_blocks(params, x, num_layers=self._num_layers, num_heads=self._num_heads, causal=False)
