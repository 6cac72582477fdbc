"""Torch's side of a step: makes an optimizer, gives it parameters and gradients, and returns its parameters and state.

It imports torch and numpy alone, so that it also runs in an environment without lobench.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
import itertools
import math
import queue
import random
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from lobench_torch.specs import (
    NEXT_STEP,
    OptimizerClass,
    OptimizerSpec,
    RefusedOptimizer,
    Settings,
    StepResult,
    class_of,
    error_line,
    explanation,
    signature,
)
from lobench_torch.state import StateOverflow, decode, encode, sizes_by_path, state_extent, state_size

__all__ = ["Host", "Library"]

HostArray: TypeAlias = Any
_FIRST_PROBE, _LONGEST_PROBE = 32, 256  # steps that measure the size of an optimizer's state
_CACHE_BYTES = 256 << 20
_UNCOMPILED = "__dynamo_disable"  # attribute in which torch caches the version of a function that its compiler skips
_HAS_BIT_GENERATORS = hasattr(np.random, "set_bit_generator")  # numpy 1.24 and later


class Library:
    """Optimizers of this Python."""

    def describe_class(self, name: str) -> OptimizerClass:
        """Returns facts about a class.

        Raises:
          RefusedOptimizer: The class does not exist.
        """
        return OptimizerClass.of(class_of(name))

    def identity(self, name: str) -> Any:
        """Returns a value that changes if the name refers to another class."""
        return class_of(name)

    def host(
        self,
        spec: OptimizerSpec,
        shapes: Mapping[str, tuple[int, ...]],
        settings: Settings,
        scheduled_names: Sequence[str],
    ) -> Host:
        return Host(spec, shapes, settings, scheduled_names)


@dataclass
class _Instance:
    """A torch optimizer and the parameters that it steps. Only one training uses it at a time.

    Attributes:
      takes_loss: Whether its `step` has an argument `loss`.
      state: Its last returned state. The instance can continue a training that is in this state.
    """

    optimizer: Any
    parameters: dict[str, torch.Tensor]
    takes_loss: bool
    state: np.ndarray


class _InstanceCache:
    """Cache of instances by state, from which trainings continue. The oldest instances are dropped first."""

    def __init__(self) -> None:
        self._instances_by_checksum: collections.OrderedDict[int, list[_Instance]] = collections.OrderedDict()
        self._bytes = 0

    def take(self, state: np.ndarray) -> _Instance | None:
        """Removes and returns an instance that is in a state; None if there is none."""
        state = state[: state_size(state)]
        candidates = self._instances_by_checksum.get(_checksum(state), [])
        for index, instance in enumerate(candidates):
            if np.array_equal(instance.state[: state_size(instance.state)], state):
                self._bytes -= instance.state.size
                del candidates[index]
                if not candidates:
                    del self._instances_by_checksum[_checksum(state)]
                return instance
        return None

    def put(self, instance: _Instance) -> None:
        key = _checksum(instance.state[: state_size(instance.state)])
        self._instances_by_checksum.setdefault(key, []).append(instance)
        self._bytes += instance.state.size
        while self._bytes > _CACHE_BYTES and len(self._instances_by_checksum) > 1:
            _, dropped_instances = self._instances_by_checksum.popitem(last=False)
            self._bytes -= sum(dropped_instance.state.size for dropped_instance in dropped_instances)


def _checksum(state: np.ndarray) -> int:
    """Returns a checksum of a state. Of a large state, only both ends are included."""
    return zlib.crc32(state[-(1 << 16) :].data, zlib.crc32(state[: 1 << 16].data))


@dataclass
class _PausedStep:
    """A step that waits for a loss and gradients."""

    answers: queue.SimpleQueue[tuple[HostArray, HostArray]] = field(default_factory=queue.SimpleQueue)
    requests: queue.SimpleQueue[StepResult | BaseException] = field(default_factory=queue.SimpleQueue)


class Host:
    """Steps optimizers of one kind on parameters of fixed shapes.

    Each training has its own instance. A step is a function of its inputs: if no instance is in the given state, one is
    decoded from the state's bytes.

    Args:
      spec: Specification of the optimizer.
      shapes: Shapes of the parameters by path; all are float32.
      settings: Settings of trial steps, which measure the size of the optimizer's state.
      scheduled_names: Names of settings that have a new value at each step.

    Attributes:
      empty_state: uint8[capacity], the state of an optimizer that has taken no step.

    Raises:
      RefusedOptimizer: The optimizer cannot be created, stepped or saved, or its state keeps growing.
    """

    def __init__(
        self,
        spec: OptimizerSpec,
        shapes: Mapping[str, tuple[int, ...]],
        settings: Settings,
        scheduled_names: Sequence[str] = (),
    ) -> None:
        torch.set_num_threads(1)  # the bits of a sum depend on the number of threads
        self._spec, self._shapes, self._scheduled = spec, dict(shapes), tuple(scheduled_names)
        self._sizes = [math.prod(shape) for shape in shapes.values()]
        self._cache = _InstanceCache()
        self._paused_steps: dict[int, _PausedStep] = {}
        self._tokens = itertools.count(1)
        self._probed_sizes: dict[str, int] = {}
        self.empty_state = np.zeros(self._probe_size(settings), np.uint8)

    def step(
        self,
        settings: Settings,
        step_settings: Settings,
        params: HostArray,
        grads: HostArray,
        loss: HostArray,
        state: HostArray,
        seed: int,
    ) -> StepResult:
        """Takes a step, or begins one.

        Args:
          settings: Values of the optimizer's settings.
          step_settings: Values for this step alone.
          params, grads: float32[all], concatenated parameters and gradients.
          loss: float32[], loss at `params`.
          state: State that the last step returned, or `empty_state`.
          seed: Seed of the random numbers of torch, numpy and Python in this step.

        Raises:
          RefusedOptimizer: The optimizer fails, or its state no longer fits.
        """
        instance = self._instance_in_state(settings, params, state, seed)
        for group in getattr(instance.optimizer, "param_groups", ()):
            group.update(step_settings)
        self._set_tensors(instance, params, grads)
        if not self._spec.takes_closure:
            self._run_step(instance, _RandomNumbers(seed), loss)
            return self._finish_step(instance)
        token = next(self._tokens)
        paused_step = _PausedStep()
        self._paused_steps[token] = paused_step
        start_params = self._flat_params(instance)
        random_numbers = _RandomNumbers(seed)

        def closure() -> torch.Tensor:
            answer = loss, grads
            if (self._flat_params(instance) != start_params).any():
                with random_numbers.paused():
                    paused_step.requests.put(StepResult(False, self._flat_params(instance), self.empty_state, token))
                    answer = paused_step.answers.get()
            self._set_tensors(instance, None, answer[1])
            return torch.tensor(float(answer[0]))

        def run_step() -> None:
            try:
                self._run_step(instance, random_numbers, loss, closure)
                paused_step.requests.put(self._finish_step(instance))
            except BaseException as error:  # noqa: BLE001  (it is raised where the step was asked for)
                paused_step.requests.put(error)

        threading.Thread(target=run_step, daemon=True).start()
        return self._next_request(token)

    def continue_step(self, token: int, loss: HostArray, grads: HostArray) -> StepResult:
        """Continues an incomplete step with the loss and gradients that it requested."""
        self._paused_steps[token].answers.put((loss, grads))
        return self._next_request(token)

    def eval_params(self, settings: Settings, params: HostArray, state: HostArray) -> np.ndarray:
        """Returns the parameters to evaluate, for an optimizer with `eval()` and `train()`.

        Calls `eval()` on a copy, because `train()` need not restore every bit.
        """
        instance = self._make_instance(settings, params, state, 0)
        self._set_tensors(instance, params, None)
        instance.optimizer.eval()
        return self._flat_params(instance)

    def _next_request(self, token: int) -> StepResult:
        request = self._paused_steps[token].requests.get()
        if isinstance(request, BaseException):
            del self._paused_steps[token]
            raise request
        if request.is_done:
            del self._paused_steps[token]
        return request

    def _run_step(
        self,
        instance: _Instance,
        random_numbers: _RandomNumbers,
        loss: HostArray,
        closure: Callable[[], torch.Tensor] | None = None,
    ) -> None:
        loss_argument = {"loss": torch.tensor(float(loss))} if instance.takes_loss else {}
        try:
            with random_numbers:
                instance.optimizer.step(*(() if closure is None else (closure,)), **loss_argument)
        except RefusedOptimizer:
            raise
        except Exception as error:
            message = error_line(error) + explanation(error, instance.parameters)
            wants_closure = closure is None and "closure" in str(error).lower()
            hint = (
                "set its `closure = True`, which gives `step` a function of loss and gradients" if wants_closure else ""
            )
            raise RefusedOptimizer(f"{self._spec.name}.step() failed", got=message, next_step=hint) from error

    def _finish_step(self, instance: _Instance) -> StepResult:
        """Returns parameters and state of an instance after a step, and keeps the instance for the next step."""
        try:
            instance.state = encode(
                instance.optimizer, instance.parameters, self._spec.name, capacity=self.empty_state.size
            )
        except StateOverflow as error:
            raise self._growth_error(instance, f"{error.size:,} bytes", f"at most {self.empty_state.size:,}") from None
        self._cache.put(instance)
        return StepResult(True, self._flat_params(instance), instance.state)

    def _growth_error(self, instance: _Instance, got: str, expected: str) -> RefusedOptimizer:
        sizes = sizes_by_path(instance.optimizer, instance.parameters)
        growth = {path: size - self._probed_sizes.get(path, 0) for path, size in sizes.items()}
        return RefusedOptimizer(
            f"{self._spec.name} remembers more and more",
            where=max(growth, key=lambda path: growth[path]),
            got=got,
            expected=f"{expected}, as after its first steps",
            next_step=NEXT_STEP,
        )

    def _instance_in_state(self, settings: Settings, params: HostArray, state: np.ndarray, seed: int) -> _Instance:
        return (self._cache.take(state) if state_size(state) else None) or self._make_instance(
            settings, params, state, seed
        )

    def _make_instance(self, settings: Settings, params: HostArray, state: np.ndarray, seed: int) -> _Instance:
        """Returns an instance in a state that the cache does not have."""
        if not state_size(state):
            return self._new_instance(settings, params, seed)
        parameters = self._zero_parameters()
        optimizer = decode(state, parameters)
        return _Instance(optimizer, parameters, _takes_loss(optimizer), state)

    def _new_instance(self, settings: Settings, params: HostArray, seed: int) -> _Instance:
        """Returns an instance that has taken no step. Its class may read the initial parameters."""
        parameters = self._zero_parameters()
        with torch.no_grad():
            for tensor, values in zip(
                parameters.values(), self._split_vector(np.array(params, np.float32)), strict=True
            ):
                tensor.copy_(values)
        with _RandomNumbers(seed), _without_compiler():
            optimizer = self._spec.make(parameters, settings)
        return _Instance(optimizer, parameters, _takes_loss(optimizer), np.zeros(0, np.uint8))

    def _zero_parameters(self) -> dict[str, torch.Tensor]:
        return {name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in self._shapes.items()}

    def _set_tensors(self, instance: _Instance, params: HostArray | None, grads: HostArray | None) -> None:
        """Sets an instance's parameters in place, and assigns new gradients, as a training loop in torch does."""
        tensors = instance.parameters.values()
        if params is not None:
            with torch.no_grad():
                for tensor, values in zip(tensors, self._split_vector(np.array(params, np.float32)), strict=True):
                    tensor.copy_(values)
        if grads is not None:
            for tensor, values in zip(tensors, self._split_vector(np.array(grads, np.float32)), strict=True):
                tensor.grad = values

    def _split_vector(self, flat: np.ndarray) -> list[torch.Tensor]:
        vectors = torch.from_numpy(flat).split(self._sizes)
        return [vector.view(shape) for vector, shape in zip(vectors, self._shapes.values(), strict=True)]

    def _flat_params(self, instance: _Instance) -> np.ndarray:
        return np.concatenate([tensor.detach().numpy().reshape(-1) for tensor in instance.parameters.values()])

    def _probe_size(self, settings: Settings) -> int:
        """Takes steps on a quadratic until the state stops growing. Returns the size of the state in bytes."""
        instance = self._new_instance(settings, np.random.default_rng(0).standard_normal(sum(self._sizes)), 0)
        class_values = _class_values(type(instance.optimizer))

        def closure() -> torch.Tensor:
            for tensor in instance.parameters.values():
                tensor.grad = tensor.detach().clone() + 0.01
            with torch.no_grad():
                return sum(((tensor**2).sum() for tensor in instance.parameters.values()), torch.tensor(0.0)) / 2

        sizes, state_extents = [0], [(0, 0)]
        num_steps = _FIRST_PROBE
        while len(state_extents) <= num_steps:
            self._run_step(
                instance, _RandomNumbers(len(state_extents)), closure(), closure if self._spec.takes_closure else None
            )
            state = encode(instance.optimizer, instance.parameters, self._spec.name)
            sizes.append(state_size(state))
            state_extents.append(state_extent(state))
            if len(state_extents) == num_steps // 2:
                self._probed_sizes = sizes_by_path(instance.optimizer, instance.parameters)
            if len(state_extents) > num_steps and self._is_growing(state_extents):
                if num_steps == _LONGEST_PROBE:
                    raise self._growth_error(
                        instance, f"{sizes[-1]:,} bytes after {num_steps} steps", f"{sizes[num_steps // 2]:,}"
                    )
                num_steps *= 2
        self._refuse_shared_attributes(class_values, type(instance.optimizer))
        history_size = max(
            (int(group.get("history_size", 0)) for group in getattr(instance.optimizer, "param_groups", ())), default=0
        )
        longest_history = history_size * (8 * sum(self._sizes) + 512)  # L-BFGS: two directions and two numbers a step
        return (
            max(sizes)
            + max(size - sum(state_extent[1:]) for size, state_extent in zip(sizes, state_extents, strict=True)) // 2
            + 4096
            + longest_history
        )

    def _is_growing(self, state_extents: Sequence[tuple[int, int]]) -> bool:
        half = len(state_extents) // 2
        return any(max(sizes[half:]) > max(sizes[:half]) for sizes in zip(*state_extents, strict=True))

    def _refuse_shared_attributes(self, values_before: Mapping[str, Any], cls: type) -> None:
        """Refuses an optimizer whose steps change attributes of its class, which all seeds share.

        Raises:
          RefusedOptimizer: The attributes have changed.
        """
        values_after = _class_values(cls)
        changed_names = [
            name for name in {**values_before, **values_after} if values_before.get(name) != values_after.get(name)
        ]
        if changed_names:
            name = changed_names[0]
            raise RefusedOptimizer(
                f"{self._spec.name} changes attributes of its class, which all seeds share",
                where=name,
                got=f"{values_before.get(name)} before its first steps, {values_after.get(name)} after",
                expected="attributes of the instance (`self.count = 0` in `__init__`)",
                next_step=NEXT_STEP,
            )


def _takes_loss(optimizer: Any) -> bool:
    return "loss" in signature(optimizer.step)


def _class_values(cls: type) -> dict[str, str]:
    """Returns the numbers and containers among the attributes of a class and its bases, except torch's, as text."""
    values = {}
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] not in ("torch", "builtins", "typing"):
            for name, value in vars(base).items():
                if isinstance(value, bool | int | float | list | dict | set | torch.Tensor) and name[:2] != "__":
                    values[f"{base.__qualname__}.{name}"] = repr(value)
    return values


class _RandomNumbers:
    """Global random number generators of torch, numpy and Python, seeded for one step.

    They are in use inside the context. Outside of it, and while it is paused, their previous states are restored.
    """

    _lock = threading.Lock()  # only one step at a time may draw
    # Generator for steps; switching generators costs a tenth of copying the state twice.
    _numpy_bits = np.random.MT19937()

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._own_states: _RandomStates | None = None  # states of a paused step
        self._outer_states: _RandomStates | None = None

    def __enter__(self) -> None:
        self._lock.acquire()
        outer_numpy = np.random.get_bit_generator() if _HAS_BIT_GENERATORS else np.random.get_state()  # type: ignore[attr-defined]
        self._outer_states = _RandomStates(torch.default_generator.get_state(), random.getstate(), outer_numpy)
        if _HAS_BIT_GENERATORS:
            np.random.set_bit_generator(self._numpy_bits)  # type: ignore[attr-defined]
        if self._own_states is None:
            torch.default_generator.manual_seed(self._seed)
            random.seed(self._seed)
            np.random.seed(self._seed % (1 << 32))
        else:
            torch.default_generator.set_state(self._own_states.torch)
            random.setstate(self._own_states.python)
            np.random.set_state(self._own_states.numpy)

    def __exit__(self, *error: object) -> None:
        outer_states = self._outer_states
        assert outer_states is not None
        torch.default_generator.set_state(outer_states.torch)
        random.setstate(outer_states.python)
        if _HAS_BIT_GENERATORS:
            np.random.set_bit_generator(outer_states.numpy)  # type: ignore[attr-defined]
        else:
            np.random.set_state(outer_states.numpy)
        self._lock.release()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Restores the previous random states until the step continues."""
        self._own_states = _RandomStates(torch.default_generator.get_state(), random.getstate(), np.random.get_state())
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()


@contextlib.contextmanager
def _without_compiler() -> Iterator[None]:
    """Prevents the import of torch's compiler, which takes a second, while an optimizer is made.

    `add_param_group` imports it only to exclude itself from compilation, and not if this attribute is set. Other
    versions of torch may ignore the attribute.
    """
    function: Any = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    is_replaced = "torch._dynamo" not in sys.modules and not hasattr(function, _UNCOMPILED)
    if is_replaced:
        setattr(function, _UNCOMPILED, function)
    try:
        yield
    finally:
        if is_replaced:
            vars(function).pop(_UNCOMPILED, None)


class _RandomStates(NamedTuple):
    torch: torch.Tensor
    python: Any
    numpy: Any  # a generator, or the state of one
