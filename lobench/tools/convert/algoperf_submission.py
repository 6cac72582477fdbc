"""Export of a checkpoint as a self-tuning submission to AlgoPerf's JAX interface.

Source: `algoperf/spec.py` and `algorithms/template` of mlcommons/algorithmic-efficiency, and the batch sizes of its
self-tuning baseline.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import numpy as np

from lobench.core.errors import UsageError
from lobench.engine.whole_file import require_writable, write_whole
from lobench.tools.convert.model_card import CARD, ExportedCheckpoint, model_card

__all__ = ["write_submission"]

USAGE = """\
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
        CARD: model_card(exported, USAGE).encode(),
    }
    if exported.config:
        contents["config.gin"] = exported.config.encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_whole(folder / name, content)
    return list(contents)
