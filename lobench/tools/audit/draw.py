"""Sample of evaluations chosen by a public beacon, and the probability that it contains no false evaluation."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lobench.analysis.stats.proportions import escape_chance
from lobench.core.errors import UsageError

__all__ = ["Escape", "draw_indices", "escape_chances", "sample_size"]

_SHARES = (0.01, 0.05, 0.1, 0.25)


@dataclass(frozen=True, slots=True)
class Escape:
    """Chance that a sample contains no false result, if a share of all results is false."""

    share: float
    num_false: int
    chance: float


def sample_size(sample: str, num_all: int) -> int:
    """Returns the number of evaluations in a sample.

    Args:
      sample: A percentage such as "5%", or a number of evaluations. 0: none.
      num_all: Number of all evaluations.
    Raises:
      UsageError: The sample is neither a percentage nor a number.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", sample.strip())
    if match is None or (match[2] and float(match[1]) > 100):
        raise UsageError("--sample", got=repr(sample), expected="a share such as 5%, or a number such as 20")
    if not match[2] and not match[1].isdecimal():
        raise UsageError("--sample", got=repr(sample), expected="a whole number, or a share such as 5%")
    count = math.ceil(num_all * float(match[1]) / 100 - 1e-9) if match[2] else int(match[1])
    return min(count, num_all)


def draw_indices(count: int, num_all: int, *, root: str, beacon: str) -> list[int]:
    """Returns the sorted indices of the sample.

    All evaluations are equally likely, whatever the author does, if the root was fixed before the beacon was known.
    """

    def sort_key(index: int) -> bytes:
        return hashlib.sha256(f"lobench audit\0{root}\0{beacon}\0{index}".encode()).digest()

    return sorted(sorted(range(num_all), key=sort_key)[:count])


def escape_chances(count: int, num_all: int) -> Sequence[Escape]:
    """Returns the chance that the sample contains no false result, for several shares of false results."""
    false_counts = {share: max(1, math.ceil(share * num_all)) for share in _SHARES}
    return [Escape(share, number, escape_chance(num_all, number, count)) for share, number in false_counts.items()]
