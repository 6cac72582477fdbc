"""MLPNomLOpt: AdafacMLPLOpt's network added to a nominal step, such as Adam's, and weight decay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizers.adafac_mlp_lopt import AdafacFeatured
from lobench.inner.optimizers.factored import TensorValues
from lobench.inner.optimizers.features import LayerOutputs, feature_layout

__all__ = ["MLPNomLOpt"]

Estimator = Literal["SGD", "SGDM", "AggMo", "Adam", "AdamAggMo"]


@configurable
@dataclass(eq=False, repr=False)
class MLPNomLOpt(AdafacFeatured):
    """Learned optimizer added to a nominal one: parameters step by the sum of both.

    Args:
      exp_mult: Scales of the log magnitudes of the learned step, of the nominal step and of the weight decay.
      step_mult: Scale of the learned step.
      hidden_size: Width of both hidden layers.
      nominal_stepsize, weight_decay: Rates of the nominal step and of the weight decay.
      nominal_controller, regularization_controller: Whether the network scales the nominal step, and the weight decay.
      nominal_grad_estimator: Direction of the nominal step: "SGD" the gradient, "SGDM" the slowest momentum, "AggMo"
        the mean of the momenta, "Adam" and "AdamAggMo" the same divided by the root of the second moment.
      aggregate_magnitude, aggregate_nom_magnitude: Whether an output is averaged over the parameters of a tensor.
      normalize_blackbox: Whether the learned step is divided by the root of the second moment.
      selfnormalize_blackbox: Whether the learned step is multiplied by the mean absolute gradient of the tensor.
    Source: Harrison et al. 2022 (arXiv 2209.11208).
    """

    num_outputs = 4  # direction, magnitude, and the controls of the nominal step and of the weight decay

    exp_mult: Sequence[float] = (0.001, 0.001, 0.001)
    step_mult: float = 0.001
    hidden_size: int = 4
    nominal_stepsize: float = 0.0
    weight_decay: float = 0.0
    nominal_controller: bool = False
    regularization_controller: bool = False
    nominal_grad_estimator: Estimator = "AdamAggMo"
    aggregate_magnitude: bool = False
    aggregate_nom_magnitude: bool = False
    normalize_blackbox: bool = False
    selfnormalize_blackbox: bool = False

    def __post_init__(self) -> None:
        if self.nominal_grad_estimator not in _ESTIMATORS:
            raise ConfigError(
                "MLPNomLOpt.nominal_grad_estimator is unknown",
                got=repr(self.nominal_grad_estimator),
                expected=", ".join(_ESTIMATORS),
            )

    def feature_layout(self, leaf: jax.Array) -> jax.Array:
        return feature_layout(leaf).astype(jnp.float32)

    def subtracted_step(self, outputs: LayerOutputs, tensor: TensorValues) -> jax.Array:
        grad, param, momenta, second_moments, *_ = tensor
        direction, magnitude, nominal, decay = outputs
        if self.aggregate_magnitude:
            magnitude = jnp.mean(magnitude)
        step = direction * jnp.exp(magnitude * self.exp_mult[0]) * self.step_mult
        if self.normalize_blackbox:
            step = step * jax.lax.rsqrt(second_moments[0] + 1e-6)
        if self.selfnormalize_blackbox:
            step = step * jnp.mean(grad)
        if self.weight_decay:
            scale = jnp.exp(decay * self.exp_mult[2]) if self.regularization_controller else 1.0
            step = step + self.weight_decay * scale * param
        if self.nominal_stepsize:
            if not self.nominal_controller:
                nominal = jnp.ones(())
            elif self.aggregate_nom_magnitude:
                nominal = jnp.mean(nominal)
            nominal_direction = _ESTIMATORS[self.nominal_grad_estimator](grad, momenta, second_moments)
            step = step + self.nominal_stepsize * jnp.exp(nominal * self.exp_mult[1]) * nominal_direction
        return step


_ESTIMATORS: dict[str, Callable[[jax.Array, jax.Array, jax.Array], jax.Array]] = {
    "SGD": lambda grad, m, r: grad,
    "SGDM": lambda grad, m, r: m[-1],
    "AggMo": lambda grad, m, r: jnp.mean(m, axis=0),
    "Adam": lambda grad, m, r: (m * jax.lax.rsqrt(r + 1e-6))[-1],
    "AdamAggMo": lambda grad, m, r: jnp.mean(m * jax.lax.rsqrt(r + 1e-6), axis=0),
}
