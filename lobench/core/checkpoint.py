"""Checkpoint: theta at (run, generation, outer step), identified by the sha256 of its content."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "COUNTER_NAMES",
    "GENERATION_NAMES",
    "MOST_DIGITS",
    "OWN_BINDINGS",
    "STEP_NAMES",
    "WRAPPER_NAMES",
    "Checkpoint",
    "CheckpointContent",
    "CheckpointPart",
    "SeenCheckpoint",
    "index_in_name",
    "is_named_by_step",
    "leaves_sha256",
    "theta_digests",
    "theta_sha256",
    "with_float32_leaves",
]

STEP_NAMES = ("outer_step", "step", "iteration")
GENERATION_NAMES = ("generation", "gen_id")
COUNTER_NAMES = (*STEP_NAMES, *GENERATION_NAMES)  # leaves with the position of a checkpoint
WRAPPER_NAMES = ("theta", "params")  # subtrees with theta, in a checkpoint with other leaves

# Names of leaves besides theta: states of a meta-optimizer, a trainer or a random generator.
_MOMENTS_PATTERN = re.compile(r"(^|/)(mu|nu|trace)(/|$)")
_STATES_PATTERN = re.compile(
    r"(^|/)(([^/]*_)?((opt|optim|optimizer|optimiser)(_state)?|state|rng|rng_key|prng|prng_key|seed)|mu|nu|trace)(/|$)"
)

MOST_DIGITS = 18  # digits that fit into an integer of the ledger
_NUMBERED_WORDS = ("step", "epoch", "iter", "iteration", "ckpt", "checkpoint", "theta", "params")
_NUMBER_PATTERN = re.compile(
    rf"(?:(?<![^\W_])|{'|'.join(f'(?<={word})' for word in _NUMBERED_WORDS)})\d+", re.IGNORECASE
)
_STEP_PATTERN = re.compile(rf"(?:{'|'.join(_NUMBERED_WORDS)})[\W_]?\d+$", re.IGNORECASE)

OWN_BINDINGS = "gin_bindings"  # path of a leaf, uint8[bytes]: gin text, in UTF-8, that this theta was trained with


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCheckpoint:
    """A complete checkpoint that a source has found but not read yet.

    Attributes:
      uri: Path or URL of the file or directory.
      reader: Name of the reader that recognised it.
      index: Number in the checkpoint's name; None if the name has no number. It is not an outer step.
      run: Name of its run if there are several; "" otherwise.
      generation: Generation of the run according to the path; None if unknown. That of the content takes precedence.
      written_at: Time of its last change, in seconds since 1970; None if unknown.

    >>> SeenCheckpoint(uri="run/theta_3.npz", reader="npz", index=3).run
    ''
    """

    uri: str
    reader: str
    index: int | None = None
    run: str = ""
    generation: int | None = None
    written_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContent:
    """Content of a checkpoint as a reader returns it: flat leaves, without structure.

    There may be leaves besides theta. The optimizer's structure determines which leaves are theta.

    Attributes:
      leaves: numpy arrays by path. Path components are joined by "/", sequence items by their index
        (`nn/~/w0`, `layers/0/kernel`). `OWN_BINDINGS` may be among them; it is part of the digest like the others.
      outer_step: Outer step in the content; None if it has none (then the index in the name is used).
      generation: Lineage number in a population; None if the content has none.

    >>> CheckpointContent(leaves={"w": np.ones(2)}, outer_step=3).generation is None
    True
    """

    leaves: Mapping[str, np.ndarray]
    outer_step: int | None = None
    generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPart:
    """Location of theta in a checkpoint, as gin binds it (`Checkpoint.theta = "params/lopt"`).

    Attributes:
      theta: Path of a subtree, or an item of an orbax step; "": the only subtree with the optimizer's structure.
    """

    theta: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was copied and read; `sha256` is `theta_sha256` of its leaves.

    >>> Checkpoint(uri="run/theta_3.npz", sha256="1" * 64, outer_step=3).generation
    0
    """

    uri: str
    sha256: str
    outer_step: int
    generation: int = 0
    run: str = ""


@functools.lru_cache(maxsize=16_384)  # a viewer asks for all checkpoints of a large store each time that it grows
def index_in_name(name: str) -> int | None:
    """Returns the last number in a name; None if a name has no number, or one with over 18 digits.

    A number counts after a separator, or after a unit that trainers count: `params_5`, `0005`, `step5`, but not
    `name6`.
    """
    numbers_in_name = _NUMBER_PATTERN.findall(name)
    return int(numbers_in_name[-1]) if numbers_in_name and len(numbers_in_name[-1]) <= MOST_DIGITS else None


def is_named_by_step(name: str) -> bool:
    """Returns whether a name ends with a number of a unit that trainers count: `step_10` or `epoch3`, but not `run_1`.

    >>> is_named_by_step("step_10"), is_named_by_step("run_1")
    (True, False)
    """
    return _STEP_PATTERN.search(name) is not None


def theta_sha256(leaves: Mapping[str, np.ndarray]) -> str:
    """Returns the sha256 (hex) of theta: its identity, independent of file format, order and other leaves.

    It covers the leaves of theta and their paths below it. Counters, the state of a meta-optimizer and names around
    theta (`theta/`, `params/`) are left out, and bfloat16 counts as the float32 of the same value. If it is not clear
    which leaves are theta, all of them count.

    >>> import numpy as np
    >>> theta, moments = np.ones(2, np.float32), np.zeros(2, np.float32)
    >>> theta_sha256({"theta/w": theta, "opt_state/mu/w": moments}) == theta_sha256({"w": theta})
    True
    """
    return leaves_sha256(with_float32_leaves(_theta_of(leaves)))


def leaves_sha256(leaves: Mapping[str, np.ndarray]) -> str:
    """Returns the sha256 (hex) of all leaves: paths, dtypes, shapes and bytes. Used by stores of older versions."""
    digest = hashlib.sha256()
    for path in sorted(leaves):
        leaf = leaves[path]
        digest.update(f"{path}\0{leaf.dtype.str}\0{','.join(map(str, leaf.shape))}\0".encode())
        digest.update(leaf.tobytes(order="C"))
    return digest.hexdigest()


def theta_digests(leaves: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Returns the digests by which stores may identify a theta: `theta_sha256`, then those of older versions."""
    digests = (theta_sha256(leaves), leaves_sha256(with_float32_leaves(leaves)), leaves_sha256(leaves))
    return tuple(dict.fromkeys(digests))


def with_float32_leaves(leaves: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns leaves with bfloat16 and float8 as float32. No value changes."""
    return {path: leaf if leaf.dtype.kind in "fiub" else leaf.astype("float32") for path, leaf in leaves.items()}


def _theta_of(leaves: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Returns the leaves of theta by their paths below it, with `OWN_BINDINGS`; all leaves if theta is not clear."""
    bindings_leaf = {path: leaf for path, leaf in leaves.items() if path == OWN_BINDINGS}
    theta = {path: leaf for path, leaf in leaves.items() if path not in bindings_leaf}
    theta_path = _path_of_theta(theta)
    theta = _leaves_below(theta, theta_path) if theta_path else theta
    while wrapper := next((name for name in WRAPPER_NAMES if _are_below(theta, name)), None):
        theta = _leaves_below(theta, wrapper)
    return {**theta, **bindings_leaf}


def _path_of_theta(leaves: Mapping[str, np.ndarray]) -> str:
    """Returns the path of the subtree that is theta; "" if it is all of the leaves, or ambiguous.

    If exactly one subtree is named `theta`, it is that one, otherwise the only one named `params`. Every leaf outside
    of it must be named like a state or a counter: a leaf with any other name may be part of theta, as in an optimizer
    whose parameters are `theta/w` and `log_learning_rate`. No other subtree may have its structure, because
    `Checkpoint.theta` could bind that subtree.
    """
    for name, max_depth in zip(WRAPPER_NAMES, (2, 1), strict=True):  # theta may be below an item of an orbax step
        theta_paths = {theta_path for path in leaves if (theta_path := _first_part_named(path, name, max_depth))}
        if len(theta_paths) != 1:
            continue
        theta_path = theta_paths.pop()
        theta = _leaves_below(leaves, theta_path)
        other_leaves = {path: leaf for path, leaf in leaves.items() if not path.startswith(f"{theta_path}/")}
        parent_prefix = f"{theta_path.rpartition('/')[0]}/"
        are_states = all(_is_state_or_counter(path.removeprefix(parent_prefix)) for path in other_leaves)
        return theta_path if are_states and not _has_copy(other_leaves, theta) else ""
    return ""


def _first_part_named(path: str, name: str, max_depth: int) -> str:
    """Returns the first part of a path, of at most `max_depth` components, that ends with a name, or "".

    >>> _first_part_named("state/theta/w", "theta", 2)
    'state/theta'
    """
    parents = path.split("/")[:-1][:max_depth]
    return "/".join(parents[: parents.index(name) + 1]) if name in parents else ""


def _is_state_or_counter(path: str) -> bool:
    return _STATES_PATTERN.search(path) is not None or path.rsplit("/", 1)[-1] in COUNTER_NAMES


def _has_copy(leaves: Mapping[str, np.ndarray], theta: Mapping[str, np.ndarray]) -> bool:
    """Whether there is a subtree with the paths and shapes of theta, except for the moments of a meta-optimizer."""
    first_path = next(iter(theta))
    for path in leaves:
        if _MOMENTS_PATTERN.search(path) or not (path == first_path or path.endswith(f"/{first_path}")):
            continue
        prefix = path[: len(path) - len(first_path)]
        if all(f"{prefix}{name}" in leaves and leaves[f"{prefix}{name}"].shape == theta[name].shape for name in theta):
            return True
    return False


def _are_below(leaves: Mapping[str, np.ndarray], name: str) -> bool:
    return bool(leaves) and all(path.startswith(f"{name}/") for path in leaves)


def _leaves_below(leaves: Mapping[str, np.ndarray], folder: str) -> dict[str, np.ndarray]:
    prefix = f"{folder}/"
    return {path.removeprefix(prefix): leaf for path, leaf in leaves.items() if path.startswith(prefix)}
