"""The scheduler of work: a machine, and the language of events and actions that it speaks.

It knows work by opaque keys alone. What makes work of checkpoints and cases is `lobench.core.planner`.
"""

from __future__ import annotations

from lobench.core.schedule.events import (
    Action,
    Add,
    Capacity,
    Death,
    Drain,
    Drop,
    End,
    Ended,
    Event,
    Fail,
    Forgive,
    KillWorker,
    Lease,
    Returned,
    Size,
    StartWorker,
    Tick,
    Why,
    Work,
    WorkerDied,
    WorkerReady,
)
from lobench.core.schedule.losses import Rules
from lobench.core.schedule.machine import Machine

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
    "Lease",
    "Machine",
    "Returned",
    "Rules",
    "Size",
    "StartWorker",
    "Tick",
    "Why",
    "Work",
    "WorkerDied",
    "WorkerReady",
]
