"""Findings of an audit: contradictions within a bundle, and claims that cannot be checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["UNUSED_FILES", "AuditFinding", "Contradiction", "ContradictionKind", "Unaudited"]

UNUSED_FILES = "files of suites that the bundle does not hold and on which no result depends"

ContradictionKind: TypeAlias = Literal[
    "root", "signature", "plan", "absent", "label", "theta", "suite", "result", "record", "case", "code", "card"
]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Claim that contradicts the rest of the bundle."""

    kind: ContradictionKind
    what: str


class Unaudited(NamedTuple):
    """Claim that cannot be checked by repeating it.

    Attributes:
      what: Name of the claim.
      is_usual: Whether every bundle makes the claim, as for host names. Other claims are named next to the verdict.
    """

    what: str
    is_usual: bool = False


AuditFinding: TypeAlias = Contradiction | Unaudited
