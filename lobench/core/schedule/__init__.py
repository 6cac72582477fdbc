"""Scheduler of work: a state machine with typed events and actions.

It knows work by opaque keys only. `lobench.core.planner` turns checkpoints and cases into work.
"""

from __future__ import annotations

from lobench.core.schedule import events
from lobench.core.schedule.events import *  # noqa: F403  (the whole language, named once)
from lobench.core.schedule.losses import Rules
from lobench.core.schedule.machine import Machine

__all__ = ["Machine", "Rules"]
__all__ += events.__all__
