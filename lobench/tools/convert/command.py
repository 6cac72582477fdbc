"""Options and output of `lobench convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lobench.cli.output import emit, format_option, show
from lobench.core.errors import UsageError
from lobench.core.wording import first_of

__all__ = ["convert"]


@click.command(
    epilog="""\b
Examples:
  lobench convert model.safetensors --output celo2.npz
  lobench convert elo.pt --output elo.npz
  lobench convert hf://owner/name@main/elo.pt --output elo.npz
  lobench convert mulo.safetensors --optimizer MuLO --output mulo.npz
  lobench convert velo_rnn.safetensors velo_mlp.safetensors --output velo.npz"""
)
@click.argument("weights", nargs=-1, required=True)
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Checkpoint to write, .npz.")
@click.option("--optimizer", help="Optimizer class for the weights, if several classes can use them.")
@format_option("text", "json", prints={"convert": "lobench.tools.convert.text:ConvertRecord"})
def convert(weights: tuple[str, ...], output: Path, optimizer: str | None, kind: str) -> None:
    """Convert weights that PyLO has published to a checkpoint.

    WEIGHTS is a state dict of MetaMLP or CELO2MLP, or those of VeLORNN and VeLOMLP: .safetensors, .pt (read without
    running its code) or .npz, as a path or as hf://OWNER/NAME@REVISION/FILE. The command prints each name in the file
    with its new name; a missing or unknown name is an error.
    """
    from lobench.engine.checkpoints.readers import load_checkpoint
    from lobench.plugins import load_plugins
    from lobench.tools.convert.forms import convert_leaves
    from lobench.tools.convert.text import convert_record, convert_text, write_theta

    leaves: dict[str, Any] = {}
    for each in weights:
        _, more = load_checkpoint(each, load_plugins(), allow_pickle=False)
        if twice := sorted(leaves.keys() & more.keys()):
            raise UsageError("two files have a weight of one name", where=each, got=first_of(twice, 3))
        leaves |= more
    found = convert_leaves(leaves, optimizer, ", ".join(weights))
    write_theta(output, found)
    emit("convert", convert_record(found, output)) if kind == "json" else show(convert_text(found, output))
