"""Options and output of `lobench alarm`."""

from __future__ import annotations

import select
import sys
import time
from typing import Any

import click

from lobench.api.settings import WatchSettings
from lobench.cli.exit_codes import ExitCode
from lobench.cli.options import evaluation_options, options_of, watched_run_options
from lobench.cli.output import call_with_progress, emit, format_option, show
from lobench.tools.alarm.alarm_rules import AlarmRules

__all__ = ["alarm"]

_SECONDS = 2.0  # between two looks at a store


@click.command(
    epilog="""\b
Examples:
  lobench alarm runs/today --suite quick
  lobench alarm runs/today --suite quick --alarm regress,overfit,stall --least-gain 0.005
  lobench alarm runs/today --suite quick --follow --on-alarm 'scancel 123'
  lobench watch runs/today --suite quick --alarm regress --on-alarm 'scancel 123'

Exit codes: 0 no alarm, 1 an alarm, 2 usage, no store or other bindings than those of the
watch, 3 nothing was compared: no checkpoint has a score on all of its cases, 130 interrupted."""
)
@click.argument("location", metavar="RUN")
@watched_run_options
@click.option(
    "--alarm",
    "kinds",
    multiple=True,
    default=("regress",),
    show_default=True,
    metavar="KIND[,KIND]",
    help="Kind of alarm: regress, overfit or stall; repeatable.",
)
@options_of(AlarmRules)
@click.option("--on-alarm", default="", metavar="COMMAND", help="Shell command to run for each new alarm.")
@click.option("--follow", is_flag=True, help="Keep looking at each checkpoint that a watch finishes, until Ctrl-C.")
@click.option("--until-input-ends", is_flag=True, hidden=True)
@options_of(WatchSettings, "sinks", "allow_pickle")
@evaluation_options
@format_option("text", "json", name="output_format", prints={"alarm": "lobench.tools.alarm.alarm_output:AlarmsRecord"})
def alarm(location: str, output_format: str, follow: bool, until_input_ends: bool, **options: Any) -> None:
    """Report when a watched run gets worse, overfits or stalls, with a stated chance of a false alarm in the whole run.

    A checkpoint that is worse than the best one so far is suspected. Fresh seeds of both decide, at a level that
    counts all confirmations. They are stored in STORE/alarm, and a second call repeats none of them.
    """
    from lobench.tools.alarm.alarm import alarm as run_alarm
    from lobench.tools.alarm.alarm_output import alarms_record, alarms_text

    is_over = _input_ended if until_input_ends else _wait_forever if follow else None
    alarmed = call_with_progress(run_alarm, location, is_over=is_over, **options)
    if output_format == "json":
        emit("alarm", alarms_record(alarmed))
    elif not until_input_ends:  # next to a watch, only the lines of alarms are printed
        show(alarms_text(alarmed))
    if alarmed.alarms:
        raise click.exceptions.Exit(ExitCode.VERDICT)
    if alarmed.is_empty:
        raise click.exceptions.Exit(ExitCode.ERROR)


def _wait_forever() -> bool:
    """Waits for a moment. Returns False: the run is never over."""
    time.sleep(_SECONDS)
    return False


def _input_ended() -> bool:
    """Waits for a moment. Returns whether standard input is closed, which means that the watch has ended."""
    ready, _, _ = select.select([sys.stdin], [], [], _SECONDS)
    return bool(ready)
