"""ELO: AdafacMLPLOpt's features with a wider network, meta-trained together with an expert."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, PyTree, Theta
from lobench.inner.optimizers.adafac_mlp_lopt import AdafacFeatured
from lobench.inner.optimizers.celo2 import clip_by_total_norm
from lobench.inner.optimizers.factored import TensorValues
from lobench.inner.optimizers.features import LayerOutputs
from lobench.inner.schedules.schedule import Rate

__all__ = ["ELO"]

_SHIFTS = {"momentum_decays": 3, "rms_decays": 1, "adafactor_decays": 3}  # sizes of shifts that theta lacks here


@configurable
@dataclass(eq=False, repr=False)
class ELO(AdafacFeatured):
    """ELO: per-parameter MLP optimizer with Adafactor features, without its own schedule.

    Args:
      learning_rate: Learning rate of all tensors.
      weight_decay: Decoupled weight decay, multiplied by the learning rate.
      exp_mult: Scale of the log magnitude.
      max_norm: Largest norm of the gradient of all tensors together. None: no limit.
      hidden_size: Width of both hidden layers.
    Source: PyLO (github.com/Belilovsky-Lab/pylo), ELO.
    """

    learning_rate: Rate = 0.001
    weight_decay: float = 0.0
    exp_mult: float = 0.001
    max_norm: float | None = None
    hidden_size: int = 32

    def init(self, key: jax.Array) -> Theta:
        """Returns a network with scaled normal weights and zero biases."""
        return {"nn": super().init(key)["nn"]}

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        shifts = {name: jnp.zeros(count) for name, count in _SHIFTS.items()}
        optimizer = super().opt_fn({**theta, **shifts}, num_steps)

        def update(grads: PyTree, state: PyTree, params: PyTree = None, **extra: object) -> tuple[PyTree, PyTree]:
            grads = jax.tree.map(jnp.nan_to_num, clip_by_total_norm(grads, self.max_norm))
            return optimizer.update(grads, state, params)

        return optax.GradientTransformationExtraArgs(optimizer.init, update)

    def subtracted_step(self, outputs: LayerOutputs, tensor: TensorValues) -> jax.Array:
        direction, magnitude = outputs
        step = direction * jnp.exp(magnitude * self.exp_mult)
        return self.learning_rate * (step + self.weight_decay * tensor.param)
