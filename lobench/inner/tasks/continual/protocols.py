"""Batch-norm protocols between the tasks of a stream, and the statistics for evaluation."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lobench.inner.tasks.networks import Params

__all__ = ["OWN", "PROTOCOLS", "fresh", "norm_leaves", "with_norm_leaves"]

PROTOCOLS = ("none", "global", "separate", "new", "frozen", "continual")
OWN = ("separate", "new", "frozen")  # protocols that evaluate each task with its own batch norm

_OF_PARAMS, _OF_STATE = ("scale", "shift"), ("mean", "variance")


def norm_leaves(params: Params, network: Params) -> Params:
    """Returns the leaves of batch norm: scales and shifts from the parameters, and all of the model state."""
    layers = [name.removeprefix("mean") for name in network if name.startswith("mean")]
    of_params = {f"{part}{layer}": params[f"{part}{layer}"] for layer in layers for part in _OF_PARAMS}
    return of_params | {f"{part}{layer}": network[f"{part}{layer}"] for layer in layers for part in _OF_STATE}


def with_norm_leaves(params: Params, network: Params, leaves: Params) -> tuple[Params, Params]:
    """Returns parameters and model state with the given leaves of batch norm."""
    return (
        {name: leaves.get(name, leaf) for name, leaf in params.items()},
        {name: leaves.get(name, leaf) for name, leaf in network.items()},
    )


def fresh(leaves: Params) -> Params:
    """Returns initial batch norm: scale and variance 1, shift and mean 0."""

    def of(name: str, leaf: jax.Array) -> jax.Array:
        return jnp.ones_like(leaf) if name.startswith(("scale", "variance")) else jnp.zeros_like(leaf)

    return {name: of(name, leaf) for name, leaf in leaves.items()}
