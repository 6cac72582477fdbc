"""Parameters as gin bindings: binds them, reads them back, and checks them before a study starts.

Imports gin on use.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence

from lobench import ConfigError
from lobench.extend import Value, cause

__all__ = ["apply_params", "bind_params", "bound_values", "check_gin_paths", "gin_text"]

_applied_values: dict[str, tuple[Value, object]] = {}  # by path: (value bound by `apply_params`, previous value in gin)
_UNBOUND = object()


def apply_params(params: Mapping[str, Value]) -> None:
    """Binds the values of a trial. Bindings of an earlier trial in this process that this one does not have are undone.

    Raises:
      ConfigError: As in `bind_params`.
    """
    current_values = bound_values({**dict.fromkeys(_applied_values, 0), **params})
    for path in _applied_values.keys() - params.keys():
        value, earlier_value = _applied_values.pop(path)
        # A parameter that the trainer has bound since then keeps its value.
        if path in current_values and current_values[path] == value:
            _restore_value(path, earlier_value)
    bind_params(params)
    for path, value in params.items():
        applied_value, earlier_value = _applied_values.get(path, (_UNBOUND, _UNBOUND))
        current_value = current_values.get(path, _UNBOUND)
        _applied_values[path] = (value, earlier_value if current_value == applied_value else current_value)


def _restore_value(path: str, earlier_value: object) -> None:
    import gin.config as gin_state

    key = gin_state.ParsedBindingKey.parse(path)
    if earlier_value is _UNBOUND:
        del gin_state._CONFIG[key.config_key][key.arg_name]  # gin has no public way to remove a binding
    else:
        gin_state._CONFIG[key.config_key][key.arg_name] = earlier_value


def bind_params(params: Mapping[str, Value]) -> None:
    """Binds values to their paths, replacing existing bindings.

    Raises:
      ConfigError: A path is not a parameter of a configurable.
    """
    import gin

    with gin.unlock_config():
        for path, value in params.items():
            try:
                gin.bind_parameter(path, value)
            except ValueError as error:
                raise ConfigError(
                    "an unknown gin path",
                    where=repr(path),
                    got=cause(error),
                    next_step="import the module that registers it",
                ) from error


def bound_values(params: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the present gin values of the paths. Paths without a binding are left out."""
    import gin

    values: dict[str, Value] = {}
    for path in params:
        try:
            values[path] = gin.query_parameter(path)
        except ValueError:
            continue
    return values


def check_gin_paths(paths: Sequence[str], where: str) -> None:
    """Checks that all paths are parameters of configurables. Imports lobench's own modules if one is missing.

    Raises:
      ConfigError: As in `bind_params`.
    """
    from lobench.extend import load_plugins

    try:
        bind_params(dict.fromkeys(paths, 0))
    except ConfigError:
        for name in load_plugins().gin_modules():
            importlib.import_module(name)
        try:
            bind_params(dict.fromkeys(paths, 0))
        except ConfigError as error:
            raise ConfigError(
                f"parameter {error.where}: {error.what}", where=where, got=error.got, next_step=error.next_step
            ) from error


def gin_text(params: Mapping[str, Value]) -> str:
    """Returns the values as gin bindings, one per line, sorted so that equal values give equal text."""
    return "\n".join(f"{path} = {value!r}" for path, value in sorted(params.items()))
