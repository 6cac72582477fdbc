"""`lobench merge`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

__all__ = ["merge"]


@click.command(
    epilog="""\b
Examples:
  lobench merge runs/a/lobench_results/quick runs/b/lobench_results/quick --output runs/both

Exit codes: 0, 1 there were conflicts, 2 usage."""
)
@click.argument("stores", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="STORE...")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Store to add to; made if not there.")
def merge(stores: tuple[Path, ...], output: Path) -> None:
    """Put several stores into one. Conflicts are named; nothing is overwritten, and STOREs are only read."""
    from lobench.engine.store.merge import merge_stores

    found = merge_stores(list(stores), output, on_problem=click.echo)
    for merged in found:
        conflicts = len(merged.conflicts)
        click.echo(f"{merged.store}: {merged.taken} taken, {merged.known} there already, {conflicts} conflicts")
        for line in merged.conflicts:
            click.echo(f"  conflict, not taken: {line}")
    sys.exit(1 if any(merged.conflicts for merged in found) else 0)
