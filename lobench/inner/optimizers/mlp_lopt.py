"""MLPLOpt: a 19-32-32-2 network on gradient, parameter, six momenta and the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, OptimizerState, PyTree, Theta
from lobench.inner.optimizers.features import moving_averages, rms_norm, step_embedding
from lobench.inner.optimizers.tensor_lstm import new_linear

__all__ = ["MLPLOpt"]

_DECAYS = np.asarray([0.1, 0.5, 0.9, 0.99, 0.999, 0.9999], np.float32)
_NUM_FEATURES = 19


@configurable
@dataclass(eq=False, repr=False)
class MLPLOpt(LearnedOptimizer):
    """Per-parameter MLP optimizer.

    Args:
      step_mult, exp_mult: Scale of the step, and of the log magnitude.
      hidden_size: Width of both hidden layers.
    Source: Metz et al. 2019 (arXiv 1810.10180).
    """

    step_mult: float = 0.001
    exp_mult: float = 0.001
    hidden_size: int = 32

    def init(self, key: jax.Array) -> Theta:
        """Returns scaled normal weights and zero biases."""
        sizes = [_NUM_FEATURES, self.hidden_size, self.hidden_size, 2]
        layers = {}
        for layer, layer_key in enumerate(jax.random.split(key, 3)):
            layers[f"linear_{layer}"] = new_linear(layer_key, sizes[layer], sizes[layer + 1])
        return {"mlp": {"~": layers}}

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        layers = [theta["mlp"]["~"][f"linear_{index}"] for index in range(3)]

        def init(params: PyTree) -> OptimizerState:
            momenta = [jnp.zeros((len(_DECAYS), jnp.size(leaf))) for leaf in jax.tree.leaves(params)]
            return {"step": jnp.int32(0), "momentum": momenta}

        def update(
            grads: PyTree, state: OptimizerState, params: PyTree = None, **extra: Any
        ) -> tuple[PyTree, OptimizerState]:
            embedding = step_embedding(state["step"])
            first_layer = layers[0]
            bias = embedding @ first_layer["w"][8:] + first_layer["b"]
            features, momenta = [], []
            for old, g, p in zip(state["momentum"], jax.tree.leaves(grads), jax.tree.leaves(params), strict=True):
                grad = jnp.ravel(g)
                m = moving_averages(old, grad, jnp.asarray(_DECAYS))
                features.append(rms_norm(jnp.concatenate([grad[None], jnp.ravel(p)[None], m]), axes=(1,)))
                momenta.append(m)
            # All tensors in one product, with coordinates last: the cost of a small network is its number of products.
            hidden = jax.nn.relu(first_layer["w"][:8].T @ jnp.concatenate(features, axis=1) + bias[:, None])
            hidden = jax.nn.relu(layers[1]["w"].T @ hidden + layers[1]["b"][:, None])
            direction, magnitude = layers[2]["w"].T @ hidden + layers[2]["b"][:, None]
            steps = direction * jnp.exp(magnitude * self.exp_mult) * self.step_mult
            updates = _split_like(-steps, grads)
            new_state = {"step": state["step"] + 1, "momentum": momenta}
            return updates, new_state

        return optax.GradientTransformationExtraArgs(init, update)


def _split_like(values: jax.Array, template: PyTree) -> PyTree:
    """Cuts float32[size] into the leaves of a tree, in their order and shapes."""
    leaves, structure = jax.tree.flatten(template)
    leaf_ends = np.cumsum([jnp.size(leaf) for leaf in leaves])
    leaf_values = jnp.split(values, leaf_ends[:-1])
    return jax.tree.unflatten(
        structure, [leaf_value.reshape(jnp.shape(leaf)) for leaf_value, leaf in zip(leaf_values, leaves, strict=True)]
    )
