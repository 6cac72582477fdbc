"""`lobench results`."""

from __future__ import annotations

import json
from pathlib import Path

import click

__all__ = ["results"]


@click.command(
    epilog="""\b
Examples:
  lobench results --store runs/today/lobench/quick
  lobench results --store runs/today/lobench/quick --format json --curves > results.json"""
)
@click.option("--store", required=True, type=click.Path(path_type=Path), help="Result store.")
@click.option("--format", "kind", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--curves", is_flag=True, help="With json: the whole curves, [seed][evaluation].")
def results(store: Path, kind: str, curves: bool) -> None:
    """Show or export the evaluations of a store; it may be in use."""
    from lobench.engine.ledger import Ledger
    from lobench.report.records import records, unread_records
    from lobench.report.table import results_table

    ledger = Ledger.open(store, read_only=True)
    try:
        found = list(records(ledger.evaluations(), curves=curves))
        read = {checkpoint.uri for checkpoint in ledger.sightings().values()}
        found += unread_records(ledger.events(), read)
    finally:
        ledger.close()
    if kind == "json":
        click.echo(json.dumps(found, indent=1, allow_nan=False))
    else:
        results_table(found)
