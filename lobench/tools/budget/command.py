"""The command `lobench budget`."""

from __future__ import annotations

from pathlib import Path

import click

from lobench.cli.output import emit, format_option

__all__ = ["budget"]


@click.command(
    epilog="""\b
Examples:
  lobench budget .lobench/experiment
  lobench budget .lobench/experiment --experiment tuned --format json

Exit codes: 0, 2 usage, or there is no search."""
)
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--experiment", help="The searches of this experiment (default: of the one that was run last).")
@format_option("table", "json", prints={"budget": "lobench.tools.budget.text:BudgetRecord"})
def budget(store: Path, experiment: str | None, kind: str) -> None:
    """Compare searches by their budget: the expected best fitness after 1, 2, 4, ... trials.

    A search that tries more finds more: the best of 60 trials of one method beside the best of 5 of another says how
    long each was tuned. Here each is shown after as many trials as the others. The expected best of k is the mean over
    all subsets of k trials; its interval is there for k up to a fifth of the trials.
    """
    from lobench.tools.budget.budget import budgets_of
    from lobench.tools.budget.text import budget_record, budget_text

    found = budgets_of(store, experiment)
    emit("budget", budget_record(found)) if kind == "json" else click.echo(budget_text(found))
