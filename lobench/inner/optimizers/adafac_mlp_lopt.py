"""AdafacMLPLOpt ("small_fc_lopt"): a 39-4-4-2 network on features of each parameter, including Adafactor's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, PyTree, Theta
from lobench.inner.optimizers.factored import FactoredMoments
from lobench.inner.optimizers.features import (
    Units,
    decayed,
    laid_out,
    outputs_of,
    restored,
    step_embedding,
    weighted_sum,
)

__all__ = ["NARROW", "AdafacFeatured", "AdafacMLPLOpt", "adafac_features", "shifted_decays"]

_DECAYS = np.asarray([0.9, 0.99, 0.999], np.float32)  # of the momenta, and of the factored second moments
_RMS = np.asarray([0.999], np.float32)
_NUM_FEATURES = 39
NARROW = slice(13, 25)  # rows of the first layer for the factored moments
_NUM_EMBEDDED = 11


def shifted_decays(decays: np.ndarray, shift: jax.Array) -> jax.Array:
    """Returns the decays that theta shifts: 1 - exp(10 (log(1 - d)/10 + theta))."""
    return 1 - jnp.exp(10 * (jnp.log(1 - jnp.asarray(decays)) / 10 + shift))


class AdafacFeatured(LearnedOptimizer):
    """Optimizer with a network on features of each parameter, including Adafactor's.

    Attributes:
      num_outputs: Number of outputs of the network.

    Args:
      hidden_size: Width of both hidden layers.
    """

    num_outputs = 2

    def __init__(self, *, hidden_size: int) -> None:
        self._hidden_size = hidden_size

    def subtracted(self, outputs: Units, grad: jax.Array, p: jax.Array, m: jax.Array, r: jax.Array) -> jax.Array:
        """Returns the step that is subtracted from one tensor.

        Args:
          outputs: Outputs of the network, each of the tensor's shape.
          grad: Gradient of the tensor.
          p: The tensor.
          m, r: Momenta and second moments, each with a leading axis.
        """
        raise NotImplementedError

    def laid_out(self, leaf: jax.Array) -> jax.Array:
        """Returns a gradient or a parameter in the layout of the features."""
        return laid_out(leaf)

    def init(self, key: jax.Array) -> Theta:
        """Returns zero decay shifts and a network with scaled normal weights and zero biases."""
        sizes = [_NUM_FEATURES, self._hidden_size, self._hidden_size, self.num_outputs]
        network: dict[str, jax.Array] = {}
        for layer, layer_key in enumerate(jax.random.split(key, 3)):
            shape = (sizes[layer], sizes[layer + 1])
            network[f"w{layer}"] = jax.random.truncated_normal(layer_key, -2, 2, shape) / np.sqrt(sizes[layer])
            network[f"b{layer}"] = jnp.zeros(shape[1:])
        return {
            "momentum_decays": jnp.zeros(3),
            "rms_decays": jnp.zeros(1),
            "adafactor_decays": jnp.zeros(3),
            "nn": {"~": network},
        }

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        momentum_decays = shifted_decays(_DECAYS, theta["momentum_decays"])
        rms_decays = jnp.clip(shifted_decays(_RMS, theta["rms_decays"]), 0.0, 1.0)
        factored_decays = jnp.clip(shifted_decays(_DECAYS, theta["adafactor_decays"]), 0.0, 1.0)
        network = theta["nn"]["~"]
        # Sliced here, outside the loop over steps.
        wide = jnp.concatenate([network["w0"][: NARROW.start], network["w0"][NARROW.stop : -_NUM_EMBEDDED]])
        narrow = network["w0"][NARROW]
        of_step = network["w0"][-_NUM_EMBEDDED:]

        def init(params: PyTree) -> dict[str, Any]:
            leaves = [laid_out(leaf) for leaf in jax.tree.leaves(params)]
            return {
                "step": jnp.int32(0),
                "momentum": [jnp.zeros((3, *leaf.shape)) for leaf in leaves],
                "rms": [jnp.zeros((1, *leaf.shape)) for leaf in leaves],
                "factored": FactoredMoments([leaf.shape for leaf in leaves]).init(3),
            }

        def update(
            grads: PyTree, state: dict[str, Any], params: PyTree = None, **extra: Any
        ) -> tuple[PyTree, dict[str, Any]]:
            bias = step_embedding(state["step"]) @ of_step + network["b0"]
            leaves = [self.laid_out(leaf) for leaf in jax.tree.leaves(grads)]
            moments = FactoredMoments([leaf.shape for leaf in leaves])
            factored_state, factored = moments.update(state["factored"], leaves, factored_decays, narrow)
            updates, momenta, squares = [], [], []
            for index, (grad, leaf) in enumerate(zip(leaves, jax.tree.leaves(params), strict=True)):
                p = self.laid_out(leaf)
                m = decayed(state["momentum"][index], grad, momentum_decays)
                r = decayed(state["rms"][index], grad * grad, rms_decays)
                features = adafac_features(grad, p, m, r, factored.scales[index], factored.full[index])
                first = weighted_sum(features, wide, factored.sums[index])
                outputs = outputs_of(first, bias, *((network[f"w{n}"], network[f"b{n}"]) for n in (1, 2)))
                step = self.subtracted(outputs, grad, p, m, r)
                updates.append(restored(-step, jnp.shape(leaf)))
                momenta.append(m)
                squares.append(r)
            new_state = {"step": state["step"] + 1, "momentum": momenta, "rms": squares, "factored": factored_state}
            return jax.tree.unflatten(jax.tree.structure(grads), updates), new_state

        return optax.GradientTransformationExtraArgs(init, update)


@configurable
class AdafacMLPLOpt(AdafacFeatured):
    """Per-parameter MLP optimizer with Adafactor features.

    Args:
      step_mult, exp_mult: Scale of the step, and of the log magnitude.
      hidden_size: Width of both hidden layers.
    Source: Metz et al. 2022 (arXiv 2203.11860).
    """

    def __init__(self, step_mult: float = 0.001, exp_mult: float = 0.001, hidden_size: int = 4) -> None:
        super().__init__(hidden_size=hidden_size)
        self._step_mult, self._exp_mult = step_mult, exp_mult

    def subtracted(self, outputs: Units, grad: jax.Array, p: jax.Array, m: jax.Array, r: jax.Array) -> jax.Array:
        direction, magnitude = outputs
        return direction * jnp.exp(magnitude * self._exp_mult) * self._step_mult


def adafac_features(
    grad: jax.Array,
    param: jax.Array,
    m: jax.Array,
    r: jax.Array,
    scale: tuple[jax.Array, jax.Array],
    full: jax.Array | None,
) -> list[jax.Array]:
    """Returns the features of one tensor that have its shape."""
    rsqrt = jax.lax.rsqrt
    r_scale = rsqrt(r + 1e-6)
    scaled_m = m * scale[0] * scale[1] if full is None else m * rsqrt(full + 1e-6)
    return [grad[None], param[None], m, r, m * r_scale, r_scale, grad[None] * scale[0] * scale[1], scaled_m]
