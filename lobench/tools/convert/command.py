"""The command `lobench convert`."""

from __future__ import annotations

from pathlib import Path

import click

from lobench.cli.output import emit, format_option

__all__ = ["convert"]


@click.command(
    epilog="""\b
Examples:
  lobench convert model.safetensors --output celo2.npz
  lobench convert elo.pt --output elo.npz
  lobench convert meta_mlp.pt --optimizer AdafacMLPLOpt --output adafac.npz"""
)
@click.argument("weights", type=click.Path(path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Checkpoint to write, .npz.")
@click.option("--optimizer", help="Optimizer class for the weights, if several classes can use them.")
@format_option("text", "json", prints={"convert": "lobench.tools.convert.text:ConvertRecord"})
def convert(weights: Path, output: Path, optimizer: str | None, kind: str) -> None:
    """Convert weights that PyLO has published to a checkpoint.

    WEIGHTS is a state dict of MetaMLP or CELO2MLP: .safetensors, .pt (read without running its code) or .npz. The
    command prints each name in the file with its new name; a missing or unknown name is an error.
    """
    from lobench.engine.checkpoints.readers import load_checkpoint
    from lobench.plugins import load_plugins
    from lobench.tools.convert.forms import convert_leaves
    from lobench.tools.convert.text import convert_record, convert_text, write_theta

    _, leaves = load_checkpoint(str(weights), load_plugins(), allow_pickle=False)
    found = convert_leaves(leaves, optimizer, str(weights))
    write_theta(output, found)
    emit("convert", convert_record(found, output)) if kind == "json" else click.echo(convert_text(found, output))
