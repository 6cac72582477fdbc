"""Defaults of settings that can be arguments of a program without a change of its bits.

A bound setting is an argument if the program can be traced with it. Defaults used to be constants, and stored results
have the bits of those programs. Python computes with a constant in double precision (`1 - b2`), and XLA
simplifies some operations with constants (`x / c` is `x * (1 / c)`). Therefore a default is an argument only if the
program combines it with values of the training alone, by operations that give the same bits with a constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

__all__ = ["exact_arguments"]

# Primitives that pass a value on, in another shape or with the other sign.
_PASSING_OPS = frozenset(
    {"broadcast_in_dim", "convert_element_type", "copy", "copy_p", "neg", "reshape", "squeeze", "stop_gradient"}
)
# XLA joins the constants of two of them: `(x * a) * b` is `x * (a * b)`.
_JOINABLE_OPS = frozenset({"add", "sub", "mul"})
_EXACT_OPS = _JOINABLE_OPS | {"max", "min", "lt", "le", "gt", "ge", "eq", "ne", "select_n"}


@dataclass(frozen=True, slots=True)
class _Value:
    """An intermediate value of a program.

    Attributes:
      settings: Positions of the settings that it equals, up to the sign.
      is_computed: Whether it is computed while the program runs; otherwise it is a constant or a setting.
      may_be_joined: Whether it is the result of an operation with a constant or a setting, which XLA may join with the
        next one.
      joined_settings: Settings of that operation.
    """

    settings: frozenset[int] = frozenset()
    is_computed: bool = False
    may_be_joined: bool = False
    joined_settings: frozenset[int] = frozenset()


_CONSTANT = _Value()
_COMPUTED = _Value(is_computed=True)


@dataclass(slots=True)
class _Walk:
    """Follows settings through a program.

    Attributes:
      refused_settings: Settings that are used in a way that could change bits.
      operations: Number of operations that run, by name and types of the results.
    """

    refused_settings: set[int] = field(default_factory=set)
    operations: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def follow_program(self, jaxpr: Jaxpr, values: Sequence[_Value]) -> list[_Value]:
        env: dict[Any, _Value] = dict(zip(jaxpr.invars, values, strict=True))

        def value_of(atom: Any) -> _Value:
            return _CONSTANT if isinstance(atom, Literal) else env.get(atom, _CONSTANT)

        for equation in jaxpr.eqns:
            results = self._follow_equation(equation, [value_of(atom) for atom in equation.invars])
            env.update(zip(equation.outvars, results, strict=True))
        return [value_of(atom) for atom in jaxpr.outvars]

    def _follow_equation(self, equation: Any, inputs: list[_Value]) -> list[_Value]:
        name = equation.primitive.name
        num_outputs = len(equation.outvars)
        settings = _settings_of(inputs)
        is_computed = any(value.is_computed for value in inputs)
        if any(True for _ in _inner_programs(equation.params)):
            return self._follow_call(equation, inputs)
        if not is_computed and (name in _PASSING_OPS or (name == "mul" and _is_by_one(equation))):
            if equation.outvars[0].aval.dtype != jnp.float32:
                self.refused_settings |= settings
            return [_Value(settings)]
        if not is_computed:
            self.refused_settings |= settings  # Python may have computed it in double precision
            return [_CONSTANT] * num_outputs
        self.operations[name, *(str(output.aval) for output in equation.outvars)] += 1
        if name in _PASSING_OPS:
            return [inputs[0]]
        if name not in _EXACT_OPS:
            self.refused_settings |= settings
        if name not in _JOINABLE_OPS | {"div"} or all(value.is_computed for value in inputs):
            return [_COMPUTED] * num_outputs
        computed_value = next(value for value in inputs if value.is_computed)
        if computed_value.may_be_joined and (settings or computed_value.joined_settings):
            self.refused_settings |= settings | computed_value.joined_settings
        return [_Value(is_computed=True, may_be_joined=True, joined_settings=settings)]

    def _follow_call(self, equation: Any, inputs: list[_Value]) -> list[_Value]:
        """Follows settings into the programs of a call, a branch or a loop."""
        name = equation.primitive.name
        params = equation.params
        num_outputs = len(equation.outvars)
        results = [_COMPUTED] * num_outputs
        called_programs: list[tuple[Jaxpr, list[_Value]]] = []
        if name == "while":
            num_test_constants = params["cond_nconsts"]
            num_constants = num_test_constants + params["body_nconsts"]
            carry = [_COMPUTED] * (len(inputs) - num_constants)
            self.refused_settings |= _settings_of(inputs[num_constants:])
            called_programs += [(params["cond_jaxpr"].jaxpr, [*inputs[:num_test_constants], *carry])]
            called_programs += [(params["body_jaxpr"].jaxpr, [*inputs[num_test_constants:num_constants], *carry])]
        elif name == "scan":
            num_constants = params["num_consts"]
            self.refused_settings |= _settings_of(inputs[num_constants:])
            called_programs += [
                (params["jaxpr"].jaxpr, [*inputs[:num_constants], *[_COMPUTED] * (len(inputs) - num_constants)])
            ]
        elif name == "cond":
            self.refused_settings |= _settings_of(inputs[:1])
            called_programs += [(branch.jaxpr, inputs[1:]) for branch in params["branches"]]
        else:
            programs = list(_inner_programs(params))
            if len(programs) == 1 and len(programs[0].invars) == len(inputs):
                results_of_program = self.follow_program(programs[0], inputs)
                return results_of_program if len(results_of_program) == num_outputs else results
            self.refused_settings |= _settings_of(inputs)
            called_programs += [(program, [_COMPUTED] * len(program.invars)) for program in programs]
        for program, values in called_programs:
            self.refused_settings |= _settings_of(
                self.follow_program(program, values)
            )  # results of a loop are not followed
        return results


def exact_arguments(
    with_constants: jax.stages.Traced,
    with_arguments: jax.stages.Traced,
    num_before: int,
    argument_positions: Sequence[int],
    defaults: frozenset[int],
) -> frozenset[int]:
    """Returns the defaults that can be arguments of a program without a change of bits.

    Args:
      with_constants: Program in which defaults are constants.
      with_arguments: Program in which they are arguments.
      num_before: Number of its inputs before the settings' arguments.
      argument_positions: Position of the setting of each of these arguments.
      defaults: Positions of settings that are constants of the first program. The others are arguments of both.
    """
    walks = []
    for traced_program in (with_constants, with_arguments):
        program = traced_program.jaxpr.jaxpr
        values = [_COMPUTED] * len(program.invars)
        for index, position in enumerate(argument_positions if traced_program is with_arguments else (), num_before):
            if position in defaults:
                values[index] = _Value(frozenset({position}))
        walk = _Walk()
        walk.refused_settings |= _settings_of(walk.follow_program(program, values))
        walks.append(walk)
    # Python code may depend on the type of a number.
    if walks[0].operations != walks[1].operations:
        return frozenset()
    return defaults - walks[1].refused_settings


def _is_by_one(equation: Any) -> bool:
    """Returns whether an equation multiplies by 1 or -1, which is exact: `optax.scale(-1 * learning_rate)`."""
    factors = [atom.val for atom in equation.invars if isinstance(atom, Literal)]
    return len(factors) == 1 and np.ndim(factors[0]) == 0 and abs(float(factors[0])) == 1.0


def _settings_of(values: Sequence[_Value]) -> frozenset[int]:
    return frozenset[int]().union(*(value.settings for value in values))


def _inner_programs(params: Mapping[str, Any]) -> Iterator[Jaxpr]:
    """Yields the programs among the parameters of an operation."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, Jaxpr):
                yield item
