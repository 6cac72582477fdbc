"""Scheduler events and actions, and the work that they are about."""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

__all__ = [
    "Action",
    "Add",
    "Capacity",
    "Death",
    "Drain",
    "Drop",
    "End",
    "Ended",
    "Event",
    "Fail",
    "Forgive",
    "KillWorker",
    "Returned",
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
    """What a worker takes of a machine, fixed when it starts."""

    num_cpus: int
    num_gpus: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One thing that one worker does at a time. The scheduler does not look into what its user put there.

    Attributes:
      key: What it is; hashable, and ordered among the keys of one machine, so that equal ranks have an order.
      warm_key: Names the program that it needs: a worker that has run one work of a warm key runs the next sooner.
      size: Of the worker that it needs, as far as a worker may be that wide.
      timeout_seconds: After which its worker is ended.
      rank: Lower goes first.
      guess_seconds: How long it takes, where nothing of its warm key has ended yet.
      alike: Works that are equal in it may be computed together; None: only alone.
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
    """Work to be done. One whose key is there already, and has not ended, is there once."""

    works: tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """These are wanted no more. What runs may end, but is not tried again where it is lost."""

    keys: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Forgive:
    """Workers that died with these count no more."""

    keys: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class WorkerReady:
    worker: int
    now: float


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """`lost` says that its machine went away, which is no evidence against the work that it held."""

    worker: int
    now: float
    message: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Capacity:
    """Machines came or went: these are what there is from now on.

    Attributes:
      machines: A worker is on one of them.
      limit: Cores that workers may take together, and one worker may, however many its work asks for. As many are asked
        for, also where there are fewer.
    """

    machines: tuple[Size, ...]
    limit: float = math.inf


@dataclass(frozen=True, slots=True)
class Returned:
    """A worker is through with a lease.

    Attributes:
      replace_worker: Whether the worker is to be ended, having broken.
      seconds: What the work itself took, its share where others were computed with it; None: not known.
      is_typical: Whether the time that it took says how long the next of its warm key will take.
      is_void: Whether the lease did not touch the work, which waits again: its input could not be read, say.
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
    """Lease nothing more; what runs may end."""


Event: TypeAlias = Add | Drop | Forgive | WorkerReady | WorkerDied | Returned | Tick | Drain | Capacity


# Actions.


class Why(enum.StrEnum):
    """Why a work was leased, and not another, or to another worker."""

    FIRST = "first in the order"
    WARM = "its program is warm there, and it is nearly as long as the first"
    KEPT = "computed there already, with an earlier one"
    AGAIN = "a retry goes first"


class End(enum.StrEnum):
    """How a work ended, as far as the scheduler knows."""

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
    """`companions` are alike: the worker computes them with the work and keeps what it gets, since it is leased them
    next."""

    worker: int
    lease: int
    work: Work
    deadline: float
    companions: tuple[Work, ...] = ()
    why: Why = Why.FIRST


@dataclass(frozen=True, slots=True)
class Ended:
    """The scheduler knows the work no more.

    Attributes:
      lease: That it returned from; None where it did not.
      message: What is to be said of one that did not.
    """

    work: Work
    end: End
    lease: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Death:
    """A worker died with a work, for the `count`-th time."""

    work: Work
    count: int


@dataclass(frozen=True, slots=True)
class Fail:
    """Workers do not start; nothing more is leased."""

    message: str


Action: TypeAlias = StartWorker | KillWorker | WorkLease | Ended | Death | Fail
