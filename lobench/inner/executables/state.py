"""Hash of Python values as seen by tracing: data, instances, functions with their closures, classes.

Values of unknown kinds are refused, so that they never count as equal.
"""

from __future__ import annotations

import datetime
import enum
import functools
import hashlib
import logging
import pathlib
import re
import sys
import threading
import types
import typing
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.code_origin import Origin, file_of, origin_of_file, origin_of_module
from lobench.core.configurables import without_recorder

__all__ = ["MADE_BY_PYTHON", "StateHash", "Unhashable", "known_name"]

_MOST_BYTES = 1 << 28  # largest size of all arrays together
MADE_BY_PYTHON = frozenset(
    {
        "__builtins__", "__cached__", "__dict__", "__doc__", "__loader__", "__package__", "__spec__", "__weakref__",
        "_abc_impl", "__static_attributes__", "__firstlineno__", "__slotnames__",
    }
)  # fmt: skip
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range, slice)
_BY_REPR = (
    np.dtype, np.generic, types.GenericAlias, types.UnionType, typing.TypeVar, datetime.datetime, datetime.date,
    datetime.timedelta, pathlib.PurePath,
)  # fmt: skip
_WITHOUT_STATE = (
    object, logging.Logger, type(threading.Lock()), type(threading.RLock()), types.MemberDescriptorType,
    types.GetSetDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, types.MethodWrapperType, np.ufunc,
)  # fmt: skip
# Bases of values whose content is hashed. Other classes not written in Python hide their content.
_BASES = frozenset(
    {
        object, typing.Generic, tuple, list, dict, set, frozenset, int, float, complex, str, bytes, type, OrderedDict,
        defaultdict, deque, property, functools.partial, types.ModuleType, types.SimpleNamespace, BaseException,
        Exception, ValueError, TypeError, RuntimeError,
    }
)  # fmt: skip
_IS_HEAP_TYPE = 1 << 9
_FIELD = type(vars(namedtuple("_One", "first"))["first"])  # type of a named tuple's field descriptors
_LRU_CACHE = type(functools.lru_cache(lambda: None))


class Unhashable(Exception):
    """A value that tracing can reach cannot be hashed completely."""


class StateHash:
    """Hash to which values are added, each once. Values may contain themselves."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._held: list[Any] = []  # keeps values alive, so that ids stay unique
        self._num_bytes = 0

    def hexdigest(self) -> str:
        return self._sha.hexdigest()

    def add(self, *values: Any) -> None:
        """Adds values.

        Raises:
          Unhashable: The kind of a value, or of a value inside it, is unknown.
        """
        try:
            for value in values:
                self._add(value)
        except RecursionError:
            raise Unhashable("what holds itself too deeply") from None

    def module(self, module: types.ModuleType) -> None:
        """Adds all values of a module."""
        self._items("module", module.__name__, vars(module).items())

    def _say(self, *values: Any) -> None:
        for value in values:
            data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
            self._sha.update(b"%d:" % len(data))
            self._sha.update(data)

    def _items(self, kind: str, name: str, items: Iterable[tuple[Any, Any]]) -> None:
        self._say(kind, name)
        for key, value in list(items):
            if isinstance(key, str) and key in MADE_BY_PYTHON:
                continue
            self._add(key)
            self._add(value)
        self._say("end")

    def _add(self, value: Any) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self._say(kind.__name__, repr(value))
            return
        if id(value) in self._seen:
            self._say("again", self._seen[id(value)])
            return
        self._seen[id(value)] = len(self._seen)
        self._held.append(value)
        if name := known_name(value):
            self._say("named", name)
        elif isinstance(value, np.ndarray):
            self._array(value)
        elif isinstance(value, jax.Array):
            self._jax_array(value)
        elif isinstance(value, types.FunctionType):
            self._function(without_recorder(value))
        elif isinstance(value, types.CodeType):
            self._code(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.ModuleType):
            self._module_named(value)
        elif isinstance(value, _BY_REPR):
            self._say(kind.__qualname__, repr(value))
        elif kind in _WITHOUT_STATE:
            builtin_name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
            self._say("without state", kind.__qualname__, builtin_name)
        elif isinstance(value, _FIELD):
            self._say("field", value.__reduce__()[1][0])
        elif not self._wrapper(value) and not self._collection(value):
            self._instance(value)

    def _array(self, value: np.ndarray) -> None:
        self._say("array", value.dtype.str, value.dtype, value.shape)
        if value.dtype.hasobject:
            for element in value.ravel().tolist():
                self._add(element)
            return
        self._num_bytes += value.nbytes
        if self._num_bytes > _MOST_BYTES:
            raise Unhashable(f"more than {_MOST_BYTES:,} bytes of arrays")
        self._sha.update(np.ascontiguousarray(value).view(np.uint8).data if value.size else b"")

    def _jax_array(self, value: jax.Array) -> None:
        if isinstance(value, jax.core.Tracer):
            raise Unhashable("a value that is being traced")
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            self._say("key", value.dtype)
            value = jax.random.key_data(value)
        self._say("jax", value.weak_type)
        self._array(np.asarray(value))

    def _function(self, value: types.FunctionType) -> None:
        code = value.__code__
        self._say("function", value.__module__, value.__qualname__)
        if origin_of_file(code.co_filename) is Origin.USER:
            self._code(code)
            module = sys.modules.get(value.__globals__.get("__name__", ""))
            if module is None or vars(module) is not value.__globals__:
                self._add(value.__globals__)
        else:
            self._say(code.co_filename, code.co_firstlineno)
        for cell in value.__closure__ or ():
            try:
                self._add(cell.cell_contents)
            except ValueError:
                self._say("empty")
        self._add(value.__defaults__)
        self._add(value.__kwdefaults__)
        self._items("of function", "", vars(value).items())

    def _code(self, code: types.CodeType) -> None:
        self._say(
            "code", code.co_name, code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
        )
        self._say(code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._say(getattr(code, "co_exceptiontable", b""))
        for constant in code.co_consts:
            self._add(constant)

    def _class(self, value: type) -> None:
        self._say("class", value.__module__, value.__qualname__)
        self._add(type(value))
        for base in value.__mro__[1:]:
            self._add(base)
        if _is_python(value):
            self._items("of class", "", vars(value).items())
        elif origin_of_module(value.__module__) is Origin.USER:
            raise Unhashable(f"the class {value.__qualname__}, which is not Python code")

    def _module_named(self, value: types.ModuleType) -> None:
        self._say("module named", value.__name__, file_of(value))
        if sys.modules.get(value.__name__) is not value:
            self.module(value)

    def _wrapper(self, value: Any) -> bool:
        """Adds wrappers of functions; returns False for other values."""
        if isinstance(value, types.MethodType):
            self._say("method")
            self._add(value.__func__)
            self._add(value.__self__)
        elif isinstance(value, types.BuiltinFunctionType):
            owner = value.__self__
            self._say("builtin", value.__module__, value.__qualname__)
            self._add(None if owner is None or isinstance(owner, types.ModuleType) else owner)
        elif isinstance(value, staticmethod | classmethod):
            self._say(type(value).__name__)
            self._add(value.__func__)
        elif type(value) is property:
            self._say("property")
            for function in (value.fget, value.fset, value.fdel):
                self._add(function)
        elif type(value) is functools.partial:
            self._say("partial")
            self._add((value.func, value.args, value.keywords))
        elif isinstance(value, _LRU_CACHE):
            self._say("cached", tuple(value.cache_parameters().values()))
            wrapped_function = value.__wrapped__
            if origin_of_file(wrapped_function.__code__.co_filename) is Origin.USER and value.cache_info().currsize:
                raise Unhashable(f"the results that {wrapped_function.__qualname__} keeps")
            self._add(wrapped_function)
        elif type(value).__module__ in ("jaxlib._jax", "jaxlib.xla_extension") and hasattr(value, "__wrapped__"):
            self._say("compiled by jax", type(value).__name__)
            self._add(value.__wrapped__)
        else:
            return False
        return True

    def _collection(self, value: Any) -> bool:
        """Adds collections of Python and enumerations; returns False for other values."""
        kind = type(value)
        if kind in (tuple, list, deque):
            self._say(kind.__name__, len(value))
            for element in value:
                self._add(element)
        elif kind in (dict, OrderedDict, types.MappingProxyType):
            self._items(kind.__name__, str(len(value)), value.items())
        elif kind is defaultdict:
            self._add(value.default_factory)
            self._items(kind.__name__, str(len(value)), value.items())
        elif kind in (set, frozenset):
            self._say(kind.__name__, len(value))
            self._set(value)
        elif isinstance(value, enum.Enum):
            self._say("enum", kind.__module__, kind.__qualname__, value.name)
            self._add(kind)
            self._add(value.value)
        elif isinstance(value, re.Pattern):
            self._say("pattern", value.pattern, value.flags)
        else:
            return False
        return True

    def _set(self, values: Any) -> None:
        digests = []
        for element in values:
            element_hash = StateHash()
            element_hash.add(element)
            digests.append(element_hash.hexdigest())
        self._say(*sorted(digests))

    def _instance(self, value: Any) -> None:
        kind = type(value)
        self._say("instance")
        self._add(kind)
        hides = [cls for cls in kind.__mro__ if cls not in _BASES and not _is_python(cls)]
        if hides:
            raise Unhashable(f"a {kind.__module__}.{kind.__qualname__}, whose state Python does not show")
        has_state = False
        bases: tuple[Any, ...] = (tuple, list, set, frozenset, dict, str, int, float, complex, bytes)
        for base in bases:
            if isinstance(value, base):
                self._add(base(value))
                has_state = True
        for cls in kind.__mro__:
            slots = vars(cls).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else tuple(slots):
                has_state = True
                if name not in ("__dict__", "__weakref__"):
                    is_private = name.startswith("__") and not name.endswith("__")
                    mangled = f"_{cls.__name__.lstrip('_')}{name}" if is_private else name
                    self._say(name)
                    try:
                        self._add(object.__getattribute__(value, mangled))
                    except AttributeError:
                        self._say("unset")
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            if not has_state:
                raise Unhashable(f"a {kind.__module__}.{kind.__qualname__}, which does not show its state") from None
            return
        self._items("attributes", "", attributes.items())


def known_name(value: Any) -> str:
    """Returns the name under which an installed package or lobench has this object, or ""."""
    module = getattr(value, "__module__", None) if not isinstance(value, types.ModuleType) else None
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or origin_of_module(module) is Origin.USER:
        return ""
    candidate: Any = sys.modules.get(module)
    for attribute in name.split("."):
        try:
            candidate = vars(candidate).get(attribute)
        except TypeError:
            return ""
    if isinstance(candidate, staticmethod):
        candidate = candidate.__func__
    return f"{module}.{name}" if candidate is value else ""


def _is_python(cls: type) -> bool:
    """Returns whether a class is written in Python, so that its instances have no hidden state."""
    if not cls.__flags__ & _IS_HEAP_TYPE:
        return False
    module = sys.modules.get(cls.__module__)
    file = file_of(module) if isinstance(module, types.ModuleType) else ""
    return file.endswith((".py", ".pyc")) if file else origin_of_module(cls.__module__) is Origin.USER
