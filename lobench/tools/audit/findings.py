"""Findings of an audit: what contradicts the rest of a bundle, and what nobody can check, by name."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Contradiction", "ContradictionKind", "Finding", "Unaudited"]

ContradictionKind: TypeAlias = Literal[
    "root", "signature", "plan", "absent", "label", "theta", "suite", "result", "record", "case", "code", "card"
]


class Contradiction(NamedTuple):
    """Something that contradicts the rest of the bundle."""

    kind: ContradictionKind
    what: str


class Unaudited(NamedTuple):
    """Something that the author says and that cannot be made again.

    Attributes:
      what: Its name.
      is_usual: Whether every bundle has it, such as names of hosts; otherwise the verdict's line names it.
    """

    what: str
    is_usual: bool = False


Finding: TypeAlias = Contradiction | Unaudited
