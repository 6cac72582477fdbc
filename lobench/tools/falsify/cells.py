"""Cells of a case: its bindings, varied along axes, as self-contained gin files."""

from __future__ import annotations

import hashlib
import inspect
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lobench.core.case import CaseSpec
from lobench.core.errors import ConfigError, UsageError
from lobench.engine.config.binding import complete_selector
from lobench.engine.config.bound import bind_case
from lobench.engine.config.gin_state import CONFIGURABLES, might_have_parameter
from lobench.engine.config.layers import Layers
from lobench.engine.config.python_cases import case_statements
from lobench.engine.config.syntax import (
    Binding,
    Import,
    Reference,
    binding_text,
    gin_text,
    only_bindings,
    parse_text,
)
from lobench.engine.store.database import unusable_store
from lobench.engine.whole_file import write_whole
from lobench.evaluation.runner import claim_for
from lobench.tools.falsify.cell_search import CellIndex, GridAxis

__all__ = ["CellAxis", "Cells", "read_cells"]

_ABSENT = object()  # value on an axis: no binding, or no wrapper
_MAX_REDUCTION, _MAX_INCREASE = 16, 4  # range of the default axes: largest factors down and up
_CASE_AXES = ("Case.num_inner_steps",)
# Parameters that the search itself binds, or that define the case as a whole.
_RESERVED_PARAMETERS = {
    "task",
    "optimizer",
    "learned_optimizer",
    "num_seeds",
    "first_seed",
    "seed_block",
    "block_sizes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellAxis:
    """Setting of the case, or wrapper of its task, that varies along an axis of the grid.

    Attributes:
      selector, parameter: The varied binding. The parameter is "" if the axis removes a wrapper.
      values: Values in order. `_ABSENT` stands for no binding, or no wrapper.
      home_index: Index of the case's own value.
      simplest_index: Index of the simplest value.
      adds_wrapper: Whether the configurable is a wrapper that is put around the case's task.
      unwrapped_task: Task without the wrapper that this axis removes. None: the axis varies a parameter.
      is_searched: As in `GridAxis.is_searched`.
    """

    selector: str
    parameter: str
    values: tuple[Any, ...]
    home_index: int
    simplest_index: int
    adds_wrapper: bool = False
    unwrapped_task: Reference | None = None
    is_searched: bool = True

    @property
    def name(self) -> str:
        return f"{self.selector}.{self.parameter}" if self.parameter else self.selector

    def value_text(self, index: int) -> str:
        value = self.values[index]
        if value is _ABSENT:
            return "none" if self.adds_wrapper or self.unwrapped_task else "default"
        return "there" if self.unwrapped_task else gin_text(value)

    def ratio_to_home(self, index: int) -> float | None:
        """Returns a number relative to the case's own, or the geometric mean for a tuple; None for other values."""
        value, home_value = (self.values[value_index] for value_index in (index, self.home_index))
        our_size = _numeric_size(value)
        home_size = _numeric_size(home_value)
        if (
            our_size is None
            or home_size is None
            or not (our_size > 0 < home_size)
            or _num_elements(value) != _num_elements(home_value)
        ):
            return None
        return float((our_size / home_size) ** (1 / _num_elements(value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Cells of a case.

    Attributes:
      scope: Scope of the case.
      bindings: All bindings that the case depends on.
      imports: Modules that its file imports.
      modules: Files of the modules next to the case.
      axes: The axes.
    """

    scope: str
    bindings: tuple[Binding, ...]
    imports: tuple[str, ...]
    modules: tuple[Path, ...]
    axes: tuple[CellAxis, ...]

    def search_axes(self) -> list[GridAxis]:
        return [
            GridAxis(
                name=axis.name,
                size=len(axis.values),
                home_index=axis.home_index,
                simplest_index=axis.simplest_index,
                is_searched=axis.is_searched,
            )
            for axis in self.axes
        ]

    def cell_text(self, cell: CellIndex) -> str:
        """Returns a cell as a gin file. Equal cells have equal texts."""
        bindings = list(self.bindings)
        task = next(binding for binding in bindings if self._binds(binding, "Case", "task"))
        inner_task = task.value
        wrappers = dict[str, None]()
        for axis, value_index in zip(self.axes, cell, strict=True):
            value = axis.values[value_index]
            if axis.unwrapped_task is not None and value is _ABSENT:
                inner_task = axis.unwrapped_task
        for axis, value_index in zip(self.axes, cell, strict=True):
            value = axis.values[value_index]
            if axis.unwrapped_task is not None or value_index == axis.home_index:
                continue
            bindings = [binding for binding in bindings if not self._binds(binding, axis.selector, axis.parameter)]
            if value is not _ABSENT:
                where = "--axes"
                new_binding = Binding(
                    scope=self.scope, selector=axis.selector, parameter=axis.parameter, value=value, where=where
                )
                bindings.append(new_binding)
                wrappers |= {axis.selector: None} if axis.adds_wrapper else {}
        for wrapper in wrappers:
            bindings.append(replace(task, selector=wrapper, value=inner_task))
            inner_task = Reference(scoped_selector=wrapper, evaluate=True)
        bindings[bindings.index(task)] = replace(task, value=inner_task)
        lines = [*(f"import {module}" for module in self.imports), "", *map(binding_text, bindings)]
        return "\n".join(lines).strip() + "\n"

    def write(self, cell: CellIndex, folder: Path) -> Path:
        """Writes a cell's file and the modules that it needs into a folder. Returns the path of the file."""
        text = self.cell_text(cell)
        path = folder / f"cell_{hashlib.sha256(text.encode()).hexdigest()[:12]}.gin"
        with unusable_store(folder.parent):
            if not path.is_file():
                self.copy_modules(folder)
                write_whole(path, text)
        return path

    def copy_modules(self, folder: Path) -> None:
        """Copies the modules that lie next to the case into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for module in self.modules:
            shutil.copyfile(module, folder / module.name)

    def _binds(self, binding: Binding, selector: str, parameter: str) -> bool:
        return binding.scope == self.scope and binding.parameter == parameter and _has_selector(binding, selector)


def read_cells(spec: CaseSpec, layers: Layers, axes: Sequence[str]) -> Cells:
    """Returns the cells of a case along the given axes.

    Without axes, the number of steps and all integers in the task's bindings are varied.

    Args:
      spec: The case.
      layers: Bindings that are applied to the case, besides those of its file.
      axes: Bindings of lists, such as `DigitsMLP.hidden_sizes = [(8,), (32,)]`. For a wrapper that the case lacks, the
        first value is "none".
    Raises:
      ConfigError: The case does not bind, or an axis names an unknown parameter.
      UsageError: An axis is not a list, is given twice, or cannot be varied; or the case binds an optimizer.
    """
    claim_for(spec, layers)  # before the suite's modules are imported, because they may create arrays
    bound = bind_case(spec, layers, build=False)
    if bound.optimizer_bindings:
        raise UsageError("the case insists on an optimizer", where=f"{spec.path}: case {spec.name!r}")
    bindings_text = re.sub(r"(^|/|@)lobench\.", r"\1", bound.bindings, flags=re.MULTILINE)
    bindings_text = re.sub(r"^(.+)/gin\.macro\.value = ", r"\1 = ", bindings_text, flags=re.MULTILINE)
    bindings = tuple(only_bindings(parse_text(bindings_text, spec.path)))
    case_bindings = [binding for binding in bindings if binding.scope == spec.scope]
    imports = [statement.module for statement in case_statements(spec) if isinstance(statement, Import)]
    folder = Path(spec.path).parent
    has_own_modules = any((folder / f"{module.split('.')[0]}.py").is_file() for module in imports)
    modules = (
        [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("test_")] if has_own_modules else []
    )
    axes_of_search = [_parse_axis(text, case_bindings) for text in axes] or _usual_axes(case_bindings)
    names = [axis.name for axis in axes_of_search]
    if len(set(names)) < len(names):
        raise UsageError("an axis is given twice", got=", ".join(names))
    return Cells(
        scope=spec.scope,
        bindings=bindings,
        imports=tuple(dict.fromkeys(imports)),
        modules=tuple(modules),
        axes=(*_wrapper_axes(case_bindings), *axes_of_search, *_default_axes(case_bindings, names)),
    )


def _has_selector(binding: Binding, selector: str) -> bool:
    return binding.selector == selector or binding.selector.endswith(f".{selector}") or binding.name == selector


def _parse_axis(text: str, case_bindings: Sequence[Binding]) -> CellAxis:
    where = f"--axes {text!r}"
    bindings = only_bindings(parse_text(text, where))
    if (
        len(bindings) != 1
        or not bindings[0].parameter
        or not isinstance(bindings[0].value, list)
        or not bindings[0].value
    ):
        raise UsageError(
            "--axes", got=repr(text), expected="a binding of a list, such as DigitsMLP.hidden_sizes = [(8,), (32,)]"
        )
    selector = bindings[0].selector
    parameter = bindings[0].parameter
    values = bindings[0].value
    name = complete_selector(selector, where)
    wrapper = CONFIGURABLES[name].wrapper
    if not might_have_parameter(wrapper, parameter):
        raise ConfigError(f"{selector} has no parameter {parameter!r}", where=where)
    if name.endswith("Case") and parameter in _RESERVED_PARAMETERS:
        raise UsageError(
            "the search sets this itself",
            where=where,
            got=f"Case.{parameter}",
            expected="a setting of the task or of its training",
        )
    case_binding = next(
        (binding for binding in case_bindings if _has_selector(binding, selector) and binding.parameter == parameter),
        None,
    )
    if case_binding is not None:
        values = values if case_binding.value in values else [case_binding.value, *values]
        values = (
            sorted(values, key=lambda value: _numeric_size(value) or 0.0)
            if all(_numeric_size(value) is not None for value in values)
            else values
        )
        home_index = values.index(case_binding.value)
        simplest = 0 if all(isinstance(value, int | tuple) for value in values) else home_index
        return CellAxis(
            selector=selector, parameter=parameter, values=tuple(values), home_index=home_index, simplest_index=simplest
        )
    is_used = any(
        _has_selector(binding, selector)
        or (isinstance(binding.value, Reference) and binding.value.name == selector.split(".")[-1])
        for binding in case_bindings
    )
    wraps = not is_used and might_have_parameter(wrapper, "task")
    if not (is_used or wraps):
        raise UsageError(
            "the case does not use it, and it is not a wrapper", where=where, got=selector, next_step="leave it out"
        )
    return CellAxis(
        selector=selector,
        parameter=parameter,
        values=(_ABSENT, *values),
        home_index=0,
        simplest_index=0,
        adds_wrapper=wraps,
    )


def _usual_axes(case_bindings: Sequence[Binding]) -> list[CellAxis]:
    """Returns axes that vary the steps and all integers of the task from 1/16 to 4 times their value."""
    axes = []
    for binding in case_bindings:
        name = f"{binding.name}.{binding.parameter}"
        if (
            _numeric_size(binding.value) is None
            or not _has_whole_numbers(binding.value)
            or (binding.name == "Case" and name not in _CASE_AXES)
        ):
            continue
        factors = [2.0**power for power in range(-_MAX_REDUCTION.bit_length() + 1, _MAX_INCREASE.bit_length())]
        values = list(dict.fromkeys(_scaled_value(binding.value, factor) for factor in factors))
        home_index = values.index(binding.value)
        axes.append(
            CellAxis(
                selector=binding.selector,
                parameter=binding.parameter,
                values=tuple(values),
                home_index=home_index,
                simplest_index=0,
            )
        )
    if not axes:
        raise UsageError("the case has no whole numbers to vary", expected="--axes")
    return axes


def _wrapper_axes(case_bindings: Sequence[Binding]) -> list[CellAxis]:
    """Returns an axis that removes the wrapper around the task, if there is one."""
    task = next(binding.value for binding in case_bindings if binding.name == "Case" and binding.parameter == "task")
    inner = next(
        (
            binding.value
            for binding in case_bindings
            if binding.parameter == "task" and binding.name == task.name != "Case"
        ),
        None,
    )
    if not isinstance(inner, Reference):
        return []
    return [
        CellAxis(
            selector=task.selector,
            parameter="",
            values=(_ABSENT, task),
            home_index=1,
            simplest_index=0,
            unwrapped_task=inner,
        )
    ]


def _default_axes(case_bindings: Sequence[Binding], names: Sequence[str]) -> list[CellAxis]:
    """Returns an axis for each text or boolean of the task that has a default, since the default counts as simpler."""
    axes = []
    for binding in case_bindings:
        axis = CellAxis(
            selector=binding.selector,
            parameter=binding.parameter,
            values=(_ABSENT, binding.value),
            home_index=1,
            simplest_index=0,
            is_searched=False,
        )
        if binding.name == "Case" or axis.name in names or not isinstance(binding.value, str | bool):
            continue
        configurable = CONFIGURABLES[complete_selector(binding.selector, binding.where)].wrapped
        parameter = inspect.signature(configurable).parameters.get(binding.parameter)
        if parameter is not None and parameter.default not in (inspect.Parameter.empty, binding.value):
            axes.append(axis)
    return axes


def _has_whole_numbers(value: Any) -> bool:
    elements = value if isinstance(value, tuple) else (value,)
    return bool(elements) and all(type(element) is int and element > 0 for element in elements)


def _scaled_value(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_scaled_value(element, factor) for element in value)
    return max(1, round(value * factor))


def _numeric_size(value: Any) -> float | None:
    """Returns the number by which values are ordered, the product for a tuple; None if it is not numeric."""
    elements = value if isinstance(value, tuple) else (value,)
    size = 1.0
    for element in elements:
        if isinstance(element, bool) or not isinstance(element, int | float):
            return None
        size *= element
    return size


def _num_elements(value: Any) -> int:
    return len(value) if isinstance(value, tuple) else 1
