"""Inputs of a learned rule's networks, found in the traced program.

An input is an array that is multiplied with a leaf of theta or a part of it, and does not itself depend on such a
product. These are the inputs of the first layer and the state of a recurrent layer, not the inputs of deeper layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

from lobench.inner.optimizer import PyTree, Theta
from lobench.inner.theta import leaf_paths

__all__ = ["Ranges", "rule_inputs"]

# Lowest and highest value of each input, float32[num_inputs], by leaf of theta, such as `w0[8]` for 8 inputs.
Ranges: TypeAlias = dict[str, tuple[jax.Array, jax.Array]]

_MOVE_PRIMITIVES = (
    "slice", "dynamic_slice", "squeeze", "reshape", "transpose", "broadcast_in_dim", "convert_element_type", "copy",
    "gather", "expand_dims", "rev",
)  # fmt: skip
_CALL_PARAMETERS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_LOOP_PRIMITIVES = ("scan", "while", "cond")


def rule_inputs(rule: Callable[[Theta], PyTree], theta: Theta) -> Ranges:
    """Computes a rule again, and returns the range of each input of its networks. May be traced.

    Args:
      rule: Update rule, as a function of theta only.
      theta: Theta of the rule.
    """
    leaves, structure = jax.tree.flatten(theta)
    program = jax.make_jaxpr(lambda *leaves: rule(jax.tree.unflatten(structure, leaves)))(*leaves)
    reader = _Reader()
    reader.read(program.jaxpr, program.consts, leaves, [False] * len(program.consts), [*leaf_paths(theta)])
    return reader.ranges


class _Reader:
    """Evaluates a program equation by equation, and records products with theta."""

    def __init__(self) -> None:
        self.ranges: Ranges = {}

    def read(
        self, program: Any, consts: Any, values: Any, const_marks: list[Any], marks: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Returns the results and their marks: the name of a leaf of theta, True after a product with one, or False."""
        values_by_variable: dict[Any, Any] = dict(
            zip([*program.constvars, *program.invars], [*consts, *values], strict=True)
        )
        marks_by_variable: dict[Any, Any] = dict(
            zip([*program.constvars, *program.invars], [*const_marks, *marks], strict=True)
        )

        def value_of(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values_by_variable[atom]

        def mark_of(atom: Any) -> Any:
            return False if isinstance(atom, Literal) else marks_by_variable[atom]

        for equation in program.eqns:
            inputs = [value_of(atom) for atom in equation.invars]
            input_marks = [mark_of(atom) for atom in equation.invars]
            results, result_marks = self._evaluate(equation, inputs, input_marks)
            values_by_variable.update(zip(equation.outvars, results, strict=True))
            marks_by_variable.update(zip(equation.outvars, result_marks, strict=True))
        return [value_of(atom) for atom in program.outvars], [mark_of(atom) for atom in program.outvars]

    def _evaluate(self, equation: Any, inputs: list[Any], marks: list[Any]) -> tuple[list[Any], list[Any]]:
        name = equation.primitive.name
        inner_program = _inner_program(equation)
        if (
            inner_program is not None
            and name not in _LOOP_PRIMITIVES
            and len(inner_program.jaxpr.invars) == len(inputs)
        ):
            return self.read(
                inner_program.jaxpr, inner_program.consts, inputs, [False] * len(inner_program.consts), marks
            )
        bind_params = equation.primitive.get_bind_params(equation.params)
        # A tuple in older versions of jax.
        functions, parameters = bind_params if isinstance(bind_params, tuple) else ((), bind_params)
        results = equation.primitive.bind(*functions, *inputs, **parameters)
        results = results if equation.primitive.multiple_results else [results]
        return results, [self._result_mark(equation, name, inputs, marks)] * len(results)

    def _result_mark(self, equation: Any, name: str, inputs: list[Any], marks: list[Any]) -> Any:
        theta_marks = [mark for mark in marks if isinstance(mark, str)]
        if name in ("dot_general", "mul") and len(theta_marks) == 1 and len(inputs) == 2:
            input_index = next(index for index, mark in enumerate(marks) if mark is False or mark is True)
            if (
                marks[input_index] is False
                and jnp.ndim(inputs[input_index])
                and jnp.issubdtype(inputs[input_index].dtype, jnp.floating)
            ):
                axes = equation.params["dimension_numbers"][0][input_index] if name == "dot_general" else ()
                self._record_range(theta_marks[0], inputs[input_index], axes)
            return True
        if name in _MOVE_PRIMITIVES and theta_marks:
            return marks[0] if isinstance(marks[0], str) else True
        return any(mark is True for mark in marks) or (name in _LOOP_PRIMITIVES and bool(theta_marks))

    def _record_range(self, leaf: str, values: jax.Array, axes: Any) -> None:
        """Records an array that is multiplied with a leaf. Each position along a contracted axis is one input."""
        rows = jnp.moveaxis(values, axes[0], 0) if len(axes) == 1 else values[None]
        rows = rows.reshape(rows.shape[0], -1).astype(jnp.float32)
        name = f"{leaf}[{rows.shape[0]}]"
        low = rows.min(axis=1)
        high = rows.max(axis=1)
        if name in self.ranges:
            low = jnp.minimum(low, self.ranges[name][0])
            high = jnp.maximum(high, self.ranges[name][1])
        self.ranges[name] = low, high


def _inner_program(equation: Any) -> Any:
    """Returns the program that an equation calls; None if it calls no program."""
    for name in _CALL_PARAMETERS:
        program = equation.params.get(name)
        if program is not None:
            return program if hasattr(program, "consts") else ClosedJaxpr(program, ())
    return None
