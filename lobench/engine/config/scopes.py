"""Scopes of bindings: which are entered, and an error for a binding in a scope that nothing enters."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from lobench.core.case import CaseSpec
from lobench.core.errors import ConfigError, suggestion
from lobench.core.subject import RequestedSubject
from lobench.core.wording import shortened_list
from lobench.engine.config.layers import Layers
from lobench.engine.config.parsed_layers import parse_layers
from lobench.engine.config.python_cases import case_statements
from lobench.engine.config.suite import specs_in
from lobench.engine.config.syntax import (
    Binding,
    Reference,
    Statement,
    binding_text,
    case_scopes,
    only_bindings,
    references_in,
)
from lobench.engine.paths import path_exists

__all__ = ["check_scopes", "entered_scopes", "scopes_of_subjects", "unread_scope_error"]

_MAX_SHOWN = 5


def entered_scopes(statements: Sequence[Statement]) -> set[str]:
    """Returns the outermost scopes that cases, methods, references and macros of gin statements enter."""
    bindings = only_bindings(statements)
    references = [reference for binding in bindings for reference in references_in(binding.value)]
    names = [
        reference.scoped_selector if isinstance(reference, Reference) else reference.name for reference in references
    ]
    methods = (binding.scope for binding in bindings if binding.name == "Method" and binding.scope)
    return {
        *(_outermost(name) for name in names if "/" in name),
        *map(_outermost, (*case_scopes(statements), *methods)),
    }


def unread_scope_error(binding: Binding, kinds: str, names: Collection[str], advice: str) -> ConfigError:
    """Returns the error for a binding in a scope that nothing enters.

    Args:
      binding: The binding.
      kinds: What the scope should be, after "is".
      names: Scopes that may be suggested.
      advice: Advice if none is similar.
    """
    path = binding_text(binding).split(" = ")[0]
    scope = _outermost(binding.scope)
    return ConfigError(
        f"nothing reads {path}: {scope!r} is {kinds}",
        where=binding.where,
        next_step=suggestion(scope, sorted(names)) or advice,
    )


def check_scopes(spec: CaseSpec, layers: Layers, other_cases: Iterable[CaseSpec] = ()) -> None:
    """Refuses bindings that nothing reads because of their scope, in a case's own file and in the layers over it.

    The scope must be a case, or be entered by a reference. A trainer's `config.gin` may have scopes of its own, and so
    may files that several suites include. `read_experiment` checks the lines of an experiment.

    Args:
      spec: The case.
      layers: gin text around its file.
      other_cases: Further cases of the suites, whose scopes are known too, as are those of the gin files in the case's
        folder. Read only if a scope is unknown otherwise.
    Raises:
      ConfigError: A scope is unknown, or a file cannot be read.
    """
    parsed_layers = parse_layers(spec, layers)
    overrides = [] if layers.import_folders else only_bindings(parsed_layers.overrides)
    own_bindings = [
        binding for binding in only_bindings(parsed_layers.case) if binding.where.rpartition(":")[0] == spec.path
    ]
    names = entered_scopes((*parsed_layers.trainer, *parsed_layers.case, *parsed_layers.overrides))
    names.update((_outermost(spec.scope), *layers.scopes))
    # A file may define a phase before a case has it.
    names.update(_outermost(binding.scope) for binding in own_bindings if binding.name == "Phase")

    def is_unread(binding: Binding) -> bool:
        return bool(binding.scope) and _outermost(binding.scope) not in names

    unread_bindings = list(filter(is_unread, (*own_bindings, *overrides)))
    if not unread_bindings:
        return
    cases = [*other_cases, *_cases_beside(spec)]
    names.update(_outermost(case.scope) for case in cases)
    for case in {case.text or case.path: case for case in cases}.values():
        if case.text or path_exists(Path(case.path), kind="file"):
            names |= entered_scopes(case_statements(case))
    if binding := next(filter(is_unread, unread_bindings), None):
        advice = f"there is {shortened_list(sorted(names), _MAX_SHOWN)}"
        raise unread_scope_error(binding, "not a case", names, advice)


def scopes_of_subjects(subjects: Iterable[RequestedSubject]) -> tuple[str, ...]:
    """Returns the outermost scopes that the gin text of subjects enters. Text that does not parse enters none."""
    scopes = set[str]()
    for subject in subjects:
        with contextlib.suppress(ConfigError):  # the worker that binds the text reports it
            parsed_layers = parse_layers(None, Layers(variant=subject.variant))
            scopes |= entered_scopes((*parsed_layers.trainer, *parsed_layers.overrides))
    return tuple(sorted(scopes))


def _cases_beside(spec: CaseSpec) -> Iterator[CaseSpec]:
    """Yields the cases of the other gin files in a case's folder, which a session of one file does not collect."""
    for file in sorted(Path(spec.path).parent.glob("*.gin")):
        with contextlib.suppress(ConfigError):  # a session that collects the file reports it
            yield from specs_in(file)


def _outermost(scope: str) -> str:
    return scope.split("/")[0]
