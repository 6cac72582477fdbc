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
  lobench convert velo_rnn.safetensors velo_mlp.safetensors --output velo.npz
  lobench convert theta_200.npz --to pylo --optimizer AdafacMLPLOpt --output exported/model.safetensors"""
)
@click.argument("weights", nargs=-1, required=True)
@click.option(
    "--output", required=True, type=click.Path(path_type=Path), help="File to write: .npz, or .safetensors with --to."
)
@click.option(
    "--optimizer",
    help="Optimizer class for the weights, if several classes can use them. With --to, that of the checkpoint, with "
    "its settings, unless a config.gin next to it binds it.",
)
@click.option("--to", "target", type=click.Choice(["pylo"]), help="Export a checkpoint to this package's format.")
@format_option("text", "json", prints={"convert": "lobench.tools.convert.convert_output:ConvertRecord"})
def convert(weights: tuple[str, ...], output: Path, optimizer: str | None, target: str | None, kind: str) -> None:
    """Convert weights that PyLO has published to a checkpoint, or a checkpoint to PyLO's format.

    WEIGHTS is a state dict of MetaMLP or CELO2MLP, or those of VeLORNN and VeLOMLP: .safetensors, .pt (read without
    running its code) or .npz, as a path or as hf://OWNER/NAME@REVISION/FILE. The command prints each name in the file
    with its new name; a missing or unknown name is an error.

    With --to pylo, WEIGHTS is one checkpoint of ELO, AdafacMLPLOpt, MuLO, Celo2 or EloCelo2. The command also writes a
    config.json next to the output, so that from_pretrained of MetaMLP or CELO2MLP loads the folder.
    """
    from lobench.engine.checkpoints.readers import load_checkpoint
    from lobench.plugins import load_plugins
    from lobench.tools.convert.convert_output import convert_record, convert_text, write_theta
    from lobench.tools.convert.forms import convert_leaves

    if target is not None:
        _export(weights, output, optimizer, kind)
        return
    leaves: dict[str, Any] = {}
    for each in weights:
        _, more = load_checkpoint(each, load_plugins(), allow_pickle=False)
        if twice := sorted(leaves.keys() & more.keys()):
            raise UsageError("two files have a weight of one name", where=each, got=first_of(twice, 3))
        leaves |= more
    found = convert_leaves(leaves, optimizer, ", ".join(weights))
    write_theta(output, found)
    emit("convert", convert_record(found, output)) if kind == "json" else show(convert_text(found, output))


def _export(weights: tuple[str, ...], output: Path, optimizer: str | None, kind: str) -> None:
    import numpy as np

    from lobench.api.load_optimizer import load_learned
    from lobench.inner.theta import leaf_paths
    from lobench.tools.convert.convert_output import convert_record, export_text, write_export
    from lobench.tools.convert.forms import export_leaves

    if len(weights) != 1:
        raise UsageError("--to takes one checkpoint", got=first_of(list(weights), 3))
    _, theta, name = load_learned(weights[0], optimizer=optimizer or "")
    leaves = {path: np.asarray(leaf) for path, leaf in leaf_paths(theta).items()}
    found = export_leaves(leaves, name, weights[0])
    write_export(output, found)
    emit("convert", convert_record(found, output)) if kind == "json" else show(export_text(found, output))
