"""AdafacMLPLOpt ("small_fc_lopt"): a 39-4-4-2 network on features of each parameter, including Adafactor's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, OptimizerState, PyTree, Theta
from lobench.inner.optimizers.factored import Accumulators, TensorValues
from lobench.inner.optimizers.features import (
    LayerOutputs,
    feature_layout,
    network_outputs,
    step_embedding,
    weighted_sum,
)
from lobench.inner.optimizers.tensor_lstm import new_linear

__all__ = ["FACTORED_ROWS", "AdafacFeatured", "AdafacMLPLOpt", "adafac_features", "shifted_decays"]

_DECAYS = np.asarray([0.9, 0.99, 0.999], np.float32)  # rates of the momenta, and of the factored second moments
_RMS = np.asarray([0.999], np.float32)
_NUM_FEATURES = 39
FACTORED_ROWS = slice(13, 25)  # rows of the first layer for the factored moments
_NUM_EMBEDDED = 11


def shifted_decays(decays: np.ndarray, shift: jax.Array) -> jax.Array:
    """Returns the decays that theta shifts: 1 - exp(10 (log(1 - d)/10 + theta))."""
    return 1 - jnp.exp(10 * (jnp.log(1 - jnp.asarray(decays)) / 10 + shift))


class AdafacFeatured(LearnedOptimizer):
    """Optimizer with a network on features of each parameter, including Adafactor's.

    Attributes:
      num_outputs: Number of outputs of the network.
      hidden_size: Width of both hidden layers.
    """

    num_outputs = 2
    hidden_size: int

    def subtracted_step(self, outputs: LayerOutputs, tensor: TensorValues) -> jax.Array:
        """Returns the step that is subtracted from one tensor, from the network's outputs of the tensor's shape."""
        raise NotImplementedError

    def feature_layout(self, leaf: jax.Array) -> jax.Array:
        """Returns a gradient or a parameter in the layout of the features."""
        return feature_layout(leaf)

    def init(self, key: jax.Array) -> Theta:
        """Returns zero decay shifts and a network with scaled normal weights and zero biases."""
        sizes = [_NUM_FEATURES, self.hidden_size, self.hidden_size, self.num_outputs]
        network: dict[str, jax.Array] = {}
        for layer, layer_key in enumerate(jax.random.split(key, 3)):
            linear = new_linear(layer_key, sizes[layer], sizes[layer + 1])
            network |= {f"w{layer}": linear["w"], f"b{layer}": linear["b"]}
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
        accumulators = Accumulators(momentum_decays, rms_decays, factored_decays, self.feature_layout)
        network = theta["nn"]["~"]
        # Sliced here, outside the loop over steps.
        wide_weights = jnp.concatenate(
            [network["w0"][: FACTORED_ROWS.start], network["w0"][FACTORED_ROWS.stop : -_NUM_EMBEDDED]]
        )
        narrow_weights = network["w0"][FACTORED_ROWS]
        step_weights = network["w0"][-_NUM_EMBEDDED:]

        def init(params: PyTree) -> OptimizerState:
            return {"step": jnp.int32(0), **accumulators.init(params)}

        def update(
            grads: PyTree, state: OptimizerState, params: PyTree = None, **extra: Any
        ) -> tuple[PyTree, OptimizerState]:
            bias = step_embedding(state["step"]) @ step_weights + network["b0"]
            leaves = [self.feature_layout(leaf) for leaf in jax.tree.leaves(grads)]

            def step(index: int, tensor: TensorValues) -> jax.Array:
                first_layer = weighted_sum(adafac_features(tensor), wide_weights, tensor.factor_sums)
                outputs = network_outputs(first_layer, bias, *((network[f"w{n}"], network[f"b{n}"]) for n in (1, 2)))
                return -self.subtracted_step(outputs, tensor)

            updates, new_accumulators = accumulators.update(state, leaves, params, narrow_weights, step)
            return updates, {"step": state["step"] + 1, **new_accumulators}

        return optax.GradientTransformationExtraArgs(init, update)


@configurable
@dataclass(eq=False, repr=False)
class AdafacMLPLOpt(AdafacFeatured):
    """Per-parameter MLP optimizer with Adafactor features.

    Args:
      step_mult, exp_mult: Scale of the step, and of the log magnitude.
      hidden_size: Width of both hidden layers.
    Source: Metz et al. 2022 (arXiv 2203.11860).
    """

    step_mult: float = 0.001
    exp_mult: float = 0.001
    hidden_size: int = 4

    def subtracted_step(self, outputs: LayerOutputs, tensor: TensorValues) -> jax.Array:
        direction, magnitude = outputs
        return direction * jnp.exp(magnitude * self.exp_mult) * self.step_mult


def adafac_features(tensor: TensorValues) -> list[jax.Array]:
    """Returns the features of one tensor that have its shape."""
    grad, param, momenta, second_moments, factor_scales, unfactored, _ = tensor
    rsqrt = jax.lax.rsqrt
    inverse_roots = rsqrt(second_moments + 1e-6)
    scaled_momenta = (
        momenta * factor_scales[0] * factor_scales[1] if unfactored is None else momenta * rsqrt(unfactored + 1e-6)
    )
    return [
        grad[None],
        param[None],
        momenta,
        second_moments,
        momenta * inverse_roots,
        inverse_roots,
        grad[None] * factor_scales[0] * factor_scales[1],
        scaled_momenta,
    ]
