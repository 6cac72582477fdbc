"""Celo2 and ELO-Celo2: a per-parameter MLP with orthogonalized steps of matrices, and AdamW for vectors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, OptimizerState, PyTree, Theta
from lobench.inner.optimizers.celo import BLOCK_CHANNELS
from lobench.inner.optimizers.factored import FactoredMoments
from lobench.inner.optimizers.features import moving_averages
from lobench.inner.schedules.schedule import Rate
from lobench.inner.theta import leaf_paths

__all__ = ["Celo2", "EloCelo2", "clip_by_total_norm"]

_DECAYS = np.asarray([0.9, 0.99, 0.999], np.float32)  # rates of the momenta, and of the factored second moments
_RMS = np.asarray([0.95], np.float32)
_NEWTON_SCHULZ = (3.4445, -4.775, 2.0315)
_WIDTH = 8
_OUTPUTS = 3  # direction, magnitude, and one unused
_EPSILON = 1e-9


@configurable
@dataclass(eq=False, repr=False)
class Celo2(LearnedOptimizer):
    """Celo2: per-parameter MLP optimizer with orthogonalized steps, without its own schedule.

    Args:
      learning_rate: Learning rate of all tensors.
      weight_decay: Decoupled weight decay, multiplied by the learning rate; applied to vectors too.
      orthogonalize: Whether steps are orthogonalized by Newton-Schulz iterations. Without it, this is Celo2-base.
      exp_mult: Scale of the log magnitude.
      max_norm: Largest norm of the gradient of all tensors together. None: no limit.
      adamw_paths: Pattern of `re`. Tensors with matching paths use AdamW, as intended for embeddings.
    Source: Moudgil et al. 2026 (arXiv 2602.19142).
    """

    learning_rate: Rate = 0.001
    weight_decay: float = 0.0
    orthogonalize: bool = True
    exp_mult: float = 0.0
    max_norm: float | None = None
    adamw_paths: str = ""

    def __post_init__(self) -> None:
        self._adamw_paths = re.compile(self.adamw_paths) if self.adamw_paths else None

    def init(self, key: jax.Array) -> Theta:
        """Returns truncated normal weights and zero biases, under the names of the published weights."""
        keys = iter(jax.random.split(key, len(BLOCK_CHANNELS) + 2))

        def weights(inputs: int, outputs: int, fan_in: int) -> jax.Array:
            return jax.random.truncated_normal(next(keys), -2, 2, (inputs, outputs)) / np.sqrt(fan_in)

        theta = {
            f"w0.{index}": weights(channels, _WIDTH, sum(BLOCK_CHANNELS))
            for index, channels in enumerate(BLOCK_CHANNELS)
        }
        theta |= {"dense_w.0": weights(_WIDTH, _WIDTH, _WIDTH), "dense_w.1": weights(_WIDTH, _OUTPUTS, _WIDTH)}
        return theta | {"b0": jnp.zeros(_WIDTH), "dense_b.0": jnp.zeros(_WIDTH), "dense_b.1": jnp.zeros(_OUTPUTS)}

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        first_layer = jnp.concatenate([theta[f"w0.{index}"] for index in range(len(BLOCK_CHANNELS))])
        adam = optax.scale_by_adam(b1=float(_DECAYS[0]), b2=float(_RMS[-1]))

        def init(params: PyTree) -> OptimizerState:
            matrices, vectors = self._learned_and_adamw_leaves(params, params)
            return {
                "momentum": {path: jnp.zeros((3, *leaf.shape)) for path, leaf in matrices.items()},
                "rms": {path: jnp.zeros((1, *leaf.shape)) for path, leaf in matrices.items()},
                "factored": FactoredMoments([leaf.shape for leaf in matrices.values()]).init(3) if matrices else (),
                "adam": adam.init(vectors),
            }

        def update(
            grads: PyTree, state: OptimizerState, params: PyTree = None, **extra: Any
        ) -> tuple[PyTree, OptimizerState]:
            grads = clip_by_total_norm(grads, self.max_norm)
            grads = jax.tree.map(lambda grad: jnp.clip(grad, -1000.0, 1000.0), grads)
            matrices, vectors = self._learned_and_adamw_leaves(grads, params)
            steps, adam_state = adam.update(vectors, state["adam"])
            momenta = dict[str, Any]()
            squares = dict[str, Any]()
            factored: Any = ()
            decays = jnp.asarray(_DECAYS)
            square_decays = jnp.asarray(_RMS)
            if matrices:
                moments = FactoredMoments([leaf.shape for leaf in matrices.values()])
                no_weights = jnp.zeros((4 * len(_DECAYS), 1))  # this network gets moments on another scale
                factored, tensor_values = moments.update(state["factored"], list(matrices.values()), decays, no_weights)
                rows_and_columns = moments.moments_by_tensor(factored)
            params_by_path: dict[str, Any] = dict(leaf_paths(params))
            for index, (path, grad) in enumerate(matrices.items()):
                momenta[path] = momentum_of_leaf = moving_averages(state["momentum"][path], grad, decays)
                squares[path] = squares_of_leaf = moving_averages(state["rms"][path], grad * grad, square_decays)
                features = _features(
                    grad,
                    params_by_path[path],
                    momentum_of_leaf,
                    squares_of_leaf,
                    tensor_values.factor_scales[index],
                    rows_and_columns[index],
                )
                steps[path] = self._step(theta, first_layer, features)
            updates = [
                -self.learning_rate * (steps[path] + self.weight_decay * param)
                for path, param in params_by_path.items()
            ]
            state = {"momentum": momenta, "rms": squares, "factored": factored, "adam": adam_state}
            return jax.tree.unflatten(jax.tree.structure(grads), updates), state

        return optax.GradientTransformationExtraArgs(init, update)

    def _learned_and_adamw_leaves(self, tree: PyTree, params: PyTree) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the leaves that the network steps, and those that AdamW steps, by path, as float32."""
        leaves = {path: jnp.asarray(leaf, jnp.float32) for path, leaf in leaf_paths(tree).items()}
        pattern = self._adamw_paths
        learned_paths = {
            path
            for path, leaf in leaf_paths(params).items()
            if jnp.ndim(leaf) > 1 and not (pattern is not None and pattern.search(path))
        }
        matrices = {path: leaf for path, leaf in leaves.items() if path in learned_paths}
        return matrices, {path: leaf for path, leaf in leaves.items() if path not in learned_paths}

    def _step(self, theta: Theta, first_layer: jax.Array, features: jax.Array) -> jax.Array:
        """Returns a matrix's step, before the learning rate.

        Args:
          features: float32[channels, ...], normalised.
        """
        hidden = jax.nn.relu(jnp.einsum("c...,cu->...u", features, first_layer) + theta["b0"])
        hidden = jax.nn.relu(hidden @ theta["dense_w.0"] + theta["dense_b.0"])
        outputs = hidden @ theta["dense_w.1"] + theta["dense_b.1"]
        step = outputs[..., 0] * jnp.exp(outputs[..., 1] * self.exp_mult)
        return _normalised(_nearest_orthogonal(step) if self.orthogonalize else step)


@configurable
@dataclass(eq=False, repr=False)
class EloCelo2(Celo2):
    """Celo2 with the settings of ELO_CELO2, which was meta-trained together with an expert.

    Args:
      learning_rate, weight_decay, orthogonalize, exp_mult, max_norm, adamw_paths: As in Celo2.
    Source: PyLO (github.com/Belilovsky-Lab/pylo), ELO_CELO2.
    """

    weight_decay: float = 0.1
    max_norm: float | None = 1.0


def clip_by_total_norm(grads: PyTree, max_norm: float | None) -> PyTree:
    """Returns gradients scaled down so that the norm of all tensors together is at most `max_norm`."""
    if max_norm is None:
        return grads
    norm = jnp.sqrt(sum((jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(grads)), jnp.float32(0)))
    return jax.tree.map(lambda leaf: leaf * (max_norm / jnp.maximum(norm, max_norm)), grads)


def _features(
    grad: jax.Array,
    param: jax.Array,
    momenta: jax.Array,
    second_moments: jax.Array,
    factor_scales: tuple[jax.Array, jax.Array],
    factors: tuple[jax.Array, ...],
) -> jax.Array:
    """Returns the normalized features of a tensor, float32[30, ...]."""
    grad_row = grad[None]
    inverse_roots = jax.lax.rsqrt(second_moments + 1e-8)
    scale_product = factor_scales[0] * factor_scales[1]
    broadcast_factors = [
        jnp.broadcast_to(factor, momenta.shape)
        for factor in (*factors, *(jax.lax.rsqrt(factor_of_axis + 1e-8) for factor_of_axis in factors))
    ]
    full_shape_features = [
        grad_row,
        jnp.clip(grad_row, -0.1, 0.1),
        param[None],
        momenta,
        second_moments,
        momenta * inverse_roots,
        inverse_roots,
        grad_row * scale_product,
        grad_row * inverse_roots,
    ]
    return _normalised(jnp.concatenate([*full_shape_features, *broadcast_factors, momenta * scale_product]))


def _normalised(x: jax.Array) -> jax.Array:
    """Divides by the root mean square of the last two axes."""
    return x * jax.lax.rsqrt(_EPSILON + jnp.mean(x * x, axis=(-2, -1), keepdims=True))


def _nearest_orthogonal(x: jax.Array, iterations: int = 5) -> jax.Array:
    """Returns an approximation of the orthogonal matrix nearest to the last two axes."""
    is_tall = x.shape[-2] > x.shape[-1]
    x = jnp.swapaxes(x, -2, -1) if is_tall else x
    x = x / (jnp.linalg.norm(x, axis=(-2, -1), keepdims=True) + 1e-8)
    a, b, c = _NEWTON_SCHULZ
    for _ in range(iterations):
        square = x @ jnp.swapaxes(x, -2, -1)
        x = a * x + (b * square + c * (square @ square)) @ x
    return jnp.swapaxes(x, -2, -1) if is_tall else x
