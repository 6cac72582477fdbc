"""The command `lobench suite`."""

from __future__ import annotations

from pathlib import Path

import click

from lobench.cli.options import BoundedNumber, baseline_option
from lobench.cli.output import emit, format_option
from lobench.core.errors import UsageError

__all__ = ["suite"]


@click.command(
    epilog="""\b
Examples:
  lobench suite .lobench/experiment
  lobench suite .lobench/experiment --difference 0.02 --keep 0.95
  lobench suite quick
  lobench suite .lobench/experiment --output suite.html
  lobench suite .lobench/experiment --format json

Exit codes: 0, 2 usage, or too few methods."""
)
@click.argument("store", metavar="STORE|SUITE", type=click.Path(path_type=Path))
@baseline_option
@click.option("--experiment", help="Methods of this experiment (default: of the one that was run last).")
@click.option("--all", "every", is_flag=True, help="All that the store holds, and no experiment's methods.")
@click.option(
    "--difference",
    default=0.05,
    show_default=True,
    type=BoundedNumber(1e-6, 3),
    help="Of two mean scores, that is to be found: how many seeds does it need?",
)
@click.option(
    "--keep",
    default=0.9,
    show_default=True,
    type=BoundedNumber(0, 1),
    help="Rank correlation with the whole suite that a subset must keep, on methods that did not choose it.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Write a page, too.")
@format_option("table", "json", prints={"suite": "lobench.tools.suite.text:SuiteRecord"})
def suite(
    store: Path,
    baselines: tuple[Path, ...],
    experiment: str | None,
    every: bool,
    difference: float,
    keep: float,
    output: Path | None,
    kind: str,
) -> None:
    """Say what each case of a suite is worth, by a store of several methods or by the optimizers tuned on the suite.

    \b
    signal  how far the methods are apart on the case, as a standard deviation of scores
    noise   how far seeds of one method are, after what a seed does to all methods alike
    own     the share of the signal that the other cases do not predict
    seeds   how many a difference needs on this case alone, in 80 of 100 comparisons at 5%

    Subsets are chosen on half of the methods and judged on the other half, again and again: the rank correlation is
    that of methods which did not choose.
    """
    from lobench.engine.config.shipped import find_suite
    from lobench.tools.suite.of_store import worth_of_baselines, worth_of_store
    from lobench.tools.suite.text import suite_record, suite_text, write_suite_page

    if (store / "ledger.sqlite").exists() or not (named := find_suite(str(store))).exists():
        found = worth_of_store(store, baselines, experiment, every=every, keep=keep, difference=difference)
    elif baselines or experiment or every:
        raise UsageError(
            "options of a store",
            where=str(named),
            got="a suite",
            next_step="name a store, or leave out --baseline, --experiment and --all",
        )
    else:
        found = worth_of_baselines(named, keep=keep, difference=difference)
    if output is not None:
        write_suite_page(found, output)
    emit("suite", suite_record(found)) if kind == "json" else click.echo(suite_text(found))
