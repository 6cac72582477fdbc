"""P8: whatever is drawn, mutated or crossed stays in its domain, with exactly the active parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lobench.extend import Draws, Kind, Parameter, Rule, Scale, Space, check_parameters

PROBABILITY = st.sampled_from([0.0, 0.25, 1.0])
SEED = st.integers(0, 2**31)


@st.composite
def parameters(draw: st.DrawFn, path: str = "a.b", parents: Sequence[Parameter] = ()) -> Parameter:
    """A parameter of any kind; it may depend on some of the parents."""
    kind = draw(st.sampled_from(Kind))
    when = {}
    for parent in draw(st.lists(st.sampled_from(parents), unique_by=lambda p: p.path)) if parents else []:
        when[parent.path] = tuple(draw(st.lists(st.sampled_from(parent.values), min_size=1, unique=True)))
    if kind is Kind.CATEGORICAL:
        values = draw(st.lists(st.sampled_from(["x", "y", 1, 2.5, True]), min_size=1, unique=True))
        return Parameter(path=path, kind=kind, values=tuple(values), when=when)
    if kind is Kind.DISCRETE:
        numbers = draw(st.lists(st.integers(-50, 50), min_size=1, max_size=5, unique=True))
        return Parameter(path=path, kind=kind, values=tuple(sorted(numbers)), when=when)
    low, high = sorted(draw(st.tuples(st.integers(-20, 20), st.integers(-20, 20))))
    rules = list(Rule) if low > 0 or high < 0 else [Rule.ADD, Rule.NOISE, Rule.RESAMPLE]
    scale = draw(st.sampled_from(Scale)) if low > 0 else Scale.LINEAR
    rule = draw(st.sampled_from(rules))
    return Parameter(path=path, kind=kind, low=low, high=high, scale=scale, rule=rule, when=when)


@st.composite
def spaces(draw: st.DrawFn) -> list[Parameter]:
    found: list[Parameter] = []
    for index in range(draw(st.integers(0, 6))):
        parents = [parameter for parameter in found if parameter.values]
        found.append(draw(parameters(f"p{index}.x", parents)))
    return found


@settings(deadline=None)
@given(spaces(), SEED, SEED, PROBABILITY, PROBABILITY, PROBABILITY)
def test_it_stays_in_its_domain(
    found: list[Parameter], seed: int, other: int, p_resample: float, p_switch: float, p_crossover: float
) -> None:
    check_parameters(found, "here")
    space = Space(found)
    winner, loser = space.sample(seed), space.sample(other)
    assert space.contains(winner) and space.contains(loser)
    for generation in range(4):
        crossed, taken = space.cross(winner, loser, seed + generation, p_crossover)
        assert set(crossed) == set(winner) and (taken or crossed == winner)
        winner = space.mutate(crossed, seed + generation, p_resample=p_resample, p_switch=p_switch)
        assert space.contains(winner)
    assert space.with_active_values(winner, other) == winner, "what is settled stays"


@settings(deadline=None)
@given(spaces(), SEED)
def test_one_more_parameter_changes_no_others_values(found: list[Parameter], seed: int) -> None:
    more = [*found, Parameter(path="new.x", kind=Kind.REAL, low=0.0, high=1.0, rule=Rule.ADD)]
    assert {**Space(found).sample(seed)}.items() <= Space(more).sample(seed).items()


@settings(deadline=None)
@given(st.integers(1, 30), SEED)
def test_an_int_moves_unless_it_is_at_its_bound(value: int, seed: int) -> None:
    """20% of a small int rounds to nothing."""
    parameter = Parameter(path="a.b", kind=Kind.INT, low=1, high=30)
    moved = parameter.mutate(value, Draws(seed), 0.0, 0.0)
    assert moved != value or value in (1, 30)
    assert isinstance(moved, int)


@pytest.mark.parametrize(("rule", "expected"), [(Rule.MULTIPLY, {0.4, 0.6}), (Rule.ADD, {0.32, 0.68})])
def test_a_real_moves_by_a_fifth(rule: Rule, expected: set[float]) -> None:
    """Of itself, or of its range, 0.9."""
    parameter = Parameter(path="a.b", kind=Kind.REAL, low=0.1, high=1.0, rule=rule)
    found = {round(float(parameter.mutate(0.5, Draws(seed), 0.0, 0.0)), 9) for seed in range(30)}
    assert found == expected


def test_a_discrete_value_moves_to_its_neighbour_and_stays_at_the_end() -> None:
    parameter = Parameter(path="a.b", kind=Kind.DISCRETE, values=(1, 2, 4, 8))
    assert {parameter.mutate(2, Draws(seed), 0.0, 0.0) for seed in range(30)} == {1, 4}
    assert {parameter.mutate(8, Draws(seed), 0.0, 0.0) for seed in range(30)} == {4, 8}


def test_a_log_prior_is_uniform_in_the_logarithm() -> None:
    parameter = Parameter(path="a.b", kind=Kind.REAL, low=1e-4, high=1.0, scale=Scale.LOG)
    exponents = sorted(math.log10(float(parameter.sample(Draws(seed)))) for seed in range(2000))
    assert exponents[1000] == pytest.approx(-2.0, abs=0.15)


def test_the_ends_of_a_log_prior_of_ints_have_their_whole_share() -> None:
    """Each value has the logarithms of what is rounded to it; within the bounds the ends have but half of theirs."""
    parameter = Parameter(path="a.b", kind=Kind.INT, low=2, high=4, scale=Scale.LOG)
    drawn = [parameter.sample(Draws(seed)) for seed in range(4000)]
    shares = [math.log((value + 0.5) / (value - 0.5)) / math.log(4.5 / 1.5) for value in (2, 3, 4)]
    assert [drawn.count(value) / len(drawn) for value in (2, 3, 4)] == pytest.approx(shares, abs=0.03)


def test_a_newly_active_parameter_is_drawn_and_a_newly_inactive_one_dropped() -> None:
    kind = Parameter(path="o.kind", kind=Kind.CATEGORICAL, values=("sgd", "sgdm"))
    momentum = Parameter(path="o.momentum", kind=Kind.DISCRETE, values=(0.5, 0.9), when={"o.kind": ("sgdm",)})
    space = Space([kind, momentum])
    assert space.with_active_values({"o.kind": "sgd", "o.momentum": 0.5}, 0) == {"o.kind": "sgd"}
    assert set(space.with_active_values({"o.kind": "sgdm"}, 0)) == {"o.kind", "o.momentum"}
    assert not space.contains({"o.kind": "sgd", "o.momentum": 0.5})


def test_a_category_is_inherited_but_for_the_chance_to_switch() -> None:
    parameter = Parameter(path="a.b", kind=Kind.CATEGORICAL, values=("a", "b", "c", "d"))
    moved = [parameter.mutate("a", Draws(seed), 1.0, 0.1) for seed in range(4000)]
    assert moved.count("a") / len(moved) == pytest.approx(0.9 + 0.1 / 4, abs=0.015)
    assert set(moved) == {"a", "b", "c", "d"}
    assert parameter.mutate("gone", Draws(0), 0.0, 0.0) in parameter.values
