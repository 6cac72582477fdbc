"""Checkpoint: theta at (run, generation, outer step), identified by the sha256 of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "COUNTER_NAMES",
    "GENERATION_NAMES",
    "OWN_BINDINGS",
    "STEP_NAMES",
    "WRAPPER_NAMES",
    "Checkpoint",
    "CheckpointContent",
    "CheckpointPart",
    "SeenCheckpoint",
    "theta_sha256",
]

STEP_NAMES = ("outer_step", "step", "iteration")
GENERATION_NAMES = ("generation", "gen_id")
COUNTER_NAMES = (*STEP_NAMES, *GENERATION_NAMES)  # of leaves that say where a checkpoint stands
WRAPPER_NAMES = ("theta", "params")  # of what holds theta, in a checkpoint that holds more

OWN_BINDINGS = "gin_bindings"  # path of a leaf, uint8[bytes]: gin text, in UTF-8, that this theta was trained with


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCheckpoint:
    """A complete checkpoint that a source has found; not read yet.

    Attributes:
      uri: Path or URL of the file or directory.
      reader: Name of the reader that recognised it.
      index: The number in its name, or None; an index, not an outer step.
      run: Which of several runs it is of; "" where there is one.
      generation: Of the run, where its place says so; the content's own counts more.
    """

    uri: str
    reader: str
    index: int | None = None
    run: str = ""
    generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContent:
    """Theta as a reader returns it: flat leaves, without the structure that only the optimizer knows.

    They may be more than theta: which part of them it is, the optimizer's structure tells.

    Attributes:
      leaves: numpy arrays by path; path components are joined by "/", sequence items by their index
        (`nn/~/w0`, `layers/0/kernel`). `OWN_BINDINGS` may be among them: it is part of the digest as the others are.
      outer_step: From the content; None where it holds none (then the index in the name stands in).
      generation: Lineage number in a population; None where the content holds none.
    """

    leaves: Mapping[str, np.ndarray]
    outer_step: int | None = None
    generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPart:
    """Where in a checkpoint theta is, as gin binds it (`Checkpoint.theta = "params/lopt"`).

    Attributes:
      theta: Path of a subtree, or an item of an orbax step; "": the one part that has the optimizer's structure.
    """

    theta: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was copied and read; `sha256` is `theta_sha256` of its leaves."""

    uri: str
    sha256: str
    outer_step: int
    generation: int = 0
    run: str = ""


def theta_sha256(leaves: Mapping[str, np.ndarray]) -> str:
    """Returns the sha256 (hex) of theta's paths, dtypes, shapes and bytes, whatever the container or leaf order."""
    digest = hashlib.sha256()
    for path in sorted(leaves):
        leaf = leaves[path]
        digest.update(f"{path}\0{leaf.dtype.str}\0{','.join(map(str, leaf.shape))}\0".encode())
        digest.update(leaf.tobytes(order="C"))
    return digest.hexdigest()
