"""Call adapter: a foreign function called with those available arguments that it accepts."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

__all__ = ["call_accepting"]

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def call_accepting(function: Callable[..., Any], *args: Any, **available: Any) -> Any:
    """Calls a function once, with `args` and with what its signature takes of `available`.

    Signatures decide, and no error that a call raises: a TypeError may be of the user's own code. `**extra` takes
    everything, as optax's contract says, but for three kinds of wrappers: of a function that `functools.wraps` has
    wrapped each layer must take a name; and what the method of an optimizer takes by `**extra` alone, the optimizers
    that are its attributes, and the method that it overrides and calls by `super()`, must take too.

    Raises:
      Whatever the function raises.
    """
    taken = _taken_by(function, len(args), frozenset(available))
    return function(*args, **{name: value for name, value in available.items() if name in taken})


def _taken_by(function: Callable[..., Any], num_args: int, names: frozenset[str]) -> frozenset[str]:
    """Returns which names can be given besides so many arguments; none where nothing tells a signature."""
    try:
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    filled = {one.name for one in [one for one in parameters if one.kind in _BY_PLACE][:num_args]}
    named = names & {one.name for one in parameters if one.kind in _BY_NAME} - filled
    is_open = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    rest = names - filled - named if is_open else frozenset[str]()
    for inner in _inner_methods(function):
        rest = _taken_by(inner, num_args, rest) if rest else rest
    wrapped = _wrapped(function)
    return named | rest if wrapped is None else _taken_by(wrapped, num_args, named | rest)


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Returns what `functools.wraps` says that a function, or a method, has wrapped."""
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is None or isinstance(function, functools.partial):
        return None  # the signature of a partial is that of what it calls
    return types.MethodType(wrapped, function.__self__) if inspect.ismethod(function) else wrapped


def _inner_methods(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Returns what a method hands its arguments on to: the same method of a base class, and of its attributes."""
    if not inspect.ismethod(function):
        return []
    owners = [vars(cls)[function.__name__] for cls in type(function.__self__).__mro__ if function.__name__ in vars(cls)]
    later = owners[owners.index(function.__func__) + 1 :] if function.__func__ in owners else []
    calls_super = "super" in getattr(getattr(function.__func__, "__code__", None), "co_names", ())
    above = [types.MethodType(one, function.__self__) for one in later[:1] if calls_super and callable(one)]
    held = getattr(function.__self__, "__dict__", {}).values()
    optimizers = [one for one in held if all(callable(getattr(one, name, None)) for name in ("init", "update"))]
    return [*above, *(getattr(one, function.__name__) for one in optimizers if hasattr(one, function.__name__))]
