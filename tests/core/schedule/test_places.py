"""Whether a worker has a place, against every way in which the others could have been given theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lobench.core.schedule.events import Size
from lobench.core.schedule.placement import has_place

Free = tuple[int, tuple[float, ...]]  # cores of a machine, and what is left of each of its devices


def _after(free: Free, size: Size) -> Iterator[Free]:
    """Yields what is left of a machine when a worker has got a place on it, one for each way there is."""
    cores, devices = free[0] - size.num_cpus, free[1]
    if cores < 0:
        return
    if not size.num_gpus:
        yield cores, devices
    elif size.num_gpus < 1:
        for place, left in enumerate(devices):
            if left >= size.num_gpus:
                yield cores, tuple(sorted((*devices[:place], left - size.num_gpus, *devices[place + 1 :])))
    else:
        taken = [place for place, left in enumerate(devices) if left == 1.0][: int(size.num_gpus)]
        if len(taken) == size.num_gpus:
            yield cores, tuple(sorted(0.0 if place in taken else left for place, left in enumerate(devices)))


@cache
def _always_fits(machines: tuple[Free, ...], others: tuple[Size, ...], size: Size) -> bool:
    """Says whether a worker fits on some machine, whatever machines the others are on."""
    if not others:
        return any(True for free in machines for _ in _after(free, size))
    return all(
        _always_fits(tuple(sorted((*machines[:place], left, *machines[place + 1 :]))), others[1:], size)
        for place, free in enumerate(machines)
        for left in _after(free, others[0])
    )


_SIZES = st.builds(Size, st.integers(1, 4), st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0, 2.0]))


@given(
    st.lists(st.builds(Size, st.integers(1, 6), st.sampled_from([0.0, 1.0, 2.0])), min_size=1, max_size=3), st.data()
)
def test_what_has_a_place_has_it_however_the_others_were_placed(machines: list[Size], data: st.DataObject) -> None:
    others, size = data.draw(st.lists(_SIZES, max_size=4)), data.draw(_SIZES)
    free = tuple(sorted((machine.num_cpus, (1.0,) * int(machine.num_gpus)) for machine in machines))
    if has_place(Counter(machines), Counter([*others, size]), size):
        assert _always_fits(free, tuple(sorted(others)), size)


@pytest.mark.parametrize(
    ("machine", "size", "most"),
    [
        (Size(8), Size(1), 8),
        (Size(7), Size(2), 3),
        (Size(8, 2.0), Size(1, 1.0), 2),
        (Size(8, 4.0), Size(1, 2.0), 2),
        (Size(8, 2.0), Size(1, 0.5), 4),
        (Size(9, 3.0), Size(1, 1 / 3), 9),
        (Size(8, 2.0), Size(1, 0.4), 4),
        (Size(3, 2.0), Size(1, 0.25), 3),
        (Size(8), Size(1, 0.5), 0),
    ],
)
def test_workers_of_one_size_fill_a_machine(machine: Size, size: Size, most: int) -> None:
    places = [count for count in range(1, 12) if has_place(Counter([machine]), Counter({size: count}), size)]
    assert places == [*range(1, most + 1)]


def test_machines_of_which_nothing_is_known_have_room() -> None:
    assert has_place(Counter(), Counter({Size(64, 8.0): 9}), Size(64, 8.0))


@pytest.mark.parametrize(
    ("machines", "others", "size", "is_there"),
    [
        ([Size(4), Size(2)], [Size(1)], Size(4), False),  # the other one may be on the machine of four
        ([Size(4), Size(2)], [Size(2), Size(2)], Size(2), True),
        ([Size(1, 2.0)] * 3, [], Size(1, 2.0), True),
        ([Size(1, 2.0), Size(1, 2.0), Size(2, 2.0)], [Size(3)], Size(1, 2.0), True),
        ([Size(1, 2.0), Size(2, 2.0), Size(4, 2.0)], [Size(2), Size(2), Size(2)], Size(1, 2.0), True),
    ],
)
def test_on_machines_of_several_kinds(machines: list[Size], others: list[Size], size: Size, is_there: bool) -> None:
    assert has_place(Counter(machines), Counter([*others, size]), size) is is_there
