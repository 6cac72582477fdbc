"""The command `lobench race`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lobench.api.settings import WatchSettings
from lobench.cli.options import BoundedNumber, baseline_option, options_of
from lobench.cli.output import emit, format_option, logged_aside

__all__ = ["race"]


@click.command(
    epilog="""\b
Examples:
  lobench race 'adam(); adam.learning_rate = 0.003' 'adam(); adam.learning_rate = 0.01' 'sgd()' --suite quick
  lobench race runs/today/theta_*.npz --suite suites/digits --seeds 40 --margin 0.02
  lobench race A.npz B.npz --suite quick --format json

Exit codes: 0, also where several are in at the end; 2 usage, or an evaluation gave no result."""
)
@click.argument("methods", nargs=-1, required=True, metavar="A B [C ...]")
@click.option("--suite", "suites", multiple=True, required=True, help="To race on; may be given again.")
@click.option("--seeds", default=24, show_default=True, type=click.IntRange(min=1), help="Of each case, at most.")
@click.option("--block", default=2, show_default=True, type=click.IntRange(min=1), help="Seeds of a round.")
@click.option(
    "--margin",
    default=0.0,
    type=BoundedNumber(0, 3),
    help="End where no method that is in can be better than the leader by more than this on the score.",
)
@click.option(
    "--alpha",
    default=0.05,
    show_default=True,
    type=BoundedNumber(0.0001, 0.5),
    help="Chance that any method is thrown out for one that is no better.",
)
@click.option(
    "--store", type=click.Path(path_type=Path), help="Where evaluations go and are kept (default: .lobench/race/SUITE)."
)
@baseline_option
@options_of(WatchSettings, "workers", "executor", "ray_address", "insecure", "gin_files", "gin_params")
@format_option("table", "json", prints={"race": "lobench.tools.race.text:RaceRecord"})
def race(methods: tuple[str, ...], kind: str, **options: Any) -> None:
    """Find the best of several methods, and train those no longer that are shown to be worse.

    A round trains one more block of seeds of every method that is in, on the same seeds. After each round a method is
    out that is shown to be worse than another one. To look after every round, and to stop at any time, costs nothing:
    the chance of a false decision is that of the whole race. The same command goes on from where it was stopped.
    """
    from lobench.tools.race.race import race as raced
    from lobench.tools.race.text import race_record, race_text

    found, alpha = logged_aside(raced, *methods, **options), options["alpha"]
    emit("race", race_record(found, alpha)) if kind == "json" else click.echo(
        race_text(found, alpha, options["margin"])
    )
