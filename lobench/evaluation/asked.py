"""What an evaluation is asked to train with, and how it may end besides: known without jax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lobench.core.checkpoint import OWN_BINDINGS
from lobench.core.errors import LobenchError
from lobench.engine.checkpoints.spool import load_theta

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DeadlinePassed", "ThetaLeaves", "WrongThreads"]


class DeadlinePassed(LobenchError):
    """A seed block ran past `Case.timeout_seconds`."""


class WrongThreads(LobenchError):
    """This process's jax backend has another number of threads than the case asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThetaLeaves:
    """A checkpoint's leaves and how errors name it; `leaves` is None for `--optimizer`, which has no theta."""

    leaves: Mapping[str, np.ndarray] | None
    where: str

    @classmethod
    def at(cls, path: str, *, where: str) -> ThetaLeaves:
        """Reads a file of leaves; "" where there is no theta."""
        return cls(leaves=load_theta(path) if path else None, where=where)

    @property
    def own_bindings(self) -> str:
        """The gin text that the checkpoint carries, or ""."""
        text = (self.leaves or {}).get(OWN_BINDINGS)
        return text.tobytes().decode() if text is not None else ""
