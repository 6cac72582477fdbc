"""What `lobench run` says: its plan, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lobench.sessions.methods import MethodPlan
    from lobench.sessions.run import ExperimentPlan

__all__ = ["plan_lines"]


def plan_lines(plan: ExperimentPlan, max_cores: int) -> list[str]:
    """Returns what `--check` says."""
    lines = [_method_line(method) for method in plan.methods]
    planned, missing = (sum(getattr(one, name) for one in plan.methods) for name in ("num_planned", "num_missing"))
    size = f"{len(plan.methods)} methods x {plan.num_cases} cases"
    lines.append(f"{size}: {missing} of {planned} evaluations are missing in {plan.store}")
    unknown = frozenset[str]().union(*(one.unknown for one in plan.methods))
    if missing:
        seconds = sum(one.seconds for one in plan.methods)
        known = f"by recorded durations {seconds:.3g} core-seconds: {seconds / max_cores:.3g} s on {max_cores} cores"
        but = f", without {', '.join(sorted(unknown))}, which never ran here" if unknown else ""
        lines.append(known + but)
    return lines


def _method_line(plan: MethodPlan) -> str:
    method = plan.method
    trainings = f"{plan.num_trainings} trainings and " if plan.num_trainings else ""
    recorded = plan.num_planned - plan.num_missing
    subject = "; ".join((method.optimizer or method.checkpoint or method.command, *method.bindings))
    return f"{method.title}: {trainings}{plan.num_planned} evaluations, {recorded} of them recorded ({subject})"
