"""Options and output of `lobench run`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from lobench.api.settings import WatchSettings
from lobench.cli.options import display_options, options_of, report_option
from lobench.cli.output import emit, format_option, show
from lobench.core.errors import UsageError

if TYPE_CHECKING:
    from lobench.experiments.run import RunSettings
    from lobench.report.live.progress import Colour

__all__ = ["run", "run_experiment"]


@click.command(
    epilog="""\b
Examples:
  lobench run experiment.gin
  lobench run experiment.gin --method celo --method adam
  lobench run experiment.gin --case quick/relu32
  lobench run experiment.gin --gin-param 'Experiment.num_sessions = 10'
  lobench run experiment.gin --check

Exit codes: 0 all passed, 1 a verdict failed, 2 usage, 3 an evaluation had an error or a command failed, 4
--max-core-hours are used and evaluations are left, 130 interrupted, 141 the reader of
the output has closed it."""
)
@click.argument("experiment", metavar="EXPERIMENT.gin")
@click.option("--store", default="", help="Result store (default: .lobench/EXPERIMENT).")
@click.option("--method", "methods", multiple=True, help="Only this method; repeatable. A later run adds the others.")
@click.option(
    "--case", "cases", multiple=True, help="Only this case: relu32, quick/relu32 or digits.relu32; repeatable."
)
@options_of(WatchSettings, "workers", "executor", "ray_address", "insecure", "sinks")
@report_option
@click.option("--gin-param", "gin_params", multiple=True, help="gin binding that overrides the file's; repeatable.")
@click.option(
    "--check",
    "--dry-run",
    is_flag=True,
    help="Train nothing; plan and bind all methods as the run does, and print missing evaluations and their cost.",
)
@click.option("--offline", is_flag=True, help="With --check: start no worker either, and print the skipped checks.")
@options_of(WatchSettings, "max_core_hours", "retry_errors", "keep_results", "allow_pickle")
@format_option(
    "text",
    "json",
    prints={"run": "lobench.experiments.records:RanRecord", "run.plan": "lobench.experiments.records:PlanRecord"},
)
@display_options
def run(
    check: bool,
    offline: bool,
    kind: str,
    verbose: bool,
    color: Colour,
    **options: object,
) -> None:
    """Run an experiment: the methods x cases x sessions that the store does not hold yet."""
    from lobench.experiments.run import RunSettings

    ran_as: tuple[str, dict[str, Any]] | None = ("run", {}) if kind == "json" else None
    settings = RunSettings(**options)  # type: ignore[arg-type]  # checked by click
    run_experiment(settings, check=check, offline=offline, ran_as=ran_as, verbose=verbose, color=color)


def run_experiment(
    settings: RunSettings,
    *,
    check: bool,
    offline: bool = False,
    ran_as: tuple[str, Mapping[str, Any]] | None,
    verbose: bool = False,
    color: Colour = "auto",
) -> None:
    """Runs an experiment, or prints its plan, and exits as `lobench run` does.

    Args:
      settings: Settings of the run.
      check: Whether the plan is printed instead.
      offline: With `check`, whether no worker is started.
      ran_as: Schema of the JSON output, and further fields of its document. None: text.
      verbose: Whether more is printed.
      color: Use of colours.
    """
    from lobench.api.settings import num_workers
    from lobench.cli.endings import log_failed
    from lobench.experiments.records import plan_record, ran_record
    from lobench.experiments.run import ExperimentRun
    from lobench.experiments.text import ending_lines, plan_lines, ranking_of, run_exit_code
    from lobench.report.live.methods import make_method_progress
    from lobench.report.live.notebook_progress import default_progress
    from lobench.report.tables.text import wrap_lines

    experiment_run = ExperimentRun(settings)
    if offline and not check:
        raise UsageError("--offline needs --check: a run needs workers")
    if check:
        plan = experiment_run.check(default_progress(), is_offline=offline)
        max_cores = num_workers(settings.workers)
        for line in plan_lines(plan, max_cores):
            show(line)
        if ran_as is not None:
            emit(f"{ran_as[0]}.plan", {**ran_as[1], **plan_record(plan, max_cores)})
        return
    progress = make_method_progress(sys.stdout, experiment_run.methods, verbose=verbose, color=color)
    with progress:
        outcome = experiment_run.run(progress)
    click.echo(wrap_lines(ranking_of(outcome)), nl=False)
    if not outcome.ending.interrupted:
        log_failed(outcome.store, outcome.ending, experiment_run.repeating_command, progress.log)
    for line in ending_lines(outcome):
        progress.log(line)
    if ran_as is not None:
        emit(ran_as[0], {**ran_as[1], **ran_record(outcome)})
    sys.exit(run_exit_code(outcome))
