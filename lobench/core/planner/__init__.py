"""The planner: what is to be done for which checkpoint, and who does it, in the chief's words.

It owns a scheduler of work (`lobench.core.schedule`), whose events and actions about workers are passed through; here
they are at hand beside the planner's own.
"""

from __future__ import annotations

from lobench.core.planner.events import (
    Action,
    Admit,
    CasesKnown,
    CommandEnded,
    CommandId,
    Done,
    EvaluationId,
    Event,
    FinishCheckpoint,
    Finished,
    Forget,
    History,
    Lease,
    LeaseCommand,
    Policy,
    Record,
    RecordDeath,
    RecordSplit,
    Reopen,
    RunCommands,
    RunEnded,
    Skip,
    SubjectSeen,
)
from lobench.core.planner.log import Start
from lobench.core.planner.plan import Plan
from lobench.core.planner.planner import Planner
from lobench.core.schedule import (
    Capacity,
    Drain,
    Fail,
    KillWorker,
    Size,
    StartWorker,
    Tick,
    WorkerDied,
    WorkerReady,
)

__all__ = [
    "Action",
    "Admit",
    "Capacity",
    "CasesKnown",
    "CommandEnded",
    "CommandId",
    "Done",
    "Drain",
    "EvaluationId",
    "Event",
    "Fail",
    "FinishCheckpoint",
    "Finished",
    "Forget",
    "History",
    "KillWorker",
    "Lease",
    "LeaseCommand",
    "Plan",
    "Planner",
    "Policy",
    "Record",
    "RecordDeath",
    "RecordSplit",
    "Reopen",
    "RunCommands",
    "RunEnded",
    "Size",
    "Skip",
    "Start",
    "StartWorker",
    "SubjectSeen",
    "Tick",
    "WorkerDied",
    "WorkerReady",
]
