"""Scheduler events and actions, and the work that they are about."""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

__all__ = [
    "Add",
    "Capacity",
    "Death",
    "Drain",
    "Drop",
    "End",
    "Ended",
    "Fail",
    "Forgive",
    "KillWorker",
    "Returned",
    "ScheduleAction",
    "ScheduleEvent",
    "Size",
    "StartWorker",
    "Tick",
    "Why",
    "Work",
    "WorkLease",
    "WorkerDied",
    "WorkerReady",
]


class Size(NamedTuple):
    """Cores and devices of a worker, fixed when it starts."""

    num_cpus: int
    num_gpus: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One unit of work. A worker does one at a time.

    Attributes:
      key: Identity of the work: hashable, and ordered among the keys of a machine, so that equal ranks have an order.
      warm_key: Key of the program that it needs. A worker that has run work with this key runs more of it sooner.
      size: Size of the worker that it needs, limited to the widest worker possible.
      timeout_seconds: Time limit, after which the worker is ended.
      rank: Order of the work; lower ranks first.
      guess_seconds: Expected duration, used until work with the same warm key has ended.
      alike: Work with equal values of `alike` may be computed together. None: only alone.
    """

    key: Any
    warm_key: str
    size: Size
    timeout_seconds: float
    rank: int = 0
    guess_seconds: float = 0.0
    alike: Hashable | None = None


# Events.


@dataclass(frozen=True, slots=True)
class Add:
    """New work. Work with the key of unfinished work is ignored."""

    works: tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Cancel work. Work that is running may finish, but is not retried if it is lost."""

    keys: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Forgive:
    """Set the numbers of deaths of the given work to 0."""

    keys: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class WorkerReady:
    worker: int
    now: float


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A worker has died.

    Attributes:
      lost: Whether the worker's machine went away, which does not count as a death of the work.
    """

    worker: int
    now: float
    message: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Capacity:
    """The machines of the cluster have changed.

    Attributes:
      machines: Sizes of all machines. Each worker runs on one of them.
      limit: Number of cores that all workers, and a single worker, may use. Workers are requested up to the limit, even
        if the machines have fewer cores.
    """

    machines: tuple[Size, ...]
    limit: float = math.inf


@dataclass(frozen=True, slots=True)
class Returned:
    """A worker has finished a lease.

    Attributes:
      replace_worker: Whether the worker is broken and must be replaced.
      seconds: Duration of the work, or its share if others were computed with it. None: unknown.
      is_typical: Whether further work with the same warm key is expected to take as long.
      is_void: Whether the work did not take place (its input could not be read) and is to be leased again.
    """

    worker: int
    lease: int
    now: float
    replace_worker: bool = False
    seconds: float | None = None
    is_typical: bool = True
    is_void: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    now: float


@dataclass(frozen=True, slots=True)
class Drain:
    """Lease no more work; running work may finish."""


ScheduleEvent: TypeAlias = Add | Drop | Forgive | WorkerReady | WorkerDied | Returned | Tick | Drain | Capacity


# Actions.


class Why(enum.StrEnum):
    """Reason for which work was leased to a worker."""

    FIRST = "first in the order"
    WARM = "its program is warm there, and it is nearly as long as the first"
    KEPT = "computed there already, with an earlier one"
    AGAIN = "a retry goes first"


class End(enum.StrEnum):
    """Way in which work ended, for the scheduler."""

    RETURNED = "returned"
    TIMEOUT = "timeout"
    POISONED = "poisoned"


@dataclass(frozen=True, slots=True)
class StartWorker:
    worker: int
    size: Size


@dataclass(frozen=True, slots=True)
class KillWorker:
    worker: int
    reason: str


@dataclass(frozen=True, slots=True)
class WorkLease:
    """Hand work to a worker.

    Attributes:
      companions: Alike work that the worker computes together with this one. It keeps the results, since this work is
        leased to it next.
    """

    worker: int
    lease: int
    work: Work
    deadline: float
    companions: tuple[Work, ...] = ()
    why: Why = Why.FIRST


@dataclass(frozen=True, slots=True)
class Ended:
    """Work has ended, and the scheduler has removed it.

    Attributes:
      lease: Lease that returned it; None if it did not return.
      message: Reason if it did not return.
    """

    work: Work
    end: End
    lease: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Death:
    """A worker has died while doing the work, for the `count`-th time."""

    work: Work
    count: int


@dataclass(frozen=True, slots=True)
class Fail:
    """Workers do not start. No more work is leased."""

    message: str


ScheduleAction: TypeAlias = StartWorker | KillWorker | WorkLease | Ended | Death | Fail
