"""Priority queue of waiting work, by worker size."""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lobench.core.schedule.events import Size, Work

__all__ = ["QueueEntry", "Rank", "WorkQueue"]

_WINDOW = 16  # entries looked at for each lease: what keeps a lease O(log n)


class Rank(NamedTuple):
    """Lower goes first: a retry, a lower rank, a wider work (so that workers change size seldom), a longer one.

    Attributes:
      fresh: 0 for a retry, 1 otherwise.
      rank: `Work.rank`.
      narrowness: Minus the cores.
      shortness: Minus the expected seconds.
    """

    fresh: int
    rank: int
    narrowness: int
    shortness: float


class QueueEntry(NamedTuple):
    """One waiting work. Equal ranks fall back on the key, so that the order is total."""

    rank: Rank
    key: Any
    work: Work


class _Line:
    """Entries of one size: the first few in order, and a heap of those behind them."""

    def __init__(self, entries: Iterable[QueueEntry] = ()) -> None:
        ordered = sorted(entries)
        self.window, self._rest = ordered[:_WINDOW], ordered[_WINDOW:]  # what is in order is a heap

    def __len__(self) -> int:
        return len(self.window) + len(self._rest)

    def __iter__(self) -> Iterator[QueueEntry]:
        yield from self.window
        yield from self._rest

    def push(self, entry: QueueEntry) -> None:
        if len(self.window) < _WINDOW:
            bisect.insort(self.window, entry)
        elif entry < self.window[-1]:
            heapq.heappush(self._rest, self.window.pop())
            bisect.insort(self.window, entry)
        else:
            heapq.heappush(self._rest, entry)

    def pop(self, index: int) -> QueueEntry:
        """Removes an entry of the window."""
        entry = self.window.pop(index)
        if self._rest:
            self.window.append(heapq.heappop(self._rest))
        return entry


class WorkQueue:
    """A line for each size of worker."""

    def __init__(self) -> None:
        self._lines: dict[Size, _Line] = {}  # none of them is empty

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __iter__(self) -> Iterator[QueueEntry]:
        return itertools.chain.from_iterable(self._lines.values())

    def push(self, size: Size, entry: QueueEntry) -> None:
        if (line := self._lines.get(size)) is None:
            line = self._lines[size] = _Line()
        line.push(entry)

    def sizes(self) -> list[Size]:
        """Returns the sizes that are waited for, the first in the order first."""
        return sorted(self._lines, key=lambda size: self._lines[size].window[0])

    def count(self, size: Size) -> int:
        return len(self._lines.get(size, ()))

    def take(self, size: Size, choose: Callable[[Sequence[QueueEntry]], int]) -> QueueEntry:
        """Removes one entry: `choose` gets the first few of that size, in order, and returns an index."""
        line = self._lines[size]
        taken = line.pop(choose(line.window))
        if not line.window:
            del self._lines[size]
        return taken

    def take_alike(
        self, size: Size, entry: QueueEntry, choose: Callable[[Sequence[QueueEntry]], Sequence[QueueEntry]]
    ) -> list[QueueEntry]:
        """Removes entries that are alike: `choose` gets them all, in order. Takes O(n)."""
        alike = sorted(other for other in self._lines.get(size, ()) if other.work.alike == entry.work.alike)
        taken = list(choose(alike))
        if taken:
            self._remove(size, {other.key for other in taken})
        return taken

    def drop(self, keys: Container[Any]) -> None:
        """Removes the works of these keys. Takes O(n)."""
        for size in list(self._lines):
            self._remove(size, keys)

    def _remove(self, size: Size, keys: Container[Any]) -> None:
        line = _Line(entry for entry in self._lines[size] if entry.key not in keys)
        if line.window:
            self._lines[size] = line
        else:
            del self._lines[size]
