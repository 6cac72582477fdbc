"""Conversion of a torch optimizer to bytes and back, so that lobench can save and resume it like any other state.

The whole instance is saved: its attributes, `state`, parameter groups, random generators, and the objects that these
hold. The bytes are data: a JSON text that describes the objects, followed by the memory of their tensors and arrays.
Reading them runs no code: classes and functions are looked up among the modules that are already imported, objects are
created without their constructor, and nothing else is called.
"""

from __future__ import annotations

import base64
import collections
import enum
import functools
import inspect
import itertools
import json
import math
import operator
import random
import struct
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from lobench_torch.specs import NEXT_STEP, RefusedOptimizer

__all__ = [
    "StateOverflow",
    "decode",
    "encode",
    "sizes_by_path",
    "state_extent",
    "state_size",
]

Json: TypeAlias = Any
Parameters: TypeAlias = Mapping[str, torch.Tensor]

_ALIGNMENT = 64
_MAX_OBJECTS = 20_000  # limit of a module's search for functions
_HEADER = 16  # two int64: bytes of the text, and of everything
# Modules of functions without `__module__`.
_BUILTIN_MODULES = ("builtins", "torch", "torch.nn.functional", "numpy", "math", "operator")
_BASES = (collections.OrderedDict, collections.defaultdict, dict, list, object)  # classes whose content is known


class _NotSaved(Exception):
    """Raised for an object that cannot be encoded; `path` grows as the exception passes through its containers."""

    def __init__(self, got: Any) -> None:
        super().__init__(got)
        self.got = got
        self.path: list[str] = []


class StateOverflow(Exception):
    """A state does not fit into the available bytes.

    Args:
      size: Number of bytes that it needs.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def encode(optimizer: Any, parameters: Parameters, name: str, capacity: int | None = None) -> np.ndarray:
    """Returns an optimizer as bytes.

    Args:
      optimizer: The instance. Its parameters' values are not part of the result.
      parameters: Its parameters by path.
      name: Name of its class, for errors.
      capacity: Size of the result, whose end is filled with zeros. None: as many bytes as the optimizer needs.

    Returns:
      uint8[capacity].

    Raises:
      RefusedOptimizer: It holds an object that cannot be saved, for example a lock or an open file.
      StateOverflow: It needs more than `capacity` bytes.
    """
    encoder = _Encoder(parameters)
    try:
        text = json.dumps(encoder.encode(optimizer), separators=(",", ":")).encode()
    except _NotSaved as error:
        raise RefusedOptimizer(
            f"{name} holds an object that cannot be saved",
            where=".".join(reversed(error.path)).replace(".[", "["),
            got=f"{type(error.got).__module__}.{type(error.got).__qualname__}",
            expected="numbers, texts, containers, tensors, arrays, random generators, and objects made of these",
            next_step=NEXT_STEP,
        ) from None
    except RecursionError:
        raise RefusedOptimizer(
            f"{name} holds objects that are nested too deeply", expected="at most some 100 levels", next_step=NEXT_STEP
        ) from None
    sizes = (_align(buffer.size) for buffer in encoder.buffers)
    starts = list(itertools.accumulate(sizes, initial=_align(_HEADER + len(text))))
    if capacity is not None and starts[-1] > capacity:
        raise StateOverflow(starts[-1])
    state = np.zeros(capacity or starts[-1], np.uint8)
    state[:_HEADER].view(np.int64)[:] = len(text), starts[-1]
    state[_HEADER : _HEADER + len(text)] = np.frombuffer(text, np.uint8)
    for start, buffer in zip(starts, encoder.buffers, strict=False):
        state[start : start + buffer.size] = buffer
    return state


def state_extent(state: np.ndarray) -> tuple[int, int]:
    """Returns the size of a state: number of values in its text, and bytes of tensors and arrays."""
    length, size = state[:_HEADER].view(np.int64).tolist()
    return state[_HEADER : _HEADER + length].tobytes().count(b","), size - _align(_HEADER + length)


def sizes_by_path(optimizer: Any, parameters: Parameters) -> dict[str, int]:
    """Returns the number of bytes of each attribute of an optimizer, and of each entry of its `state`."""
    names = {id(tensor): name for name, tensor in parameters.items()}
    entries = {name: value for name, value in vars(optimizer).items() if name != "state"}
    for key, value in getattr(optimizer, "state", {}).items():  # some wrappers have none of their own
        prefix = f"state.{names.get(id(key), key)}"
        entries |= (
            {f"{prefix}.{name}": item for name, item in value.items()} if isinstance(value, dict) else {prefix: value}
        )
    return {path: state_size(encode(value, parameters, path)) for path, value in entries.items()}


def decode(state: np.ndarray, parameters: Parameters) -> Any:
    """Returns the optimizer that `encode` wrote, with the given parameters in place of its own.

    Args:
      state: uint8[size] or longer; it is copied.
      parameters: Parameters by path, of the same shapes.

    Raises:
      RefusedOptimizer: The bytes are damaged, or refer to something that is not imported in this process.
    """
    content = np.array(state[: state_size(state)])
    length = int(content[:_HEADER].view(np.int64)[0])
    try:
        return _Decoder(content, _align(_HEADER + length), parameters).decode(
            json.loads(content[_HEADER : _HEADER + length].tobytes())
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
        raise RefusedOptimizer(
            "the saved state of a torch optimizer cannot be read",
            got=" ".join(f"{type(error).__name__}: {error}".split()),
            expected="a state that the same class wrote",
        ) from error


def state_size(state: np.ndarray) -> int:
    """Returns the number of bytes of a state that are in use; 0 if the optimizer has taken no step."""
    return int(state[:_HEADER].view(np.int64)[1])


def _align(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class _Encoder:
    """Encodes one object graph.

    Numbers, texts, True, False and None are encoded as themselves, everything else as a list that begins with its kind.
    The second occurrence of an object is ["seen", number].

    Attributes:
      buffers: Memory of tensors and arrays, in the order of their occurrence in the text.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.buffers: list[np.ndarray] = []
        self._name_by_id = {id(tensor): name for name, tensor in parameters.items()}
        self._reference_by_storage: dict[int, Json] = {
            tensor.untyped_storage()._cdata: ["own", name] for name, tensor in parameters.items()
        }
        self._num_storages = 0
        self._number_by_id: dict[int, int] = {}
        self._alive_objects: list[Any] = []  # keeps objects alive, so that no id is used twice

    def encode(self, obj: Any) -> Json:
        cls = type(obj)
        if obj is None or cls is bool or cls is str:
            return obj
        if cls is int:
            # Some optimizers use `id(parameter)` as a key.
            return obj if obj not in self._name_by_id else ["id", self._name_by_id[obj]]
        if cls is float:
            return obj if math.isfinite(obj) else ["float", str(obj)]
        number = self._number_by_id.get(id(obj))
        if number is not None:
            return ["seen", number]
        if cls is torch.nn.Parameter and id(obj) in self._name_by_id:
            return ["parameter", self._name_by_id[id(obj)]]
        self._number_by_id[id(obj)] = len(self._number_by_id)
        self._alive_objects.append(obj)
        if cls is dict:
            return ["dict", self._encode_pairs(obj)]
        if cls is collections.OrderedDict:
            return ["ordered", self._encode_pairs(obj)]
        if cls is collections.defaultdict:
            return ["default", self.encode(obj.default_factory), self._encode_pairs(obj)]
        if cls in (list, tuple):
            return [cls.__name__, self._encode_items(obj)]
        if cls in (set, frozenset):
            return [cls.__name__, self._encode_items(sorted(obj, key=repr))]
        if cls is collections.deque:
            return ["deque", self._encode_items(obj), obj.maxlen]
        if isinstance(obj, torch.Tensor):
            return self._encode_tensor(obj)
        return self._encode_other(obj)

    def _encode_pairs(self, mapping: Mapping[Any, Any]) -> list[Json]:
        encoded_pairs = []
        for key, value in mapping.items():
            try:
                encoded_pairs.append([self.encode(key), self.encode(value)])
            except _NotSaved as error:
                error.path.append(self._name_by_id.get(id(key), str(key)))
                raise
        return encoded_pairs

    def _encode_items(self, items: Iterable[Any]) -> list[Json]:
        encoded_items = []
        for index, item in enumerate(items):
            try:
                encoded_items.append(self.encode(item))
            except _NotSaved as error:
                error.path.append(f"[{index}]")
                raise
        return encoded_items

    def _add_buffer(self, memory: np.ndarray) -> int:
        self.buffers.append(memory)
        return int(memory.size)

    def _encode_tensor(self, tensor: torch.Tensor) -> Json:
        is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
        if not is_plain or tensor.device.type != "cpu":
            raise _NotSaved(tensor)
        layout = [str(tensor.dtype), list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]
        memory = self._encode_storage(tensor)
        is_own = isinstance(memory, list) and memory[0] == "own"  # autograd does not allow queries of such views
        has_gradient = not is_own and tensor.requires_grad and tensor.is_leaf
        return ["tensor", memory, *layout, has_gradient, type(tensor) is torch.nn.Parameter]

    def _encode_storage(self, tensor: torch.Tensor) -> Json:
        """Returns a reference to the memory of a tensor: that of a parameter, of an earlier tensor, or new memory."""
        storage = tensor.untyped_storage()
        number = self._reference_by_storage.get(storage._cdata)
        if number is None:
            self._alive_objects.append(storage)
            if tensor.is_contiguous() and storage.nbytes() == tensor.numel() * tensor.element_size():
                storage_bytes = tensor.detach().reshape(-1).view(torch.uint8)
            else:
                storage_bytes = torch.tensor([], dtype=torch.uint8).set_(storage)
            size = self._add_buffer(storage_bytes.numpy())
            self._reference_by_storage[storage._cdata] = self._num_storages
            self._num_storages += 1
            return ["new", size]
        return number

    def _encode_other(self, content: Any) -> Json:
        cls = type(content)
        if cls is bytes or cls is bytearray:
            return [cls.__name__, base64.b64encode(content).decode()]
        if cls is complex:
            return ["complex", self.encode(content.real), self.encode(content.imag)]
        if isinstance(content, torch.dtype | torch.memory_format | torch.layout):
            return ["torch", str(content)]
        if cls is torch.device:
            return ["device", str(content)]
        if cls is torch.Size:
            return ["size", list(content)]
        if cls is torch.Generator:
            return ["generator", self._add_buffer(content.get_state().numpy())]
        if cls is np.ndarray and content.dtype.kind in "biufcSU":
            return ["array", content.dtype.str, list(content.shape), self._add_buffer(_bytes_of(content))]
        if isinstance(content, np.generic) and content.dtype.kind in "biufc":
            return ["scalar", content.dtype.str, self._add_buffer(_bytes_of(np.asarray(content)))]
        if isinstance(content, np.dtype) and content.kind in "biufc":
            return ["dtype", content.str]
        if cls is np.random.Generator:
            return ["numpy generator", type(content.bit_generator).__name__, self.encode(content.bit_generator.state)]
        if cls is np.random.RandomState:
            return ["numpy state", self.encode(content.get_state(legacy=False))]
        if cls is random.Random:
            return ["random", self.encode(content.getstate())]
        if cls is range or cls is slice:
            return [cls.__name__, [self.encode(field) for field in (content.start, content.stop, content.step)]]
        if content is Ellipsis or content is NotImplemented:
            return ["constant", str(content)]
        if cls is weakref.ref and content() is not None:
            return ["weakref", self.encode(content())]
        if cls is itertools.count:
            return ["count", *[self.encode(field) for field in _count_of(content)]]
        if isinstance(content, types.ModuleType):
            return ["module", content.__name__]
        if isinstance(content, enum.Enum):
            return ["enum", self.encode(cls), content.name]
        if isinstance(content, types.MethodType):
            return ["method", self.encode(content.__self__), content.__name__]
        if isinstance(content, type | np.ufunc) or (callable(content) and hasattr(content, "__qualname__")):
            return self._encode_function(content)
        if cls is functools.partial:
            return [
                "partial",
                self.encode(content.func),
                self._encode_items(content.args),
                self._encode_pairs(content.keywords),
            ]
        if isinstance(content, tuple) and hasattr(cls, "_fields"):
            return ["named", self.encode(cls), self._encode_items(content)]
        return self._encode_object(content)

    def _encode_function(self, function: Any) -> Json:
        """Encodes a class or function by its name, and a nested function by its position in the code and its cells."""
        name = getattr(function, "__qualname__", function.__name__)
        for module in (getattr(function, "__module__", None), *_BUILTIN_MODULES):
            for known_name in (name, function.__name__):
                if module and _imported_attribute(module, known_name) is function:
                    return ["name", module, known_name]
        owner = getattr(function, "__self__", None)
        if (
            isinstance(function, types.BuiltinFunctionType)
            and owner is not None
            and not isinstance(owner, types.ModuleType)
        ):
            return ["method", self.encode(owner), function.__name__]
        if not isinstance(function, types.FunctionType):
            raise _NotSaved(function)
        # `functools.wraps` changes `__module__` and `__qualname__`.
        module = function.__globals__["__name__"]
        code = function.__code__
        name = getattr(code, "co_qualname", function.__qualname__)
        if _functions_of(module).get((name, code.co_firstlineno)) is function:
            return ["function", module, name, code.co_firstlineno]
        if _nested_code(module, name, code.co_firstlineno) is not code:
            raise _NotSaved(function)
        cells = [
            ["empty"] if not _is_filled(cell) else self.encode(cell.cell_contents)
            for cell in function.__closure__ or ()
        ]
        attributes = [
            self.encode(function.__defaults__),
            self.encode(function.__kwdefaults__),
            self._encode_pairs(vars(function)),
        ]
        return ["nested", module, name, code.co_firstlineno, cells, *attributes]

    def _encode_object(self, instance: Any) -> Json:
        """Encodes an object by its class, its attributes, and its items if it is a dict or a list."""
        cls = type(instance)
        if _has_hidden_content(cls):  # type: ignore[arg-type]
            raise _NotSaved(instance)
        attributes = {name: getattr(instance, name) for name in _slots(cls) if hasattr(instance, name)}
        attributes |= getattr(instance, "__dict__", {})
        encoded = ["object", self.encode(cls), self._encode_pairs(attributes)]
        if isinstance(instance, collections.defaultdict):
            return [*encoded, ["default", self.encode(instance.default_factory), self._encode_pairs(instance)]]
        if isinstance(instance, dict):
            return [*encoded, ["dict", self._encode_pairs(instance)]]
        if isinstance(instance, list):
            return [*encoded, ["list", self._encode_items(instance)]]
        return [*encoded, None]


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(array.tobytes(), np.uint8)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _count_of(counter: Any) -> tuple[Any, Any]:
    """Returns the next value and the step of an `itertools.count`, parsed from its `repr`."""
    arguments_text = repr(counter)[len("count(") : -1].split(", ")
    start_and_step = [json.loads(number_text) for number_text in arguments_text]
    return start_and_step[0], start_and_step[1] if len(start_and_step) > 1 else 1


def _slots(cls: type) -> list[str]:
    names = []
    for base in cls.__mro__:
        own_slots = base.__dict__.get("__slots__", ())
        for name in (own_slots,) if isinstance(own_slots, str) else own_slots:
            if name not in ("__dict__", "__weakref__"):
                names.append(
                    f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
                )
    return names


@functools.cache
def _has_hidden_content(cls: type) -> bool:
    """Returns whether objects of a class have state besides their attributes, as locks and open files do."""
    base = next(base for base in _BASES if issubclass(cls, base))
    pointer_size = struct.calcsize("P")
    visible_size = base.__basicsize__ + pointer_size * len(_slots(cls))
    visible_size += pointer_size * (cls.__dictoffset__ > 0 and base.__dictoffset__ == 0)
    visible_size += pointer_size * (cls.__weakrefoffset__ > 0 and base.__weakrefoffset__ == 0)
    return cls.__basicsize__ > visible_size


def _imported_attribute(module: str | None, name: str) -> Any:
    """Returns an attribute of an imported module, or None."""
    value: Any = sys.modules.get(module or "")
    for attribute in name.split("."):
        value = (
            inspect.getattr_static(value, attribute, None)
            if isinstance(value, type)
            else getattr(value, attribute, None)
        )
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
    return value


@functools.lru_cache(maxsize=256)
def _nested_code(module: str, name: str, line: int) -> types.CodeType | None:
    """Returns the code of a function that is defined inside another one, or of a lambda.

    Args:
      module: Name of the module.
      name: `__qualname__` of the function: "Outer.__init__.<locals>.inner", "Outer.<lambda>".
      line: First line of the function, which distinguishes functions of the same name.
    """
    source = getattr(sys.modules.get(module), "__file__", None)
    outer_name, *inner_names = name.split(".<locals>.")
    outer_function = _imported_attribute(module, outer_name)
    outer_function = outer_function.fget if isinstance(outer_function, property) else outer_function
    outer_function = inspect.unwrap(outer_function) if callable(outer_function) else None
    if inner_names and isinstance(outer_function, types.FunctionType) and outer_function.__code__.co_filename == source:
        code_objects = list(outer_function.__code__.co_consts)
    else:
        code_objects = [function.__code__ for function in _functions_of(module).values()]
    last_name = name.rpartition(".")[2]
    while code_objects:
        code = code_objects.pop()
        if isinstance(code, types.CodeType):
            if code.co_name == last_name and code.co_firstlineno == line:
                return code
            code_objects.extend(code.co_consts)
    return None


@functools.cache
def _functions_of(module: str) -> dict[tuple[str, int], types.FunctionType]:
    """Returns a module's functions by name and line, including functions inside decorators, defaults and registries."""
    functions: dict[tuple[str, int], types.FunctionType] = {}
    visited_ids: set[int] = set()
    candidates = list(vars(sys.modules[module]).values()) if module in sys.modules else []
    while candidates and len(visited_ids) < _MAX_OBJECTS:
        candidate = candidates.pop()
        if id(candidate) in visited_ids or isinstance(candidate, types.ModuleType):
            continue
        visited_ids.add(id(candidate))
        if isinstance(candidate, types.FunctionType):
            if candidate.__globals__.get("__name__") == module:
                functions[
                    getattr(candidate.__code__, "co_qualname", candidate.__qualname__),
                    candidate.__code__.co_firstlineno,
                ] = candidate
            candidates += [
                *(candidate.__defaults__ or ()),
                *(candidate.__kwdefaults__ or {}).values(),
                *vars(candidate).values(),
            ]
            candidates += [cell.cell_contents for cell in candidate.__closure__ or () if _is_filled(cell)]
        elif isinstance(candidate, type):
            candidates += vars(candidate).values() if candidate.__module__ == module else ()
        elif isinstance(candidate, dict | list | tuple):
            candidates += candidate.values() if isinstance(candidate, dict) else candidate
        else:
            candidates += [getattr(candidate, name, None) for name in ("__func__", "fget", "func")]
            candidates += getattr(candidate, "__dict__", {}).values()
    return functions


class _Decoder:
    """Decodes the text of a state.

    Args:
      content: uint8[size]; the decoded tensors are views of it.
      start: Offset of the first tensor's memory.
      parameters: Parameters by path.
    """

    def __init__(self, content: np.ndarray, start: int, parameters: Parameters) -> None:
        self._memory = torch.from_numpy(content)
        self._next_start = start
        self._parameters = parameters
        self._storages: list[torch.UntypedStorage] = []
        self._decoded_objects: list[Any] = []

    def decode(self, encoded: Json) -> Any:
        if not isinstance(encoded, list):
            return encoded
        kind, *arguments = encoded
        if kind == "seen":
            return self._decoded_objects[arguments[0]]
        if kind == "parameter":
            return self._parameters[arguments[0]]
        if kind == "id":
            return id(self._parameters[arguments[0]])
        if kind == "float":
            return float(arguments[0])
        object_number = len(self._decoded_objects)
        self._decoded_objects.append(None)
        if kind in _ARGUMENT_DECODERS:
            value = _ARGUMENT_DECODERS[kind](*arguments)
        elif kind in _VALUE_DECODERS:
            value = _VALUE_DECODERS[kind](*map(self.decode, arguments))
        elif kind in _ITEM_DECODERS:
            value = _ITEM_DECODERS[kind](map(self.decode, arguments[0]))
        else:
            decoder: Callable[..., Any] = getattr(self, "_decode_" + kind.replace(" ", "_"))
            value = decoder(object_number, *arguments)
        self._decoded_objects[object_number] = value
        return value

    def _next_bytes(self, size: int) -> torch.Tensor:
        values = self._memory[self._next_start : self._next_start + size]
        if values.numel() != size:
            raise ValueError(f"{size} bytes at {self._next_start} of {self._memory.numel()}")
        self._next_start += _align(size)
        return values

    def _fill(self, mapping: Any, pairs: list[Json]) -> Any:
        for key, value in pairs:
            mapping[self.decode(key)] = self.decode(value)
        return mapping

    def _decode_dict(self, object_number: int, pairs: list[Json]) -> Any:
        self._decoded_objects[object_number] = {}
        return self._fill(self._decoded_objects[object_number], pairs)

    def _decode_ordered(self, object_number: int, pairs: list[Json]) -> Any:
        self._decoded_objects[object_number] = collections.OrderedDict()
        return self._fill(self._decoded_objects[object_number], pairs)

    def _decode_default(self, object_number: int, factory: Json, pairs: list[Json]) -> Any:
        mapping: collections.defaultdict[Any, Any] = collections.defaultdict(None)
        self._decoded_objects[object_number] = mapping
        mapping.default_factory = self.decode(factory)
        return self._fill(mapping, pairs)

    def _decode_list(self, object_number: int, items: list[Json]) -> Any:
        decoded_items: list[Any] = []
        self._decoded_objects[object_number] = decoded_items
        decoded_items.extend(map(self.decode, items))
        return decoded_items

    def _decode_set(self, object_number: int, items: list[Json]) -> Any:
        decoded_items: set[Any] = set()
        self._decoded_objects[object_number] = decoded_items
        decoded_items.update(map(self.decode, items))
        return decoded_items

    def _decode_deque(self, object_number: int, items: list[Json], max_length: int | None) -> Any:
        decoded_items: collections.deque[Any] = collections.deque(maxlen=max_length)
        self._decoded_objects[object_number] = decoded_items
        decoded_items.extend(map(self.decode, items))
        return decoded_items

    def _decode_tensor(
        self,
        object_number: int,
        memory: Json,
        dtype: str,
        shape: Any,
        stride: Any,
        offset: int,
        requires_grad: bool,
        is_parameter: bool,
    ) -> Any:
        if isinstance(memory, list) and memory[0] == "new":
            storage = self._next_bytes(memory[1]).clone().untyped_storage()
            self._storages.append(storage)
        else:
            storage = (
                self._parameters[memory[1]].untyped_storage() if isinstance(memory, list) else self._storages[memory]
            )
        tensor = torch.tensor([], dtype=_torch_type(dtype)).set_(storage, offset, shape, stride)
        if is_parameter:
            return torch.nn.Parameter(tensor, requires_grad=requires_grad)
        return tensor.requires_grad_(requires_grad)

    def _decode_generator(self, object_number: int, size: int) -> Any:
        generator = torch.Generator()
        generator.set_state(self._next_bytes(size).clone())
        return generator

    def _decode_array(self, object_number: int, dtype: str, shape: list[int], size: int) -> Any:
        return np.frombuffer(self._next_bytes(size).numpy().tobytes(), np.dtype(dtype)).reshape(shape).copy()

    def _decode_scalar(self, object_number: int, dtype: str, size: int) -> Any:
        return np.frombuffer(self._next_bytes(size).numpy().tobytes(), np.dtype(dtype))[0]

    def _decode_numpy_generator(self, object_number: int, name: str, state: Json) -> Any:
        bit_generator = {
            kind.__name__: kind
            for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
        }[name]()
        bit_generator.state = self.decode(state)
        return np.random.Generator(bit_generator)

    def _decode_numpy_state(self, object_number: int, state: Json) -> Any:
        generator = np.random.RandomState()
        generator.set_state(self.decode(state))
        return generator

    def _decode_random(self, object_number: int, state: Json) -> Any:
        generator = random.Random()
        generator.setstate(self.decode(state))
        return generator

    def _decode_enum(self, object_number: int, encoded_class: Json, name: str) -> Any:
        enumeration = self.decode(encoded_class)
        if not (isinstance(enumeration, type) and issubclass(enumeration, enum.Enum)):
            raise ValueError(f"{enumeration!r} is no enumeration")
        return enumeration[name]

    def _decode_name(self, object_number: int, module: str, name: str) -> Any:
        value = _imported_attribute(module, name)
        if value is None:
            raise KeyError(f"{module}.{name} is not imported")
        return value

    def _decode_nested(
        self,
        object_number: int,
        module: str,
        name: str,
        line: int,
        cells: list[Json],
        defaults: Json,
        keyword_defaults: Json,
        attributes: Json,
    ) -> Any:
        code = _nested_code(module, name, line)
        if code is None or len(code.co_freevars) != len(cells):
            raise KeyError(f"{module}.{name} at line {line}")
        closure = tuple(types.CellType() for _ in cells)
        function = types.FunctionType(code, vars(sys.modules[module]), code.co_name, None, closure)
        self._decoded_objects[object_number] = function
        function.__module__, function.__qualname__ = module, name
        for cell, content in zip(closure, cells, strict=True):
            if content != ["empty"]:
                cell.cell_contents = self.decode(content)
        function.__defaults__, function.__kwdefaults__ = self.decode(defaults), self.decode(keyword_defaults)
        self._fill(vars(function), attributes)
        return function

    def _decode_method(self, object_number: int, encoded_owner: Json, name: str) -> Any:
        owner_value = self.decode(encoded_owner)
        function = inspect.getattr_static(type(owner_value), name)
        if isinstance(function, types.FunctionType):
            return types.MethodType(function, owner_value)
        if isinstance(owner_value, type):
            return types.MethodType(inspect.getattr_static(owner_value, name).__func__, owner_value)
        return getattr(owner_value, name)

    def _decode_partial(self, object_number: int, function: Json, args: list[Json], keywords: list[Json]) -> Any:
        return functools.partial(self.decode(function), *map(self.decode, args), **self._fill({}, keywords))

    def _decode_named(self, object_number: int, encoded_class: Json, items: list[Json]) -> Any:
        named_tuple = self.decode(encoded_class)
        if not (isinstance(named_tuple, type) and issubclass(named_tuple, tuple)):
            raise ValueError(f"{named_tuple!r} is not a named tuple")
        return tuple.__new__(named_tuple, map(self.decode, items))

    def _decode_object(self, object_number: int, encoded_class: Json, attributes: list[Json], content: Json) -> Any:
        cls = self.decode(encoded_class)
        if not isinstance(cls, type) or _has_hidden_content(cls):
            raise ValueError(f"{cls!r} is not a class whose objects can be saved")
        base = next(base for base in _BASES if issubclass(cls, base))
        instance: Any = base.__new__(cls)
        self._decoded_objects[object_number] = instance
        for name, value in attributes:
            object.__setattr__(instance, name, self.decode(value))
        if content is not None and content[0] == "list":
            list.extend(instance, map(self.decode, content[1]))
        elif content is not None:
            if content[0] == "default":
                instance.default_factory = self.decode(content[1])
            for key, value in content[-1]:
                dict.__setitem__(instance, self.decode(key), self.decode(value))
        return instance


def _torch_type(name: str) -> Any:
    value = operator.attrgetter(name.removeprefix("torch."))(torch)
    if not isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        raise ValueError(f"{name} is not a type of torch")
    return value


# Decoders of kinds that cannot refer to an object that is still being decoded. The first receive the raw arguments, the
# second the decoded arguments, and the third the decoded items of a single argument.
_ARGUMENT_DECODERS: dict[str, Callable[..., Any]] = {
    "bytes": base64.b64decode,
    "bytearray": lambda text: bytearray(base64.b64decode(text)),
    "torch": _torch_type,
    "device": torch.device,
    "size": torch.Size,
    "dtype": np.dtype,
    "constant": {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}.__getitem__,
    "module": sys.modules.__getitem__,
    "function": lambda module, name, line: _functions_of(module)[name, line],
}
_VALUE_DECODERS: dict[str, Callable[..., Any]] = {
    "complex": complex,
    "count": itertools.count,
    "weakref": weakref.ref,
}
_ITEM_DECODERS: dict[str, Callable[[Iterable[Any]], Any]] = {
    "tuple": tuple,
    "frozenset": frozenset,
    "range": lambda parts: range(*parts),
    "slice": lambda parts: slice(*parts),
}
