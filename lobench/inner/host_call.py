"""Calls from a compiled program to Python.

`jax.pure_callback` passes arrays that jax copies in the background. On a backend with one thread, this thread is busy
with the call, and large arrays never arrive. Here the function receives numpy views of the program's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from lobench.inner.optimizer import PyTree

__all__ = ["host_call", "host_error"]

_LAST_ERROR: list[BaseException] = []  # by the last call that failed


def host_call(function: Callable[..., PyTree], shapes: PyTree, *args: PyTree) -> PyTree:
    """Calls a function of numpy arrays from traced code.

    Args:
      function: Function of trees of arrays, which it must not modify or keep. It returns a tree of arrays of `shapes`.
        Equal arguments must give equal bits, because it may be called again, or not at all if its result is unused.
        Under vmap it is called once per element.
      shapes: Tree of `jax.ShapeDtypeStruct`.
      args: Arguments of the function.
    Raises:
      Exception: Any error of the function, if lobench trains; otherwise jax's error with the same text.

    >>> host_call(lambda x: x + 1, jax.ShapeDtypeStruct((2,), np.float32), jnp.ones(2))
    Array([2., 2.], dtype=float32)
    """
    leaves, tree = jax.tree.flatten(args)
    result_shapes, shape_tree = jax.tree.flatten(shapes)

    def call_with_leaves(*leaves: Any) -> Sequence[np.ndarray]:
        try:
            return jax.tree.leaves(function(*jax.tree.unflatten(tree, [np.asarray(leaf) for leaf in leaves])))
        except BaseException as error:
            _LAST_ERROR[:] = [error]
            raise

    avals = tuple(jax.core.ShapedArray(shape_struct.shape, shape_struct.dtype) for shape_struct in result_shapes)
    return jax.tree.unflatten(shape_tree, _HOST_CALL.bind(*leaves, function=call_with_leaves, avals=avals))


def host_error(error: Exception) -> BaseException:
    """Returns the error of a called function if the program failed because of it; otherwise the program's own error."""
    raised = _LAST_ERROR.pop() if _LAST_ERROR else error
    return raised if type(raised).__name__ in str(error) else error


_HOST_CALL: Any = Primitive("host_call")
_HOST_CALL.multiple_results = True
_HOST_CALL.def_abstract_eval(lambda *args, function, avals: avals)
_HOST_CALL.def_impl(lambda *args, **known: jax.jit(lambda *args: _HOST_CALL.bind(*args, **known))(*args))


def _lowering(ctx: Any, *args: Any, function: Callable[..., Any], avals: Sequence[Any]) -> Any:
    results, _, _ = mlir.emit_python_callback(
        ctx, function, None, list(args), ctx.avals_in, ctx.avals_out, has_side_effect=False, returns_token=False
    )
    return results


def _batch_one_by_one(args: Sequence[Any], axes: Sequence[int | None], **parameters: Any) -> tuple[Any, Sequence[int]]:
    batched = [jax.numpy.moveaxis(arg, axis, 0) for arg, axis in zip(args, axes, strict=True) if axis is not None]

    def call_with_slices(slices: Sequence[Any]) -> Any:
        batched_args = iter(slices)
        return _HOST_CALL.bind(
            *(arg if axis is None else next(batched_args) for arg, axis in zip(args, axes, strict=True)), **parameters
        )

    results = jax.lax.map(call_with_slices, batched)
    return results, [0] * len(results)


mlir.register_lowering(_HOST_CALL, _lowering, cacheable=False)
batching.primitive_batchers[_HOST_CALL] = _batch_one_by_one
