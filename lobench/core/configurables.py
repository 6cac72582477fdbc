"""Names of users' classes and functions registered by `lobench.configurable`, and recorded calls of classes."""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from typing import Any, NamedTuple

__all__ = ["USER_CONFIGURABLES", "Call", "call_of", "record_calls", "without_recorder"]

USER_CONFIGURABLES: set[str] = set()  # whole names: "my_package.optimizers.lion"
_ORIGINAL_INIT = "_lobench_recorded"  # attribute of a constructor that records, with the class's own


class Call(NamedTuple):
    """Call of a class that made an instance."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


_calls: dict[int, tuple[weakref.ref[Any], Call]] = {}  # by the id of a live instance
_without_arguments: weakref.WeakSet[type] = weakref.WeakSet()


def record_calls(target: object) -> None:
    """Records from now on with which arguments a class is called, so that a case in Python can be written as gin text.

    Its constructor keeps its signature. Functions, and classes that do not allow a new constructor, are not changed.
    """
    if not isinstance(target, type):
        return
    original: Any = target.__init__  # type: ignore[misc]
    if original is object.__init__:
        make: Any = target.__new__
        if make is object.__new__:  # another __new__ may take arguments, as a named tuple's does
            _without_arguments.add(target)
        return

    @functools.wraps(original)
    def recorder(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is target:
            _record(self, Call(args, kwargs))
        original(self, *args, **kwargs)

    setattr(recorder, _ORIGINAL_INIT, original)
    try:
        recorder.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]  # gin reads it
        target.__init__ = recorder  # type: ignore[misc]
    except (TypeError, ValueError, AttributeError):  # a class that is not written in Python, or is closed
        return


def _record(instance: Any, call: Call) -> None:
    instance_id = id(instance)
    try:
        reference = weakref.ref(instance, lambda _: _calls.pop(instance_id, None))
    except TypeError:  # the class does not allow weak references
        return
    _calls[instance_id] = reference, call


def call_of(instance: object) -> Call | None:
    """Returns the call that made an instance; None for a copy, and for an instance of a class that is not recorded."""
    entry = _calls.get(id(instance))
    if entry is not None:
        return entry[1]
    return Call((), {}) if type(instance) in _without_arguments else None


def without_recorder(function: types.FunctionType) -> types.FunctionType:
    """Returns the original constructor of a class whose calls are recorded; any other function unchanged."""
    original: types.FunctionType = vars(function).get(_ORIGINAL_INIT, function)
    return original
