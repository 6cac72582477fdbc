"""Options and output of `lobench watch`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lobench.api.settings import WatchSettings
from lobench.cli.options import display_options, options_of, report_option
from lobench.cli.output import emit, format_option

if TYPE_CHECKING:
    from lobench.report.live.progress import Colour

__all__ = ["watch"]


@click.command(
    epilog="""\b
Examples:
  lobench watch runs/today --suite suites/quick --sink tensorboard
  lobench watch runs/today --suite suites/digits --name digits --checkpoints every:5 --workers 4
  lobench watch runs/today/theta.npz --suite suites/quick --once --gin-param 'Case.learned_optimizer = @MLPLOpt()'

Exit codes: 0 all passed, 1 a verdict failed, 2 usage, 3 an evaluation had an error or the
newest checkpoint could not be read, 4 --max-core-hours are used and evaluations are left (whatever the outcome of the
others), 130 interrupted, 141 the reader of
the output has closed it."""
)
@click.argument("location", metavar="CKPT_DIR")
@options_of(WatchSettings)
@display_options
@report_option
@format_option(
    "text",
    "json",
    name="output_format",
    prints={
        "watch": "lobench.cli.command_records:WatchRecord",
        "watch.costs": "lobench.cli.command_records:CostsRecord",
    },
)
@click.option(
    "--dry-run", is_flag=True, help="Print the cost of a checkpoint, estimated from recorded durations, and exit."
)
def watch(
    dry_run: bool,
    output_format: str,
    verbose: bool,
    color: Colour,
    **options: object,
) -> None:
    """Evaluate every new checkpoint in CKPT_DIR, or one checkpoint, on suites of inner tasks."""
    from lobench.api.watch import expected_costs, run_watch
    from lobench.cli.command_records import costs_record, watch_record
    from lobench.cli.endings import cost_lines, exit_code, log_ending
    from lobench.report.live.progress import make_progress

    settings = WatchSettings(**options)  # type: ignore[arg-type]  # click's values, checked by click
    progress = make_progress(sys.stdout, verbose=verbose, quiet=settings.quiet, color=color)
    if dry_run:
        costs = expected_costs(settings, progress)
        for line in cost_lines(costs):
            progress.log(line)
        if output_format == "json":
            emit("watch.costs", costs_record(costs))
        return
    with progress:
        outcome = run_watch(settings, progress)
    log_ending(settings, outcome, progress.log)
    if output_format == "json":
        emit("watch", watch_record(outcome))
    sys.exit(exit_code(outcome.ending))
