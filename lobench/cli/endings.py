"""Ends of evaluating commands: last lines, exit codes, and the lines of a dry run."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lobench.cli.exit_codes import ExitCode
from lobench.core.errors import LobenchError
from lobench.core.result import Outcome
from lobench.core.wording import counted
from lobench.engine.chief.interfaces import ERRORS, WatchSummary
from lobench.report.page.builtin_report import PAGE, REPORT

if TYPE_CHECKING:
    from lobench.api.dry_run import Costs
    from lobench.api.engine_run import WatchOutcome
    from lobench.api.settings import WatchSettings
    from lobench.core.cost import CaseCost
    from lobench.core.subject import Subject
    from lobench.engine.store.ledger import EvaluationRow

__all__ = [
    "cost_lines",
    "exit_code",
    "log_ending",
    "log_failed",
    "new_or_earlier_counts_text",
    "results_command",
    "retry_lines",
    "unread_lines",
]

_MAX_SHOWN_FAILURES = 5  # failed expectations that are logged


def exit_code(ending: WatchSummary) -> int:
    """Returns the exit code.

    It depends on the results of this call, and on the stored results of the current plan and the present run.
    """
    if ending.interrupted:
        return ExitCode.INTERRUPTED
    if ending.over_budget and ending.num_left:
        return ExitCode.BUDGET
    outcomes = {*ending.outcomes, *ending.recorded}
    if ending.unread or ending.unbound or outcomes.intersection(ERRORS):
        return ExitCode.ERROR
    return ExitCode.VERDICT if Outcome.FAILED in outcomes else ExitCode.OK


def log_failed(
    store: Path, ending: WatchSummary, command_of: Callable[[Subject, EvaluationRow], str], log: Callable[..., None]
) -> None:
    """Logs each failed expectation, with the curves of the case and the command that evaluates it again.

    Args:
      store: Folder of the store.
      ending: Summary of the run.
      command_of: Returns the command for a subject and an evaluation.
      log: Receives a line, and its colour if it has one.
    """
    if not ending.recorded.get(Outcome.FAILED):
        return
    from lobench.api.rerun import failed_rows
    from lobench.report.tables.failures import curve_lines
    from lobench.report.tables.text import subject_name

    rows = failed_rows(store, ending.plan)
    for row in rows[:_MAX_SHOWN_FAILURES]:
        subject = max(row.present_sightings, key=lambda sighting: sighting.outer_step)
        log(f"FAILED {row.case.suite}/{row.case.name}, {subject_name(subject)}: {row.message}", "red")
        curves = row.curves
        for line in curve_lines(row.case, [curves], row.message) if curves is not None else ():
            log(f"  {line}")
        log(f"  again: {command_of(subject, row)}")
    if len(rows) > _MAX_SHOWN_FAILURES:
        log(f"and {counted(len(rows) - _MAX_SHOWN_FAILURES, 'failure')} more: {results_command(store)} has all")


def log_ending(settings: WatchSettings, outcome: WatchOutcome, log: Callable[..., None]) -> None:
    """Logs the summary of a finished watch.

    Args:
      settings: Settings of the watch.
      outcome: Result of the watch.
      log: As for `log_failed`.
    """
    from lobench.api.rerun import repeating_command

    ending = outcome.ending
    for sink, count in ending.earlier.items():
        if sink not in ending.behind:
            log(f"sink {sink!r} received {counted(count, 'record')} of earlier calls that it did not have")
    for sink, count in ending.behind.items():
        log(f"sink {sink!r} still lacks {counted(count, 'record')}; it gets them at the next start")
    if ending.interrupted:
        log("stopped; nothing is lost: the same command goes on from here")
        return
    if ending.over_budget:
        total = ending.num_left + sum(ending.outcomes.values())
        verb = "was" if ending.num_left == 1 else "were"
        not_begun_text = (
            f"{ending.num_left} of {counted(total, 'evaluation')} {verb} not begun; the same command goes on from here"
        )
        log(f"--max-core-hours {settings.max_core_hours:g} are used; {not_begun_text}")
    resolved_settings = settings.resolved()
    log_failed(outcome.store, ending, lambda subject, row: repeating_command(subject, row.case, resolved_settings), log)
    for path, reason in outcome.left_out.items():
        log(f"left out: {path}: {reason}")
    if outcome.utilisation:
        log(outcome.utilisation)
    if ending.outcomes and not settings.quiet:
        for line in _best_lines(outcome.store, outcome.is_of_run):
            log(line)
    for line in retry_lines(ending):
        log(line)
    page = f", and {outcome.store / PAGE}" if REPORT in settings.sinks else ""
    log(f"done: {new_or_earlier_counts_text(ending)}; see {results_command(outcome.store)}{page}")
    for line in unread_lines(ending):
        log(line, "red")


def _best_lines(store: Path, is_of_run: Callable[[Subject], bool]) -> list[str]:
    """Returns the first lines of `lobench results`, of the watched run alone; [] if nothing can be ranked.

    They end with a note if results of other code are ranked (a watch that went on after an edit keeps those of before),
    and with one if checkpoints of the run have results with different bindings.
    """
    from lobench.analysis.comparisons.summary import summary_of
    from lobench.analysis.store.former_bindings import bindings_note
    from lobench.analysis.store.methods import read_methods
    from lobench.report.tables.ranking import best_lines

    with contextlib.suppress(LobenchError):  # the results are recorded, and `lobench results` says what is wrong
        snapshot = read_methods(store, summarized=True)
        if not snapshot.experiment.method_names:
            snapshot = snapshot.part_with(is_of_run)
        summary = summary_of(store, snapshot=snapshot)
        lines = best_lines(summary)
        if lines and (other_code := summary.snapshot.edited_code_line()):
            lines.append(f"{other_code}; the next start may plan them again")
        rows = [row for row in snapshot.rows if any(map(is_of_run, row.sightings))]
        if lines and (note := bindings_note(rows, snapshot.current)):
            lines.append(note)
        return lines
    return []


def unread_lines(ending: WatchSummary) -> list[str]:
    """Returns a line for each run whose newest checkpoint or `config.gin` could not be read."""
    older_note = "; the evaluated ones are older" if ending.num_checkpoints else ""
    warning = f"the newest checkpoint could not be read{older_note}"
    lines = [f"{warning}: {reason}" for reason in ending.unread.values()]
    return [*lines, *(f"not evaluated: {folder}: {reason}" for folder, reason in ending.unbound.items())]


def retry_lines(ending: WatchSummary, num_failed_commands: int = 0) -> list[str]:
    """Returns a line that names `--retry-errors`, or [] if all commands and stored evaluations gave a result.

    Args:
      ending: Summary of the run. Evaluations without result count whether they ended in this call or earlier.
      num_failed_commands: Number of trainings of an experiment that left no result.
    """
    num_errors = sum(ending.recorded.get(outcome, 0) for outcome in ERRORS)
    counts = {"command": num_failed_commands, "evaluation": num_errors}
    texts = [counted(count, noun) for noun, count in counts.items() if count]
    pronoun = "it" if sum(counts.values()) == 1 else "them"
    return [f"{' and '.join(texts)} gave no result; --retry-errors tries {pronoun} again"] if texts else []


def new_or_earlier_counts_text(ending: WatchSummary) -> str:
    """Returns the outcomes of this call or, if there are none, the earlier outcomes that determine the exit code."""
    if ending.outcomes:
        return _outcome_counts_text(ending.outcomes)
    earlier_failures = {
        outcome: count for outcome, count in ending.recorded.items() if outcome in (*ERRORS, Outcome.FAILED)
    }
    return (
        f"nothing new; recorded before: {_outcome_counts_text(earlier_failures)}" if earlier_failures else "nothing new"
    )


def _outcome_counts_text(counts_by_outcome: Mapping[Outcome, int]) -> str:
    """Formats outcomes with their numbers: `3 passed, 1 error`."""
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts_by_outcome.items()))


def results_command(store: Path, *options: str) -> str:
    """Returns the command that shows a store."""
    return f"`{shlex.join(['lobench', 'results', '--store', str(store), *options])}`"


def cost_lines(costs: Costs) -> list[str]:
    """Returns the lines of `--dry-run`: one for each case, the most expensive first, and the sums."""
    lines = [_cost_line(cost) for cost in sorted(costs.cases, key=lambda cost: -cost.core_seconds)]
    core_seconds = costs.core_seconds
    evaluations_text = counted(costs.num_evaluations, "evaluation")
    lines.append(
        f"a checkpoint: {evaluations_text}, {core_seconds:.3g} core-seconds ({core_seconds / 3600:.2g} core-hours)"
    )
    if costs.device_seconds:
        lines.append(f"  and {costs.device_seconds:.3g} device-seconds")
    cores_text = counted(costs.max_cores, "core")
    lines.append(f"on {cores_text}: {costs.wall_seconds:.3g} s at best, once programs are compiled")
    return lines


def _cost_line(cost: CaseCost) -> str:
    seconds_source = "recorded" if cost.recorded else "estimated"
    cores_factor = f" x {cost.num_cpus} cores" if cost.num_cpus > 1 else ""
    seconds_text = f"{cost.num_evaluations} x {cost.seconds:.3g} s{cores_factor}"
    return f"{cost.case.suite}/{cost.case.name}: {seconds_text}, {seconds_source}"
