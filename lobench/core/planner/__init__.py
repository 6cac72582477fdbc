"""Planner: decides which evaluations are missing, and hands them to the scheduler of work.

The scheduler (`lobench.core.schedule`) decides which worker runs what. Its events and actions about workers pass
through the planner unchanged, and this package exports them too.
"""

from __future__ import annotations

from lobench.core.planner import events
from lobench.core.planner.events import *  # noqa: F403  (the whole language, named once)
from lobench.core.planner.log import PlannerStart
from lobench.core.planner.plan import Plan
from lobench.core.planner.planner import Planner

__all__ = ["Plan", "Planner", "PlannerStart"]
__all__ += events.__all__
