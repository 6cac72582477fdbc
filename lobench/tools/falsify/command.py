"""The command `lobench falsify`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lobench.api.settings import WatchSettings
from lobench.cli.exit_codes import ExitCode
from lobench.cli.options import BoundedNumber, options_of
from lobench.cli.output import emit, format_option, logged_aside

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
@click.option("--against", default="adam", show_default=True, help="An optimizer with a learning rate, which is tuned.")
@click.option("--suite", required=True, help="Of the case.")
@click.option("--case", help="From which it sets out; may be left out where there is one only.")
@click.option(
    "--axes",
    multiple=True,
    metavar="PATH = [..]",
    help="What varies; of a wrapper that the case lacks it goes from none; may be given again (default: the case's "
    "steps and whole numbers).",
)
@click.option("--grid", default="velo", show_default=True, help="Of the tuning; as of `lobench baseline`.")
@click.option(
    "--margin",
    default=0.1,
    show_default=True,
    type=BoundedNumber(0, 3),
    help="It loses by more than this on the score.",
)
@click.option(
    "--alpha",
    default=0.05,
    show_default=True,
    type=BoundedNumber(0.0001, 0.5),
    help="Chance that any case is confirmed that does not lose, over the whole search.",
)
@click.option("--seeds", default=12, show_default=True, type=click.IntRange(4, 300), help="Fresh ones of each test.")
@click.option("--most-cells", default=60, show_default=True, type=click.IntRange(min=1), help="That are looked at.")
@click.option("--most-tests", default=40, show_default=True, type=click.IntRange(min=1), help="That are made.")
@click.option("--wave", default=4, show_default=True, type=click.IntRange(min=1), help="Cells looked at together.")
@click.option(
    "--store", type=click.Path(path_type=Path), help="Where evaluations go (default: .lobench/falsify/SUITE)."
)
@click.option(
    "--output",
    default=Path("falsified"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder of the case and its test.",
)
@options_of(WatchSettings, "workers", "executor", "ray_address", "insecure", "gin_files", "gin_params")
@format_option("text", "json", prints={"falsify": "lobench.tools.falsify.text:FalsifyRecord"})
def falsify(checkpoint: str, output: Path, kind: str, **options: Any) -> None:
    """Look for a case on which CHECKPOINT loses to a tuned optimizer, and write the smallest such case with a test.

    Around a case of a suite it varies what the axes name. A few seeds make a suspicion; fresh ones decide, at a level
    that counts all tests. What was found is made smaller, as long as it is still confirmed. The same command goes on
    from where it was stopped.
    """
    from lobench.tools.falsify.falsify import falsify as falsified
    from lobench.tools.falsify.text import falsify_record, falsify_text
    from lobench.tools.falsify.written import write_case

    found = logged_aside(falsified, checkpoint, **options)
    files = write_case(found, output) if found.measured is not None else ()
    emit("falsify", falsify_record(found, files)) if kind == "json" else click.echo(falsify_text(found, files))
    if found.found.ending == "budget":
        raise click.exceptions.Exit(ExitCode.BUDGET)
    if files:
        raise click.exceptions.Exit(ExitCode.VERDICT)
