"""Draw of evaluations by a public beacon, and the chance with which false ones escape it."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from typing import NamedTuple, TypedDict

from lobench.analysis.stats.proportions import escape_chance
from lobench.core.errors import UsageError

__all__ = ["Escape", "EscapeRecord", "drawn", "escapes", "num_drawn"]

_SHARES = (0.01, 0.05, 0.1, 0.25)


class EscapeRecord(TypedDict):
    """Chance that a draw met none of the false results, were a share of all results false."""

    share: float
    num_false: int
    chance: float


class Escape(NamedTuple):
    """The chance, for a share of false results."""

    share: float
    num_false: int
    chance: float

    @property
    def record(self) -> EscapeRecord:
        return EscapeRecord(share=self.share, num_false=self.num_false, chance=self.chance)


def num_drawn(sample: str, num_all: int) -> int:
    """Returns how many evaluations a sample is.

    Args:
      sample: `5%`, or a number of evaluations; 0: none.
    Raises:
      UsageError: it is neither.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", sample.strip())
    if found is None or (found[2] and float(found[1]) > 100):
        raise UsageError("--sample", got=repr(sample), expected="a share such as 5%, or a number such as 20")
    if not found[2] and not found[1].isdecimal():
        raise UsageError("--sample", got=repr(sample), expected="a whole number, or a share such as 5%")
    count = math.ceil(num_all * float(found[1]) / 100 - 1e-9) if found[2] else int(found[1])
    return min(count, num_all)


def drawn(count: int, num_all: int, *, root: str, beacon: str) -> list[int]:
    """Returns the places of the evaluations that are drawn, in order.

    Each is as likely as the others, whatever the author does, as long as the root was fixed before the beacon.
    """

    def mark(place: int) -> bytes:
        return hashlib.sha256(f"lobench audit\0{root}\0{beacon}\0{place}".encode()).digest()

    return sorted(sorted(range(num_all), key=mark)[:count])


def escapes(count: int, num_all: int) -> Sequence[Escape]:
    """Returns the chance that none of the false results was drawn, for some shares of them."""
    numbers = {share: max(1, math.ceil(share * num_all)) for share in _SHARES}
    return [Escape(share, number, escape_chance(num_all, number, count)) for share, number in numbers.items()]
