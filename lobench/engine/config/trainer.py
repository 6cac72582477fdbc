"""Layers that come with a checkpoint: a trainer's `config.gin`, and bindings stored in the checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from lobench.core.errors import ConfigError, with_parts
from lobench.engine.config.binding import MisspelledName, UnknownName, bind, bind_overrides, is_registered
from lobench.engine.config.data_imports import DataNotImported, import_unless_data
from lobench.engine.config.learned_optimization import (
    import_optimizer,
    is_of_learned_optimization,
    trained_optimizer,
    with_original_names,
)
from lobench.engine.config.syntax import Binding, Import, Statement, only_bindings

__all__ = ["bind_checkpoint_values", "bind_known", "bind_trainer_config", "import_installed"]


def bind_checkpoint_values(statements: Sequence[Statement]) -> list[str]:
    """Binds the known names among the bindings stored in a checkpoint. They can neither import nor create anything.

    Returns:
      Problems, as `bind_trainer_config` returns them.
    Raises:
      ConfigError: A statement is not of the form `Name.parameter = number, text or bool`.
    """
    for statement in statements:
        is_plain = isinstance(statement, Binding) and bool(statement.parameter) and not statement.scope
        if not is_plain or not isinstance(getattr(statement, "value", None), bool | int | float | str):
            raise ConfigError(
                "a checkpoint's own binding", where=statement.where, expected="`Name.parameter = number, text or bool`"
            )
    return bind_known(only_bindings(statements))


def import_installed(statements: Sequence[Statement]) -> list[str]:
    """Imports the installed modules that a trainer's configuration names; returns a line for each failure."""
    failures = []
    for statement in statements:
        if isinstance(statement, Import):
            try:
                import_unless_data(statement)
            except DataNotImported as error:
                failures.append(str(error))
            except ConfigError as error:
                failures.append(f"`import {statement.module}` ({statement.where}) failed: {error.got}")
    return failures


def bind_trainer_config(
    statements: Sequence[Statement], comments: Sequence[str] = (), *, is_needed: bool = True
) -> list[str]:
    """Binds the known names of a trainer's configuration. Its learned optimizer, if it names one, must be known.

    The optimizer is `Case.learned_optimizer`, or else the one that google/learned_optimization's trainer trains. The
    modules of all layers must have been imported before, because they register names.

    Args:
      statements: Statements of the configuration.
      comments: Names in the configuration's comments.
      is_needed: Whether no later layer binds an optimizer. If one does, the optimizer may be unknown.
    Returns:
      A line for each binding of a known name that failed. Bindings of other names concern the trainer only.
    Raises:
      ConfigError: The optimizer is needed, and unknown or not importable.
    """
    bindings = only_bindings(statements)
    optimizer = trained_optimizer(bindings)
    for binding in bindings:
        if (binding.name, binding.parameter) == ("Case", "learned_optimizer"):
            optimizer = binding
    error_context = contextlib.nullcontext() if is_needed else contextlib.suppress(ConfigError)
    if optimizer is not None:
        with error_context:
            import_optimizer(statements, optimizer, comments)
    if is_of_learned_optimization(bindings):
        bindings = [with_original_names(binding) for binding in bindings]
        optimizer = optimizer and with_original_names(optimizer)
    problems = bind_known(binding for binding in bindings if not (optimizer and binding.where == optimizer.where))
    if optimizer is not None:
        with error_context:
            _bind_optimizer(replace(optimizer, scope="", selector="lobench.Case", parameter="learned_optimizer"))
    return problems


def _bind_optimizer(binding: Binding) -> None:
    try:
        bind(binding)
    except MisspelledName:
        raise
    except UnknownName as error:
        hint = "a module that nothing imports is named by `import the.module`, in config.gin or --gin-param"
        raise with_parts(error, UnknownName, next_step=f"{error.next_step}; {hint}") from error


def bind_known(bindings: Iterable[Binding], *, override: bool = False) -> list[str]:
    """Binds the bindings whose names are known.

    Args:
      bindings: Bindings to apply.
      override: Whether these bindings may override earlier ones; see `bind_overrides`.
    Returns:
      A line for each binding of a known name that failed.
    """
    problems = []
    for binding in bindings:
        is_known = bool(binding.parameter) and is_registered(binding.selector)
        try:
            bind_overrides([binding]) if override else bind(binding)
        except ConfigError as error:
            if is_known:
                problems.append(f"not bound: {error}")
    return problems
