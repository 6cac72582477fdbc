"""The command `lobench bisect`."""

from __future__ import annotations

from pathlib import Path

import click

from lobench.cli.exit_codes import ExitCode
from lobench.cli.options import BoundedNumber
from lobench.cli.output import emit, format_option, logged_aside

__all__ = ["bisect"]


@click.command(
    epilog="""\b
Examples:
  lobench bisect runs/today --suite quick --case relu32
  lobench bisect runs/today --suite quick --case relu32 --metric test/loss --from-step 2000
  lobench bisect runs/today --suite quick --case relu32 --format json
  lobench bisect mine-0 --store .lobench/experiment --suite quick --case relu32

Exit codes: 0, also where no fall was found; 2 usage, or nothing could be evaluated; 4 undecided after --most
evaluations."""
)
@click.argument("location", metavar="RUN")
@click.option("--suite", "suites", multiple=True, required=True, help="The suite of the case; of the watch, if any.")
@click.option("--case", required=True, help="Name of the case: relu32, quick/relu32 or digits.relu32.")
@click.option("--metric", default="", help="What is to have fallen (default: the case's primary metric).")
@click.option(
    "--probability",
    type=BoundedNumber(0.5, 0.999),
    default=0.95,
    show_default=True,
    help="Of being within one checkpoint, at which it ends.",
)
@click.option(
    "--most",
    type=click.IntRange(min=0),
    help="New evaluations, of one seed block each (default: a fifth of the checkpoints, 20 at least).",
)
@click.option("--from-step", type=int, help="Outer step at which it was good (default: the run's first one).")
@click.option("--to-step", type=int, help="Outer step at which it was broken (default: the run's last one).")
@click.option("--name", default="", help="Name of the watch (default: the suite's).")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    help="Store of the watch (default: as `lobench watch`), or of an experiment, with a command's session as RUN.",
)
@click.option("--workers", default="auto", show_default=True, help="Worker processes; as many are looked at together.")
@click.option("--gin-file", "gin_files", multiple=True, help="As of the watch.")
@click.option("--gin-param", "gin_params", multiple=True, help="As of the watch.")
@format_option("text", "json", prints={"bisect": "lobench.tools.bisect.probes:BisectionRecord"})
def bisect(location: str, kind: str, **options: object) -> None:
    """Find the outer step of a run at which a case broke.

    A posterior over the step says which checkpoints to look at next, on seeds that are common to all of them. What the
    watch's store holds counts; what is new goes to STORE/bisect, and a second call repeats none of it.
    """
    from lobench.tools.bisect.bisect import bisect as bisected
    from lobench.tools.bisect.text import bisection_text

    found = logged_aside(bisected, location, **options)
    emit("bisect", found.to_record()) if kind == "json" else click.echo(bisection_text(found))
    if found.status == "undecided":
        raise click.exceptions.Exit(ExitCode.BUDGET)
