"""Options and output of `lobench site`."""

from __future__ import annotations

from pathlib import Path

import click

from lobench.cli.options import OutputPath
from lobench.cli.output import emit, format_option, show

__all__ = ["site"]


@click.command(
    epilog="""\b
Examples:
  lobench audit celo.lobench --format json > celo.lobench.audit.json
  lobench site celo.lobench adam.lobench --output public

Exit codes: 0, 2 usage, a bundle whose audit failed, or none at all."""
)
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="BUNDLE...")
@click.option("--output", required=True, type=OutputPath(), help="Folder of the pages.")
@click.option("--title", default="Results", show_default=True, help="Title of the first page.")
@format_option("text", "json", "markdown", name="output_format", prints={"site": "lobench.tools.site.site:SiteRecord"})
def site(bundles: tuple[Path, ...], output: Path, title: str, output_format: str) -> None:
    """Make static pages of bundles: the best methods on each suite, and the evidence.

    Methods are in groups: the first group has the best mean score and all methods that no comparison distinguishes from
    it, the next group is the same for the rest. Each number links to its curves, its bindings, the command that repeats
    it, and its audit. The audit of results.lobench is results.lobench.audit.json, the output of `lobench audit --format
    json`. A bundle whose audit failed is rejected; bundles without an audit are marked on the pages. --format markdown
    prints the tables of the first page, for a page of your own.
    """
    from lobench.tools.site.site import make_site, site_markdown, site_text

    record = make_site(bundles, output, title=title)
    if output_format == "json":
        emit("site", record)
    else:
        click.echo(site_markdown(record)) if output_format == "markdown" else show(site_text(record))
