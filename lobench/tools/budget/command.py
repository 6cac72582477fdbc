"""Options and output of `lobench budget`."""

from __future__ import annotations

from pathlib import Path

import click

from lobench.cli.output import emit, format_option, show, warn

__all__ = ["budget"]


@click.command(
    epilog="""\b
Examples:
  lobench budget .lobench/experiment
  lobench budget .lobench/experiment --experiment tuned --format json

Exit codes: 0, 2 usage, or the store has no search."""
)
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--experiment", help="Show the searches of this experiment (default: the last one that ran).")
@format_option(
    "table", "json", name="output_format", prints={"budget": "lobench.tools.budget.budget_output:BudgetRecord"}
)
def budget(store: Path, experiment: str | None, output_format: str) -> None:
    """Compare searches by their budget: the expected best score after 1, 2, 4, ... trials.

    A search with more trials finds better settings: the best of 60 trials of one method and the best of 5 of another
    show mainly how long each was tuned. Here each search is shown after the same numbers of trials. The expected best
    of k is the mean over all subsets of k trials. A random search has an interval for k up to a fifth of its trials;
    any other search up to a tenth, since its trials depend on each other.
    """
    from lobench.tools.budget.budget import budgets_of
    from lobench.tools.budget.budget_output import budget_record, budget_text

    budgets = budgets_of(store, experiment)
    if output_format == "json":
        emit("budget", budget_record(budgets))
        warn(budgets.other_code)
    else:
        show(budget_text(budgets))
