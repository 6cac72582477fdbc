"""Priority queue of waiting work, by worker size."""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lobench.core.schedule.events import Size, Work

__all__ = ["QueueEntry", "Rank", "WorkQueue"]

_WINDOW = 16  # number of entries examined for a lease, so that a lease takes O(log n)


class Rank(NamedTuple):
    """Order of waiting work: retries, lower ranks, more cores (so that workers rarely change size), longer work.

    Attributes:
      fresh: 0 for a retry, 1 otherwise.
      rank: `Work.rank`.
      narrowness: Negative number of cores.
      shortness: Negative expected duration in seconds.
    """

    fresh: int
    rank: int
    narrowness: int
    shortness: float


class QueueEntry(NamedTuple):
    """Waiting work. Equal ranks are ordered by key."""

    rank: Rank
    key: Any
    work: Work


class _Line:
    """Entries of one size: a sorted window of the first ones, and a heap of the others."""

    def __init__(self, entries: Iterable[QueueEntry] = ()) -> None:
        ordered = sorted(entries)
        self.window, self._rest = ordered[:_WINDOW], ordered[_WINDOW:]  # a sorted list is a heap

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
        """Removes and returns an entry of the window."""
        entry = self.window.pop(index)
        if self._rest:
            self.window.append(heapq.heappop(self._rest))
        return entry


class WorkQueue:
    """Queues of waiting work, one for each size of worker."""

    def __init__(self) -> None:
        self._lines: dict[Size, _Line] = {}  # never empty lines

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __iter__(self) -> Iterator[QueueEntry]:
        return itertools.chain.from_iterable(self._lines.values())

    def push(self, size: Size, entry: QueueEntry) -> None:
        if (line := self._lines.get(size)) is None:
            line = self._lines[size] = _Line()
        line.push(entry)

    def sizes(self) -> list[Size]:
        """Returns the sizes with waiting work, in the order of their first entries."""
        return sorted(self._lines, key=lambda size: self._lines[size].window[0])

    def count(self, size: Size) -> int:
        return len(self._lines.get(size, ()))

    def take(self, size: Size, choose: Callable[[Sequence[QueueEntry]], int]) -> QueueEntry:
        """Removes and returns an entry of a size.

        Args:
          size: Size of a worker.
          choose: Function that receives the first entries of the size and returns the index of one.
        """
        line = self._lines[size]
        entry = line.pop(choose(line.window))
        if not line.window:
            del self._lines[size]
        return entry

    def take_alike(
        self, size: Size, entry: QueueEntry, choose: Callable[[Sequence[QueueEntry]], Sequence[QueueEntry]]
    ) -> list[QueueEntry]:
        """Removes and returns the entries that `choose` picks from all entries alike to the given one. Takes O(n)."""
        matching_entries = sorted(
            candidate for candidate in self._lines.get(size, ()) if candidate.work.alike == entry.work.alike
        )
        chosen_entries = list(choose(matching_entries))
        if chosen_entries:
            self._remove(size, {candidate.key for candidate in chosen_entries})
        return chosen_entries

    def drop(self, keys: Container[Any]) -> None:
        """Removes work by key. Takes O(n)."""
        for size in list(self._lines):
            self._remove(size, keys)

    def _remove(self, size: Size, keys: Container[Any]) -> None:
        line = _Line(entry for entry in self._lines[size] if entry.key not in keys)
        if line.window:
            self._lines[size] = line
        else:
            del self._lines[size]
