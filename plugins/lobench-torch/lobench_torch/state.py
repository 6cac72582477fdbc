"""State of a torch optimizer as arrays of fixed shapes, so that lobench carries, saves and resumes it as any other.

What an optimizer remembers stands in `optimizer.state`, in entries of its parameter groups that it changes (Prodigy's
`d`), in attributes of its own (a counter), and in optimizers that it wraps. The first steps show which leaves there
are. Each has a code that says what it is at present: nothing yet, a tensor, a number. Tensors keep their bits, and
numbers all 64 of theirs.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np
import torch

__all__ = ["Loaded", "RefusedOptimizer", "StateLayout", "snapshot"]

Path: TypeAlias = tuple[Any, ...]  # ("", "state", "w0", "exp_avg"), ("", "group", 0, "d"), ("base", "self", "count")

_ABSENT, _TENSOR, _NONE, _BOOL, _INT, _FLOAT, _DICT, _LIST = range(8)
_NUMBERS: Mapping[type, int] = {bool: _BOOL, int: _INT, float: _FLOAT}
_OF_TORCH = ("state", "param_groups", "defaults")  # attributes of every torch optimizer
_HOOKS = ("_optimizer_", "_zero_grad", "_patch", "_warned", "_step_count", "_opt_called")
_ELSEWHERE = "train with it in torch and import its curves: `lobench import`"


class RefusedOptimizer(Exception):
    """What cannot be trained with, in the parts of a `ConfigError`; nothing here imports lobench.

    Args:
      what: In a few words.
      **parts: where, got, expected, next_step.
    """

    def __init__(self, what: str, **parts: str) -> None:
        super().__init__(what, parts)
        self.what, self.parts = what, parts


class StateLayout:
    """The leaves that an optimizer has, by the snapshots of its first steps.

    Args:
      name: How errors call the optimizer.
      snapshots: Before the first step, and after each.
      longest: How long lists of tensors may grow.
    """

    def __init__(self, name: str, snapshots: Sequence[Mapping[Path, Any]], longest: int = 0) -> None:
        self._name = name
        self._tensors: dict[Path, tuple[torch.Size, torch.dtype]] = {}
        self._places: dict[Path, int] = {}
        for path in dict.fromkeys(path for leaves in snapshots for path in leaves):
            seen = [leaves.get(path, _ABSENT) for leaves in snapshots]
            is_tensor = any(isinstance(leaf, torch.Tensor) for leaf in seen)
            if path[1] == "state" or is_tensor or any(leaf != seen[0] for leaf in seen):
                self._places[path] = len(self._places)
        for leaves in snapshots:
            for path, leaf in leaves.items():
                if isinstance(leaf, torch.Tensor) and self._tensors.setdefault(path, _kind(leaf)) != _kind(leaf):
                    raise self._refused(path, f"{_shown(leaf)} after {list(self._tensors[path][0])}")
        for path in [path for path in self._tensors if path[-1] == 0 and type(path[-1]) is int]:
            for index in range(1, longest):
                self._places.setdefault((*path[:-1], index), len(self._places))
                self._tensors.setdefault((*path[:-1], index), self._tensors[path])

        sizes = [8 * len(self._places), *(shape.numel() * dtype.itemsize for shape, dtype in self._tensors.values())]
        starts = list(itertools.accumulate(-(-size // 8) * 8 for size in sizes))
        self._spans = {
            path: slice(at, at + size) for path, at, size in zip(self._tensors, starts, sizes[1:], strict=False)
        }
        self._codes_at = starts[-1]

    def empty(self) -> np.ndarray:
        """Returns the state of an optimizer that has taken no step, uint8[size]."""
        return np.zeros(self._codes_at + len(self._places), np.uint8)

    def packed(self, leaves: Mapping[Path, Any], start: Mapping[Path, Any]) -> np.ndarray:
        """Returns an optimizer's leaves as bytes: numbers, tensors, and the leaves' codes.

        Args:
          start: Its leaves when it was made; those that its first steps leave alone stay as they are.
        Raises:
          RefusedOptimizer: it remembers what it did not have in its first steps.
        """
        state = self.empty()
        flat, codes, numbers = torch.from_numpy(state), state[self._codes_at :], self._numbers(state)
        for path, leaf in leaves.items():
            place = self._places.get(path)
            if place is None:
                if isinstance(leaf, torch.Tensor) or path not in start or start[path] != leaf:
                    raise self._refused(path, _shown(leaf))
            elif isinstance(leaf, torch.Tensor):
                if self._tensors.get(path) != (kind := _kind(leaf)):
                    raise self._refused(path, _shown(leaf))
                codes[place] = _TENSOR
                flat[self._spans[path]].view(kind[1]).view(kind[0]).copy_(leaf.detach())
            elif leaf is None:
                codes[place] = _NONE
            elif type(leaf) in _NUMBERS:
                codes[place] = _NUMBERS[type(leaf)]
                numbers[place] = struct.unpack("<q", struct.pack("<d" if type(leaf) is float else "<q", leaf))[0]
            else:
                codes[place] = _DICT if isinstance(leaf, dict) else _LIST
        return state

    def unpacked(self, state: np.ndarray) -> dict[Path, Any]:
        """Returns the leaves of a state, tensors as views of it; containers are empty, and before what they hold."""
        flat, codes, numbers = torch.from_numpy(state), state[self._codes_at :].tolist(), self._numbers(state)
        leaves: dict[Path, Any] = {}
        for (path, place), code in zip(self._places.items(), codes, strict=True):
            if code == _TENSOR:
                shape, dtype = self._tensors[path]
                leaves[path] = flat[self._spans[path]].view(dtype).view(shape)
            elif code in (_BOOL, _INT, _FLOAT):
                (number,) = struct.unpack("<d" if code == _FLOAT else "<q", numbers[place].tobytes())
                leaves[path] = bool(number) if code == _BOOL else number
            elif code != _ABSENT:
                leaves[path] = {_DICT: {}, _LIST: [], _NONE: None}[code]
        return leaves

    def paths(self) -> Iterable[Path]:
        """Returns where the leaves are that may be there."""
        return self._places

    def is_empty(self, state: np.ndarray) -> bool:
        return not state[self._codes_at :].any()

    def differ_in_tensors_alone(self, one: np.ndarray, other: np.ndarray) -> bool:
        same_codes = np.array_equal(one[self._codes_at :], other[self._codes_at :])
        return same_codes and np.array_equal(self._numbers(one), self._numbers(other))

    def _numbers(self, state: np.ndarray) -> np.ndarray:
        return state[: 8 * len(self._places)].view(np.int64)

    def _refused(self, path: Path, got: str) -> RefusedOptimizer:
        return RefusedOptimizer(
            f"{self._name}: what it remembers has changed its shape after its first steps",
            where=_text(path),
            got=got,
            expected="numbers and tensors of fixed shapes",
            next_step=_ELSEWHERE,
        )


def _kind(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _shown(leaf: Any) -> str:
    return f"{list(leaf.shape)} {leaf.dtype}" if isinstance(leaf, torch.Tensor) else repr(leaf)


def _text(path: Path) -> str:
    return "/".join(map(str, path if path[0] else path[1:]))


def snapshot(optimizer: Any, names: Mapping[int, str], given: Set[str] = frozenset()) -> dict[Path, Any]:
    """Returns what an optimizer remembers: tensors, numbers and None by path, and containers before what they hold.

    Args:
      names: Of the parameters, by the tensors' ids. What holds parameters themselves is no state.
      given: Names of groups' entries that each step is given anew.
    """
    leaves = {path: leaf for path, (_, _, leaf) in _walk(optimizer, names, given).items()}
    return {path: _empty(leaf) if isinstance(leaf, dict | list | tuple) else leaf for path, leaf in leaves.items()}


def _empty(container: Any) -> Any:
    return {} if isinstance(container, dict) else []


def _walk(optimizer: Any, names: Mapping[int, str], given: Set[str]) -> dict[Path, tuple[Any, Any, Any]]:
    """Returns what holds each leaf or container, by which key, and the thing itself."""
    found: dict[Path, tuple[Any, Any, Any]] = {}
    met: set[int] = set()  # two may share a state, or groups

    def collect(path: Path, node: Any, key: Any, value: Any) -> None:
        if isinstance(value, torch.Tensor) or value is None or type(value) in _NUMBERS:
            if id(value) not in names:
                found[path] = node, key, value
        elif isinstance(value, dict | list | tuple):
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            is_setting = isinstance(value, tuple) and not any(isinstance(each, torch.Tensor) for each in value)
            if not is_setting and not any(id(each) in names for _, each in items):
                found[path] = node, key, value
                for index, each in items:
                    collect((*path, index), value, index, each)

    for owner, one in _owners(optimizer).items():
        if id(one.state) not in met:
            for key, value in one.state.items():
                collect((owner, "state", names.get(id(key), key)), one.state, key, value)
        for index, group in enumerate(one.param_groups):
            for key, value in group.items() if id(group) not in met else ():
                if key not in given:
                    collect((owner, "group", index, key), group, key, value)
        met.update(map(id, (one.state, *one.param_groups)))
        for key, value in vars(one).items():
            if key not in _OF_TORCH and not key.startswith(_HOOKS):
                collect((owner, "self", key), vars(one), key, value)
    return found


class Loaded:
    """A state in an optimizer, whose tensors are views of its bytes.

    Args:
      layout: Of the optimizer.
      state: uint8[size]; it is copied.
      parameters: The optimizer's, by name.
      given: As for `snapshot`.
      start: The optimizer's leaves when it was made.
    """

    def __init__(
        self,
        layout: StateLayout,
        optimizer: Any,
        state: np.ndarray,
        parameters: Mapping[str, torch.Tensor],
        given: Set[str],
        start: Mapping[Path, Any],
    ) -> None:
        self._layout, self._optimizer, self._given, self._start = layout, optimizer, given, start
        self._names = {id(tensor): name for name, tensor in parameters.items()}
        self._bytes = np.array(state)
        _load(optimizer, layout.unpacked(self._bytes), parameters, layout.paths())
        self._leaves = list(_walk(optimizer, self._names, given).values())
        nodes = [leaf for _, _, leaf in self._leaves if isinstance(leaf, dict | list)]
        nodes += [node for one in _owners(optimizer).values() for node in (one.state, vars(one), *one.param_groups)]
        self._sizes = [(node, len(node)) for node in {id(node): node for node in nodes}.values()]

    def takes(self, state: np.ndarray) -> bool:
        """Takes over another state where nothing but the tensors' values differs; says whether it did."""
        if not self._is_whole() or not self._layout.differ_in_tensors_alone(self._bytes, state):
            return False
        np.copyto(self._bytes, state)
        return True

    def state(self) -> np.ndarray:
        """Returns the optimizer's state as it is now."""
        if self._is_whole():
            return self._bytes.copy()
        return self._layout.packed(snapshot(self._optimizer, self._names, self._given), self._start)

    def _is_whole(self) -> bool:
        """Says whether the optimizer holds the very leaves that it was given, and no other."""
        return all(len(node) == size for node, size in self._sizes) and all(
            node[key] is leaf for node, key, leaf in self._leaves
        )


def _load(
    optimizer: Any, leaves: Mapping[Path, Any], parameters: Mapping[str, torch.Tensor], known: Iterable[Path]
) -> None:
    """Puts leaves where they were found; of the others that are known, none stays."""
    owners = _owners(optimizer)
    for one in owners.values():
        one.state.clear()
    for owner, kind, *keys in set(known) - leaves.keys():
        if kind == "group" and len(keys) == 2:
            owners[owner].param_groups[keys[0]].pop(keys[1], None)
        elif kind == "self" and len(keys) == 1:
            vars(owners[owner]).pop(keys[0], None)
    opened: dict[Path, tuple[Any, Any, list[Any], Any]] = {}
    for (owner, kind, *keys), leaf in leaves.items():
        one = owners[owner]
        node: Any = {"state": one.state, "group": one.param_groups, "self": vars(one)}[kind]
        if kind == "state":
            keys[0] = parameters.get(keys[0], keys[0])
        for depth, key in enumerate(keys[:-1], 1):
            if isinstance(whole := node[key], tuple):
                node[key] = list(whole)
                opened[owner, kind, *keys[:depth]] = node, key, node[key], type(whole)
            node = node[key]
        if isinstance(node, list) and keys[-1] == len(node):
            node.append(leaf)
        else:
            node[keys[-1]] = leaf
    for node, key, parts, kind in reversed(opened.values()):
        node[key] = kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def _owners(optimizer: Any, name: str = "") -> dict[str, Any]:
    """Returns an optimizer and those that it wraps, by the attributes that hold them."""
    found = {name: optimizer}
    for key, value in vars(optimizer).items():
        if isinstance(value, torch.optim.Optimizer) and value not in found.values():
            found |= _owners(value, f"{name}.{key}".lstrip("."))
    return found
