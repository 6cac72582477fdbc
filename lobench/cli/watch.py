"""`lobench watch`."""

from __future__ import annotations

import sys

import click

from lobench.cli.numbers import Number

__all__ = ["watch"]


@click.command(
    epilog="""\b
Examples:
  lobench watch runs/today --suite suites/quick --sink tensorboard
  lobench watch runs/today --suite suites/digits --name digits --checkpoints every:5 --workers 4
  lobench watch runs/today/theta.npz --suite suites/quick --once --gin-param 'Case.learned_optimizer = @MLPLOpt()'

Exit codes: 0 all passed, 1 a verdict failed, 2 usage, 3 an evaluation had an error, 4 --max-core-hours are used and
evaluations are left (whatever became of the others), 130 interrupted."""
)
@click.argument("location", metavar="CKPT_DIR")
@click.option("--suite", "suites", multiple=True, required=True, help="Suite folder or .gin file; may be given again.")
@click.option("--name", default="", help="Name of this watch (default: the suite's). Two names, two stores.")
@click.option("--workers", default="auto", show_default=True, help="Worker processes, one core each; a number or auto.")
@click.option("--executor", default="local", show_default=True, help="local, inline, or a plugin's.")
@click.option("--ray-address", default="auto", show_default=True, help="For --executor ray: auto, HOST:PORT or local.")
@click.option("--insecure", is_flag=True, help="Use a cluster that lets anybody in who reaches it.")
@click.option("--checkpoints", default="latest", show_default=True, help="latest, all, or every:N.")
@click.option("--sink", "sinks", multiple=True, metavar="NAME[:ARG]", help="Where results go; may be given again.")
@click.option("--quiet", "-q", is_flag=True, help="A line a finished checkpoint, and none for each evaluation.")
@click.option("--report", is_flag=True, help="Keep report.html in the store current: `--sink report`.")
@click.option("--source", default="directory", show_default=True, help="Checkpoint source.")
@click.option("--store", default="", help="Result store (default: CKPT_DIR/lobench_results/NAME if yours to write).")
@click.option("--gin-file", "gin_files", multiple=True, help="gin file bound over the suite's own.")
@click.option("--gin-param", "gin_params", multiple=True, help="gin binding over everything else.")
@click.option("--once", is_flag=True, help="Evaluate what is there and end.")
@click.option("--until-step", type=int, help="End once a checkpoint of this outer step or a later one is done.")
@click.option(
    "--idle-timeout", type=Number(min=0), metavar="SECONDS", help="End after so long without a new checkpoint."
)
@click.option("--retry-errors", is_flag=True, help="Try again what ended in error, timeout, oom, poisoned, expired.")
@click.option(
    "--together",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Compute N checkpoints that wait in one program; changes results in the last bits.",
)
@click.option("--max-core-hours", type=Number(min=0, min_open=True), help="Begin nothing more once so many were used.")
@click.option("--dry-run", is_flag=True, help="Say what a checkpoint would cost, from recorded durations, and end.")
@click.option("--allow-pickle", is_flag=True, help="Load checkpoints that are pickles; they can run code.")
@click.option("--experiment", default="", help="Ledger column, for studies.")
@click.option("--trial", default="", help="Ledger column, for studies.")
@click.option("--session", default="", help="Ledger column, for studies.")
def watch(report: bool, dry_run: bool, sinks: tuple[str, ...], **options: object) -> None:
    """Evaluate every new checkpoint of CKPT_DIR (or the one checkpoint that it is) on suites of inner tasks."""
    from lobench.cli.watch_ending import cost_lines, exit_code, say_ending
    from lobench.report.live import REPORT
    from lobench.report.progress import make_progress
    from lobench.sessions.settings import WatchSettings
    from lobench.sessions.watch import expected_costs, run_watch

    sinks = (*sinks, REPORT) if report and REPORT not in sinks else sinks
    settings = WatchSettings(sinks=sinks, **options)  # type: ignore[arg-type]  # click's values, checked by click
    progress = make_progress(sys.stdout, quiet=settings.quiet)
    if dry_run:
        for line in cost_lines(expected_costs(settings, progress)):
            progress.say(line)
        return
    with progress:
        watched = run_watch(settings, progress)
    say_ending(settings, watched, progress.say)
    sys.exit(exit_code(watched.ending))
