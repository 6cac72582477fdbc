"""Work that waits, in the order in which it should run, apart for each size of worker."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, NamedTuple

from lobench.core.schedule.events import Size, Work

__all__ = ["Entry", "Rank", "WorkQueue"]

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


class Entry(NamedTuple):
    """One waiting work. Equal ranks fall back on the key, so that the order is total."""

    rank: Rank
    key: Any
    work: Work


class WorkQueue:
    """A heap for each size of worker."""

    def __init__(self) -> None:
        self._heaps: dict[Size, list[Entry]] = {}

    def __bool__(self) -> bool:
        return bool(self._heaps)

    def __iter__(self) -> Iterator[Entry]:
        for heap in self._heaps.values():
            yield from heap

    def push(self, size: Size, entry: Entry) -> None:
        heapq.heappush(self._heaps.setdefault(size, []), entry)

    def sizes(self) -> list[Size]:
        """Returns the sizes that are waited for, the first in the order first."""
        return sorted(self._heaps, key=lambda size: self._heaps[size][0])

    def count(self, size: Size) -> int:
        return len(self._heaps.get(size, ()))

    def take(self, size: Size, choose: Callable[[Sequence[Entry]], int]) -> Entry:
        """Removes one entry: `choose` gets the first few of that size, in order, and returns an index."""
        heap = self._heaps[size]
        window = [heapq.heappop(heap) for _ in range(min(_WINDOW, len(heap)))]
        taken = window.pop(choose(window))
        for entry in window:
            heapq.heappush(heap, entry)
        if not heap:
            del self._heaps[size]
        return taken

    def take_alike(self, size: Size, entry: Entry, choose: Callable[[Sequence[Entry]], Sequence[Entry]]) -> list[Entry]:
        """Removes entries that are alike: `choose` gets them all, in order. Takes O(n)."""
        alike = sorted(other for other in self._heaps.get(size, ()) if other.work.alike == entry.work.alike)
        taken = list(choose(alike))
        if taken:
            self._remove(size, {other.key for other in taken})
        return taken

    def drop(self, keys: Container[Any]) -> None:
        """Removes the works of these keys. Takes O(n)."""
        for size in list(self._heaps):
            self._remove(size, keys)

    def _remove(self, size: Size, keys: Container[Any]) -> None:
        heap = self._heaps[size]
        heap[:] = [entry for entry in heap if entry.key not in keys]
        heapq.heapify(heap)
        if not heap:
            del self._heaps[size]
