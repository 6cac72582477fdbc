"""Call adapter: a foreign function called with those available arguments that it accepts."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

__all__ = ["call_with_accepted"]

_POSITIONAL_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_KEYWORD_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def call_with_accepted(function: Callable[..., Any], *args: Any, **available: Any) -> Any:
    """Calls a function with `args`, and with the arguments in `available` that its signature accepts.

    Only signatures are examined, not errors of the call, because a TypeError may come from the user's own code.
    `**extra` accepts everything, as in optax's contract, with two exceptions. In a function wrapped by
    `functools.wraps`, every layer must accept a name. If an optimizer's method accepts a name by `**extra` only, the
    optimizers among its attributes must accept it too, and so must the method that it overrides and calls by `super()`.

    Args:
      function: Function to call.
      args: Positional arguments.
      available: Keyword arguments that it may receive.
    Raises:
      Exception: Any error of the function.
    """
    accepted_names = _accepted_names(function, len(args), frozenset(available))
    return function(*args, **{name: value for name, value in available.items() if name in accepted_names})


def _accepted_names(function: Callable[..., Any], num_args: int, names: frozenset[str]) -> frozenset[str]:
    """Returns the names that a function accepts besides `num_args` arguments; none if it has no signature."""
    try:
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    positional_names = [parameter.name for parameter in parameters if parameter.kind in _POSITIONAL_KINDS]
    filled_names = set(positional_names[:num_args])
    keyword_names = (
        names & {parameter.name for parameter in parameters if parameter.kind in _KEYWORD_KINDS} - filled_names
    )
    takes_any_keyword = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    unmatched_names = names - filled_names - keyword_names if takes_any_keyword else frozenset[str]()
    for method in _inner_methods(function):
        unmatched_names = _accepted_names(method, num_args, unmatched_names) if unmatched_names else unmatched_names
    wrapped_function = _function_wrapped_by(function)
    return (
        keyword_names | unmatched_names
        if wrapped_function is None
        else _accepted_names(wrapped_function, num_args, keyword_names | unmatched_names)
    )


def _function_wrapped_by(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Returns the function or method that `functools.wraps` has wrapped."""
    wrapped_function = getattr(function, "__wrapped__", None)
    if wrapped_function is None or isinstance(function, functools.partial):
        return None  # a partial has the signature of its function
    return types.MethodType(wrapped_function, function.__self__) if inspect.ismethod(function) else wrapped_function


def _inner_methods(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Returns the methods of the same name, in base classes and attributes, to which a method passes arguments."""
    if not inspect.ismethod(function):
        return []
    owners = [vars(cls)[function.__name__] for cls in type(function.__self__).__mro__ if function.__name__ in vars(cls)]
    later_methods = owners[owners.index(function.__func__) + 1 :] if function.__func__ in owners else []
    calls_super = "super" in getattr(getattr(function.__func__, "__code__", None), "co_names", ())
    base_methods = [
        types.MethodType(method, function.__self__) for method in later_methods[:1] if calls_super and callable(method)
    ]
    attributes = getattr(function.__self__, "__dict__", {}).values()
    optimizers = [
        attribute
        for attribute in attributes
        if all(callable(getattr(attribute, name, None)) for name in ("init", "update"))
    ]
    return [
        *base_methods,
        *(getattr(optimizer, function.__name__) for optimizer in optimizers if hasattr(optimizer, function.__name__)),
    ]
