"""Options and output of `lobench bisect`."""

from __future__ import annotations

import click

from lobench.cli.exit_codes import ExitCode
from lobench.cli.options import evaluation_options, options_of, watched_run_options
from lobench.cli.output import call_with_progress, emit, format_option, show
from lobench.tools.bisect.bisect_settings import BisectSettings

__all__ = ["bisect"]


@click.command(
    epilog="""\b
Examples:
  lobench bisect runs/today --suite quick --case relu32
  lobench bisect runs/today --suite quick --case relu32 --metric test/loss --from-step 2000
  lobench bisect runs/today --suite quick --case relu32 --format json
  lobench bisect mine-0 --store .lobench/experiment --suite quick --case relu32

Exit codes: 0, also if no fall was found; 2 usage, or nothing could be evaluated; 4 undecided."""
)
@click.argument("location", metavar="RUN")
@watched_run_options
@options_of(BisectSettings)
@evaluation_options
@format_option("text", "json", name="output_format", prints={"bisect": "lobench.tools.bisect.probes:BisectionRecord"})
def bisect(location: str, output_format: str, **options: object) -> None:
    """Find the outer step of a run at which a case broke.

    A posterior over the step chooses the next checkpoints to evaluate, one for each worker, on seeds that are common to
    all of them. Results in the watch's store count. New ones go to STORE/bisect, and a second call repeats none.
    """
    from lobench.tools.bisect.bisect import bisect as run_bisect
    from lobench.tools.bisect.bisect_output import bisection_text

    outcome = call_with_progress(run_bisect, location, **options)
    emit("bisect", outcome.to_record()) if output_format == "json" else show(bisection_text(outcome))
    if outcome.status == "undecided":
        raise click.exceptions.Exit(ExitCode.BUDGET)
