"""Conversion of cases in Python, `lobench.Case(task=MyTask(width=32))`, to gin text that defines the same case.

So identity, overrides, workers and other machines have to support gin text only.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gin
import numpy as np

from lobench.core.case import OPTIMIZER_FIELDS, Case, CaseSpec
from lobench.core.code import CodeFingerprint
from lobench.core.configurables import call_of
from lobench.core.errors import ConfigError, SuiteError
from lobench.core.phases import Phase
from lobench.core.subject import optimizer_bindings
from lobench.core.wording import headline
from lobench.engine.config.axes import axis_combinations
from lobench.engine.config.gin_state import CONFIGURABLES, isolated_gin
from lobench.engine.config.syntax import (
    Macro,
    Reference,
    Statement,
    binding_text,
    gin_text,
    last_name,
    only_bindings,
    parse_file,
    parse_text,
)
from lobench.engine.config.user_code import code_fingerprint, forget_modules_of
from lobench.engine.retries import retried

__all__ = [
    "case_statements",
    "gin_file_of_tests",
    "gin_text_of_case",
    "specs_of_python_cases",
    "temporary_names",
    "with_axis_combinations",
]

_OBJECTS = "objects"  # module of the names of `temporary_names`
_object_numbers = itertools.count(1)
_ADVICE = "`lobench.evaluate(task=..., optimizer=...)` without a store trains with any object"


def specs_of_python_cases(test_file: Path, cases: Mapping[str, object]) -> list[CaseSpec]:
    """Returns the cases that a test file defines in Python, by name.

    Their identities are those of cases in a gin file: cases of `test_valley.py` count as cases of `valley.gin`.

    Raises:
      SuiteError: The gin file exists, or a value is not a case.
      ConfigError: A value of a case cannot be named.
    """
    path = gin_file_of_tests(test_file.resolve())
    if retried(path.exists):
        raise SuiteError(
            f"cases in Python belong to {path.name}, and there is such a file",
            where=str(test_file),
            next_step="put them into the gin file, or into a test file of another name",
        )
    specs = list[CaseSpec]()
    for name, case in cases.items():
        where = f"{test_file}: case {name!r}"
        if not isinstance(case, Case):
            got = f"{type(case).__name__} {case!r}"[:60]
            raise SuiteError("not a case", where=where, got=got, expected="lobench.Case(task=..., ...)")
        text = gin_text_of_case(case, name, where)
        specs += _axis_specs(CaseSpec(path=str(path), scope=name, root=str(path.parent.parent), text=text), where)
    return specs


def _axis_specs(spec: CaseSpec, where: str) -> list[CaseSpec]:
    """Returns a case for each combination of the axes; the case itself without axes."""
    return [replace(spec, cell=cell) for cell in axis_combinations(parse_text(spec.text, where), spec.scope)]


def with_axis_combinations(spec: CaseSpec) -> list[CaseSpec]:
    """Returns a case for each combination of the axes of a case in Python. Imports its test file.

    Raises:
      ConfigError: The test file cannot be imported.
    """
    statements = case_statements(spec)
    return [replace(spec, cell=cell) for cell in axis_combinations(statements, spec.scope)]


def case_statements(spec: CaseSpec) -> list[Statement]:
    """Returns the statements of a case's gin file, or of a case in Python, whose test file may have to be imported.

    Raises:
      ConfigError: The file cannot be read, or has a syntax error; or the test file cannot be imported.
    """
    path = Path(spec.path)
    if spec.text:
        return parse_text(spec.text, f"{path}: case {spec.name!r}")
    candidates = [path.with_name(name) for name in (f"test_{path.stem}.py", f"{path.stem}_test.py")]
    test_files = [] if retried(path.exists) else [candidate for candidate in candidates if retried(candidate.is_file)]
    if not test_files:
        return parse_file(path)
    texts = _current_texts(test_files[0])
    if spec.scope not in texts:
        expected = ", ".join(texts) or "@cases(name=lobench.Case(...)) above a test"
        raise ConfigError("no such case in Python", where=str(test_files[0]), got=repr(spec.scope), expected=expected)
    return parse_text(texts[spec.scope], f"{path}: case {spec.name!r}")


def _current_texts(test_file: Path) -> dict[str, str]:
    """Returns the gin text of each case in Python of a test file, by name.

    If the code has changed, the file and all modules of the user that it imports are imported again.
    """
    code = code_fingerprint(
        [test_file], folders=[str(test_file.parent), str(test_file.parent.parent)], as_imported=False
    )
    last_code, texts = _texts_by_file.get(test_file, (None, {}))
    if last_code is None or last_code.id != code.id:
        if last_code is not None:
            forget_modules_of({*last_code.files, *code.files})
        texts = _import_case_texts(test_file)
        _texts_by_file[test_file] = code, texts
    return texts


_texts_by_file: dict[Path, tuple[CodeFingerprint, dict[str, str]]] = {}


def _import_case_texts(test_file: Path) -> dict[str, str]:
    """Imports a test file and returns the gin text of each case that it defines in Python, by name."""
    with isolated_gin(str(test_file.parent), str(test_file.parent.parent)):
        try:
            module = importlib.import_module(test_file.stem)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # `pytest.skip` and `pytest.importorskip` raise no `Exception`
            got = headline(error)
            raise ConfigError("cannot import the file of the cases", where=str(test_file), got=got) from error
    if module.__file__ is None or not test_file.samefile(module.__file__):
        got = f"that of {module.__file__}"
        raise ConfigError("another module has the name of this file", where=str(test_file), got=got)
    functions = [*vars(module).values()]
    functions += [method for value in functions if inspect.isclass(value) for method in vars(value).values()]
    pytest_marks = [pytest_mark for function in functions for pytest_mark in getattr(function, "pytestmark", ())]
    specs = [
        spec for pytest_mark in pytest_marks for spec in (pytest_mark.args[1] if len(pytest_mark.args) > 1 else ())
    ]
    return {spec.scope: spec.text for spec in specs if isinstance(spec, CaseSpec) and spec.text}


def gin_file_of_tests(test_file: Path) -> Path:
    """Returns the gin file to which the cases in a test file belong.

    >>> gin_file_of_tests(Path("suites/test_valley.py")).as_posix()
    'suites/valley.gin'
    """
    return test_file.with_name(test_file.stem.removeprefix("test_").removesuffix("_test") + ".gin")


@contextlib.contextmanager
def temporary_names() -> Iterator[Callable[[Any], str]]:
    """Yields a function that registers an object under a new name in this process, until the body ends."""
    names = list[str]()

    def add(value: Any) -> str:
        name = f"object_{next(_object_numbers)}"
        gin.external_configurable(lambda: value, name=name, module=_OBJECTS)
        names.append(f"{_OBJECTS}.{name}")
        return names[-1]

    try:
        yield add
    finally:
        for name in names:
            CONFIGURABLES.pop(name)


def gin_text_of_case(case: Case, scope: str, where: str, stand_in: Callable[[Any], str] | None = None) -> str:
    """Returns the gin text of a case in a scope.

    Args:
      case: The case, with the values that its constructor got.
      scope: Name of the case.
      where: Place of the case in error messages.
      stand_in: Function that names an object in this process; see `temporary_names`. None: such objects are refused.
    Raises:
      ConfigError: A value has no name, so another process could not create it.
    """
    call = call_of(case)
    arguments = dict(call.kwargs) if call is not None else {}
    if not arguments.get("command") and arguments.get("task") is None:
        raise ConfigError("the case has neither a task nor a command", where=where)
    gin_writer = _GinWriter(scope, where, stand_in, arguments.get("axes") or {})
    lines = []
    for name, value in arguments.items():
        if name in ("task", "phases", *OPTIMIZER_FIELDS) and isinstance(value, str):
            lines += _bindings_in(value, name, scope, where)
        elif name == "axes" and value is not None:
            lines.append(f"{scope}/Case.axes = {gin_text({key: list(values) for key, values in value.items()})}")
        elif value is not None:
            lines.append(f"{scope}/Case.{name} = {gin_text(gin_writer.to_gin_value(value, f'Case.{name}'))}")
    return "\n".join([*(f"import {module}" for module in gin_writer.modules), *lines, *gin_writer.lines, ""])


def _bindings_in(text: str, field: str, scope: str, where: str, owner: str = "Case") -> list[str]:
    """Returns the bindings of gin text such as "adam(learning_rate=0.1)", in a scope."""
    bindings = only_bindings(parse_text("\n".join(optimizer_bindings(text, field)), where))
    owned_bindings = (
        replace(binding, selector=owner) if (binding.selector, binding.parameter) == ("Case", field) else binding
        for binding in bindings
    )
    return [binding_text(case_binding, f"{scope}/{case_binding.scope}".rstrip("/")) for case_binding in owned_bindings]


class _UnnamedValue(ConfigError):
    """Error for a value that has no name in other processes."""


class _GinWriter:
    """Converts the objects of a case defined in Python to gin bindings of configurables.

    Attributes:
      modules: Modules that register the configurables.
      lines: The bindings, as lines of gin.
    """

    def __init__(
        self, scope: str, where: str, stand_in: Callable[[Any], str] | None, axes: Collection[str] = ()
    ) -> None:
        self._axes = axes
        self.modules: dict[str, None] = {}
        self.lines: list[str] = []
        self._scope = scope
        self._where = where
        self._name_object = stand_in
        self._instances: dict[tuple[str, str], object] = {}  # instance of a class in a scope
        self._num_scopes = 0

    def to_gin_value(self, value: Any, path: str, outer_scope: str = "") -> Any:
        """Converts a value to a value that gin text can express: objects become references to configurables.

        Args:
          value: The value.
          path: Parameter to which the value is bound, for error messages.
          outer_scope: Scope in which the parameter is bound; "" for that of the case.
        """
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, str) and value.startswith("%") and value[1:] in self._axes:
            return Macro(name=value[1:])
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            if not math.isfinite(value):
                raise self._unnamed_error(path, repr(value), "a finite number")
            return value
        if type(value) in (list, tuple):
            return type(value)(
                self.to_gin_value(item, f"{path}[{index}]", outer_scope) for index, item in enumerate(value)
            )
        if isinstance(value, Mapping):
            return {key: self.to_gin_value(item, f"{path}[{key!r}]", outer_scope) for key, item in value.items()}
        try:
            return self._reference(value, path, outer_scope)
        except _UnnamedValue:
            if self._name_object is None:
                raise
            return Reference(scoped_selector=self._name_object(value), evaluate=True)

    def _reference(self, value: Any, path: str, outer_scope: str) -> Reference:
        if inspect.isclass(value) or inspect.isfunction(value):
            return self._reference_to(value, path, scope="", evaluate=False)
        call = call_of(value)
        if call is None:
            value_class = type(value)
            class_name = f"{value_class.__module__}.{value_class.__qualname__}"
            raise self._unnamed_error(
                path, class_name, "numbers, texts, tuples, and instances of @lobench.configurable classes"
            )
        try:
            bound_arguments = inspect.signature(type(value)).bind(*call.args, **call.kwargs)
        except TypeError as error:
            raise self._unnamed_error(path, str(error), "arguments of its constructor") from error
        parameter_kinds = {name: parameter.kind for name, parameter in bound_arguments.signature.parameters.items()}
        arguments = dict[str, Any]()
        for name, argument in bound_arguments.arguments.items():
            if parameter_kinds[name] is inspect.Parameter.VAR_KEYWORD:
                arguments |= argument
            elif parameter_kinds[name] in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
                raise self._unnamed_error(f"{path}: {type(value).__name__}", f"*{name}", "arguments by name")
            else:
                arguments[name] = argument
        selector = self._reference_to(type(value), path, scope="", evaluate=True).selector
        scope = outer_scope
        is_second = self._instances.setdefault((outer_scope, selector), value) is not value
        if is_second or isinstance(value, Phase):  # each further instance of a class needs a scope of its own
            self._num_scopes += 1
            scope = f"{self._scope}_{self._num_scopes}"
            self._instances[scope, selector] = value
        for name, argument in arguments.items():
            if isinstance(value, Phase) and name in OPTIMIZER_FIELDS and isinstance(argument, str):
                self.lines += _bindings_in(argument, name, scope, self._where, selector)
                continue
            text = gin_text(self.to_gin_value(argument, f"{type(value).__name__}.{name}", scope))
            self.lines.append(f"{scope or self._scope}/{selector}.{name} = {text}")
        return self._reference_to(type(value), path, scope="" if scope == outer_scope else scope, evaluate=True)

    def _reference_to(self, value: Callable[..., Any], path: str, *, scope: str, evaluate: bool) -> Reference:
        """Returns a reference to a registered class or function, whose module is imported."""
        if value is Phase:  # registered with the first case that is bound
            scoped_selector = f"{scope}/Phase" if scope else "Phase"
            return Reference(scoped_selector=scoped_selector, evaluate=evaluate)
        selector = next((name for name, configurable in CONFIGURABLES.items() if configurable.wrapped is value), None)
        name = getattr(value, "__qualname__", repr(value))
        if selector is None:
            advice = "put @lobench.configurable above it" if name.isidentifier() else _ADVICE
            raise self._unnamed_error(path, name, "a class or function that gin knows", advice)
        module = value.__module__
        if module == "__main__":
            raise self._unnamed_error(path, f"{name} of __main__", "a class of a module that a worker can import")
        if module.partition(".")[0] != "lobench":
            self.modules[module] = None
        # The name is spelled as people write it in gin, because the spelling is part of the identity.
        short_name = last_name(selector)
        is_short = selector == f"lobench.{short_name}" or f"lobench.{short_name}" not in CONFIGURABLES
        name_in_gin = short_name if is_short else selector
        scoped_selector = f"{scope}/{name_in_gin}" if scope else name_in_gin
        return Reference(scoped_selector=scoped_selector, evaluate=evaluate)

    def _unnamed_error(self, path: str, got: str, expected: str, next_step: str = _ADVICE) -> _UnnamedValue:
        problem = f"{path} has no name by which a worker could make it"
        return _UnnamedValue(problem, where=self._where, got=got[:80], expected=expected, next_step=next_step)
