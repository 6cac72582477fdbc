"""Options and output of `lobench merge`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lobench.cli.exit_codes import ExitCode
from lobench.cli.options import OutputPath
from lobench.cli.output import emit, format_option

__all__ = ["merge"]


@click.command(
    epilog="""\b
Examples:
  lobench merge runs/a/lobench_results/quick runs/b/lobench_results/quick --output runs/both

Exit codes: 0, 1 there were conflicts, 2 usage."""
)
@click.argument("stores", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="STORE...")
@click.option("--output", required=True, type=OutputPath(), help="Store to add to; created if needed.")
@format_option("text", "json", name="output_format", prints={"merge": "lobench.engine.store.merge:MergeRecord"})
def merge(stores: tuple[Path, ...], output: Path, output_format: str) -> None:
    """Merge several stores into one. Conflicts are listed; nothing is overwritten, and the STOREs do not change."""
    from lobench.engine.store.merge import MergeRecord, merge_stores

    merge_result = merge_stores(list(stores), output, on_problem=click.echo)
    for store_result in merge_result:
        conflicts = len(store_result.conflicts)
        click.echo(
            f"{store_result.store}: {store_result.taken} taken, {store_result.known} there already, "
            f"{conflicts} conflicts"
        )
        for line in store_result.conflicts:
            click.echo(f"  conflict, not taken: {line}")
    if output_format == "json":
        emit("merge", MergeRecord(output=output, stores=merge_result))
    sys.exit(ExitCode.VERDICT if any(store_result.conflicts for store_result in merge_result) else ExitCode.OK)
