"""PSI-SGD: steps that are independent of the scale of scale-invariant weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizers.neurons import neuron_dot, neuron_optimizer
from lobench.inner.schedules.schedule import Rate, rate_at

__all__ = ["psi_sgd"]

_MAX_EXPONENT = 16  # exponent of a norm, up and down, before it is brought back to 1
_BIAS, _MANTISSA = 127, 23  # in the bits of a float32


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class _ScaledUpdate:
    """An update u with an exponent k per neuron: `params + update` is exactly (params + u) 2^k.

    An array could not represent it, because (params + u) 2^k - params would be rounded. A zero update changes nothing.
    """

    step: jax.Array
    exponent: jax.Array  # int32

    __array_ufunc__ = None  # so that numpy uses our `__radd__`

    def __radd__(self, params: jax.Array) -> jax.Array:
        new_params = params + self.step.astype(jnp.result_type(params))
        return (new_params * _power_of_two(self.exponent)).astype(new_params.dtype)


def _power_of_two(exponent: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type((exponent + _BIAS) << _MANTISSA, jnp.float32)


def _rescaling_exponent(norm_square: jax.Array) -> jax.Array:
    """Returns the exponent, int32, of the power of two that scales a norm to 1/2 .. 2; 0 if it is in range."""
    square_exponent = (jax.lax.bitcast_convert_type(norm_square, jnp.int32) >> _MANTISSA) - _BIAS
    norm_exponent = square_exponent >> 1
    is_outside = (jnp.abs(norm_exponent) > _MAX_EXPONENT) & (norm_square > 0) & jnp.isfinite(norm_square)
    return jnp.where(is_outside, -norm_exponent, 0)


@configurable
def psi_sgd(
    learning_rate: Rate = 0.1, momentum: Rate = 0.0, rest: Any = None, protect: bool = True
) -> optax.GradientTransformationExtraArgs:
    """PSI-SGD: SGD whose steps do not depend on the scale of a neuron's weights if the loss does not.

    u <- momentum u - learning_rate |w|^2 grad, w <- w + u, for the weights w of each neuron. Initial weights times 8
    give bitwise equal losses if the network's arithmetic allows it: batch norm without epsilon. The gradient is
    orthogonal to w, so norms grow; `protect` avoids overflow. The task declares the weights (`Task.scale_invariant`).

    Args:
      learning_rate: Learning rate.
      momentum: Decay of heavy-ball momentum. 0: no momentum.
      rest: Optimizer of all other parameters. None: SGD with the same rate and momentum.
      protect: Whether w and u of a neuron are multiplied by a power of two if the norm is above 2^16 or below 2^-16.
        This changes no bit of the losses. Running statistics of batch norm follow in a few steps, as after any step.
    Source: Yi 2022, "Accelerating training of batch normalization: a manifold perspective", arXiv 2101.02916.
    """

    def step_leaf(
        grad: jax.Array, weights: jax.Array, momentum_before: jax.Array, axis: int, count: jax.Array
    ) -> tuple[Any, jax.Array]:
        step = momentum * momentum_before - rate_at(learning_rate, count) * neuron_dot(weights, weights, axis) * grad
        new_weights = weights + step
        scale_exponent = jnp.where(protect, _rescaling_exponent(neuron_dot(new_weights, new_weights, axis)), 0)
        return _ScaledUpdate(step, scale_exponent), step * _power_of_two(scale_exponent)

    rest = optax.sgd(learning_rate, momentum) if rest is None else rest
    return neuron_optimizer("psi_sgd", lambda leaf, axis: jnp.zeros(leaf.shape, jnp.float32), step_leaf, rest)
