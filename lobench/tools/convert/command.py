"""Options and output of `lobench convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lobench.cli.options import OutputPath
from lobench.cli.output import emit, format_option, show
from lobench.core.errors import UsageError
from lobench.core.wording import shortened_list

__all__ = ["convert"]


@click.command(
    epilog="""\b
Examples:
  lobench convert model.safetensors --output celo2.npz
  lobench convert elo.pt --output elo.npz
  lobench convert hf://owner/name@main/elo.pt --output elo.npz
  lobench convert mulo.safetensors --optimizer MuLO --output mulo.npz
  lobench convert velo_rnn.safetensors velo_mlp.safetensors --output velo.npz
  lobench convert theta_200.npz --to pylo --optimizer AdafacMLPLOpt --output exported/model.safetensors
  lobench convert runs/today/theta_200.npz --to algoperf --output submission"""
)
@click.argument("weights", nargs=-1, required=True)
@click.option(
    "--output",
    required=True,
    type=OutputPath(),
    help="File to write: .npz, or .safetensors with --to pylo. With --to algoperf, a new folder.",
)
@click.option(
    "--optimizer",
    help="Optimizer class for the weights, if several classes can use them. With --to, that of the checkpoint, with "
    "its settings, unless a config.gin next to it binds it.",
)
@click.option(
    "--to", "target", type=click.Choice(["pylo", "algoperf"]), help="Export a checkpoint to this package's format."
)
@click.option(
    "--store",
    "stores",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Store with evaluations of an exported checkpoint, for its model card; repeatable. Default: those in "
    "lobench_results next to it, or that of STORE@NAME.",
)
@format_option(
    "text", "json", name="output_format", prints={"convert": "lobench.tools.convert.convert_output:ConvertRecord"}
)
def convert(
    weights: tuple[str, ...],
    output: Path,
    optimizer: str | None,
    target: str | None,
    stores: tuple[Path, ...],
    output_format: str,
) -> None:
    """Convert weights that PyLO has published to a checkpoint, or a checkpoint for PyLO or AlgoPerf.

    WEIGHTS is a state dict of MetaMLP or CELO2MLP, or those of VeLORNN and VeLOMLP: .safetensors, .pt (read without
    running its code) or .npz, as a path or as hf://OWNER/NAME@REVISION/FILE. The command prints each name in the file
    with its new name; a missing or unknown name is an error.

    With --to pylo, WEIGHTS is one checkpoint of ELO, AdafacMLPLOpt, MuLO, Celo2 or EloCelo2. The command also writes a
    config.json next to the output, so that from_pretrained of MetaMLP or CELO2MLP loads the folder.

    With --to algoperf, WEIGHTS is one checkpoint of any optimizer, and the output a folder with a self-tuning
    submission for AlgoPerf's JAX interface.

    Each export has a model card, README.md: the bindings, the hashes, and the evaluations of the checkpoint with scores
    and intervals.
    """
    from lobench.engine.checkpoints.readers import load_checkpoint
    from lobench.plugins import load_plugins
    from lobench.tools.convert.convert_output import convert_record, convert_text, write_theta
    from lobench.tools.convert.forms import convert_leaves

    if target is not None:
        _export(weights, output, optimizer or "", stores, target, output_format)
        return
    if stores:
        raise UsageError("--store is for exports", next_step="lobench convert CHECKPOINT --to pylo --store STORE ...")
    leaves: dict[str, Any] = {}
    for file in weights:
        _, file_leaves = load_checkpoint(file, load_plugins(), allow_pickle=False)
        if repeated_names := sorted(leaves.keys() & file_leaves.keys()):
            raise UsageError("two files have a weight of one name", where=file, got=shortened_list(repeated_names, 3))
        leaves |= file_leaves
    conversion = convert_leaves(leaves, optimizer, ", ".join(weights))
    write_theta(output, conversion)
    emit("convert", convert_record(conversion, output)) if output_format == "json" else show(
        convert_text(conversion, output)
    )


def _export(
    weights: tuple[str, ...], output: Path, optimizer: str, stores: tuple[Path, ...], target: str, output_format: str
) -> None:
    import numpy as np

    from lobench.api.load_optimizer import load_learned
    from lobench.engine.checkpoints.readers import load_checkpoint
    from lobench.inner.theta import leaf_paths
    from lobench.plugins import load_plugins
    from lobench.tools.convert.convert_output import convert_record, export_text, write_export, write_submission
    from lobench.tools.convert.forms import export_leaves, unchanged_leaves
    from lobench.tools.convert.model_card import ExportedCheckpoint

    if len(weights) != 1:
        raise UsageError("--to takes one checkpoint", got=shortened_list(list(weights), 3))
    _, theta, name = load_learned(weights[0], optimizer=optimizer)
    exported_checkpoint = ExportedCheckpoint.find(weights[0], name, optimizer, stores)
    if target == "algoperf":
        _, leaves = load_checkpoint(exported_checkpoint.location, load_plugins(), allow_pickle=False)
        names = write_submission(output, exported_checkpoint, leaves)
        leaves_to_write = unchanged_leaves(leaves, name)
        text = f"{output}: {', '.join(names)}"
    else:
        leaves_to_write = export_leaves(
            {path: np.asarray(leaf) for path, leaf in leaf_paths(theta).items()}, name, weights[0]
        )
        write_export(output, leaves_to_write, exported_checkpoint)
        text = export_text(leaves_to_write, output)
    emit("convert", convert_record(leaves_to_write, output)) if output_format == "json" else show(text)
