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
_PLAIN_TYPES = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range, slice)
_REPR_TYPES = (
    np.dtype, np.generic, types.GenericAlias, types.UnionType, typing.TypeVar, datetime.datetime, datetime.date,
    datetime.timedelta, pathlib.PurePath,
)  # fmt: skip
_STATELESS_TYPES = (
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
_FIELD_TYPE = type(vars(namedtuple("_One", "first"))["first"])  # type of a named tuple's field descriptors
_LRU_CACHE_TYPE = type(functools.lru_cache(lambda: None))


class Unhashable(Exception):
    """A value that tracing can reach cannot be hashed completely."""


class StateHash:
    """Hash to which values are added, each once. Values may contain themselves."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._held_values: list[Any] = []  # keeps values alive, so that ids stay unique
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
        self._add_items("module", module.__name__, vars(module).items())

    def _update(self, *values: Any) -> None:
        for value in values:
            data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
            self._sha.update(b"%d:" % len(data))
            self._sha.update(data)

    def _add_items(self, kind: str, name: str, items: Iterable[tuple[Any, Any]]) -> None:
        self._update(kind, name)
        for key, value in list(items):
            if isinstance(key, str) and key in MADE_BY_PYTHON:
                continue
            self._add(key)
            self._add(value)
        self._update("end")

    def _add(self, value: Any) -> None:
        value_type = type(value)
        if value_type in _PLAIN_TYPES:
            self._update(value_type.__name__, repr(value))
            return
        if id(value) in self._seen:
            self._update("again", self._seen[id(value)])
            return
        self._seen[id(value)] = len(self._seen)
        self._held_values.append(value)
        if name := known_name(value):
            self._update("named", name)
        elif isinstance(value, np.ndarray):
            self._add_array(value)
        elif isinstance(value, jax.Array):
            self._add_jax_array(value)
        elif isinstance(value, types.FunctionType):
            self._add_function(without_recorder(value))
        elif isinstance(value, types.CodeType):
            self._add_code(value)
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, types.ModuleType):
            self._add_named_module(value)
        elif isinstance(value, _REPR_TYPES):
            self._update(value_type.__qualname__, repr(value))
        elif value_type in _STATELESS_TYPES:
            builtin_name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
            self._update("without state", value_type.__qualname__, builtin_name)
        elif isinstance(value, _FIELD_TYPE):
            self._update("field", value.__reduce__()[1][0])
        elif not self._add_wrapper(value) and not self._add_collection(value):
            self._add_instance(value)

    def _add_array(self, value: np.ndarray) -> None:
        self._update("array", value.dtype.str, value.dtype, value.shape)
        if value.dtype.hasobject:
            for element in value.ravel().tolist():
                self._add(element)
            return
        self._num_bytes += value.nbytes
        if self._num_bytes > _MOST_BYTES:
            raise Unhashable(f"more than {_MOST_BYTES:,} bytes of arrays")
        self._sha.update(np.ascontiguousarray(value).view(np.uint8).data if value.size else b"")

    def _add_jax_array(self, value: jax.Array) -> None:
        if isinstance(value, jax.core.Tracer):
            raise Unhashable("a value that is being traced")
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            self._update("key", value.dtype)
            value = jax.random.key_data(value)
        self._update("jax", value.weak_type)
        self._add_array(np.asarray(value))

    def _add_function(self, value: types.FunctionType) -> None:
        code = value.__code__
        self._update("function", value.__module__, value.__qualname__)
        if origin_of_file(code.co_filename) is Origin.USER:
            self._add_code(code)
            module = sys.modules.get(value.__globals__.get("__name__", ""))
            if module is None or vars(module) is not value.__globals__:
                self._add(value.__globals__)
        else:
            self._update(code.co_filename, code.co_firstlineno)
        for cell in value.__closure__ or ():
            try:
                self._add(cell.cell_contents)
            except ValueError:
                self._update("empty")
        self._add(value.__defaults__)
        self._add(value.__kwdefaults__)
        self._add_items("of function", "", vars(value).items())

    def _add_code(self, code: types.CodeType) -> None:
        self._update(
            "code", code.co_name, code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
        )
        self._update(code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._update(getattr(code, "co_exceptiontable", b""))
        for constant in code.co_consts:
            self._add(constant)

    def _add_class(self, value: type) -> None:
        self._update("class", value.__module__, value.__qualname__)
        self._add(type(value))
        for base in value.__mro__[1:]:
            self._add(base)
        if _is_python(value):
            self._add_items("of class", "", vars(value).items())
        elif origin_of_module(value.__module__) is Origin.USER:
            raise Unhashable(f"the class {value.__qualname__}, which is not Python code")

    def _add_named_module(self, value: types.ModuleType) -> None:
        self._update("module named", value.__name__, file_of(value))
        if sys.modules.get(value.__name__) is not value:
            self.module(value)

    def _add_wrapper(self, value: Any) -> bool:
        """Adds wrappers of functions; returns False for other values."""
        if isinstance(value, types.MethodType):
            self._update("method")
            self._add(value.__func__)
            self._add(value.__self__)
        elif isinstance(value, types.BuiltinFunctionType):
            owner = value.__self__
            self._update("builtin", value.__module__, value.__qualname__)
            self._add(None if owner is None or isinstance(owner, types.ModuleType) else owner)
        elif isinstance(value, staticmethod | classmethod):
            self._update(type(value).__name__)
            self._add(value.__func__)
        elif type(value) is property:
            self._update("property")
            for function in (value.fget, value.fset, value.fdel):
                self._add(function)
        elif type(value) is functools.partial:
            self._update("partial")
            self._add((value.func, value.args, value.keywords))
        elif isinstance(value, _LRU_CACHE_TYPE):
            self._update("cached", tuple(value.cache_parameters().values()))
            wrapped_function = value.__wrapped__
            if origin_of_file(wrapped_function.__code__.co_filename) is Origin.USER and value.cache_info().currsize:
                raise Unhashable(f"the results that {wrapped_function.__qualname__} keeps")
            self._add(wrapped_function)
        elif type(value).__module__ in ("jaxlib._jax", "jaxlib.xla_extension") and hasattr(value, "__wrapped__"):
            self._update("compiled by jax", type(value).__name__)
            self._add(value.__wrapped__)
        else:
            return False
        return True

    def _add_collection(self, value: Any) -> bool:
        """Adds a value to the hash if it is a collection, an enum member or a pattern. Returns whether it was added."""
        value_type = type(value)
        if value_type in (tuple, list, deque):
            self._update(value_type.__name__, len(value))
            for element in value:
                self._add(element)
        elif value_type in (dict, OrderedDict, types.MappingProxyType):
            self._add_items(value_type.__name__, str(len(value)), value.items())
        elif value_type is defaultdict:
            self._add(value.default_factory)
            self._add_items(value_type.__name__, str(len(value)), value.items())
        elif value_type in (set, frozenset):
            self._update(value_type.__name__, len(value))
            self._add_set(value)
        elif isinstance(value, enum.Enum):
            self._update("enum", value_type.__module__, value_type.__qualname__, value.name)
            self._add(value_type)
            self._add(value.value)
        elif isinstance(value, re.Pattern):
            self._update("pattern", value.pattern, value.flags)
        else:
            return False
        return True

    def _add_set(self, values: Any) -> None:
        digests = []
        for element in values:
            element_hash = StateHash()
            element_hash.add(element)
            digests.append(element_hash.hexdigest())
        self._update(*sorted(digests))

    def _add_instance(self, value: Any) -> None:
        value_type = type(value)
        self._update("instance")
        self._add(value_type)
        hiding_classes = [cls for cls in value_type.__mro__ if cls not in _BASES and not _is_python(cls)]
        if hiding_classes:
            raise Unhashable(f"a {value_type.__module__}.{value_type.__qualname__}, whose state Python does not show")
        has_state = False
        bases: tuple[Any, ...] = (tuple, list, set, frozenset, dict, str, int, float, complex, bytes)
        for base in bases:
            if isinstance(value, base):
                self._add(base(value))
                has_state = True
        for cls in value_type.__mro__:
            slots = vars(cls).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else tuple(slots):
                has_state = True
                if name not in ("__dict__", "__weakref__"):
                    is_private = name.startswith("__") and not name.endswith("__")
                    mangled = f"_{cls.__name__.lstrip('_')}{name}" if is_private else name
                    self._update(name)
                    try:
                        self._add(object.__getattribute__(value, mangled))
                    except AttributeError:
                        self._update("unset")
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            if not has_state:
                raise Unhashable(
                    f"a {value_type.__module__}.{value_type.__qualname__}, which does not show its state"
                ) from None
            return
        self._add_items("attributes", "", attributes.items())


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
