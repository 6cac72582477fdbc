"""Seeded draws: random numbers as a pure function of their key.

`random.Random` does not guarantee equal sequences across Python versions for most of its methods; a hash does.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Draws", "fold"]

_T = TypeVar("_T")


def fold(seed: int, *parts: int | str) -> int:
    """Returns a seed in [0, 2**63) that depends on `seed` and on the values, types and order of the parts.

    Raises:
      TypeError: `seed` is not an integer. The text of another object may differ from process to process.

    >>> fold(0, "seed", 1) == fold(0, "seed", 2)
    False
    """
    text = "\0".join([str(operator.index(seed)), *(f"{type(part).__name__}:{part}" for part in parts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


class Draws:
    """Independent random draws from a seed and parts. The n-th draw does not depend on the methods of earlier draws.

    >>> Draws(0, "wave", 1).uniform() == Draws(0, "wave", 1).uniform()
    True
    """

    def __init__(self, seed: int, *parts: int | str) -> None:
        self._seed = fold(seed, *parts)
        self._num_draws = 0

    def _next_number(self) -> int:
        self._num_draws += 1
        return fold(self._seed, self._num_draws)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """Returns a value in [low, high)."""
        return low + (high - low) * ((self._next_number() >> 10) / (1 << 53))

    def below(self, count: int) -> int:
        """Returns an integer in [0, count); the bias is below count / 2**63."""
        return self._next_number() % count

    def chance(self, probability: float) -> bool:
        return self.uniform() < probability

    def choice(self, items: Sequence[_T]) -> _T:
        return items[self.below(len(items))]

    def normal(self) -> float:
        """Returns a standard normal value (Box and Muller)."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.uniform()))
        return radius * math.cos(2.0 * math.pi * self.uniform())
