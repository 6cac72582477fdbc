"""L2O-DM: a coordinate-wise LSTM on the gradient's logarithm and sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, PyTree, Theta
from lobench.inner.optimizers.lstm import (
    LSTMState,
    init_lstm,
    initial_columns,
    initial_state,
    two_layers,
    two_layers_of_columns,
)

__all__ = ["L2ODM"]

_K = 5.0
_EPSILON = np.finfo(np.float32).eps
_LAYOUTS = {"rows": (initial_state, two_layers), "columns": (initial_columns, two_layers_of_columns)}


@configurable
@dataclass(eq=False, repr=False)
class L2ODM(LearnedOptimizer):
    """LSTM optimizer of "Learning to learn by gradient descent by gradient descent".

    Args:
      step_mult: Factor of the network's output.
      layout: "rows" has one coordinate per row of each product, and rounds as the authors' code does. "columns" has one
        coordinate per column and is nearly twice as fast. Both compute the same function up to rounding, so chaotic
        trainings differ. In a store, the two are different optimizers.
    Source: Andrychowicz et al. 2016 (arXiv 1606.04474).
    """

    step_mult: float = 0.01
    layout: str = "rows"

    def __post_init__(self) -> None:
        if self.layout not in _LAYOUTS:
            raise ConfigError("L2ODM.layout", got=repr(self.layout), expected=" or ".join(map(repr, _LAYOUTS)))

    def init(self, key: jax.Array) -> Theta:
        return init_lstm(key, 2)

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        initial, layers = _LAYOUTS[self.layout]

        # All coordinates are one vector, for one matrix product per layer.
        def init(params: PyTree) -> LSTMState:
            return initial(sum(jnp.size(leaf) for leaf in jax.tree.leaves(params)))

        def update(grads: PyTree, state: LSTMState, params: PyTree = None, **extra: Any) -> tuple[PyTree, LSTMState]:
            grad, unravel = ravel_pytree(grads)
            log = jnp.maximum(jnp.log(jnp.abs(grad) + _EPSILON) / _K, -1.0)
            sign = jnp.clip(grad * np.float32(np.exp(_K)), -1.0, 1.0)
            output, state = layers(theta, [log, sign], state)
            return unravel(self.step_mult * output), state

        return optax.GradientTransformationExtraArgs(init, update)
