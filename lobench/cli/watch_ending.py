"""How `lobench watch` ends: what it says last, and its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lobench.core.errors import CheckpointError
from lobench.core.result import Outcome
from lobench.engine.chief.contract import ERRORS, Ending
from lobench.hookspecs import CheckpointSource
from lobench.report.live import PAGE
from lobench.report.progress import ShownProgress

if TYPE_CHECKING:
    from lobench.cli.watch_setup import WatchCommand

__all__ = ["exit_code"]

_OVER_BUDGET = 4


def exit_code(
    command: WatchCommand, ending: Ending, source: CheckpointSource, progress: ShownProgress, store: Path
) -> int:
    """Says what there is to say, and returns the exit code: of all that the store has of today's plan.

    Raises:
      CheckpointError: there was no checkpoint.
    """
    for sink, count in ending.behind.items():
        progress.say(f"sink {sink!r} still lacks {count} deliveries; it gets them at the next start")
    if ending.interrupted:
        progress.say("stopped; nothing is lost: the same command goes on from here")
        return 130
    if ending.over_budget:
        total = ending.num_left + sum(ending.outcomes.values())
        left = f"{ending.num_left} of {total} evaluations were not begun; the same command goes on from here"
        progress.say(f"--max-core-hours {command.max_core_hours:g} are used; {left}")
    pending = source.pending()
    if ending.num_checkpoints == 0:
        details = "; ".join(f"{path} ({reason})" for path, reason in pending.items())
        raise CheckpointError(
            "no checkpoint to evaluate", where=command.location, got=details, next_step="see `lobench list readers`"
        )
    for path, reason in pending.items():
        progress.say(f"left out: {path}: {reason}")
    page = f", and {store / PAGE}" if command.report else ""
    progress.say(f"done: {_counts(ending)}; see `lobench results --store {store}`{page}")
    if ending.over_budget and ending.num_left:
        return _OVER_BUDGET
    found = {*ending.outcomes, *ending.recorded}
    if found.intersection(ERRORS):
        return 3
    return 1 if Outcome.FAILED in found else 0


def _counts(ending: Ending) -> str:
    """Returns what this call evaluated; where that was nothing, what the exit code speaks of."""
    if ending.outcomes:
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(ending.outcomes.items()))
    bad = {outcome: count for outcome, count in ending.recorded.items() if outcome in (*ERRORS, Outcome.FAILED)}
    before = ", ".join(f"{count} {outcome}" for outcome, count in sorted(bad.items()))
    return f"nothing new; recorded before: {before}" if before else "nothing new"
