"""Options and output of `lobench view`."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TypedDict

import click

from lobench.cli.options import baseline_option, experiment_options
from lobench.cli.output import emit, format_option

__all__ = ["ViewRecord", "view"]


class ViewRecord(TypedDict):
    """`lobench view`: address of the page, printed when it is served."""

    store: Path
    address: str


@click.command(
    epilog="""\b
Examples:
  lobench view runs/today/lobench_results/quick
  lobench view .lobench/experiment --open
  lobench view .lobench/quick --port 0 --baseline suites/quick
  lobench view .lobench/quick --host 0.0.0.0        # beyond this machine: with a token, which it prints

It serves until Ctrl-C. Exit codes: 0 ended by Ctrl-C, 2 usage."""
)
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to serve on; other addresses than loopback need a token.",
)
@click.option(
    "--port", default=6007, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@click.option(
    "--token", default="", help="Token that visitors need (default: none on loopback, otherwise a random one)."
)
@baseline_option
@experiment_options
@format_option("text", "json", name="output_format", prints={"view": f"{__name__}:ViewRecord"})
@click.option("--open/--no-browser", "opens", default=False, help="Open the page in a browser (default: do not).")
def view(store: Path, opens: bool, output_format: str, **options: object) -> None:
    """Serve the report of a store as an interactive page, which updates itself.

    Visitors select subjects, cases and metrics, and the address keeps the selection. A watch or a run may be writing to
    the store, and it may still be empty.
    """
    # Garbage collection would take most of the time of a large store: its content is a million objects that live long.
    gc.set_threshold(100_000, 50, 1000)
    from lobench.core.wording import one_line
    from lobench.tools.viewer.server import ServedPage
    from lobench.tools.viewer.server import view as serve

    def on_ready(server: ServedPage) -> None:
        click.echo(f"{one_line(str(store))}: {server.address}  (Ctrl-C ends it)")
        if output_format == "json":
            emit("view", ViewRecord(store=store, address=server.address))
        if opens:
            click.launch(server.address)

    serve(store, on_ready=on_ready, **options)  # type: ignore[arg-type]  # checked by click
