"""Schedule interface: rates over a training whose length is provided when the optimizer steps."""

from __future__ import annotations

import contextlib
import operator
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.inner.optimizer import PyTree

__all__ = [
    "Horizon",
    "LossSchedule",
    "Rate",
    "Schedule",
    "ScheduleReads",
    "active_horizon",
    "any_schedules",
    "horizon_reads",
    "note_horizon_read",
    "rate_at",
]

Rate: TypeAlias = Any  # a float, float32[] when traced, or a schedule
Count: TypeAlias = Any  # int32[]: the index of an update, 0 for the first

_LIVE_SCHEDULES: weakref.WeakSet[Schedule] = weakref.WeakSet()


class Schedule:
    """A rate as a function of the update's index, for any rate of an optimizer.

    `adam(cosine(0.1))` is created before the number of updates is known; the training provides it while the optimizer
    steps. An optimizer that computes with a number (`-rate * grad`) receives the rate of the present update.

    Args:
      of: Function of num_steps that returns a schedule of optax's kind, a function from count to rate.
      name: Name in error messages.

    A schedule of your own:

        @lobench.configurable
        def square_root(peak=0.1):
            return lobench.Schedule(lambda num_steps: lambda count: peak / jnp.sqrt(count + 1), "square_root")

    >>> rate = lobench.Schedule(lambda num_steps: lambda count: 1 - count / num_steps, "linear")
    >>> rate.resolve(10)(5)
    0.5
    """

    __array_ufunc__ = None  # numpy's numbers leave arithmetic to the operators below

    def __init__(self, of: Callable[[int], Callable[[Count], Any]], name: str = "schedule") -> None:
        self._schedule_of, self.name = of, name
        _LIVE_SCHEDULES.add(self)

    def __call__(self, count: Count) -> jax.Array:
        """Returns the rate of an update, float32[].

        Raises:
          ConfigError: The number of updates is unknown.
        """
        horizon = _HORIZON.get()
        if horizon is None:
            raise self._unresolved_error()
        with active_horizon(horizon.for_inner_schedules()):
            return self.at(count - horizon.first_step if horizon.first_step else count, horizon)

    def at(self, count: Count, horizon: Horizon) -> jax.Array:
        """Returns the rate of an update, float32[].

        Args:
          count: Number of updates since the schedule's start, int32[] or int.
          horizon: Training in which the schedule runs, with its number of steps.
        """
        note_horizon_read()
        return self._schedule_of(horizon.num_steps)(count)

    def resolve(self, num_steps: int) -> Callable[[Count], jax.Array]:
        """Returns an optax schedule, for use outside of lobench.

        Args:
          num_steps: Number of updates of the training.
        """

        def schedule(count: Count) -> jax.Array:
            with active_horizon(Horizon(num_steps)):
                return self(count)

        return schedule

    def _unresolved_error(self) -> ConfigError:
        return ConfigError(
            f"{self.name}: this schedule does not know the number of steps",
            next_step=f"bind it as an optimizer's rate in lobench, which knows it, or write {self.name}(...)"
            ".resolve(num_steps) where optax is called directly",
        )

    def _current_rate(self) -> jax.Array:
        """Returns the rate of the update that is being computed."""
        horizon = _HORIZON.get()
        if horizon is None:
            raise self._unresolved_error()
        horizon.reads.used_as_number = True
        with active_horizon(horizon.for_inner_schedules()):
            return self.at(horizon.reads.count - horizon.start_count, horizon)

    def __jax_array__(self) -> jax.Array:
        return jnp.asarray(self._current_rate())

    def _apply_operation(self, operation: Callable[..., Any], *operands: Any) -> Any:
        if _HORIZON.get() is not None:
            return operation(
                *(operand._current_rate() if isinstance(operand, Schedule) else operand for operand in operands)
            )
        return _ComputedSchedule(operation, operands, self.name)

    def __neg__(self) -> Any:
        return self._apply_operation(operator.neg, self)

    def __add__(self, other: Any) -> Any:
        return self._apply_operation(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return self._apply_operation(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return self._apply_operation(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._apply_operation(operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return self._apply_operation(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._apply_operation(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._apply_operation(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._apply_operation(operator.truediv, other, self)

    def __pow__(self, other: Any) -> Any:
        return self._apply_operation(operator.pow, self, other)

    def __rpow__(self, other: Any) -> Any:
        return self._apply_operation(operator.pow, other, self)


class LossSchedule(Schedule):
    """A schedule that depends on the losses of the training. Its state is kept with that of the optimizer.

    It observes the loss of each update's batch, including the present one, from its first update on.

    >>> LossSchedule("plateau").name
    'plateau'
    """

    def __init__(self, name: str) -> None:
        super().__init__(lambda num_steps: lambda count: self.rate(self.init()), name)

    @abstractmethod
    def init(self) -> PyTree:
        """Returns the state before the first loss. Its structure, shapes and dtypes must not change."""

    @abstractmethod
    def observe(self, state: PyTree, loss: jax.Array) -> PyTree:
        """Returns the state after a loss.

        Args:
          state: State before the loss.
          loss: Loss of the update's batch, float32[].
        """

    @abstractmethod
    def rate(self, state: PyTree) -> jax.Array:
        """Returns the rate after the losses in `state`, float32[]."""

    def at(self, count: Count, horizon: Horizon) -> jax.Array:
        return self.rate(horizon.reads.state_of(self, horizon.start_count))

    def resolve(self, num_steps: int) -> Callable[[Count], jax.Array]:
        raise ConfigError(
            f"{self.name}: this schedule looks at losses, which a function of the count does not see",
            next_step="bind it as an optimizer's rate in lobench, or chain optax.contrib.reduce_on_plateau",
        )


class _ComputedSchedule(Schedule):
    """A value that an optimizer computed from a schedule before its first update: `-1 * cosine()`."""

    def __init__(self, operation: Callable[..., Any], operands: tuple[Any, ...], name: str) -> None:
        super().__init__(
            lambda num_steps: lambda count: operation(*(rate_at(operand, count) for operand in operands)), name
        )
        self._operands = operands  # kept alive with this schedule


class ScheduleReads:
    """Values that the schedules of one update read, and the schedules that read them.

    Attributes:
      count: Index of the update since the optimizer's state was created.
      states: States of the schedules that observe losses.
      loss_schedules: Those schedules, each with its first update, in the order of their calls.
      used_as_number: Whether a schedule was used as a number.
    """

    def __init__(self, count: Count = 0, states: dict[tuple[LossSchedule, int], PyTree] | None = None) -> None:
        self.count = count
        self.states = states or {}
        self.used_as_number = False
        self.loss_schedules: dict[tuple[LossSchedule, int], None] = {}

    def state_of(self, schedule: LossSchedule, start_count: int) -> PyTree:
        self.loss_schedules[schedule, start_count] = None
        return self.states[schedule, start_count] if (schedule, start_count) in self.states else schedule.init()


@dataclass(frozen=True, slots=True)
class Horizon:
    """Updates over which a schedule runs.

    Attributes:
      num_steps: Number of updates.
      first_step: The optimizer's own count at the first update.
      start_count: `reads.count` at the first update.
      reads: Values read in the present update.
    """

    num_steps: int
    first_step: int = 0
    start_count: int = 0
    reads: ScheduleReads = field(default_factory=ScheduleReads)

    def for_inner_schedules(self) -> Horizon:
        """Returns the horizon of schedules inside a schedule. They count steps from the start of the outer schedule."""
        return Horizon(self.num_steps, 0, self.start_count, self.reads)

    def remaining_after(self, steps: int) -> Horizon:
        """Returns the horizon that remains after some steps; it has at least one update."""
        return Horizon(max(self.num_steps - steps, 1), 0, self.start_count + steps, self.reads)


_HORIZON: ContextVar[Horizon | None] = ContextVar("horizon", default=None)
_READS: ContextVar[list[None] | None] = ContextVar("reads", default=None)


@contextlib.contextmanager
def active_horizon(horizon: Horizon) -> Iterator[None]:
    """Sets the updates over which schedules run while the body runs."""
    token = _HORIZON.set(horizon)
    try:
        yield
    finally:
        _HORIZON.reset(token)


@contextlib.contextmanager
def horizon_reads() -> Iterator[list[None]]:
    """Yields a list that gets an entry each time an optimizer traced inside reads the length of the training."""
    reads: list[None] = []
    token = _READS.set(reads)
    try:
        yield reads
    finally:
        _READS.reset(token)


def note_horizon_read() -> None:
    """Adds an entry to the lists of `horizon_reads`."""
    if (reads := _READS.get()) is not None:
        reads.append(None)


def any_schedules() -> bool:
    """Returns whether this process has any schedules."""
    return len(_LIVE_SCHEDULES) > 0


def rate_at(rate: Rate, count: Count) -> Any:
    """Returns the value of `rate` at an update. `rate` is a number, a lobench schedule or an optax schedule."""
    return rate(count) if callable(rate) else rate
