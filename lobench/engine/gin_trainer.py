"""The layers that come with a checkpoint: a trainer's `config.gin`, and bindings that a checkpoint carries."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from lobench.core.errors import ConfigError
from lobench.engine.gin_binding import bind, import_named
from lobench.engine.gin_syntax import Binding, Import, Statement, parse_file

__all__ = ["bind_trainer_config", "bind_values"]


def bind_values(statements: Sequence[Statement]) -> None:
    """Binds what we know of a checkpoint's own bindings, which are data: they import nothing and build nothing."""
    for statement in statements:
        is_plain = isinstance(statement, Binding) and bool(statement.parameter) and not statement.scope
        if not is_plain or not isinstance(getattr(statement, "value", None), bool | int | float | str):
            raise ConfigError(
                "a checkpoint's own binding", where=statement.where, expected="`Name.parameter = number, text or bool`"
            )
        assert isinstance(statement, Binding)
        with contextlib.suppress(ConfigError):
            bind(statement)


def bind_trainer_config(path: Path) -> None:
    """Binds what we know of a trainer's configuration; its optimizer for evaluations, if it names one, strictly."""
    statements = parse_file(path)
    optimizer: Binding | None = None
    for statement in statements:
        if isinstance(statement, Import):
            with contextlib.suppress(ConfigError):
                import_named(statement)
            continue
        selector = statement.selector.rsplit(".", 1)[-1]
        if (selector, statement.parameter) == ("eval_chief_config", "learned_opt"):
            optimizer = optimizer or statement
        elif (selector, statement.parameter) == ("Case", "learned_optimizer"):
            optimizer = statement
        else:
            with contextlib.suppress(ConfigError):
                bind(statement)
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
