"""Options and output of `lobench suite`."""

from __future__ import annotations

from pathlib import Path

import click

from lobench.cli.options import BoundedNumber, OutputPath, baseline_option, experiment_options
from lobench.cli.output import emit, format_option, show, warn
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
@experiment_options
@click.option(
    "--difference",
    default=0.05,
    show_default=True,
    type=BoundedNumber(1e-6, 3),
    help="Difference of two mean scores, for the number of seeds that shows it.",
)
@click.option(
    "--keep",
    default=0.9,
    show_default=True,
    type=BoundedNumber(0, 1),
    help="Rank correlation with the whole suite that a subset must keep, on methods that did not choose it.",
)
@click.option("--output", type=OutputPath(), help="Also write a page to this file.")
@format_option("table", "json", name="output_format", prints={"suite": "lobench.tools.suite.suite_output:SuiteRecord"})
def suite(
    store: Path,
    baselines: tuple[Path, ...],
    experiment: str,
    every: bool,
    difference: float,
    keep: float,
    output: Path | None,
    output_format: str,
) -> None:
    """Measure what each case of a suite is worth, by the methods of a store or by the optimizers tuned on the suite.

    \b
    signal       standard deviation of scores between methods
    noise        that between seeds, without a seed's effect on all methods
    correlation  of the methods' scores with their means over the other cases
    own          share of the signal that the other cases do not predict
    seeds        needed to show a difference on this case alone (power 80%, 5%)

    Subsets are chosen on half of the methods and judged on the other half, many times: the rank correlation is measured
    on methods that were not used to choose the subset.
    """
    from lobench.engine.config.shipped import find_suite
    from lobench.tools.suite.of_store import worth_of_baselines, worth_of_store
    from lobench.tools.suite.suite_output import suite_record, suite_text, write_suite_page

    if (store / "ledger.sqlite").exists() or not (suite_path := find_suite(str(store))).exists():
        measured_suite = worth_of_store(
            store, baselines, experiment or None, include_all=every, keep=keep, difference=difference
        )
    elif baselines or experiment or every:
        raise UsageError(
            "these options need a store",
            where=str(suite_path),
            got="a suite",
            next_step="name a store, or leave out --baseline, --experiment and --all",
        )
    else:
        measured_suite = worth_of_baselines(suite_path, keep=keep, difference=difference)
    if output is not None:
        write_suite_page(measured_suite, output)
    if output_format == "json":
        emit("suite", suite_record(measured_suite))
        warn(measured_suite.other_code)
    else:
        show(suite_text(measured_suite))
