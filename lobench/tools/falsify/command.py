"""Options and output of `lobench falsify`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lobench.cli.exit_codes import ExitCode
from lobench.cli.options import OutputPath, evaluation_options, options_of
from lobench.cli.output import call_with_progress, emit, format_option, show
from lobench.tools.falsify.falsify_settings import FalsifySettings

__all__ = ["falsify"]


@click.command(
    epilog="""\b
Examples:
  lobench falsify 'theta.npz; Case.learned_optimizer = @Celo()' --suite quick --case relu32
  lobench falsify theta.npz --suite quick --case relu32 --axes 'DigitsMLP.hidden_sizes = [(4,), (8,), (16,), (64,)]' \\
    --axes 'Case.num_inner_steps = [20, 50, 100, 1000]' --axes 'Reparametrised.scale = [0.01, 100.0]'
  pytest falsified/test_relu32.py --lobench-checkpoint theta.npz

Exit codes: 0 no loss was found in all cells, 1 a loss was found and is written; 2 usage; 4 the cells or tests were
used up before that, or before the smallest case was known."""
)
@click.argument("checkpoint")
@click.option("--suite", required=True, help="Suite of the case.")
@options_of(FalsifySettings)
@click.option(
    "--store", type=click.Path(path_type=Path), help="Store for the evaluations (default: .lobench/falsify/SUITE)."
)
@click.option(
    "--output",
    default=Path("falsified"),
    show_default=True,
    type=OutputPath(),
    help="Folder for the case and its test.",
)
@evaluation_options
@format_option(
    "text", "json", name="output_format", prints={"falsify": "lobench.tools.falsify.falsify_output:FalsifyRecord"}
)
def falsify(checkpoint: str, output: Path, output_format: str, **options: Any) -> None:
    """Look for a case on which CHECKPOINT loses to a tuned optimizer, and write the smallest such case with a test.

    It starts from a case of a suite and varies the bindings of the axes. A few seeds give a suspicion; fresh seeds
    decide, at a level that counts all tests. A case that was found is reduced as long as the loss is confirmed. The
    same command continues a stopped search.
    """
    from lobench.tools.falsify.falsify import falsify as run_falsify
    from lobench.tools.falsify.falsify_output import falsify_record, falsify_text
    from lobench.tools.falsify.written import require_case_folder, write_case

    require_case_folder(output)
    outcome = call_with_progress(run_falsify, checkpoint, **options)
    files = write_case(outcome, output) if outcome.measured_loss is not None else ()
    emit("falsify", falsify_record(outcome, files)) if output_format == "json" else show(falsify_text(outcome, files))
    if outcome.search.stop_reason == "budget":
        raise click.exceptions.Exit(ExitCode.BUDGET)
    if files:
        raise click.exceptions.Exit(ExitCode.VERDICT)
