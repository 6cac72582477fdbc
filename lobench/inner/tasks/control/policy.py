"""Actor and critic networks, with shared or separate layers, and optional memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lobench.inner.optimizer import PyTree
from lobench.inner.tasks.control.spaces import Actions, Box
from lobench.inner.tasks.networks import ACTIVATIONS, dense_init, init_gain, layers_init, through_layers
from lobench.inner.tasks.recurrent import cell_init, cell_update, zero_cell

__all__ = ["Policy"]


class Policy:
    """An actor's action distribution and a critic's value of observations.

    `actor` and `critic`, or the shared `trunk`, each have their layers as parameters and, with a cell, `NAME_cell`. The
    other parameters are the linear heads `policy` and `value`, and `log_std` for a Box.

    Args:
      actions: Action space.
      observation_size: Number of elements of an observation.
      hidden_sizes: Widths of the layers. The cell has the width of the last one.
      activation: Activation after every layer, one of ACTIVATIONS.
      shares_trunk: Whether actor and critic share their layers and their cell.
      cell: "gru", "lstm" or None.
    """

    def __init__(
        self,
        actions: Actions,
        observation_size: int,
        *,
        hidden_sizes: tuple[int, ...],
        activation: str,
        shares_trunk: bool,
        cell: str | None,
    ) -> None:
        self._actions = actions
        self._observation_size = observation_size
        self._hidden_sizes = hidden_sizes
        self._activation, self._gain, self._cell = ACTIVATIONS[activation], init_gain(activation), cell
        self._network_names = ("trunk",) if shares_trunk else ("actor", "critic")
        self._width = hidden_sizes[-1] if hidden_sizes else observation_size

    def init(self, key: jax.Array) -> PyTree:
        """Returns initial parameters, with nearly uniform actions and values near 0."""
        params: dict[str, Any] = {}
        for index, name in enumerate(self._network_names):
            body_key, in_key, state_key = jax.random.split(jax.random.fold_in(key, index), 3)
            # All layers are hidden layers, followed by an activation.
            layers = layers_init(body_key, (self._observation_size, *self._hidden_sizes, 1), self._gain)
            last_layer = len(self._hidden_sizes)
            params[name] = {leaf: layers[leaf] for leaf in layers if leaf not in (f"w{last_layer}", f"b{last_layer}")}
            if self._cell is not None:
                keys = (in_key, state_key)
                params[f"{name}_cell"] = cell_init(keys, self._width, self._width, cell=self._cell)
        policy_key, value_key = jax.random.split(jax.random.fold_in(key, 2))
        num_outputs = self._actions.num_outputs
        params["policy"] = {
            "w": dense_init(policy_key, self._width, num_outputs, gain=1e-4),
            "b": jnp.zeros(num_outputs, jnp.float32),
        }
        params["value"] = {"w": dense_init(value_key, self._width, 1), "b": jnp.zeros(1, jnp.float32)}
        if isinstance(self._actions, Box):
            params["log_std"] = jnp.full(num_outputs, -0.5, jnp.float32)
        return params

    def memory(self, batch: int) -> PyTree:
        """Returns the initial memory of the policy, leaves [batch, width]; () without a cell."""
        if self._cell is None:
            return ()
        return tuple(zero_cell(batch, self._width, cell=self._cell) for _ in self._network_names)

    def apply(
        self, params: PyTree, memory: PyTree, observations: jax.Array, starts: jax.Array
    ) -> tuple[PyTree, jax.Array, jax.Array]:
        """Applies the networks to one observation in each of a batch of episodes.

        Args:
          params: Parameters of the policy.
          memory: Memory before the observations.
          observations: float32[batch, observation_size].
          starts: bool[batch], whether the observation is the first of its episode, which resets the memory.
        Returns:
          The new memory, the actor's output float32[batch, ...], and the critic's values float32[batch].
        """
        features, new_memory = [], []
        for index, name in enumerate(self._network_names):
            features_of_body = self._apply_hidden_layers(params[name], observations)
            if self._cell is not None:
                current_memory = jax.tree.map(lambda leaf: jnp.where(starts[:, None], 0.0, leaf), memory[index])
                weights = params[f"{name}_cell"]
                cell = cell_update(self._cell)(
                    current_memory, features_of_body @ weights["w_in"] + weights["b"], weights["w_state"]
                )
                features_of_body = cell[0]
                new_memory.append(cell)
            features.append(features_of_body)
        return tuple(new_memory), *self._heads(params, features)

    def apply_to_sequences(
        self, params: PyTree, memory: PyTree, observations: jax.Array, starts: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Applies the networks to sequences.

        Returns outputs float32[length, batch, ...] and values float32[length, batch].

        Args:
          params: Parameters of the policy.
          memory: Memory before the first observation.
          observations: float32[length, batch, observation_size]; without a cell, with any leading axes.
          starts: bool[length, batch], whether an observation is the first of its episode.
        """
        if self._cell is None:
            return self._heads(
                params, [self._apply_hidden_layers(params[name], observations) for name in self._network_names]
            )

        def step(
            memory: PyTree, observation_and_start: tuple[jax.Array, jax.Array]
        ) -> tuple[PyTree, tuple[jax.Array, jax.Array]]:
            memory, output, values = self.apply(params, memory, *observation_and_start)
            return memory, (output, values)

        return jax.lax.scan(step, memory, (observations, starts))[1]

    def _apply_hidden_layers(self, layers: PyTree, x: jax.Array) -> jax.Array:
        return self._activation(through_layers(layers, x, self._activation)) if layers else x

    def _heads(self, params: PyTree, features: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
        policy_output = features[0] @ params["policy"]["w"] + params["policy"]["b"]
        values = features[-1] @ params["value"]["w"] + params["value"]["b"]
        return self._actions.outputs(policy_output, params.get("log_std")), values[..., 0]
