"""Fronts and ranks of members with several values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lobench.core.population.population import Member, better, front, rank

VALUES = st.integers(-2, 2).map(float)
POPULATIONS = st.lists(st.none() | st.tuples(VALUES, VALUES), max_size=12).map(
    lambda found: [Member(id=id, fitness=fitness) for id, fitness in enumerate(found)]
)


@given(POPULATIONS, st.randoms(use_true_random=False))
def test_the_front_is_what_nobody_beats_in_any_order(population: list[Member], random: object) -> None:
    shuffled = list(population)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    feasible = [member for member in population if member.fitness is not None]
    expected = [member for member in feasible if not any(better(other, member) for other in feasible)]
    assert front(shuffled) == expected == rank(shuffled)[: len(expected)]


@given(POPULATIONS)
def test_a_rank_has_each_member_once_and_the_infeasible_ones_last(population: list[Member]) -> None:
    ranked = rank(population)
    assert sorted(member.id for member in ranked) == [member.id for member in population]
    feasible = [member.fitness is not None for member in ranked]
    assert feasible == sorted(feasible, reverse=True)
    places = {member.id: place for place, member in enumerate(ranked)}
    assert not any(better(a, b) and places[a.id] > places[b.id] for a in population for b in population)
