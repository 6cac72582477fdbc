"""A seed proposes the same trials and chooses the same parents in every version of lobench.

A search that was begun with one version goes on with another. The expected numbers were printed by the code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import groupby, pairwise

from lobench.core.cost import Usage
from lobench.core.population.population import Member
from lobench.core.population.selection import (
    ExploitExplore,
    Tournament,
    Truncation,
)
from lobench.core.search.iterated_grid import AutoIteratedGrid
from lobench.core.search.search import Random, best_trial, search_seed
from lobench.core.search.seeded_draws import Draws
from lobench.core.search.space import Kind, Parameter, Rule, Scale, Space, Value
from lobench.testing.searches import run_search

_WHEN = {"a.kind": ("nesterov",)}
SPACE = Space(
    [
        Parameter(path="a.rate", kind=Kind.REAL, low=1e-4, high=1.0, scale=Scale.LOG, num_values=5),
        Parameter(path="a.decay", kind=Kind.REAL, low=0.0, high=1.0, rule=Rule.NOISE, num_values=3),
        Parameter(path="a.width", kind=Kind.INT, low=1, high=64, scale=Scale.LOG, num_values=3),
        Parameter(path="a.depth", kind=Kind.INT, low=1, high=9, rule=Rule.ADD, num_values=3),
        Parameter(path="a.batch", kind=Kind.DISCRETE, values=(8, 16, 32, 64)),
        Parameter(path="a.kind", kind=Kind.CATEGORICAL, values=("plain", "nesterov")),
        Parameter(path="a.slope", kind=Kind.REAL, low=-1.0, high=1.0, rule=Rule.RESAMPLE, num_values=3, when=_WHEN),
    ]
)
FIRST = {
    "rate": 0.08916692563392856,
    "decay": 0.24309905513465835,
    "width": 41,
    "depth": 5,
    "batch": 64,
    "kind": "plain",
}


def short(params: Mapping[str, Value]) -> dict[str, Value]:
    return {path.removeprefix("a."): value for path, value in params.items()}


def full(params: Mapping[str, Value]) -> dict[str, Value]:
    return {f"a.{name}": value for name, value in params.items()}


def drawn(params: Mapping[str, Value]) -> float:
    return float(params["a.decay"])


def test_random_trials() -> None:
    assert (search_seed(0, "adam"), search_seed(1, "adam")) == (411030746984332785, 7986711264740367051)
    waves = [
        Random().next_wave(
            SPACE, run_search(Random, SPACE, drawn, seed=3, num_trials=done), seed=3, width=2, num_trials=5
        )
        for done in (0, 2, 4)
    ]
    assert [len(wave) for wave in waves] == [5, 3, 1], "as many as are left"
    assert waves[0][2:] == waves[1] and waves[0][4:] == waves[2]
    assert [round(Draws(seed, "x").normal(), 9) for seed in range(3)] == [0.901890659, 0.2425349, 0.058070637]


def test_samples_and_mutations() -> None:
    assert short(SPACE.sample(5)) == FIRST
    moved = short(SPACE.mutate(full(FIRST), 6, p_resample=0.25, p_switch=0.5))
    assert moved == {
        "rate": 0.043400241259745356,
        "decay": 0.1672753765313339,
        "width": 49,
        "depth": 4,
        "batch": 64,
        "kind": "plain",
    }
    assert SPACE.with_active_values(full(FIRST), 6) == full(FIRST)
    switched = SPACE.with_active_values(full({**FIRST, "kind": "nesterov"}), 6)
    assert switched.keys() - full(FIRST).keys() == {"a.slope"} and SPACE.contains(switched)
    assert not SPACE.contains({**switched, "a.slope": 2.0}) and not SPACE.contains({**switched, "a.depth": True})
    found = [SPACE.sample(seed) for seed in range(400)]
    for path, least, most in (("a.width", 1, 64), ("a.depth", 1, 9)):
        values = [value for each in found if isinstance(value := each[path], int)]
        assert (min(values), max(values)) == (least, most), "both ends of whole numbers are drawn"


def test_an_iterated_grid_that_goes_on_by_itself() -> None:
    optimum = full({"rate": 0.03, "decay": 0.4, "width": 20, "depth": 3})

    def fitness(params: Mapping[str, Value]) -> float:
        far = sum(abs(float(params[path]) - best) / best for path, best in optimum.items())
        return -far - (params["a.kind"] == "plain") - abs(float(params["a.batch"]) - 16) / 16

    trials = run_search(AutoIteratedGrid, SPACE, fitness, seed=1, num_trials=40)
    varied = [
        next((path for path in (*after, *before) if before.get(path) != after.get(path)), "")
        for before, after in pairwise([trial.parameters for trial in trials])
    ]
    order = "rate decay width depth batch kind slope rate batch decay rate width decay batch decay rate"
    assert [path.removeprefix("a.") for path, _ in groupby(varied)] == order.split()
    best = best_trial(trials)
    assert best is not None and best.number == 29
    text = repr([sorted(trial.parameters.items()) for trial in trials])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "1eb2b2b5f7701516"


def test_parents_and_opponents() -> None:
    members = [Member(id=place, fitness=(float(place % 5),)) for place in range(10)]
    chosen = {
        "tournament": [Tournament().select(members, 3, seed) for seed in range(4)],
        "truncation": [Truncation(count=3).select(members, 0, seed) for seed in range(4)],
        "explore": [ExploitExplore(share=0.3).select(members, 0, seed) for seed in range(4)],
    }
    assert {name: [(one.parent, one.other) for one in found] for name, found in chosen.items()} == {
        "tournament": [(3, 1), (3, 6), (3, 6), (3, 7)],
        "truncation": [(9, None), (4, None), (3, None), (4, None)],
        "explore": [(9, 0), (4, 0), (3, 0), (4, 0)],
    }


def test_core_seconds_of_what_has_ended() -> None:
    usage = Usage(limit=50.0)
    usage.begin(7, 4, now=10.0)
    usage.end(7, now=20.0)
    usage.end(8, now=25.0)
    assert usage.core_seconds(now=30.0) == 40.0 and not usage.is_over(now=30.0)
