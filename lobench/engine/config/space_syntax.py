"""Search spaces in an experiment's file: references in place of values, `adam/adam.learning_rate = @rate/Real()`.

Spaces, searches and races are not gin configurables: they are read here, and workers never see them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from lobench.core.errors import ConfigError, suggestion
from lobench.core.experiment import Method, Race, Search
from lobench.core.number_checks import integer_text, is_integer, is_number
from lobench.core.search.space import Kind, Parameter, check_parameters, parameter_of
from lobench.engine.config.syntax import (
    Binding,
    Macro,
    Reference,
    Statement,
    binding_text,
    only_bindings,
    parse_text,
    references_in,
)

__all__ = [
    "RENAMED_KEYS",
    "SEARCH_KEYS",
    "check_spaces",
    "effective_bindings",
    "is_of_search",
    "is_same_method",
    "is_space",
    "race_of",
    "search_identity",
    "search_of",
    "space_of",
    "without_searches",
]

SEARCH_KEYS = ("search", "num_trials", "wave", "median_stopping", "report_sessions")
RENAMED_KEYS = {"stop_hopeless": "median_stopping"}  # keys of `Method` in files of older stores
_METHOD_FIELDS_OUTSIDE_TRIALS = ("label", "num_trials", "report_sessions", "num_cpus", "num_gpus")
_RACE = ("Experiment", "race")
_RACE_PARAMETERS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "block": (integer_text(), is_integer),
    "margin": ("a difference of scores, from 0 to 3", lambda value: _is_between(value, 0.0, 3.0)),
    "alpha": ("a chance from 0.0001 to 0.5", lambda value: _is_between(value, 0.0001, 0.5)),
}
_SPACE_NAMES = tuple(kind.capitalize() for kind in Kind)


def is_space(value: object) -> bool:
    """Returns whether a value is a search space: `@rate/Real()`. `@my_package.Real()` is a user's configurable."""
    return isinstance(value, Reference) and _short_name(value.selector) in _SPACE_NAMES


def _short_name(selector: str) -> str:
    return selector.removeprefix("lobench.")


def is_of_search(binding: Binding, bindings: Iterable[Binding]) -> bool:
    """Returns whether a binding is of a space, a search or a race: `rate/Real.low`, `optuna.sampler`, `race.margin`."""
    name = _short_name(binding.selector)
    return bool(binding.parameter) and (name in _SPACE_NAMES or name in _search_names(bindings))


def without_searches(statements: Sequence[Statement]) -> list[Statement]:
    """Returns the statements of an experiment's file that workers bind: all but those of spaces and searches."""
    bindings = only_bindings(statements)
    if not any(binding.name == "Method" for binding in bindings):
        return list(statements)
    names = {*_SPACE_NAMES, *_search_names(bindings)}
    return [
        statement
        for statement in statements
        if not isinstance(statement, Binding)
        or not (
            is_space(statement.value)
            or (statement.parameter and _short_name(statement.selector) in names)
            or (statement.name == "Method" and statement.parameter in SEARCH_KEYS)
            or (statement.name, statement.parameter) == _RACE
        )
    ]


def _search_names(bindings: Iterable[Binding]) -> set[str]:
    return {
        _short_name(binding.value.selector)
        for binding in bindings
        if (binding.name, binding.parameter) in (("Method", "search"), _RACE) and isinstance(binding.value, Reference)
    }


def check_spaces(bindings: Sequence[Binding], methods: Sequence[str]) -> None:
    """Checks that spaces are bound to parameters of methods, not to cases or in lists, and have parentheses.

    Raises:
      ConfigError: A space is used elsewhere.
    """
    for binding in bindings:
        spaces = [reference for reference in references_in(binding.value) if is_space(reference)]
        if not spaces:
            continue
        line = binding_text(binding)
        is_of_method = binding.scope.split("/")[0] in methods and binding.name != "Method"
        if not is_of_method or not is_space(binding.value):
            raise ConfigError(
                "a space stands where no value of a method does",
                where=binding.where,
                got=line,
                expected="a line such as `adam/adam.learning_rate = @rate/Real()`",
            )
        if not binding.value.evaluate:
            raise ConfigError("a space is a call", where=binding.where, got=line, expected=f"{line}()")


def effective_bindings(own_bindings: Sequence[Binding]) -> list[Binding]:
    """Returns a method's effective bindings.

    If a parameter has a space and several bindings, only the last one counts.
    """
    last_bindings = {_binding_path(binding): binding for binding in own_bindings}
    searched_paths = {_binding_path(binding) for binding in own_bindings if is_space(binding.value)}
    return [
        binding
        for binding in own_bindings
        if _binding_path(binding) not in searched_paths or last_bindings[_binding_path(binding)] is binding
    ]


def _binding_path(binding: Binding) -> tuple[str, str, str]:
    return binding.scope, binding.selector, binding.parameter


def space_of(name: str, own_bindings: Sequence[Binding], bindings: Sequence[Binding]) -> tuple[Parameter, ...]:
    """Returns the search space of a method: its parameters, by their path in the method's scope.

    Args:
      name: Name of the method.
      own_bindings: Bindings in the method's scope.
      bindings: All bindings.
    Raises:
      ConfigError: A space is invalid: a range is empty or reversed, a condition names no parameter, ...
    """
    parameters = []
    for binding in own_bindings:
        if is_space(binding.value):
            inner_scope = binding.scope.removeprefix(name).removeprefix("/")
            path = binding_text(binding, inner_scope).partition(" = ")[0]
            keywords = _call_arguments(binding.value, binding.scope, bindings)
            parameters.append(parameter_of(path, binding.value.name, keywords, binding.where))
    if parameters:
        check_parameters(parameters, f"method {name!r}")
    return tuple(parameters)


def search_of(
    method: Method,
    reference: Reference | None,
    keys: Sequence[Binding],
    own_bindings: Sequence[Binding],
    all_bindings: Sequence[Binding],
) -> Search | None:
    """Returns a method's search, or None.

    Args:
      method: Method with its space.
      reference: Value of `Method.search`.
      keys: Bindings of its `Method.*`.
      own_bindings: Bindings in its scope.
      all_bindings: All bindings of the file, in any scope.
    Raises:
      ConfigError: There is a space without a search, a search without a space, or a search setting without a search.
    """
    if method.median_stopping is not None and (method.kind == "command" or (method.curves and not method.until_step)):
        problem = f"nothing reads {method.name}/Method.median_stopping"
        next_step = "a meta-training goes on to its end: it counts for optimizers, checkpoints, and scripts with curves"
        if method.kind == "script":
            problem = "nothing defines how long it trains"
            next_step = f"bind {method.name}/Method.until_step to its last step: trials are compared at a share of it"
        where = next(binding.where for binding in keys if binding.parameter == "median_stopping")
        raise ConfigError(problem, where=where, next_step=next_step)
    if reference is not None and method.space:
        keywords = _call_arguments(reference, method.name, all_bindings)
        return Search(name=reference.selector, keywords=tuple(sorted(keywords.items())))
    if reference is not None:
        raise ConfigError(
            f"method {method.name!r} has a search, and no space",
            where=next(binding.where for binding in keys if binding.parameter == "search"),
            expected=f"a line such as `{method.name}/adam.learning_rate = @rate/Real()`",
        )
    if method.space:
        space_binding = next(binding for binding in own_bindings if is_space(binding.value))
        raise ConfigError(
            f"method {method.name!r} has a space, and no search",
            where=space_binding.where,
            got=binding_text(space_binding),
            next_step=f"bind {method.name}/Method.search = @random(), for example",
        )
    for binding in keys:
        if binding.parameter in SEARCH_KEYS:
            raise ConfigError(
                f"nothing reads {method.name}/Method.{binding.parameter}",
                where=binding.where,
                next_step="it counts where Method.search is bound",
            )
    return None


def race_of(bindings: Sequence[Binding]) -> Race | None:
    """Returns the race of an experiment, or None.

    Raises:
      ConfigError: `Experiment.race` or a setting of it is invalid, or the number of sessions is missing or not a
        multiple of the block size.
    """
    experiment_bindings = {binding.parameter: binding for binding in bindings if binding.name == "Experiment"}
    race_binding = experiment_bindings.get("race")
    if race_binding is None:
        return None
    if (
        not isinstance(race_binding.value, Reference)
        or race_binding.value.selector != "race"
        or not race_binding.value.evaluate
    ):
        raise ConfigError(
            "Experiment.race", where=race_binding.where, got=binding_text(race_binding), expected="@race()"
        )
    keywords = _call_arguments(race_binding.value, "", bindings)
    for key, value in keywords.items():
        if key not in _RACE_PARAMETERS:
            expected = ", ".join(f"race.{parameter}" for parameter in _RACE_PARAMETERS)
            raise ConfigError(f"nothing reads race.{key}", where=race_binding.where, expected=expected)
        expected, is_valid = _RACE_PARAMETERS[key]
        if not is_valid(value):
            raise ConfigError(f"race.{key}", where=race_binding.where, got=repr(value), expected=expected)
    first_seed_binding = experiment_bindings.get("first_session")
    num_seeds_binding = experiment_bindings.get("num_sessions")
    num_sessions = 0 if num_seeds_binding is None else num_seeds_binding.value
    first_seed = 0 if first_seed_binding is None else first_seed_binding.value
    race = Race(rounds=0, first_seed=first_seed, **keywords)
    if not num_sessions or num_sessions % race.block:
        got = f"{num_sessions} sessions in blocks of {race.block}" if num_sessions else "no Experiment.num_sessions"
        problem = "a race is over whole blocks of seeds"
        raise ConfigError(problem, where=race_binding.where, got=got, expected=f"a multiple of {race.block}")
    return replace(race, rounds=num_sessions // race.block)


def _is_between(value: Any, low: float, high: float) -> bool:
    return is_number(value) and low <= value <= high


def _call_arguments(reference: Reference, scope: str, bindings: Sequence[Binding]) -> dict[str, Any]:
    """Returns the arguments with which gin would call a reference in a scope. Inner scopes take precedence."""
    scope_parts = reference.scoped_selector.split("/")[:-1] or scope.split("/")
    keywords: dict[str, Any] = {}
    for depth in range(len(scope_parts) + 1):
        for binding in bindings:
            is_read = _short_name(binding.selector) == _short_name(reference.selector)
            if is_read and binding.scope == "/".join(scope_parts[:depth]) and binding.parameter:
                keywords[binding.parameter] = _plain_value(binding, bindings)
    return keywords


def _plain_value(binding: Binding, bindings: Sequence[Binding]) -> Any:
    """Returns a binding's value. A macro is replaced by its value."""
    value = binding.value
    if isinstance(value, Macro):
        definitions = [binding for binding in bindings if not binding.parameter and binding.selector == value.name]
        if not definitions:
            names = [binding.selector for binding in bindings if not binding.parameter]
            next_step = suggestion(value.name, names)
            raise ConfigError(f"no macro %{value.name}", where=binding.where, next_step=next_step)
        value = definitions[-1].value
    if any(references_in(value)):
        raise ConfigError("no plain value", where=binding.where, got=binding_text(binding))
    return value


def search_identity(config: str, name: str) -> tuple[str, ...]:
    """Returns the bindings of an experiment's text on which the trials of a method's search depend.

    They do not depend on labels, the number of trials, or other methods. A suite counts by its name, because its path
    depends on the folder of the file.
    """
    return tuple(
        binding_text(_as_identified(binding))
        for binding in _without_other_methods(_bindings_of(config), name)
        if not (binding.name == "Method" and binding.parameter in _METHOD_FIELDS_OUTSIDE_TRIALS)
        and not (binding.name == "Experiment" and binding.parameter in ("name", "fixed"))
    )


def _as_identified(binding: Binding) -> Binding:
    if _key(binding) == ("Experiment", "suites") and isinstance(binding.value, list | tuple):
        return replace(binding, value=[PurePath(suite).name for suite in binding.value])
    return replace(binding, parameter=RENAMED_KEYS.get(binding.parameter, binding.parameter))


def is_same_method(name: str, earlier_config: str, config: str, sessions: Collection[int] = ()) -> bool:
    """Returns whether results of a method that an earlier text asked for are results of it in an experiment's text.

    Labels and other methods do not matter. The text may ask for more sessions. (A search has then chosen its best trial
    on the earlier ones.) The code of a command must be the same if the text has it. (It has the code of the commands
    that were run.)

    Args:
      name: Name of the method.
      earlier_config, config: The two texts.
      sessions: Sessions of the results, if the earlier text leaves their number to the cases.

    >>> adam, sgd = "adam/Method.optimizer = @adam()\\n", "sgd/Method.optimizer = @sgd()\\n"
    >>> is_same_method("sgd", sgd, adam + sgd), is_same_method("sgd", sgd, sgd + "Case.num_seeds = 3\\n")
    (True, False)
    """
    earlier_bindings, bindings = map(_bindings_of, (earlier_config, config))
    has_method = any((binding.scope, binding.name) == (name, "Method") for binding in bindings)
    earlier_code, code = (
        re.findall(f"^# code of {re.escape(name)}: (.*)$", text, re.MULTILINE) for text in (earlier_config, config)
    )
    return (
        has_method
        and _lines_of_results(earlier_bindings, name) == _lines_of_results(bindings, name)
        and _asks_for_sessions(bindings, earlier_bindings, sessions)
        and (not code or code == earlier_code)
    )


def _asks_for_sessions(
    bindings: Sequence[Binding], earlier_bindings: Sequence[Binding], sessions: Collection[int]
) -> bool:
    """Returns whether bindings ask for all sessions that earlier bindings ask for.

    Args:
      sessions: The earlier sessions, if their number is not bound.
    """
    wanted_sessions, earlier_sessions = map(_sessions_of, (bindings, earlier_bindings))
    if wanted_sessions is None:
        return earlier_sessions is None
    return set(sessions if earlier_sessions is None else earlier_sessions) <= set(wanted_sessions)


def _sessions_of(bindings: Iterable[Binding]) -> range | None:
    """Returns the sessions of an experiment; None if their number is not bound."""
    values = {binding.parameter: binding.value for binding in bindings if binding.name == "Experiment"}
    num_sessions, first_session = values.get("num_sessions"), values.get("first_session", 0)
    return None if num_sessions is None else range(first_session, first_session + num_sessions)


def _lines_of_results(bindings: Sequence[Binding], name: str) -> list[str]:
    """Returns the bindings on which a method's results depend, except for the sessions."""
    own_bindings = _without_other_methods(bindings, name)
    has_search = any(_key(binding) == ("Method", "search") for binding in own_bindings)
    ignored_keys = (("Method", "label"), *(("Experiment", key) for key in ("name", "num_sessions", "first_session")))
    return [
        binding_text(binding)
        for binding in own_bindings
        if _key(binding) not in ignored_keys and (has_search or not is_of_search(binding, bindings))
    ]


def _key(binding: Binding) -> tuple[str, str]:
    return binding.name, binding.parameter


def _bindings_of(config: str) -> list[Binding]:
    """Returns the bindings of an experiment's text, the last one of each parameter; [] if it cannot be parsed."""
    try:
        bindings = only_bindings(parse_text(config, "the experiment"))
    except ConfigError:
        return []
    return list({_binding_path(binding): binding for binding in bindings}.values())


def _without_other_methods(bindings: Sequence[Binding], name: str) -> list[Binding]:
    """Returns the bindings outside the scopes of other methods than `name`."""
    other_methods = {binding.scope for binding in bindings if binding.name == "Method"} - {name}
    return [binding for binding in bindings if binding.scope.split("/")[0] not in other_methods]
