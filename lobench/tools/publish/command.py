"""Options and output of `lobench publish`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click

from lobench.cli.options import OutputPath, options_of
from lobench.cli.output import emit, format_option, show
from lobench.tools.publish.publish_settings import PublishSettings

__all__ = ["publish"]


@click.command(
    epilog="""\b
Examples:
  lobench publish .lobench/experiment --output results.lobench
  lobench publish .lobench/experiment --output results.lobench --without-patch
  lobench publish .lobench/experiment --output results.lobench --sign ~/.ssh/id_ed25519
  lobench publish .lobench/experiment --output results.lobench --croissant dataset --license CC-BY-4.0
  lobench report --store results.lobench --output report.html
  lobench audit results.lobench

Exit codes: 0, 2 usage, or a file or a store that cannot be read."""
)
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--output", required=True, type=OutputPath(), help="The bundle, results.lobench.")
@options_of(PublishSettings)
@format_option("text", "json", name="output_format", prints={"publish": "lobench.tools.publish.publish:PublishRecord"})
def publish(
    store: Path,
    output: Path,
    output_format: str,
    **options: Any,
) -> None:
    """Put a store with everything that its results depend on into one file that others can check.

    The file holds the ledger with the plan that was written before the first result, the gin text, the thetas, the
    versions, a card in Markdown, the suites' files that the results depend on, and a Merkle root over all of this.
    Equal stores give equal bytes. `report`, `view`, `compare` and `results` accept the file in place of a store;
    `lobench audit` evaluates a sample of it again. The ledger contains paths, host names and the patch of uncommitted
    changes. The command prints all of these before it writes, and the card lists the files of the patch.
    """
    from lobench.tools.publish.publish import publish as run_publish
    from lobench.tools.publish.publish import published_text

    record = run_publish(store, output, log=functools.partial(click.echo, err=output_format == "json"), **options)
    emit("publish", record) if output_format == "json" else show(published_text(record))
