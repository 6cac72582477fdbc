"""References in gin text: finds the bindings that a method's optimizer or the cases read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lobench.core.case import OPTIMIZER_FIELDS
from lobench.core.errors import ConfigError
from lobench.core.experiment import Method, is_fixed
from lobench.engine.config.scopes import entered_scopes
from lobench.engine.config.suite import gin_files_of
from lobench.engine.config.syntax import (
    Binding,
    Macro,
    Reference,
    Statement,
    case_scopes,
    last_name,
    may_name_same,
    only_bindings,
    parse_file,
    references_in,
)

__all__ = ["ReferenceGraph", "suite_statements"]


def suite_statements(suites: Sequence[Path]) -> list[Statement]:
    """Returns the statements of suites. Files that do not parse are left to the worker that collects them.

    Raises:
      ConfigError: A suite has neither a case nor a test.
    """
    statements: list[Statement] = []
    for suite in suites:
        own_statements = [statement for file in gin_files_of(suite) for statement in _statements_of(file)]
        if not case_scopes(own_statements) and not (suite.is_dir() and any(suite.rglob("test_*.py"))):
            raise ConfigError(
                "the suite holds no case", where=str(suite), expected="a scope that binds Case.task or Case.command"
            )
        statements += own_statements
    return statements


def _statements_of(file: Path) -> list[Statement]:
    try:
        return parse_file(file)
    except ConfigError:
        return []


class ReferenceGraph:
    """References among gin statements, followed by name.

    Args:
      bindings: Bindings of the experiment.
      suites: Statements of its suites.
    Attributes:
      scopes: Outermost scopes that a method, a case or a reference enters.
    """

    def __init__(self, bindings: Sequence[Binding], suites: Sequence[Statement]) -> None:
        self._bindings = [*bindings, *only_bindings(suites)]
        self.scopes = entered_scopes(self._bindings)
        self._names_of_cases = self._reached_names(
            binding.value
            for binding in self._bindings
            if binding.name == "Case" and binding.parameter not in OPTIMIZER_FIELDS
        )

    def fixed_field(self, binding: Binding, patterns: Sequence[str]) -> str:
        """Returns the name of a field that the method binds but that must be equal for all methods; "" if none."""
        name = binding.name
        reached_names = (name,) if _is_among(binding, self._names_of_cases) else ()
        if is_fixed(name, binding.parameter, reached_names, patterns):
            return f"{name}.{binding.parameter}" if binding.parameter else f"the macro {name}"
        return ""

    def bindings_read_by(self, method: Method, own_bindings: Sequence[Binding]) -> list[Binding]:
        """Returns the bindings of a method that its evaluations read.

        If only the file next to a theta names its optimizer, unknown names are reported by the worker that binds it.
        """
        reached_names = self._reached_by_method(method, own_bindings)
        if reached_names is None and not method.command:
            return list(own_bindings)
        return [
            binding
            for binding in own_bindings
            if binding.name in ("Case", "Checkpoint") or _is_among(binding, reached_names or self._names_of_cases)
        ]

    def reachable_names(self, method: Method, own_bindings: Sequence[Binding]) -> list[str]:
        return sorted({last_name(selector) for selector in self._reached_by_method(method, own_bindings) or ()})

    def _reached_by_method(self, method: Method, own_bindings: Sequence[Binding]) -> set[str] | None:
        """Returns the selectors that a method's optimizer reaches; None if its optimizer is unknown here."""
        values = [binding.value for binding in own_bindings if _is_optimizer(binding)]
        if method.optimizer:
            values.append(Reference(scoped_selector=method.optimizer.strip("@()"), evaluate=True))
        if not values:
            values = [binding.value for binding in self._bindings if _is_optimizer(binding) and not binding.scope]
        return self._reached_names(values, own_bindings) | self._names_of_cases if values else None

    def _reached_names(self, values: Iterable[object], own_bindings: Sequence[Binding] = ()) -> set[str]:
        """Returns the selectors and macros that values reach, without their scopes.

        Args:
          values: Values to start from.
          own_bindings: Bindings of a method's knobs, which count in addition to the experiment's bindings.
        """
        names: set[str] = set()
        pending_values = list(values)
        while pending_values:
            for name in _names_in(pending_values.pop()):
                if name not in names:
                    names.add(name)
                    pending_values += [
                        binding.value
                        for binding in (*self._bindings, *own_bindings)
                        if may_name_same(binding.selector, name)
                    ]
        return names


def _is_optimizer(binding: Binding) -> bool:
    return binding.name == "Case" and binding.parameter in OPTIMIZER_FIELDS


def _names_in(value: object) -> Iterator[str]:
    for ref in references_in(value):
        if isinstance(ref, Macro):
            yield ref.name.rsplit("/", 1)[-1]
        else:
            yield ref.selector


def _is_among(binding: Binding, selectors: Iterable[str]) -> bool:
    return any(may_name_same(binding.selector, selector) for selector in selectors)
