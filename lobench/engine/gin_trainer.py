"""The layers that come with a checkpoint: a trainer's `config.gin`, and bindings that a checkpoint carries."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from lobench.core.errors import ConfigError
from lobench.engine.gin_binding import bind, import_named, is_registered
from lobench.engine.gin_syntax import Binding, Import, Statement

__all__ = ["bind_trainer_config", "bind_values", "import_what_is_there"]


def bind_values(statements: Sequence[Statement]) -> list[str]:
    """Binds what we know of a checkpoint's own bindings, which are data: they import nothing and build nothing.

    Returns:
      As `bind_trainer_config`.
    Raises:
      ConfigError: a statement is none of `Name.parameter = number, text or bool`.
    """
    for statement in statements:
        is_plain = isinstance(statement, Binding) and bool(statement.parameter) and not statement.scope
        if not is_plain or not isinstance(getattr(statement, "value", None), bool | int | float | str):
            raise ConfigError(
                "a checkpoint's own binding", where=statement.where, expected="`Name.parameter = number, text or bool`"
            )
    return _bind_known(statement for statement in statements if isinstance(statement, Binding))


def import_what_is_there(statements: Sequence[Statement]) -> None:
    """Imports what a trainer's configuration names, as far as that is installed here."""
    for statement in statements:
        if isinstance(statement, Import):
            with contextlib.suppress(ConfigError):
                import_named(statement)


def bind_trainer_config(statements: Sequence[Statement]) -> list[str]:
    """Binds what we know of a trainer's configuration; its optimizer for evaluations, if it names one, strictly.

    Every layer's modules are to be imported before: they make names known.

    Returns:
      A line for each binding of a known name that could not be made; bindings of other names are the trainer's own.
    """
    optimizer: Binding | None = None
    rest: list[Binding] = []
    for statement in statements:
        if isinstance(statement, Import):
            continue
        selector = statement.selector.rsplit(".", 1)[-1]
        if (selector, statement.parameter) == ("eval_chief_config", "learned_opt"):
            optimizer = optimizer or statement
        elif (selector, statement.parameter) == ("Case", "learned_optimizer"):
            optimizer = statement
        else:
            rest.append(statement)
    problems = _bind_known(rest)
    if optimizer is not None:
        bind(
            Binding(
                scope="",
                selector="lobench.Case",
                parameter="learned_optimizer",
                value=optimizer.value,
                where=optimizer.where,
            )
        )
    return problems


def _bind_known(bindings: Iterable[Binding]) -> list[str]:
    problems = []
    for binding in bindings:
        is_known = bool(binding.parameter) and is_registered(binding.selector)
        try:
            bind(binding)
        except ConfigError as error:
            if is_known:
                problems.append(f"not bound: {error}")
    return problems
