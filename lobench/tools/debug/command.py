"""Options and output of `lobench debug`."""

from __future__ import annotations

from pathlib import Path

import click

from lobench.api.settings import WatchSettings
from lobench.cli.options import OutputPath, options_of
from lobench.cli.output import call_with_progress, emit, format_option, show
from lobench.tools.debug.debug_settings import DebugSettings

__all__ = ["debug"]


@click.command(
    epilog="""\b
Examples:
  lobench debug quick/relu32 --checkpoint runs/today/theta_300.npz --seed 3
  lobench debug relu32 --suite suites/quick --optimizer "sgd(); sgd.learning_rate = 30.0"
  lobench debug quick/relu32 --optimizer "SGD, tuned" --store .lobench/experiment

Exit codes: 0, whatever was found; 2 usage."""
)
@click.argument("case", metavar="SUITE/CASE")
@click.option("--suite", default="", help="Suite folder, .gin file or name of a shipped suite, if CASE has no path.")
@click.option("--store", type=click.Path(path_type=Path), help="Store to look up a label, a scope or an outer step.")
@options_of(DebugSettings)
@click.option("--output", type=OutputPath(), help="Page to write (default: in .lobench/debug).")
@options_of(WatchSettings, "gin_files", "gin_params", "allow_pickle")
@format_option("text", "json", name="output_format", prints={"debug": "lobench.tools.debug.debug_output:DebugRecord"})
def debug(case: str, output_format: str, **options: object) -> None:
    """Replay one training bit for bit, and find what went wrong in it.

    The verdict names the first value that is not finite, or the layer whose updates were too large when the loss left
    its best, or the layer that learns nothing; the step; and the input of a learned rule that left its usual range.
    One page shows losses, updates, gradients and states step by step.
    """
    from lobench.tools.debug.debug import debug as run_debug
    from lobench.tools.debug.debug_output import debug_text

    outcome = call_with_progress(run_debug, case, **options)
    emit("debug", outcome.to_record()) if output_format == "json" else show(debug_text(outcome))
