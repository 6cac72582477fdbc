"""Options and output of `lobench pbt` and its commands, such as `serve`, `status` and `stop`."""

from __future__ import annotations

import posix
import sys
from pathlib import Path

import click

from lobench.extend import format_option

__all__ = ["pbt"]

_STORE_OPTION = click.option(
    "--store", required=True, type=click.Path(path_type=Path), help="Folder of the controller."
)
_STUDY_OPTION = click.option("--study", default="", help="Study, if the store has several.")


@click.group()
def pbt() -> None:
    """Population based training: serve and inspect a controller."""


@pbt.command(
    epilog="""\b
Examples:
  lobench pbt serve study.gin --store runs/pbt
  lobench pbt serve study.gin --store runs/pbt --listen 0.0.0.0:6006 --token-file token"""
)
@click.argument("study", metavar="STUDY.gin", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@_STORE_OPTION
@click.option(
    "--listen", default="127.0.0.1:0", show_default=True, help="HOST:PORT; port 0 takes a free one, see STORE/address."
)
@click.option("--token-file", type=click.Path(path_type=Path, exists=True), help="File with the shared token.")
@click.option("--tls-cert", type=click.Path(path_type=Path, exists=True), help="Certificate chain, PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path, exists=True), help="Its private key, PEM.")
def serve(study: Path, store: Path, listen: str, token_file: Path, tls_cert: Path, tls_key: Path) -> None:
    """Serve a study until Ctrl-C; the same command continues it."""
    from lobench_pbt.server import security_from, serve
    from lobench_pbt.study_file import read_study

    security = security_from(token_file, tls_cert, tls_key)
    security.check(listen)
    has_hanging_request = serve(read_study(study), store, listen=listen, security=security, log=click.echo)
    if (
        has_hanging_request
    ):  # Python's own exit would wait for its thread, and lobench has os._exit report an error of the plugin
        sys.stdout.flush()
        posix._exit(0)


@pbt.command()
@_STORE_OPTION
@_STUDY_OPTION
@click.option("--tree/--no-tree", default=True, show_default=True, help="Show the lineage tree below the table.")
@format_option("text", "json", "html", name="output_format", prints={"pbt.status": "lobench_pbt.show:StatusRecord"})
def status(store: Path, study: str, tree: bool, output_format: str) -> None:
    """Show a study: its trials, the best one (or the Pareto front of several objectives), and the lineage."""
    from lobench_pbt.show import show_status

    show_status(store, study, tree=tree, output_format=output_format)


@pbt.command()
@_STORE_OPTION
@_STUDY_OPTION
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, exists=True),
    help="File with the token, if the controller needs one.",
)
@click.option(
    "--ca", type=click.Path(path_type=Path, exists=True), help="Certificate to trust, if the controller uses TLS."
)
def stop(store: Path, study: str, token_file: Path | None, ca: Path | None) -> None:
    """Stop a study for good: running trials end early, and no other trial starts."""
    from lobench_pbt.server import stop

    files = {"token_file": token_file, "ca": ca}
    options = "".join(f",{name}={path}" for name, path in files.items() if path is not None)
    stop(store, study, options=options, log=click.echo)


@pbt.command()
@click.argument("trial", type=int)
@_STORE_OPTION
@_STUDY_OPTION
@click.option("--from-step", type=int, default=0, show_default=True, help="First outer step.")
@click.option("--to-step", type=int, help="Outer step to stop before.")
@format_option("json", name="output_format", prints={"pbt.replay": "lobench_pbt.show:TrialReplayRecord"})
def replay(trial: int, store: Path, study: str, from_step: int, to_step: int | None, output_format: str) -> None:
    """Print the schedule of a trial as JSON, to train it again on the same data or on other data."""
    from lobench_pbt.show import show_replay

    show_replay(store, study, trial, from_step=from_step, to_step=to_step)


@pbt.command()
@_STORE_OPTION
@_STUDY_OPTION
@format_option("json", name="output_format", prints={"pbt.export": "lobench_pbt.show:ExportRecord"})
def export(store: Path, study: str, output_format: str) -> None:
    """Print a study with all its trials and measurements as JSON."""
    from lobench_pbt.show import show_export

    show_export(store, study)
