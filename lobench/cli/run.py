"""`lobench run`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lobench.cli.options import options_of
from lobench.sessions.settings import WatchSettings

if TYPE_CHECKING:
    from lobench.sessions.run import RunSettings

__all__ = ["run", "run_experiment"]


@click.command(
    epilog="""\b
Examples:
  lobench run experiment.gin
  lobench run experiment.gin --method celo --method adam
  lobench run experiment.gin --case quick/relu32               # the rest at another call
  lobench run experiment.gin --gin-param 'Experiment.num_sessions = 10'
  lobench run experiment.gin --check

Exit codes: 0 all passed, 1 a verdict failed, 2 usage, 3 an evaluation had an error or a command failed, 4
--max-core-hours are used and evaluations are left, 130 interrupted."""
)
@click.argument("experiment", metavar="EXPERIMENT.gin")
@click.option("--store", default="", help="Result store (default: .lobench/EXPERIMENT).")
@click.option("--method", "methods", multiple=True, help="Only this method; may be given again. The rest later.")
@click.option(
    "--case", "cases", multiple=True, help="Only this case: relu32, quick/relu32 or digits.relu32; may be given again."
)
@options_of(WatchSettings, "workers", "executor", "ray_address", "insecure", "sinks")
@click.option("--report", is_flag=True, help="Keep a web page of the results current: report.html in the store.")
@click.option("--gin-param", "gin_params", multiple=True, help="gin binding after the file's; may be given again.")
@click.option(
    "--check",
    "--dry-run",
    is_flag=True,
    help="Start nothing; say what is missing and what it costs, by recorded durations.",
)
@options_of(WatchSettings, "max_core_hours", "retry_errors", "allow_pickle")
def run(report: bool, check: bool, sinks: tuple[str, ...], **options: object) -> None:
    """Run an experiment: methods x cases x sessions, as far as the store does not hold them yet."""
    from lobench.report.builtin_page import REPORT
    from lobench.sessions.run import RunSettings

    sinks = (*sinks, REPORT) if report and REPORT not in sinks else sinks
    run_experiment(RunSettings(sinks=sinks, **options), check=check)  # type: ignore[arg-type]  # checked by click


def run_experiment(settings: RunSettings, *, check: bool) -> None:
    """Runs an experiment, or says what is planned, and exits as `lobench run` does."""
    from lobench.cli.run_ending import ending_lines, plan_lines, run_exit_code, table_of
    from lobench.report.methods import make_method_progress
    from lobench.sessions.places import num_workers
    from lobench.sessions.run import ExperimentRun, plan_experiment

    if check:
        for line in plan_lines(plan_experiment(settings), num_workers(settings.workers)):
            click.echo(line)
        return
    planned = ExperimentRun(settings)
    progress = make_method_progress(sys.stdout, planned.methods)
    with progress:
        ran = planned.run(progress)
    click.echo(table_of(ran), nl=False)
    for line in ending_lines(ran):
        progress.say(line)
    sys.exit(run_exit_code(ran))
