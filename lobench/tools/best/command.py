"""Options and output of `lobench best`."""

from __future__ import annotations

import click

from lobench.cli.options import evaluation_options, watched_run_options
from lobench.cli.output import call_with_progress, emit, format_option, show

__all__ = ["best"]


@click.command(
    epilog="""\b
Examples:
  lobench best runs/today --suite suites/quick
  lobench best runs/today --suite suites/quick --metric test/loss --top 5 --seeds 16
  lobench best mine-0 --store .lobench/experiment --suite suites/quick

Exit codes: 0, 2 usage, or no checkpoint could be evaluated again."""
)
@click.argument("location", metavar="RUN")
@watched_run_options
@click.option("--metric", default="", help="Metric to rank by (default: each case's primary metric).")
@click.option(
    "--top", default=3, show_default=True, type=click.IntRange(1, 100), help="Number of checkpoints to evaluate again."
)
@click.option(
    "--seeds",
    type=click.IntRange(min=2),
    help="Number of fresh seeds per case, in each of the two steps (default: the case's own number).",
)
@evaluation_options
@format_option("table", "json", name="output_format", prints={"best": "lobench.tools.best.choice:BestRecord"})
def best(location: str, output_format: str, **options: object) -> None:
    """Find the best checkpoint of a watched run.

    The best of many looks better than it is on the seeds that chose it. So the top checkpoints are evaluated again on
    fresh seeds, which choose the best of them. That one is evaluated once more on further seeds; report this score.
    STORE/best.json keeps the result.
    """
    from lobench.tools.best.best import best as run_best
    from lobench.tools.best.choice import best_text

    outcome = call_with_progress(run_best, location, **options)
    emit("best", outcome.to_record()) if output_format == "json" else show(best_text(outcome))
