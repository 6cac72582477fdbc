"""Axis contractions and decompositions shared by preconditioners of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lobench.inner.optimizer import PyTree

__all__ = [
    "eigh",
    "gram",
    "gram_diagonal",
    "map_leaves",
    "multiply_axis",
    "orthogonal_factor",
    "reshape_to_axis",
    "solve_upper_transposed",
]


def gram(tensor: jax.Array, axis: int) -> jax.Array:
    """Returns a tensor times itself over all axes but one, float[d, d]: `G G^T` of a matrix's axis 0."""
    other_axes = _other_axes(tensor, axis)
    return jnp.tensordot(tensor, tensor, (other_axes, other_axes))


def gram_diagonal(tensor: jax.Array, axis: int) -> jax.Array:
    """Returns the diagonal of `gram`, float[d]."""
    return jnp.square(tensor).sum(_other_axes(tensor, axis))


def multiply_axis(tensor: jax.Array, matrix: jax.Array, axis: int) -> jax.Array:
    """Returns a tensor with one axis multiplied by a matrix: `M G` for a matrix's axis 0, `G M^T` for its axis 1."""
    return jnp.moveaxis(jnp.tensordot(matrix, tensor, (1, axis)), 0, axis)


def reshape_to_axis(vector: jax.Array, tensor: jax.Array, axis: int) -> jax.Array:
    """Reshapes a vector so that multiplying a tensor by it scales the entries along one axis."""
    return vector.reshape([-1 if tensor_axis == axis else 1 for tensor_axis in range(tensor.ndim)])


def _other_axes(tensor: jax.Array, axis: int) -> tuple[int, ...]:
    return tuple(tensor_axis for tensor_axis in range(tensor.ndim) if tensor_axis != axis)


def map_leaves(function: Callable[..., tuple[PyTree, ...]], tree: PyTree, *other_trees: PyTree) -> tuple[PyTree, ...]:
    """Calls a function with each leaf of a tree and the matching subtrees of others; returns one tree per result.

    Args:
      function: Function of (leaf, *subtrees) that returns a tuple of fixed length.
      tree: Tree whose leaves are passed.
      other_trees: Trees with subtrees at the positions of the leaves.
    """
    leaves = jax.tree.leaves(tree)
    structure: Any = jax.tree.structure(tree)
    rows = zip(leaves, *(structure.flatten_up_to(subtree) for subtree in other_trees), strict=True)
    return tuple(structure.unflatten(column) for column in zip(*(function(*row) for row in rows), strict=True))


@jax.custom_batching.sequential_vmap  # type: ignore[untyped-decorator]  # of jax
def eigh(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns eigenvalues, ascending, and eigenvectors of a symmetric matrix.

    This function and the two below process vmapped matrices one after another. jax would distribute several to the
    threads of XLA's pool. If two CPU devices compute parts of the replicas, all threads would then wait for each other.
    """
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


@jax.custom_batching.sequential_vmap  # type: ignore[untyped-decorator]  # of jax
def orthogonal_factor(matrix: jax.Array) -> jax.Array:
    """Returns the Q of a matrix's QR decomposition."""
    return jnp.linalg.qr(matrix)[0]


@jax.custom_batching.sequential_vmap  # type: ignore[untyped-decorator]  # of jax
def solve_upper_transposed(upper: jax.Array, rows: jax.Array) -> jax.Array:
    """Returns U^-T times a matrix."""
    return jax.scipy.linalg.solve_triangular(upper, rows, trans="T")
