"""Saved training states in the store's folder `states/`, kept until their result is durable.

A file's name is `PREFIX.SEEDS.STEP.OWNER.safetensors`. The prefix is a hash of everything that determines the state's
bits, so any training that begins in the same way can continue from it. The owner is the evaluation that saved it, or
`kept` for a final state that is kept for longer trainings (`Case.keep_state`). A store keeps up to 10 GB of kept
states, and removes the least recently used first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lobench.core.case import SeedBlock
from lobench.core.checkpoint import leaves_sha256
from lobench.core.history import EvaluationId
from lobench.core.wording import cause, headline
from lobench.engine.whole_file import write_whole

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "BlockStates",
    "StateAccess",
    "StateFile",
    "leave_mark",
    "marked_folder",
    "remove_finished_states",
    "state_folder",
    "state_owner",
    "sweep_states",
]

_KEPT_OWNER = "kept"
_MAX_KEPT_BYTES = 10 * 10**9
_MARKER_PREFIX = ".mark-"
_SUFFIX = ".safetensors"


def state_folder(store: Path) -> Path:
    """Returns the folder of a store's states. Saving the first state creates it."""
    return store / "states"


def leave_mark(folder: Path) -> str:
    """Creates a marker file, so that a process on another machine can check whether it sees the same folder.

    Returns:
      Path of the marker; "" if the folder cannot be written, so that no states are saved.

    >>> marked_folder(leave_mark(Path("results")))
    PosixPath('results')
    """
    marker = folder / f"{_MARKER_PREFIX}{uuid.uuid4().hex}"
    try:
        write_whole(marker, b"")
    except OSError:
        return ""
    return str(marker)


def marked_folder(marker: str) -> Path | None:
    """Returns the folder of a marker; None if this machine does not see it.

    >>> marked_folder("/nowhere/mark") is None
    True
    """
    return Path(marker).parent if marker and Path(marker).is_file() else None


class StateFile(NamedTuple):
    """Parts of a state file's name."""

    prefix: str
    seeds: str
    step: int
    owner: str

    @property
    def name(self) -> str:
        return f"{self.prefix}.{self.seeds}.{self.step}.{self.owner}{_SUFFIX}"

    @classmethod
    def of_name(cls, name: str) -> StateFile | None:
        name_parts = name.removesuffix(_SUFFIX).split(".")
        if not name.endswith(_SUFFIX) or len(name_parts) != 4 or not name_parts[2].isdecimal():
            return None
        return cls(name_parts[0], name_parts[1], int(name_parts[2]), name_parts[3])


def state_owner(sha256: str, case_key: str, block: SeedBlock) -> str:
    """Returns the name of an evaluation as an owner of states: 16 hex digits.

    Args:
      sha256: Hash of its theta; "" for an optimizer without theta.
      case_key: `CaseInfo.key`.
      block: Seed block.
    """
    return hashlib.sha256(f"{sha256} {case_key} {block}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateAccess:
    """Access of a training process to a store's states.

    Attributes:
      folder: `state_folder`; it need not exist.
      log: Called with lines on states that cannot be saved or used.
    """

    folder: Path
    log: Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class BlockStates:
    """Saved states of one seed block's training.

    Attributes:
      folder: `StateAccess.folder`.
      prefix_hashes: Hash, for each phase of the training, of everything that determines the bits up to its end.
      block: Seed block.
      owner: `state_owner` the evaluation.
      program: Description of the program, for messages.
      where: Name of the case, for messages.
      log: `StateAccess.log`.
    """

    folder: Path
    prefix_hashes: Sequence[str]
    block: SeedBlock
    owner: str
    program: str
    where: str
    log: Callable[[str], None]
    _own_path: Path | None = None  # state that the next save replaces
    _loaded_path: Path | None = None
    _has_failed: bool = False

    def load(self) -> tuple[Mapping[str, np.ndarray], Mapping[str, Any]] | None:
        """Returns the leaves and header of the most advanced intact state, or None.

        Damaged states are logged and removed.
        """
        state_files = [file for file in _state_files(self.folder) if file.seeds == str(self.block)]
        for file in sorted(state_files, key=lambda file: -file.step):
            path = self.folder / file.name
            is_own = file.owner == self.owner
            if file.prefix in self.prefix_hashes:
                try:
                    leaves, header = _decode_file(path)
                except FileNotFoundError:
                    continue  # its owner has saved a later one, or has finished
                except (OSError, ValueError) as error:
                    self._log_restart(f"the saved state of step {file.step} cannot be used ({headline(error)})")
                    _remove(path)
                    continue
                self._loaded_path = path
                self._own_path = path if is_own else None
                if file.owner == _KEPT_OWNER:
                    with contextlib.suppress(OSError):
                        os.utime(path)  # marks it as recently used
                return leaves, header
            if is_own:
                with contextlib.suppress(OSError, ValueError):
                    other_program = _decode_file(path)[1].get("made_by", "")
                    self._log_restart(f"the saved state of step {file.step} is of another program ({other_program})")
                _remove(path)
        return None

    def save(self, state: tuple[Mapping[str, np.ndarray], Mapping[str, Any]], *, is_final: bool) -> None:
        """Writes a state and removes the previous one.

        If writing fails, the training continues without saved states.
        """
        leaves, header = state
        owner = _KEPT_OWNER if is_final else self.owner
        file = StateFile(self.prefix_hashes[header["phase"]], str(self.block), header["step"], owner)
        path = self.folder / file.name
        try:
            write_whole(path, _encode_state(leaves, {**header, "made_by": self.program}))
        except OSError as error:
            if not self._has_failed:
                self.log(f"{self.where}: its state cannot be saved in {self.folder}: {cause(error)}; going on without")
            self._has_failed = True
            return
        if self._own_path is not None and self._own_path != path:
            _remove(self._own_path)
        self._own_path = None if is_final else path
        if is_final:
            _remove_oldest_kept(self.folder)

    def refuse(self, why: str) -> None:
        """Logs that the loaded state cannot be used, and removes it if this evaluation owns it."""
        assert self._loaded_path is not None
        file = StateFile.of_name(self._loaded_path.name)
        assert file is not None
        self._log_restart(f"the saved state of step {file.step} is of another program ({why})")
        if self._own_path is not None:
            _remove(self._own_path)
            self._own_path = None

    def _log_restart(self, reason: str) -> None:
        self.log(f"{self.where}, seeds {self.block}: {reason}: computed anew")


def remove_finished_states(folder: Path, evaluations: Sequence[EvaluationId]) -> None:
    """Removes the states of evaluations whose results are durable.

    Final states that are kept for longer trainings stay.
    """
    if not evaluations or not (files := list(_state_files(folder))):
        return
    owners = {
        state_owner(sha256, evaluation.case_key, evaluation.block)
        for evaluation in evaluations
        for sha256 in (evaluation.sha256, "")
    }
    for file in files:
        if file.owner in owners:
            _remove(folder / file.name)


def sweep_states(folder: Path, ledger: sqlite3.Connection) -> None:
    """Removes leftovers of a killed chief: partly written files, markers, states of evaluations with a result."""
    files = list(_state_files(folder))
    with contextlib.suppress(OSError):
        for path in (*folder.glob(".tmp-*"), *folder.glob(f"{_MARKER_PREFIX}*")):
            _remove(path)
    if not any(file.owner != _KEPT_OWNER for file in files):
        return
    rows = ledger.execute(
        "SELECT checkpoint_sha256, case_identity || ':' || optimizer_hash, seed_start, seed_count FROM evaluations "
        "WHERE payload IS NOT NULL"
    )
    finished_owners = set()
    for sha256, case_key, start, size in rows:
        block = SeedBlock(start=start, size=size)
        finished_owners |= {state_owner(sha256, case_key, block), state_owner("", case_key, block)}
    for file in files:
        if file.owner in finished_owners:
            _remove(folder / file.name)


def _state_files(folder: Path) -> Iterator[StateFile]:
    try:
        names = os.listdir(folder)
    except OSError:
        return  # the folder does not exist yet
    yield from filter(None, map(StateFile.of_name, names))


def _remove_oldest_kept(folder: Path) -> None:
    """Removes the least recently used kept states beyond the size limit. The last one is never removed."""
    kept_files = []
    for file in _state_files(folder):
        with contextlib.suppress(OSError):  # removed by another worker in the meantime
            status = (folder / file.name).stat()
            kept_files += [(status.st_mtime_ns, status.st_size, file.name)] if file.owner == _KEPT_OWNER else []
    num_bytes = 0
    for index, (_, size, name) in enumerate(sorted(kept_files, reverse=True)):
        num_bytes += size
        if index and num_bytes > _MAX_KEPT_BYTES:
            _remove(folder / name)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _encode_state(leaves: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> bytes:
    from safetensors.numpy import save  # imports numpy

    text = json.dumps(header)
    contiguous_leaves = {name: leaf.copy(order="C") for name, leaf in leaves.items()}
    metadata = {"header": text, "sha256": _checksum(contiguous_leaves, text)}
    return bytes(save(contiguous_leaves, metadata=metadata))


def _decode_file(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Reads a file written with `_encode_state`.

    Raises:
      ValueError: The file is truncated or damaged.
      OSError: The file cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    data = path.read_bytes()
    try:
        (length,) = struct.unpack_from("<Q", data)
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        leaves = load(data)
        header: dict[str, Any] = json.loads(metadata["header"])
        is_intact = metadata["sha256"] == _checksum(leaves, metadata["header"])
    except (SafetensorError, struct.error, ValueError, KeyError, TypeError, OverflowError) as error:
        raise ValueError("the file is truncated or damaged") from error
    if not is_intact:
        raise ValueError("the file is damaged: its checksum is another")
    return leaves, header


def _checksum(leaves: Mapping[str, np.ndarray], header: str) -> str:
    return hashlib.sha256(f"{leaves_sha256(leaves)}\0{header}".encode()).hexdigest()
