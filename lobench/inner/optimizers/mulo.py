"""MuLO: AdafacMLPLOpt in the maximal update parameterization, whose steps fit networks of any width."""

from __future__ import annotations

import re
from typing import Any

import jax
import optax

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, PyTree, Theta
from lobench.inner.optimizers.adafac_mlp_lopt import AdafacMLPLOpt
from lobench.inner.theta import leaf_paths

__all__ = ["MuLO"]


@configurable
class MuLO(AdafacMLPLOpt):
    """AdafacMLPLOpt in muP: steps of hidden matrices shrink with the width of the network.

    A step of a matrix [..., inputs, outputs] between hidden layers is multiplied by `base_width / inputs`. Steps of
    input and output layers, biases and norms are not changed. Initial parameters, and a factor on the output layer,
    belong to the task.

    Args:
      hidden: Pattern of `re` for the paths of matrices between hidden layers, both of whose sizes grow with the width:
        "w[12]". "": no matrix.
      base_width: Number of inputs of a matrix whose step is not changed.
      step_mult, exp_mult, hidden_size: As in AdafacMLPLOpt.
    Raises:
      ConfigError: No matrix matches the pattern.
    Source: Therien et al. 2024 (arXiv 2406.00153).
    """

    def __init__(
        self,
        hidden: str = "",
        base_width: int = 128,
        step_mult: float = 0.01,
        exp_mult: float = 0.001,
        hidden_size: int = 32,
    ) -> None:
        super().__init__(step_mult, exp_mult, hidden_size)
        try:
            self._hidden_pattern = re.compile(hidden) if hidden else None
        except re.error as error:
            got = f"{hidden!r}: {error}"
            raise ConfigError("MuLO.hidden is not a regular expression", got=got, expected="of re") from None
        if base_width < 1:
            raise ConfigError("MuLO.base_width", got=str(base_width), expected="a number of inputs, 1 or more")
        self._base_width = base_width

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        optimizer = super().opt_fn(theta, num_steps)

        def update(grads: PyTree, state: PyTree, params: PyTree = None, **extra: Any) -> tuple[PyTree, PyTree]:
            updates, state = optimizer.update(grads, state, params)
            factors = jax.tree.unflatten(jax.tree.structure(updates), self._step_factors(params))
            return jax.tree.map(lambda leaf, factor: leaf * factor, updates, factors), state

        return optax.GradientTransformationExtraArgs(optimizer.init, update)

    def _step_factors(self, params: PyTree) -> list[float]:
        """Returns the factor of each leaf's step."""
        shapes = {path: leaf.shape for path, leaf in leaf_paths(params).items()}
        if self._hidden_pattern is None:
            return [1.0] * len(shapes)
        hidden_paths = {path for path, shape in shapes.items() if len(shape) > 1 and self._hidden_pattern.search(path)}
        if not hidden_paths:
            matrices = ", ".join(path for path, shape in shapes.items() if len(shape) > 1)
            raise ConfigError(
                "MuLO.hidden names no matrix",
                got=repr(self._hidden_pattern.pattern),
                expected=f"a pattern that one of these has: {matrices}",
            )
        return [self._base_width / shape[-2] if path in hidden_paths else 1.0 for path, shape in shapes.items()]
