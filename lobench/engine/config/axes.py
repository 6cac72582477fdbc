"""Axes of a case: `grid/Case.axes = {"width": [8, 32], "horizon": [100, 400]}` defines a case for each combination.

A binding refers to a value as `%width`. Like cases, combinations are found by parsing, without imports.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

from lobench.core.case import AxisPairs, AxisValue, CaseSpec, axis_text
from lobench.core.errors import ConfigError, suggestion
from lobench.engine.config.syntax import Binding, Macro, Statement, gin_text, only_bindings, references_in

__all__ = ["axis_combinations", "axis_macros"]

_MAX_CELLS = 1000
_NAME = re.compile(r"[A-Za-z_]\w*")
_TEXT = re.compile(r"[\w.+]+")
_VALUES = "numbers, texts of letters, digits and `_.+`, True, False, None, or tuples of them"


def axis_combinations(statements: Sequence[Statement], scope: str) -> list[AxisPairs]:
    """Returns the combinations of a case's axes, with the last axis varying fastest; a single empty one without axes.

    Raises:
      ConfigError: The axes are not lists of distinct values by name, or no binding refers to one.
    """
    axes_bindings = [
        binding for binding in only_bindings(statements) if _is_axes(binding) and _encloses(binding.scope, scope)
    ]
    if not axes_bindings:
        return [()]
    # As in gin, the innermost scope takes precedence, and the last binding in it.
    binding = max(axes_bindings, key=lambda candidate: len(candidate.scope))
    binding = [candidate for candidate in axes_bindings if candidate.scope == binding.scope][-1]
    axes = _checked_axes(binding)
    read_names = {macro.name for macro in _macros_in(statements)}
    if unread_names := [name for name in axes if name not in read_names]:
        raise _axes_error(
            binding,
            f"nothing reads the axis {unread_names[0]!r}",
            expected=f"a binding such as `{scope}/Case.num_inner_steps = %{unread_names[0]}`",
            next_step=suggestion(unread_names[0], read_names - axes.keys()),
        )
    rows = itertools.product(*axes.values())
    return [tuple(zip(axes, values, strict=True)) for values in rows]


def axis_macros(spec: CaseSpec, overrides: Sequence[Statement]) -> list[Binding]:
    """Returns the macros of a case's combination of axes.

    Raises:
      ConfigError: An override changes the axes of the case, so that the name of the combination would be wrong.
    """
    names = {name for name, _ in spec.cell}
    for binding in only_bindings(overrides):
        if _is_axes(binding) or (not binding.parameter and binding.selector in names):
            setting = "Case.axes" if binding.parameter else f"the axis {binding.selector!r}"
            raise ConfigError(
                f"{setting} can only be set in the case's own file",
                where=binding.where,
                next_step=f"change {spec.path}, or choose cells with pytest's -k",
            )
    return [
        Binding(scope="", selector=name, parameter="", value=value, where=f"{spec.path}: case {spec.name!r}")
        for name, value in spec.cell
    ]


def _is_axes(binding: Binding) -> bool:
    return binding.parameter == "axes" and binding.name == "Case"


def _encloses(outer_scope: str, scope: str) -> bool:
    return not outer_scope or scope == outer_scope or scope.startswith(f"{outer_scope}/")


def _macros_in(statements: Sequence[Statement]) -> list[Macro]:
    references = (item for binding in only_bindings(statements) for item in references_in(binding.value))
    return [reference for reference in references if isinstance(reference, Macro)]


def _checked_axes(binding: Binding) -> dict[str, Sequence[AxisValue]]:
    """Returns the axes as written, after checking them."""
    axes = binding.value
    if not isinstance(axes, dict) or not axes:
        raise _axes_error(binding, got=gin_text(axes), expected='values by the name of an axis: {"width": [8, 32]}')
    for name, values in axes.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _axes_error(binding, "the name of an axis", got=repr(name), expected="a name for a macro: 'width'")
        if not isinstance(values, list) or not values:
            raise _axes_error(binding, f"the axis {name!r}", got=gin_text(values), expected="a list of values")
        for value in values:
            if not _is_axis_value(value):
                raise _axes_error(binding, f"the axis {name!r}", got=gin_text(value), expected=_VALUES)
        texts = [axis_text(value) for value in values]
        if duplicates := [text for text in texts if texts.count(text) > 1]:
            raise _axes_error(binding, f"the axis {name!r} has two values that read {duplicates[0]!r}")
    count = math.prod(map(len, axes.values()))
    if count > _MAX_CELLS:
        raise _axes_error(binding, got=f"{count:,} cells", expected=f"{_MAX_CELLS:,} at most")
    return axes


def _is_axis_value(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(_is_axis_value(item) and not isinstance(item, tuple) for item in value)
    if isinstance(value, str):
        return bool(_TEXT.fullmatch(value))
    return value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value))


def _axes_error(binding: Binding, problem: str = "", **error_parts: str) -> ConfigError:
    return ConfigError(f"Case.axes{': ' if problem else ''}{problem}", where=binding.where, **error_parts)
