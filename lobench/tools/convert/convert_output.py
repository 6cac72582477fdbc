"""Checkpoint and messages of `lobench convert`."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TypedDict

import numpy as np

from lobench.core.errors import UsageError
from lobench.core.json_numbers import record_from
from lobench.engine.whole_file import require_writable, write_whole
from lobench.report.tables.text import code_block, text_table
from lobench.tools.convert.forms import ConvertedWeights
from lobench.tools.convert.model_card import CARD, ExportedCheckpoint, model_card

__all__ = [
    "ConvertRecord",
    "convert_record",
    "convert_text",
    "export_text",
    "write_export",
    "write_submission",
    "write_theta",
]


class LeafRecord(TypedDict):
    """Leaf with its published name, null if it is not in the file, and its path in the checkpoint."""

    theirs: str | None
    ours: str
    shape: list[int]


class ConvertRecord(TypedDict):
    """`lobench convert`: the converted weights."""

    form: str
    optimizer: str
    output: str
    num_params: int
    bindings: list[str]
    leaves: list[LeafRecord]


def write_theta(path: Path, conversion: ConvertedWeights) -> None:
    """Writes a .npz file atomically.

    Raises:
      UsageError: The path has another suffix.
    """
    if path.suffix != ".npz":
        raise UsageError("--output", got=str(path), expected="a file that ends in .npz")
    buffer = io.BytesIO()
    np.savez(buffer, **conversion.theta)  # type: ignore[arg-type]  # any names
    write_whole(path, buffer.getvalue())


def write_export(path: Path, conversion: ConvertedWeights, exported: ExportedCheckpoint) -> None:
    """Writes a .safetensors file, a config.json, from which PyLO's `from_pretrained` makes the network, and a card.

    Raises:
      UsageError: The path has another suffix, or the folder has another config.json or README.md.
    """
    from safetensors.numpy import save

    if path.suffix != ".safetensors":
        raise UsageError("--output", got=str(path), expected="a file that ends in .safetensors")
    config = path.parent / "config.json"
    text = json.dumps(conversion.config) + "\n"
    if config.exists() and config.read_text(encoding="utf-8", errors="replace") != text:
        raise UsageError(
            "--output: the folder has another config.json, and PyLO reads this name",
            got=str(config),
            next_step="choose a new folder",
        )
    card = path.parent / CARD
    card_text = model_card(exported, _pylo_usage(conversion))
    if card.exists() and "exported by lobench" not in card.read_text(encoding="utf-8", errors="replace"):
        raise UsageError("--output: the folder has another model card", got=str(card), next_step="choose a new folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, save(dict(conversion.theta)))
    write_whole(config, text.encode())
    write_whole(card, card_text.encode())


def _pylo_usage(conversion: ConvertedWeights) -> str:
    """Returns instructions to load an export in PyLO, in Markdown."""
    lines = [
        f"The files are for PyLO's {conversion.form}: `{conversion.form}.from_pretrained` loads the folder in torch."
    ]
    if conversion.bindings:
        lines += ["Arguments of PyLO's optimizer that belong to theta:", code_block("\n".join(conversion.bindings))]
    return "\n\n".join(lines)


def export_text(conversion: ConvertedWeights, output: Path) -> str:
    rows = [("ours", "theirs", "shape")]
    rows += [
        (lobench_name, foreign_name, str(list(shape)))
        for foreign_name, lobench_name, shape in conversion.matched_leaves
    ]
    lines = [
        text_table(rows),
        f"{conversion.form}, {conversion.num_params:,} parameters: {output}, config.json, {CARD}",
    ]
    lines += ["arguments of PyLO's optimizer:", *conversion.bindings] if conversion.bindings else []
    lines.append("next: pass PyLO's optimizer the settings with which theta was trained, since its defaults may differ")
    return "\n".join(lines)


def convert_record(conversion: ConvertedWeights, output: Path) -> ConvertRecord:
    leaves = [
        LeafRecord(theirs=foreign_name or None, ours=lobench_name, shape=list(shape))
        for foreign_name, lobench_name, shape in conversion.matched_leaves
    ]
    return record_from(ConvertRecord, conversion, output=str(output), leaves=leaves)


def convert_text(conversion: ConvertedWeights, output: Path) -> str:
    rows = [("theirs", "ours", "shape")]
    rows += [
        (foreign_name or "(of its class)", lobench_name, str(list(shape)))
        for foreign_name, lobench_name, shape in conversion.matched_leaves
    ]
    line = f"{conversion.form}, {conversion.num_params:,} parameters, all of them matched: {output}"
    bindings = "; ".join((f"Case.learned_optimizer = @{conversion.optimizer}()", *conversion.bindings))
    next_line = f"next: lobench compare adam '{output}; {bindings}' --suite quick"
    return "\n".join((text_table(rows), line, next_line))


_SUBMISSION_USAGE = """\
`submission.py` is a self-tuning submission to AlgoPerf (JAX). It needs `pip install lobench`, and the files next to it.
The training's length is the workload's `step_hint`. Dropout is the workload's default."""


def write_submission(folder: Path, exported: ExportedCheckpoint, leaves: Mapping[str, np.ndarray]) -> list[str]:
    """Writes a submission into a folder: `submission.py`, `theta.npz`, `README.md`, the run's `config.gin`.

    Args:
      folder: Folder that is missing or empty.
      exported: The checkpoint.
      leaves: Leaves of the checkpoint by path.
    Returns:
      Names of the files.
    Raises:
      UsageError: The folder holds files or cannot be written.
    """
    require_writable(folder / "submission.py")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("--output", got=str(folder), expected="a folder that is missing or empty")
    arrays = io.BytesIO()
    np.savez(arrays, **leaves)  # type: ignore[arg-type]  # any names
    template = files("lobench.tools.convert").joinpath("algoperf_template.txt").read_text(encoding="utf-8")
    code = template.replace("@GIN_PARAMS@", repr(exported.bindings))
    contents = {
        "submission.py": code.encode(),
        "theta.npz": arrays.getvalue(),
        CARD: model_card(exported, _SUBMISSION_USAGE).encode(),
    }
    if exported.config:
        contents["config.gin"] = exported.config.encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_whole(folder / name, content)
    return list(contents)
