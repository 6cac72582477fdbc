"""The planner: missing evaluations of subjects, in the chief's terms.

It owns a scheduler of work (`lobench.core.schedule`), whose events and actions about workers are passed through; here
they are at hand beside the planner's own.
"""

from __future__ import annotations

from lobench.core.planner import events
from lobench.core.planner.events import *  # noqa: F403  (the whole language, named once)
from lobench.core.planner.log import Start
from lobench.core.planner.plan import Plan
from lobench.core.planner.planner import Planner

__all__ = ["Plan", "Planner", "Start"]
__all__ += events.__all__
