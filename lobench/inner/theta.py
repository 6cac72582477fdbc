"""Theta between checkpoint and optimizer: flat leaves by path, matched to the structure the optimizer declares."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np

from lobench.core.errors import ThetaMismatch
from lobench.inner.optimizer import LearnedOptimizer, Theta

__all__ = ["leaf_paths", "match_theta"]


def leaf_paths(tree: Theta) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the leaves of a tree by path, components joined by "/": dict keys, indices, attribute names."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {"/".join(_component(key) for key in path): leaf for path, leaf in leaves}


def _component(key: object) -> str:
    for attribute in ("key", "name", "idx"):
        value = getattr(key, attribute, None)
        if value is not None:
            return str(value)
    return str(key)


def match_theta(leaves: Mapping[str, np.ndarray], optimizer: LearnedOptimizer, *, where: str) -> Theta:
    """Gives checkpoint leaves the structure and dtypes of `optimizer.init`.

    Args:
      leaves: numpy arrays by path, as `CheckpointContent.leaves`.
      optimizer: Declares the structure.
      where: Names the checkpoint in errors.
    Raises:
      ThetaMismatch: names each leaf that is missing, unexpected or of another shape or kind.
    """
    template = jax.eval_shape(optimizer.init, jax.random.key(0, impl="threefry2x32"))
    expected = leaf_paths(template)
    problems = [f"{path} is missing, expected {_describe(expected[path])}" for path in expected if path not in leaves]
    problems += [f"{path} {_describe(leaf)} is not expected" for path, leaf in leaves.items() if path not in expected]
    for path, want in expected.items():
        if path in leaves and not _fits(leaves[path], want):
            problems.append(f"{path} is {_describe(leaves[path])}, expected {_describe(want)}")
    if problems:
        shown = "; ".join(problems[:12]) + (f"; and {len(problems) - 12} more" if len(problems) > 12 else "")
        raise ThetaMismatch(
            f"theta does not fit {type(optimizer).__name__}: {shown}",
            where=where,
            next_step="is it a checkpoint of another optimizer? set Case.learned_optimizer",
        )
    arrays = [np.asarray(leaves[path]).astype(want.dtype) for path, want in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(template), arrays)


def _fits(leaf: np.ndarray, want: jax.ShapeDtypeStruct) -> bool:
    # Numbers are cast to the optimizer's own dtype; an integer leaf that would lose a fraction is not a number to cast.
    kinds = "fiub" if np.dtype(want.dtype).kind == "f" else "iub"
    is_bfloat16 = leaf.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
    return tuple(leaf.shape) == tuple(want.shape) and (leaf.dtype.kind in kinds or is_bfloat16)


def _describe(leaf: object) -> str:
    shape, dtype = getattr(leaf, "shape", ()), getattr(leaf, "dtype", "?")
    return f"{np.dtype(dtype).name}[{','.join(map(str, shape))}]"
