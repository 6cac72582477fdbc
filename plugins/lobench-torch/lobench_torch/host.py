"""Torch's side of a step: an optimizer that is given its parameters, gradients and state, and gives them back.

It imports torch and numpy alone, so that it also runs in an environment without lobench.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import math
import queue
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch

from lobench_torch.state import Loaded, RefusedOptimizer, StateLayout, snapshot

__all__ = ["Class", "Host", "Library", "Made", "Settings", "Stepped", "class_of"]

Settings: TypeAlias = Mapping[str, Any]
Array: TypeAlias = Any
_PROBED = 3  # steps that show what an optimizer remembers


def class_of(where: str) -> Any:
    """Imports a class: "torch.optim.AdamW", "my_package.muon:Muon".

    Raises:
      RefusedOptimizer: torch is not installed, or there is no such class.
    """
    module, _, name = where.partition(":") if ":" in where else where.rpartition(".")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise RefusedOptimizer(
            f"there is no torch optimizer {where!r}", got=str(error), expected="'torch.optim.NAME' or 'package:Class'"
        ) from error
    return found


@dataclass(frozen=True)
class Class:
    """What is to be known of a class before an optimizer is made of it.

    Attributes:
      first: Its first argument; "" where it does not say.
      takes_closure: Whether its `step` wants a function that computes the loss and the gradients.
      has_modes: Whether it has `train()` and `eval()`.
    """

    first: str
    takes_closure: bool
    has_modes: bool

    @classmethod
    def of(cls, found: Any) -> Class:
        closure = _signature(getattr(found, "step", None)).get("closure")
        return cls(
            first=next(iter(_signature(found)), ""),
            takes_closure=closure is not None and closure.default is inspect.Parameter.empty,
            has_modes=all(callable(getattr(found, name, None)) for name in ("train", "eval")),
        )


def _signature(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(inspect.unwrap(function)).parameters if function is not None else {}
    except (TypeError, ValueError):
        return {}


class Library:
    """The optimizers of this Python."""

    def look(self, where: str) -> Class:
        """Returns what there is to know of a class.

        Raises:
          RefusedOptimizer: there is none.
        """
        return Class.of(class_of(where))

    def identity(self, where: str) -> Any:
        """Returns what is another one where the class of that name is."""
        return class_of(where)

    def host(
        self, made: Made, shapes: Mapping[str, tuple[int, ...]], settings: Settings, scheduled: Sequence[str]
    ) -> Host:
        """Returns what steps an optimizer, as `Host`."""
        return Host(made, shapes, settings, scheduled)


@dataclass(frozen=True)
class Made:
    """How an optimizer is made.

    Attributes:
      name: Where its class is, which is called with groups of parameters and the settings.
      groups: (pattern, settings): parameters whose path has the pattern have these instead; the first one counts.
      takes_closure: Whether a step is given a function that computes the loss and the gradients.
    """

    name: str
    groups: Sequence[tuple[str, Settings]] = ()
    takes_closure: bool = False

    def make(self, parameters: Mapping[str, torch.Tensor], settings: Settings) -> Any:
        """Makes an optimizer.

        Raises:
          RefusedOptimizer: the class refuses its settings, or wants more than parameters.
        """
        found: list[list[torch.Tensor]] = [[] for _ in range(len(self.groups) + 1)]
        for name, tensor in parameters.items():
            place = next((at for at, (pattern, _) in enumerate(self.groups) if re.search(pattern, name)), -1)
            found[place].append(tensor)
        special = zip(found, [own for _, own in self.groups], strict=False)
        groups = [{"params": found[-1]}, *({"params": each, **own} for each, own in special)]
        groups = [group for group in groups if group["params"]]
        cls = class_of(self.name)
        try:
            return cls(groups if len(groups) > 1 or groups[0].keys() != {"params"} else found[-1], **settings)
        except RefusedOptimizer:
            raise
        except Exception as error:
            raise RefusedOptimizer(
                f"{self.name} cannot be made",
                got=_line(error),
                expected=f"settings: {_settings_of(cls)}",
            ) from error


def _settings_of(cls: Any) -> str:
    return ", ".join(list(_signature(cls))[1:]) or "those that it has"


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


@dataclass
class Stepped:
    """What a step, or a part of it, comes to.

    Attributes:
      is_done: Whether the step is; otherwise the optimizer asks for the loss and the gradients at `params`.
      params: float32[all], one after another.
      state: After the step.
      token: By which an unfinished step goes on.
    """

    is_done: bool
    params: np.ndarray
    state: np.ndarray
    token: int = 0


@dataclass
class _Instance:
    """An optimizer with parameters of its own, lent to one step at a time."""

    optimizer: Any
    parameters: dict[str, torch.Tensor]
    names: dict[int, str]
    start: Mapping[Any, Any]  # what it remembers when it is made
    takes_loss: bool  # whether its `step` has an argument of that name
    loaded: Loaded | None = None


@dataclass
class _Paused:
    """A step that waits for a loss and gradients."""

    answers: queue.SimpleQueue[tuple[Array, Array]] = field(default_factory=queue.SimpleQueue)
    asked: queue.SimpleQueue[Stepped | BaseException] = field(default_factory=queue.SimpleQueue)


class Host:
    """Steps one optimizer on parameters of fixed shapes.

    Args:
      made: How it is made.
      shapes: Of the parameters, by name; all are float32.
      settings: Values for its first steps, which are of nobody and show what it remembers.
      scheduled: Names of those that each step is given anew.

    Attributes:
      empty_state: uint8[size], of an optimizer that has taken no step.
    """

    def __init__(
        self, made: Made, shapes: Mapping[str, tuple[int, ...]], settings: Settings, scheduled: Sequence[str] = ()
    ) -> None:
        torch.set_num_threads(1)  # the bits of a sum hang on it
        self._made, self._shapes, self._scheduled = made, dict(shapes), frozenset(scheduled)
        self._sizes = [math.prod(shape) for shape in shapes.values()]
        self._free: dict[tuple[Any, ...], list[_Instance]] = {}
        self._paused: dict[int, _Paused] = {}
        self._tokens = itertools.count(1)
        self.layout = self._probe(settings)
        self.empty_state = self.layout.empty()

    def step(
        self,
        settings: Settings,
        scheduled: Settings,
        params: Array,
        grads: Array,
        loss: Array,
        state: Array,
        seed: int,
    ) -> Stepped:
        """Takes a step, or begins one.

        Args:
          settings: Values of the optimizer's settings.
          scheduled: Values for this step alone.
          params, grads: float32[all], one after another.
          state: As the step before has left it, or `empty_state`.
          seed: Of torch's random numbers.
        Raises:
          RefusedOptimizer: the optimizer does.
        """
        instance = self._take(settings)
        self._load(instance, state)
        for group in instance.optimizer.param_groups:
            group.update(scheduled)
        self._set(instance, params, grads)
        if not self._made.takes_closure:
            self._run(instance, seed, loss)
            return self._finished(settings, instance)
        token, paused = next(self._tokens), _Paused()
        self._paused[token] = paused
        start = self._params(instance)

        def closure() -> torch.Tensor:
            answer = loss, grads
            if (self._params(instance) != start).any():
                paused.asked.put(Stepped(False, self._params(instance), self.empty_state, token))
                answer = paused.answers.get()
            self._set(instance, None, answer[1])
            return torch.tensor(float(answer[0]))

        def work() -> None:
            try:
                self._run(instance, seed, loss, closure)
                paused.asked.put(self._finished(settings, instance))
            except BaseException as error:  # noqa: BLE001  (it is raised where the step was asked for)
                paused.asked.put(error)

        threading.Thread(target=work, daemon=True).start()
        return self._asked(token)

    def go_on(self, token: int, loss: Array, grads: Array) -> Stepped:
        """Gives an unfinished step the loss and gradients that it asked for."""
        self._paused[token].answers.put((loss, grads))
        return self._asked(token)

    def eval_params(self, settings: Settings, params: Array, state: Array) -> np.ndarray:
        """Returns the parameters to evaluate, of an optimizer that has `eval()` and `train()`."""
        instance = self._take(settings)
        self._load(instance, state)
        self._set(instance, params, None)
        instance.optimizer.eval()
        found = self._params(instance)
        self._free[_key(settings)].append(instance)
        return found

    def _asked(self, token: int) -> Stepped:
        found = self._paused[token].asked.get()
        if isinstance(found, BaseException):
            del self._paused[token]
            raise found
        if found.is_done:
            del self._paused[token]
        return found

    def _run(
        self, instance: _Instance, seed: int, loss: Array, closure: Callable[[], torch.Tensor] | None = None
    ) -> None:
        torch.default_generator.manual_seed(seed)
        given = {"loss": torch.tensor(float(loss))} if instance.takes_loss else {}
        try:
            instance.optimizer.step(*(() if closure is None else (closure,)), **given)
        except RefusedOptimizer:
            raise
        except Exception as error:
            raise RefusedOptimizer(f"{self._made.name}.step() failed", got=_line(error)) from error

    def _finished(self, settings: Settings, instance: _Instance) -> Stepped:
        assert instance.loaded is not None
        self._free[_key(settings)].append(instance)
        return Stepped(True, self._params(instance), instance.loaded.state())

    def _load(self, instance: _Instance, state: np.ndarray) -> None:
        if self.layout.is_empty(state):
            state = self.layout.packed(instance.start, instance.start)
        if instance.loaded is None or not instance.loaded.takes(state):
            optimizer, parameters = instance.optimizer, instance.parameters
            instance.loaded = Loaded(self.layout, optimizer, state, parameters, self._scheduled, instance.start)

    def _set(self, instance: _Instance, params: Array | None, grads: Array | None) -> None:
        """Gives an optimizer's parameters a memory of their own."""
        tensors = instance.parameters.values()
        if params is not None:
            copied = np.array(params, np.float32)
            for tensor, part in zip(tensors, self._parts(copied), strict=True):
                tensor.data = part
        if grads is not None:
            for tensor, part in zip(tensors, self._parts(np.array(grads, np.float32)), strict=True):
                tensor.grad = part

    def _parts(self, flat: np.ndarray) -> list[torch.Tensor]:
        parts = torch.from_numpy(flat).split(self._sizes)
        return [part.view(shape) for part, shape in zip(parts, self._shapes.values(), strict=True)]

    def _params(self, instance: _Instance) -> np.ndarray:
        """Returns its parameters, which may lie elsewhere by now."""
        return np.concatenate([tensor.detach().numpy().reshape(-1) for tensor in instance.parameters.values()])

    def _take(self, settings: Settings) -> _Instance:
        free = self._free.setdefault(_key(settings), [])
        return free.pop() if free else self._new(settings)

    def _new(self, settings: Settings) -> _Instance:
        parameters = {
            name: torch.nn.Parameter(torch.zeros(shape, dtype=torch.float32)) for name, shape in self._shapes.items()
        }
        optimizer = self._made.make(parameters, settings)
        names = {id(tensor): name for name, tensor in parameters.items()}
        start = snapshot(optimizer, names, self._scheduled)
        start = {path: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for path, leaf in start.items()}
        return _Instance(optimizer, parameters, names, start, "loss" in _signature(optimizer.step))

    def _probe(self, settings: Settings) -> StateLayout:
        """Takes the first steps down a bowl."""
        instance = self._new(settings)
        random = np.random.default_rng(0)
        self._set(instance, random.standard_normal(sum(self._sizes)), None)

        def closure() -> torch.Tensor:
            for tensor in instance.parameters.values():
                tensor.grad = tensor.detach().clone() + 0.01
            with torch.no_grad():
                return sum(((tensor**2).sum() for tensor in instance.parameters.values()), torch.tensor(0.0)) / 2

        seen = [instance.start]
        for step in range(_PROBED):
            self._run(instance, step, closure(), closure if self._made.takes_closure else None)
            seen.append(snapshot(instance.optimizer, instance.names, self._scheduled))
        longest = max(int(group.get("history_size", 0)) for group in instance.optimizer.param_groups)
        return StateLayout(self._made.name, seen, longest)


def _key(settings: Settings) -> tuple[Any, ...]:
    return tuple(map(repr, settings.values()))
