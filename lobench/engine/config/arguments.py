"""Real-valued settings of an optimizer, found in gin's configuration and bound to other values.

A compiled program takes their values as arguments, so evaluations that differ only in these values share a program. Its
hash (`Settings.program_hash`) excludes the values. A parameter with a real default is a setting, bound or not.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import gin

from lobench.core.case import OPTIMIZER_FIELDS, UnboundDefault
from lobench.engine.config.gin_state import (
    BINDINGS,
    CONFIGURABLES,
    ReachedBinding,
    binding_scope_of,
    bindings_in,
    bindings_reached_from,
    isolated_gin,
    may_bind,
    names_in_keys,
)

__all__ = ["OptimizerSettings", "settings_of", "settings_of_phases"]

_CASE_NAMES = (
    "lobench.Case", "lobench.Phase", "lobench.task_sequence", "lobench.Suite", "lobench.expect", "lobench.Method",
    "lobench.Experiment"
)  # fmt: skip
_HASH_DIGITS = 16  # hex digits
_FALLBACK_VALUE = 0.5  # for a parameter without a default; nearly every range check accepts it

_Key = tuple[str, str]  # scope and selector, as in gin's own table of bindings


class _UncopiedValue:
    """Wrapper of a value that gin must pass on unchanged: gin copies bound values before each call."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __deepcopy__(self, memo: Any) -> Any:
        return self._value


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """Real-valued settings that a case's optimizer reaches, in an order that depends on their names only.

    Attributes:
      names: Names as in canonical lines, without the scope of the case: `lobench.adam.learning_rate`.
      values: Bound values. For a parameter without a binding it is the default, as an `UnboundDefault`.
      usual: Default of each setting, for computations that must not depend on the bound value.
      bound_defaults: Names of the settings that are bound to their own defaults.
      program_hash: sha256 (16 hex digits) of all bindings except these values and the case, which has its own identity.
    """

    names: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    usual: tuple[float, ...] = ()
    bound_defaults: tuple[str, ...] = ()
    program_hash: str = ""
    _make_optimizer: Callable[[Sequence[Any]], Any] = field(default=lambda values: None, repr=False, compare=False)

    def make_optimizer(self, values: Sequence[Any]) -> Any:
        """Creates the optimizer of `Case.optimizer` or `Case.learned_optimizer` with other, possibly traced, values.

        It is bound and called as for the case. gin's state is restored afterwards.

        Raises:
          Exception: Any exception of the optimizer's constructor.
        """
        return self._make_optimizer(values)


def settings_of(scope: str, optimizer_lines: Sequence[str], paths: Sequence[str]) -> OptimizerSettings:
    """Returns the settings in gin's present configuration, and keeps a copy of the configuration.

    Args:
      scope: Scope of the case.
      optimizer_lines: Canonical lines of all bindings that the optimizer reaches.
      paths: Folders from which modules can be imported while the optimizer is created.
    """
    case_bindings = bindings_in(scope, "lobench.Case")
    optimizer_field = next((name for name in reversed(OPTIMIZER_FIELDS) if case_bindings.get(name) is not None), None)
    reached_settings, callables = bindings_reached_from(
        scope, "lobench.Case", () if optimizer_field is None else (optimizer_field,)
    )
    settings = [
        *(setting for setting in reached_settings.values() if type(setting.value) is float),
        *_default_settings(callables),
    ]
    settings_by_name = {setting.name.removeprefix(f"{scope}/"): setting for setting in settings}
    names = tuple(sorted(settings_by_name))
    sorted_settings = [settings_by_name[name] for name in names]
    defaults = [_default_of(setting) for setting in sorted_settings]
    config = {key: dict(parameters) for key, parameters in BINDINGS.items()}
    # A binding is made in the scope that reads it, or in one around it. A default is bound without a scope, as in most
    # files.
    sources = [((_binding_scope(setting), setting.selector), setting.parameter) for setting in sorted_settings]
    binding_keys = [*sources, *(((setting.scope, setting.selector), setting.parameter) for setting in sorted_settings)]

    def make(values: Sequence[Any]) -> Any:
        with isolated_gin(*paths):
            BINDINGS.update({key: dict(parameters) for key, parameters in config.items()})
            # Values are bound in both scopes, the inner one last, so that no reader in another scope gets an old value.
            for setting, (key, parameter), value in zip(
                (*sorted_settings, *sorted_settings), binding_keys, (*values, *values), strict=True
            ):
                if not (isinstance(setting.value, UnboundDefault) and isinstance(value, float)):
                    BINDINGS.setdefault(key, {})[parameter] = _UncopiedValue(value)
            with gin.config_scope(scope):
                return copy.deepcopy(case_bindings[optimizer_field]) if optimizer_field is not None else None

    # Does not depend on whether a setting is bound or left to its default.
    lines = [line for line in optimizer_lines if line.partition(" = ")[0] not in settings_by_name]
    return OptimizerSettings(
        names=names,
        values=tuple(setting.value for setting in sorted_settings),
        usual=tuple(_FALLBACK_VALUE if default is None else default for default in defaults),
        bound_defaults=tuple(
            name
            for name, setting, default in zip(names, sorted_settings, defaults, strict=True)
            if setting.value == default and not isinstance(setting.value, UnboundDefault)
        ),
        program_hash=_sha256(*lines, *names, *sorted(_other_bindings(config, set(sources)))),
        _make_optimizer=make,
    )


def settings_of_phases(phases: Sequence[OptimizerSettings]) -> OptimizerSettings:
    """Returns the settings of all phases, one after another. Each phase creates its own optimizer."""
    return OptimizerSettings(
        names=tuple(f"phases[{index}]: {name}" for index, phase in enumerate(phases) for name in phase.names),
        values=tuple(value for phase in phases for value in phase.values),
        usual=tuple(value for phase in phases for value in phase.usual),
        bound_defaults=tuple(dict.fromkeys(name for phase in phases for name in phase.bound_defaults)),
        program_hash=_sha256(*(phase.program_hash for phase in phases)),
    )


def _binding_scope(setting: ReachedBinding) -> str:
    """Returns the scope in which a setting is bound; "" if it is not bound."""
    return "" if isinstance(setting.value, UnboundDefault) else binding_scope_of(setting)


def _default_settings(callables: Iterable[tuple[str, str]]) -> Iterator[ReachedBinding]:
    """Yields the parameters that nothing binds and that have a real default.

    Args:
      callables: Scope and selector of each configurable that the optimizer reaches.
    """
    callables = list(callables)
    names = names_in_keys({selector for _, selector in callables})
    for scope, selector in callables:
        bindings = bindings_in(scope, selector)
        for name, parameter in _parameters(selector).items():
            default = parameter.default
            if name in bindings or type(default) is not float or not math.isfinite(default):
                continue
            if may_bind(selector, name):
                yield ReachedBinding(scope, selector, names[selector], name, UnboundDefault(default))


def _other_bindings(config: Mapping[_Key, Mapping[str, Any]], sources: Set[tuple[_Key, str]]) -> Iterator[str]:
    """Yields all bindings except those of the case and of settings.

    An optimizer may read bindings that it does not reach, by calling another configurable.
    """
    names = names_in_keys({selector for _, selector in config} | {selector for (_, selector), _ in sources})
    for (scope, selector), parameter in sources:
        yield f"{scope}/{names[selector]}.{parameter}"
    for (scope, selector), parameters in config.items():
        if selector not in _CASE_NAMES:
            for parameter, value in parameters.items():
                if ((scope, selector), parameter) not in sources:
                    yield f"{scope}/{names[selector]}.{parameter} = {value!r}"


def _default_of(setting: ReachedBinding) -> float | None:
    """Returns the finite real default of a parameter; None if it has none."""
    default = getattr(_parameters(setting.selector).get(setting.parameter), "default", None)
    return default if type(default) is float and math.isfinite(default) else None


def _parameters(selector: str) -> Mapping[str, inspect.Parameter]:
    """Returns the parameters of a configurable; empty if it is written in C and has no signature."""
    try:
        return inspect.signature(CONFIGURABLES[selector].wrapped).parameters
    except (TypeError, ValueError):
        return {}


def _sha256(*hashed_texts: str) -> str:
    return hashlib.sha256("\0".join(hashed_texts).encode()).hexdigest()[:_HASH_DIGITS]
