"""How `lobench watch` ends: what it says last, and its exit code."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from lobench.cli.exit_codes import ExitCode
from lobench.core.headline import counted
from lobench.core.result import Outcome
from lobench.engine.chief.contract import ERRORS, Ending
from lobench.report.builtin_page import PAGE, REPORT

if TYPE_CHECKING:
    from lobench.core.cost import CaseCost
    from lobench.sessions.costs import Costs
    from lobench.sessions.rounds import Watched
    from lobench.sessions.settings import WatchSettings

__all__ = ["cost_lines", "exit_code", "say_ending"]


def say_ending(settings: WatchSettings, watched: Watched, say: Callable[..., None]) -> None:
    """Says what there is to say of a watch that ended.

    Args:
      say: Takes a line, and its colour where it has one.
    """
    from lobench.cli.failing import say_unmet
    from lobench.sessions.repeated import repeating_command

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
    say(f"done: {_counts(ending)}; see `lobench results --store {shlex.quote(str(watched.store))}`{page}")


def exit_code(ending: Ending) -> int:
    """Returns the exit code: of all that the store has of today's plan."""
    if ending.interrupted:
        return ExitCode.INTERRUPTED
    if ending.over_budget and ending.num_left:
        return ExitCode.BUDGET
    found = {*ending.outcomes, *ending.recorded}
    if found.intersection(ERRORS):
        return ExitCode.ERROR
    return ExitCode.VERDICT if Outcome.FAILED in found else ExitCode.OK


def _counts(ending: Ending) -> str:
    """Returns what this call evaluated; where that was nothing, what the exit code speaks of."""
    if ending.outcomes:
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(ending.outcomes.items()))
    bad = {outcome: count for outcome, count in ending.recorded.items() if outcome in (*ERRORS, Outcome.FAILED)}
    before = ", ".join(f"{count} {outcome}" for outcome, count in sorted(bad.items()))
    return f"nothing new; recorded before: {before}" if before else "nothing new"


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
