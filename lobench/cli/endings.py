"""What `lobench watch` and `lobench run` say of what they would do, and last, and how they exit."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lobench.cli.exit_codes import ExitCode
from lobench.core.result import Outcome
from lobench.core.wording import counted
from lobench.engine.chief.interfaces import ERRORS, Ending
from lobench.report.page.builtin import PAGE, REPORT

if TYPE_CHECKING:
    from lobench.api.dry_run import Costs
    from lobench.api.engine_run import Watched
    from lobench.api.settings import WatchSettings
    from lobench.core.cost import CaseCost
    from lobench.core.subject import Subject
    from lobench.engine.store.ledger import EvaluationRow
    from lobench.experiments.check import ExperimentPlan, MethodPlan
    from lobench.experiments.run import Ran

__all__ = [
    "cost_lines",
    "ending_lines",
    "exit_code",
    "plan_lines",
    "run_exit_code",
    "say_ending",
    "say_unmet",
    "table_of",
]

_MOST = 5  # expectations that were not met


def exit_code(ending: Ending) -> int:
    """Returns the exit code: of all that the store has of today's plan."""
    if ending.interrupted:
        return ExitCode.INTERRUPTED
    if ending.over_budget and ending.num_left:
        return ExitCode.BUDGET
    found = {*ending.outcomes, *ending.recorded}
    if ending.unread or found.intersection(ERRORS):
        return ExitCode.ERROR
    return ExitCode.VERDICT if Outcome.FAILED in found else ExitCode.OK


def run_exit_code(ran: Ran) -> int:
    """Returns a watch's, where no command ended without a result."""
    code = exit_code(ran.ending)
    return ExitCode.ERROR if code in (0, 1) and {"failed", "infeasible"}.intersection(ran.trials.values()) else code


def say_unmet(
    store: Path, ending: Ending, command_of: Callable[[Subject, EvaluationRow], str], say: Callable[..., None]
) -> None:
    """Says of each expectation that was not met what it was, how the case went, and what evaluates it again.

    Args:
      command_of: Returns the command.
      say: Takes a line, and its colour where it has one.
    """
    if not ending.recorded.get(Outcome.FAILED):
        return
    from lobench.api.rerun import unmet
    from lobench.report.tables.failures import curve_lines
    from lobench.report.tables.text import subject_name

    rows = unmet(store, ending)
    for row in rows[:_MOST]:
        subject = max(row.sightings, key=lambda one: one.outer_step)
        say(f"FAILED {row.case.suite}/{row.case.name}, {subject_name(subject)}: {row.message}", "red")
        curves = row.curves
        for line in curve_lines(row.case, [curves], row.message) if curves is not None else ():
            say(f"  {line}")
        say(f"  again: {command_of(subject, row)}")
    if len(rows) > _MOST:
        say(f"and {counted(len(rows) - _MOST, 'failure')} more: {_results(store)} has all")


def say_ending(settings: WatchSettings, watched: Watched, say: Callable[..., None]) -> None:
    """Says what there is to say of a watch that ended.

    Args:
      say: As of `say_unmet`.
    """
    from lobench.api.rerun import repeating_command

    ending = watched.ending
    for sink, count in ending.behind.items():
        say(f"sink {sink!r} still lacks {count} deliveries; it gets them at the next start")
    if ending.interrupted:
        say("stopped; nothing is lost: the same command goes on from here")
        return
    if ending.over_budget:
        total = ending.num_left + sum(ending.outcomes.values())
        left = f"{ending.num_left} of {counted(total, 'evaluation')} were not begun; the same command goes on from here"
        say(f"--max-core-hours {settings.max_core_hours:g} are used; {left}")
    found = settings.found()
    say_unmet(watched.store, ending, lambda subject, row: repeating_command(subject, row.case, found), say)
    for path, reason in watched.left_out.items():
        say(f"left out: {path}: {reason}")
    if watched.utilisation:
        say(watched.utilisation)
    page = f", and {watched.store / PAGE}" if REPORT in settings.sinks else ""
    say(f"done: {_counts(ending)}; see {_results(watched.store)}{page}")
    for line in _unread_lines(ending):
        say(line, "red")


def _unread_lines(ending: Ending) -> list[str]:
    said = "the newest checkpoint could not be read, and what was evaluated is older"
    return [f"{said}: {why}" for why in ending.unread.values()]


def _counts(ending: Ending) -> str:
    """Returns what this call evaluated; where that was nothing, what the exit code speaks of."""
    if ending.outcomes:
        return _listed(ending.outcomes)
    bad = {outcome: count for outcome, count in ending.recorded.items() if outcome in (*ERRORS, Outcome.FAILED)}
    return f"nothing new; recorded before: {_listed(bad)}" if bad else "nothing new"


def _listed(outcomes: Mapping[Outcome, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))


def _results(store: Path) -> str:
    return f"`lobench results --store {shlex.quote(str(store))}`"


def table_of(ran: Ran) -> str:
    """Returns methods and cases as `lobench results --by method` shows them; "" where nothing is there yet."""
    from lobench.cli.results_output import by_method_text

    if not ran.num_done:
        return ""
    return by_method_text(ran.store, "table", ran.name, every=False, table=None) + "\n"


def ending_lines(ran: Ran) -> list[str]:
    """Returns what is said last."""
    of = f"{ran.num_done} of {counted(ran.num_planned, 'evaluation')}" if ran.num_planned else "no case is known yet"
    lines = [f"{name} {state}" for name, state in ran.trials.items() if state in ("failed", "infeasible")]
    lines += [ran.utilisation] if ran.utilisation else []
    if ran.ending.interrupted:
        return [*lines, f"{of}; the same command goes on"]
    if ran.ending.over_budget and ran.num_done < ran.num_planned:
        return [*lines, f"--max-core-hours are used: {of}; the same command goes on"]
    new = _listed(ran.ending.outcomes) or "nothing new"
    return [*lines, f"done: {of}, {new}; see {_results(ran.store)}", *_unread_lines(ran.ending)]


def cost_lines(costs: Costs) -> list[str]:
    """Returns what `--dry-run` says: a line for each case, the dearest first, and the sums."""
    lines = [_cost_line(cost) for cost in sorted(costs.cases, key=lambda cost: -cost.core_seconds)]
    total = costs.core_seconds
    number = counted(costs.num_evaluations, "evaluation")
    lines.append(f"a checkpoint: {number}, {total:.3g} core-seconds ({total / 3600:.2g} core-hours)")
    if costs.device_seconds:
        lines.append(f"  and {costs.device_seconds:.3g} device-seconds")
    cores = counted(costs.max_cores, "core")
    lines.append(f"on {cores}: {costs.wall_seconds:.3g} s at best, once programs are compiled")
    return lines


def _cost_line(cost: CaseCost) -> str:
    source = "recorded" if cost.recorded else "estimated"
    cores = f" x {cost.num_cpus} cores" if cost.num_cpus > 1 else ""
    return f"{cost.case.suite}/{cost.case.name}: {cost.num_evaluations} x {cost.seconds:.3g} s{cores}, {source}"


def plan_lines(plan: ExperimentPlan, max_cores: int) -> list[str]:
    """Returns what `--check` says."""
    lines = [_method_line(method) for method in plan.methods]
    planned, missing = plan.num_planned, plan.num_missing
    size = f"{counted(len(plan.methods), 'method')} x {counted(plan.num_cases, 'case')}"
    lines.append(f"{size}: {missing} of {counted(planned, 'evaluation')} are missing in {plan.store}")
    unknown = frozenset[str]().union(*(one.unknown for one in plan.methods))
    if missing:
        seconds = plan.seconds
        known = f"by recorded durations {seconds:.3g} core-seconds: {seconds / max_cores:.3g} s"
        but = f", without {', '.join(sorted(unknown))}, which never ran here" if unknown else ""
        lines.append(f"{known} on {counted(max_cores, 'core')}{but}")
    if plan.unbound:
        whose = ", ".join(plan.unbound)
        lines.append(f"not checked, without a worker: whether all names and values in gin are right, of {whose}")
    return lines


def _method_line(plan: MethodPlan) -> str:
    method = plan.method
    trials = f"{counted(plan.num_trials, 'trial')}, " if plan.num_trials else ""
    trainings = f"{trials}{counted(plan.num_trainings, 'training')} and " if plan.num_trainings else trials
    recorded = plan.num_planned - plan.num_missing
    subject = "; ".join((method.named, *method.bindings))
    fresh = f" ({plan.num_reported} of them of the best on fresh seeds)" if plan.num_reported else ""
    planned = counted(plan.num_planned, "evaluation")
    num_repeated = plan.repeated.num_planned if plan.repeated is not None else 0
    repeated = f", {num_repeated} of them another method's too" if num_repeated else ""
    return f"{method.title}: {trainings}{planned}{fresh}, {recorded} of them recorded{repeated} ({subject})"
