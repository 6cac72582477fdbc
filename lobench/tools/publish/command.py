"""Options and output of `lobench publish`."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from lobench.cli.output import emit, format_option, show

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
@click.option("--output", required=True, type=click.Path(path_type=Path), help="The bundle, results.lobench.")
@click.option(
    "--suite",
    "suites",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Folder of a suite, if the store does not have it; repeatable.",
)
@click.option("--no-thetas", is_flag=True, help="Leave out thetas; the bundle names their hashes and paths.")
@click.option(
    "--without-patch", is_flag=True, help="Leave out the patch of uncommitted changes; the bundle names its hash."
)
@click.option("--sign", "key", type=click.Path(exists=True, path_type=Path), help="SSH key that signs the root.")
@click.option(
    "--croissant",
    type=click.Path(path_type=Path),
    help="Empty or new folder for the curves as a Croissant data set: curves.csv and croissant.json.",
)
@click.option("--license", default="", help="License that the data set states, such as CC-BY-4.0.")
@format_option("text", "json", prints={"publish": "lobench.tools.publish.publish:PublishRecord"})
def publish(
    store: Path,
    output: Path,
    suites: tuple[Path, ...],
    no_thetas: bool,
    without_patch: bool,
    key: Path | None,
    croissant: Path | None,
    license: str,
    kind: str,
) -> None:
    """Put a store with everything that its results depend on into one file that others can check.

    The file holds the ledger with the plan that was written before the first result, the gin text, the thetas, the
    versions, a card in Markdown, the suites' files that the results depend on, and a Merkle root over all of this.
    Equal stores give equal bytes. `report`, `view`, `compare` and `results` accept the file in place of a store;
    `lobench audit` evaluates a sample of it again. The ledger contains paths, host names and the patch of uncommitted
    changes. The command prints all of these before it writes, and the card lists the files of the patch.
    """
    from lobench.tools.publish.publish import publish as published
    from lobench.tools.publish.publish import published_text

    record = published(
        store,
        output,
        suites=suites,
        has_thetas=not no_thetas,
        has_patches=not without_patch,
        key=key,
        croissant=croissant,
        license=license,
        log=functools.partial(click.echo, err=kind == "json"),
    )
    emit("publish", record) if kind == "json" else show(published_text(record))
