"""Text output of `lobench run`: plan, table, ending, exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lobench.cli.endings import exit_code, new_or_earlier_counts_text, results_command, retry_lines, unread_lines
from lobench.cli.exit_codes import ExitCode
from lobench.core.wording import counted

if TYPE_CHECKING:
    from lobench.experiments.check import ExperimentPlan, MethodPlan
    from lobench.experiments.run import ExperimentOutcome

__all__ = ["ending_lines", "plan_lines", "ranking_of", "run_exit_code"]


def run_exit_code(outcome: ExperimentOutcome) -> int:
    """Returns the exit code as for a watch. If a command or method ended without a result, it is `ExitCode.ERROR`."""
    code = exit_code(outcome.ending)
    is_without_result = bool(outcome.refused) or {"failed", "infeasible"}.intersection(outcome.trials.values())
    return ExitCode.ERROR if code in (0, 1) and is_without_result else code


def ranking_of(outcome: ExperimentOutcome) -> str:
    """Returns the ranking of the experiment's methods, as in `lobench results`; "" before the first result."""
    from lobench.analysis.comparisons.summary import summary_of_methods
    from lobench.report.tables.ranking import ranking_text

    if not outcome.num_done:
        return ""
    summary = summary_of_methods(outcome.store, outcome.name)
    return ranking_text(summary, names_options=False) + "\n"


def ending_lines(outcome: ExperimentOutcome) -> list[str]:
    """Returns the last lines of a run's output: methods without results, and the number of evaluations."""
    progress_text = (
        f"{outcome.num_done} of {counted(outcome.num_planned, 'evaluation')}"
        if outcome.num_planned
        else "no case is known yet"
    )
    lines = [f"{name} {state}" for name, state in outcome.trials.items() if state in ("failed", "infeasible")]
    num_failed_commands = len(lines)
    lines += [f"{title!r} was not evaluated: {problem}" for title, problem in outcome.refused.items()]
    lines += [outcome.utilisation] if outcome.utilisation else []
    if outcome.ending.interrupted:
        return [*lines, f"{progress_text}; the same command goes on"]
    if outcome.ending.over_budget and outcome.num_done < outcome.num_planned:
        return [*lines, f"--max-core-hours are used: {progress_text}; the same command goes on"]
    outcomes_text = new_or_earlier_counts_text(outcome.ending)
    if outcome.num_planned and sum(outcome.ending.outcomes.values()) > outcome.num_planned:
        outcomes_text += ", the parts by which trials were stopped included"
    return [
        *lines,
        *retry_lines(outcome.ending, num_failed_commands),
        f"done: {progress_text}, {outcomes_text}; see {results_command(outcome.store, '--cases')}",
        *unread_lines(outcome.ending),
    ]


def plan_lines(plan: ExperimentPlan, max_cores: int) -> list[str]:
    """Returns the output of `--check`."""
    lines = [_method_line(method) for method in plan.methods]
    num_planned, num_missing = plan.num_planned, plan.num_missing
    size_text = f"{counted(len(plan.methods), 'method')} x {counted(plan.num_cases, 'case')}"
    verb = "is" if num_planned == 1 else "are"
    lines.append(f"{size_text}: {num_missing} of {counted(num_planned, 'evaluation')} {verb} missing in {plan.store}")
    unknown_cases = frozenset[str]().union(*(method.cases_without_duration for method in plan.methods))
    if num_missing:
        cost_text = (
            f"{plan.seconds / max_cores:.3g} s on {counted(max_cores, 'core')} ({plan.seconds:.3g} core-seconds)"
        )
        estimates = [f"{cost_text} by recorded durations"] * (plan.seconds > 0)
        estimates += [f"unknown for {', '.join(sorted(unknown_cases))}, without a recorded duration"] * bool(
            unknown_cases
        )
        lines.append(f"estimated time: {'; '.join(estimates) or cost_text}")
    if plan.is_race:
        lines.append("it is a race: eliminated methods get no more evaluations, so this is the largest possible cost")
    if plan.unbound:
        method_names = ", ".join(plan.unbound)
        lines.append(f"not checked, without a worker: whether all names and values in gin are right, of {method_names}")
    return [*lines, *plan.notices]


def _method_line(plan: MethodPlan) -> str:
    method = plan.method
    trials_text = f"{counted(plan.num_trials, 'trial')}, " if plan.num_trials else ""
    trainings_text = (
        f"{trials_text}{counted(plan.num_trainings, 'training')} and " if plan.num_trainings else trials_text
    )
    num_recorded = plan.num_planned - plan.num_missing
    subject_text = "; ".join((method.entry, *method.bindings))
    fresh_text = f" ({plan.num_reported} of them of the best on fresh seeds)" if plan.num_reported else ""
    planned_text = counted(plan.num_planned, "evaluation")
    num_repeated = plan.repeated_plan.num_planned if plan.repeated_plan is not None else 0
    repeated_text = f", {num_repeated} of them another method's too" if num_repeated else ""
    return (
        f"{method.title}: {trainings_text}{planned_text}{fresh_text}, {num_recorded} of them "
        f"recorded{repeated_text} ({subject_text})"
    )
