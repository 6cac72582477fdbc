"""The queue gives what a sorted list would, however entries come and go."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lobench.core.schedule import Size, Work
from lobench.core.schedule.queue import QueueEntry, Rank, WorkQueue

ONE = Size(1)
WINDOW = 16


def entry(key: int, rank: int) -> QueueEntry:
    work = Work(key=key, warm_key="", size=ONE, timeout_seconds=1.0, rank=rank, alike=key % 3)
    return QueueEntry(Rank(1, rank, -1, 0.0), key, work)


def take(queue: WorkQueue, index: int) -> tuple[QueueEntry, list[QueueEntry]]:
    """Takes an entry; returns it, and what there was to choose from."""
    window: list[QueueEntry] = []

    def choose(entries: Sequence[QueueEntry]) -> int:
        window.extend(entries)
        return index

    return queue.take(ONE, choose), window


@given(st.lists(st.one_of(st.integers(0, 99), st.sampled_from(["first", "third", "drop", "alike"])), max_size=120))
def test_a_queue_gives_what_a_sorted_list_would(steps: list[int | str]) -> None:
    queue, expected = WorkQueue(), list[QueueEntry]()
    for key, step in enumerate([*range(40, 0, -2), *steps]):
        if isinstance(step, int):
            queue.push(ONE, entry(key, step))
            expected = sorted([*expected, entry(key, step)])
        elif step == "drop":
            queue.remove({key // 2, key // 3})
            expected = [one for one in expected if one.key not in {key // 2, key // 3}]
        elif expected:
            index = 0 if step == "first" else min(2, len(expected) - 1)
            taken, window = take(queue, index)
            assert window == expected[:WINDOW]
            assert taken == expected.pop(index)
            if step == "alike":
                alike = [one for one in expected if one.work.alike == taken.work.alike]
                assert queue.take_alike(ONE, taken, lambda found: found[:2]) == alike[:2]
                expected = [one for one in expected if one not in alike[:2]]
        assert sorted(queue) == expected
        assert queue.num_waiting(ONE) == len(expected) and queue.sizes() == ([ONE] if expected else [])
