"""Priority queue of waiting work, by worker size."""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lobench.core.schedule.events import Size, Work

__all__ = ["QueueEntry", "Rank", "WorkQueue"]

_WINDOW_SIZE = 16  # number of entries examined for a lease, so that a lease takes O(log n)


class Rank(NamedTuple):
    """Order of waiting work: retries, lower ranks, more cores (so that workers rarely change size), longer work.

    Attributes:
      is_first_try: 0 for a retry, 1 otherwise.
      rank: `Work.rank`.
      narrowness: Negative number of cores.
      shortness: Negative expected duration in seconds.
    """

    is_first_try: int
    rank: int
    narrowness: int
    shortness: float


class QueueEntry(NamedTuple):
    """Waiting work. Equal ranks are ordered by key."""

    rank: Rank
    key: Any
    work: Work


class _SizeQueue:
    """Entries of one size: a sorted window of the first ones, and a heap of the others."""

    def __init__(self, entries: Iterable[QueueEntry] = ()) -> None:
        ordered = sorted(entries)
        self.window, self._heap = ordered[:_WINDOW_SIZE], ordered[_WINDOW_SIZE:]  # a sorted list is a heap

    def __len__(self) -> int:
        return len(self.window) + len(self._heap)

    def __iter__(self) -> Iterator[QueueEntry]:
        yield from self.window
        yield from self._heap

    def push(self, entry: QueueEntry) -> None:
        if len(self.window) < _WINDOW_SIZE:
            bisect.insort(self.window, entry)
        elif entry < self.window[-1]:
            heapq.heappush(self._heap, self.window.pop())
            bisect.insort(self.window, entry)
        else:
            heapq.heappush(self._heap, entry)

    def pop(self, index: int) -> QueueEntry:
        """Removes and returns an entry of the window."""
        entry = self.window.pop(index)
        if self._heap:
            self.window.append(heapq.heappop(self._heap))
        return entry


class WorkQueue:
    """Queues of waiting work, one for each size of worker."""

    def __init__(self) -> None:
        self._queues: dict[Size, _SizeQueue] = {}  # never empty lines

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[QueueEntry]:
        return itertools.chain.from_iterable(self._queues.values())

    def push(self, size: Size, entry: QueueEntry) -> None:
        if (queue := self._queues.get(size)) is None:
            queue = self._queues[size] = _SizeQueue()
        queue.push(entry)

    def sizes(self) -> list[Size]:
        """Returns the sizes with waiting work, in the order of their first entries."""
        return sorted(self._queues, key=lambda size: self._queues[size].window[0])

    def num_waiting(self, size: Size) -> int:
        return len(self._queues.get(size, ()))

    def take(self, size: Size, choose: Callable[[Sequence[QueueEntry]], int]) -> QueueEntry:
        """Removes and returns an entry of a size.

        Args:
          size: Size of a worker.
          choose: Function that receives the first entries of the size and returns the index of one.
        """
        queue = self._queues[size]
        entry = queue.pop(choose(queue.window))
        if not queue.window:
            del self._queues[size]
        return entry

    def take_alike(
        self, size: Size, entry: QueueEntry, choose: Callable[[Sequence[QueueEntry]], Sequence[QueueEntry]]
    ) -> list[QueueEntry]:
        """Removes and returns the entries that `choose` picks from all entries alike to the given one. Takes O(n)."""
        matching_entries = sorted(
            candidate for candidate in self._queues.get(size, ()) if candidate.work.alike == entry.work.alike
        )
        chosen_entries = list(choose(matching_entries))
        if chosen_entries:
            self._remove(size, {candidate.key for candidate in chosen_entries})
        return chosen_entries

    def remove(self, keys: Container[Any]) -> None:
        """Removes work by key. Takes O(n)."""
        for size in list(self._queues):
            self._remove(size, keys)

    def _remove(self, size: Size, keys: Container[Any]) -> None:
        queue = _SizeQueue(entry for entry in self._queues[size] if entry.key not in keys)
        if queue.window:
            self._queues[size] = queue
        else:
            del self._queues[size]
