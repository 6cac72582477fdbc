"""Evaluation request: the subject to train with, and outcomes known without jax."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lobench.core.checkpoint import OWN_BINDINGS, Checkpoint, theta_sha256
from lobench.core.errors import LobenchError
from lobench.engine.checkpoints.readers import load_checkpoint
from lobench.engine.checkpoints.spool import load_theta

if TYPE_CHECKING:
    import numpy as np

    from lobench.core.case import CaseSpec
    from lobench.plugins import PluginManager

__all__ = ["DeadlinePassed", "EditedCode", "RewrittenCheckpoint", "ThetaLeaves", "WrongThreads"]


_MAX_CACHED_BYTES = 1 << 27  # size of the thetas that a process keeps after reading them


class DeadlinePassed(LobenchError):
    """A seed block ran past `Case.timeout_seconds`."""


class EditedCode(LobenchError):
    """A case was trained with other code than that of the fingerprint with which its result would be recorded."""

    @classmethod
    def of(cls, spec: CaseSpec, names: Iterable[str]) -> EditedCode:
        return cls(
            "the code of the case was edited after it was read",
            where=f"{spec.path}: case {spec.name!r}",
            got=", ".join(sorted(names)),
            next_step="start it again",
        )


class RewrittenCheckpoint(LobenchError):
    """The files of a checkpoint were rewritten in place before an evaluation of it ended."""


class WrongThreads(LobenchError):
    """This process's jax backend has another number of threads than the case requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThetaLeaves:
    """Leaves of a checkpoint, with its name for error messages.

    Attributes:
      leaves: Arrays by path. None for `--optimizer`, which has no theta.
      where: Name of the checkpoint in error messages.
      known_sha256: Digest of the leaves if it is known; "": it is computed on use.
    """

    leaves: Mapping[str, np.ndarray] | None
    where: str
    known_sha256: str = ""

    @classmethod
    def from_file(cls, path: str, *, where: str) -> ThetaLeaves:
        """Returns the leaves in a file; without leaves if the path is "".

        A file named by its content, as in the spool, is read and hashed once per process.
        """
        if not path:
            return cls(leaves=None, where=where)
        file_stem = Path(path).stem
        if len(file_stem) != 64:
            return cls(leaves=load_theta(path), where=where)
        return cls(leaves=_theta_cache.load(file_stem, path), where=where, known_sha256=file_stem)

    @classmethod
    def read_checkpoint(
        cls, location: str, manager: PluginManager, *, allow_pickle: bool
    ) -> tuple[Checkpoint, ThetaLeaves]:
        """Reads a checkpoint now.

        Raises:
          CheckpointError: see `load_checkpoint`.
        """
        checkpoint, leaves = load_checkpoint(location, manager, allow_pickle=allow_pickle)
        return checkpoint, cls(leaves=leaves, where=location)

    @property
    def sha256(self) -> str:
        """Digest of the leaves; "" without leaves."""
        return self.known_sha256 or (theta_sha256(self.leaves) if self.leaves is not None else "")

    @property
    def own_bindings(self) -> str:
        """The gin text that the checkpoint carries, or ""."""
        text = (self.leaves or {}).get(OWN_BINDINGS)
        return text.tobytes().decode() if text is not None else ""


class _ThetaCache:
    """Cache of the thetas that this process read last, by digest."""

    def __init__(self) -> None:
        self._leaves_by_sha256: OrderedDict[str, Mapping[str, np.ndarray]] = OrderedDict()

    def load(self, sha256: str, path: str) -> Mapping[str, np.ndarray]:
        if sha256 not in self._leaves_by_sha256:
            self._leaves_by_sha256[sha256] = load_theta(path)  # it has this digest, or that raises
            for leaf in self._leaves_by_sha256[sha256].values():
                leaf.setflags(write=False)
        self._leaves_by_sha256.move_to_end(sha256)
        while (
            len(self._leaves_by_sha256) > 1
            and sum(map(_num_bytes, self._leaves_by_sha256.values())) > _MAX_CACHED_BYTES
        ):
            self._leaves_by_sha256.popitem(last=False)
        return self._leaves_by_sha256[sha256]


_theta_cache = _ThetaCache()


def _num_bytes(leaves: Mapping[str, np.ndarray]) -> int:
    return sum(leaf.nbytes for leaf in leaves.values())
