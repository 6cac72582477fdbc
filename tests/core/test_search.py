"""Searches: what they cost, what they find, and what depends on what."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.core.search.iterated_grid import AutoIteratedGrid, IteratedGrid
from lobench.core.search.search import Grid, Random, Trial, best_trial, num_trials_of, search_seed
from lobench.core.search.seeded_draws import Draws
from lobench.core.search.space import Parameter, Space, Value, parameter_of
from lobench.testing.searches import quadratic, run_search, sample_spaces

SHOWN = texts_of("core")


def real(path: str, num_values: int | None = 5, **keywords: Any) -> Parameter:
    more = {} if num_values is None else {"num_values": num_values}
    return parameter_of(path, "Real", {"low": 0.0, "high": 1.0, **more, **keywords}, "e.gin")


def trial(number: int, fitness: float | None) -> Trial:
    return Trial(number=number, parameters={}, state="done", fitness=fitness, wave=0)


def test_run_search_of_a_search_without_an_end_stops_soon() -> None:
    asked: list[int] = []

    class Endless(Grid):
        def next_wave(self, *arguments: Any, width: int, **keywords: Any) -> list[dict[str, Value]]:
            asked.append(width)
            return [{}] * width

    with pytest.raises(AssertionError, match=SHOWN["has-no-end"]):
        run_search(Endless, sample_spaces()["ranges"], num_trials=3)
    assert sum(asked) < 40


def test_a_grid_is_the_product_and_equal_leaf_names_vary_apart() -> None:
    space = Space([real("adam.learning_rate", 3), real("outer/adam.learning_rate", 4), real("adam.b1", 2)])
    trials = run_search(Grid, space)
    assert len(trials) == Grid().size(space) == 3 * 4 * 2
    found = [tuple(trial.parameters.values()) for trial in trials]
    thirds = (0.0, 0.333333333333333, 0.666666666666667, 1.0)
    assert found == [*itertools.product((0.0, 0.5, 1.0), thirds, (0.0, 1.0))], "the last varies fastest"
    assert [*trials[0].parameters] == ["adam.learning_rate", "outer/adam.learning_rate", "adam.b1"]


def test_a_grid_has_active_combinations_only() -> None:
    kind = parameter_of("o.kind", "Categorical", {"values": ["sgd", "sgdm"]}, "")
    momentum = parameter_of("o.momentum", "Discrete", {"values": [0.5, 0.9, 0.99], "when": {"o.kind": ["sgdm"]}}, "")
    space = Space([momentum, kind, real("o.rate", 2)])
    trials = run_search(Grid, space, lambda params: 0.0)
    assert len(trials) == Grid().size(space) == (1 + 3) * 2
    assert sum("o.momentum" in trial.parameters for trial in trials) == 6
    assert IteratedGrid().size(space) == 1 + (2 - 1) + (3 - 1) + (2 - 1), "at most: where sgdm is the best"
    iterated = run_search(IteratedGrid, space, lambda params: float(params["o.kind"] == "sgd"))
    assert len(iterated) == 1 + (2 - 1) + (2 - 1), "no momentum of sgd is varied"


@pytest.mark.parametrize("counts", [(1,), (5,), (2, 2), (3, 4, 5), (7, 1, 2, 6)])
def test_an_iterated_grid_runs_no_setting_twice(counts: tuple[int, ...]) -> None:
    space = Space([real(f"p{place}.x", count) for place, count in enumerate(counts)])
    trials = run_search(IteratedGrid, space, lambda params: -sum(abs(float(value) - 0.3) for value in params.values()))
    assert len(trials) == IteratedGrid().size(space) == sum(counts) - (len(counts) - 1)
    assert len({frozenset(trial.parameters.items()) for trial in trials}) == len(trials)


def separable(optimum: Mapping[str, float], weight: Mapping[str, float]) -> Any:
    return lambda params: -sum(weight[path] * (float(value) - optimum[path]) ** 2 for path, value in params.items())


def problem(seed: int, num_values: int) -> tuple[Space, dict[str, float], Any]:
    """Returns a space of four ranges, the optimum of a separable quadratic over it, and the quadratic."""
    space = Space([real(f"p{place}.x", num_values) for place in range(4)])
    draws = Draws(seed, "problem")
    optimum = {parameter.path: draws.uniform() for parameter in space.parameters}
    weight = {parameter.path: 10 ** draws.uniform(-0.5, 0.5) for parameter in space.parameters}
    return space, optimum, separable(optimum, weight)


@pytest.mark.parametrize("seed", range(5))
def test_an_iterated_grid_finds_the_optimum_of_the_grid(seed: int) -> None:
    space, _, fitness = problem(seed, 5)
    best, best_of_all = (
        best_trial(run_search(IteratedGrid, space, fitness)),
        best_trial(run_search(Grid, space, fitness)),
    )
    assert best is not None and best_of_all is not None
    assert best.parameters == best_of_all.parameters


@pytest.mark.parametrize("num_values", [5, 9])
def test_auto_ic_grid_comes_within_5_percent_of_the_range_in_60_trials(num_values: int) -> None:
    """Of each of four parameters, whose weights differ by up to ten times; for 95 of 100 seeds.

    With 9 values the first round takes 33 of the 60 trials.
    """
    close = 0
    for seed in range(100):
        space, optimum, fitness = problem(seed, num_values)
        trials = run_search(AutoIteratedGrid, space, fitness, seed=seed, num_trials=60)
        best = best_trial(trials)
        assert best is not None and len(trials) == 60
        close += all(abs(float(value) - optimum[path]) <= 0.05 for path, value in best.parameters.items())
    assert close >= 95


def test_auto_ic_grid_spends_its_trials_where_it_matters() -> None:
    space = Space([real("much.x"), real("little.x"), real("nothing.x")])
    weight = {"much.x": 100.0, "little.x": 1e-3, "nothing.x": 0.0}
    fitness = separable(dict.fromkeys(weight, 0.41), weight)
    trials = run_search(AutoIteratedGrid, space, fitness, num_trials=40)[13:]
    tried = {path: len({trial.parameters[path] for trial in trials}) for path in weight}
    assert tried["much.x"] > tried["little.x"] >= tried["nothing.x"] == 1


def test_auto_ic_grid_closes_in_on_a_log_scale_and_on_whole_numbers() -> None:
    rate = parameter_of("a.rate", "Real", {"low": 1e-6, "high": 1.0, "scale": "log", "num_values": 5}, "")
    size = parameter_of("a.size", "Int", {"low": 1, "high": 100, "num_values": 5}, "")
    width = parameter_of("a.width", "Discrete", {"values": [1, 2, 4, 8, 16, 32]}, "")

    def fitness(params: Mapping[str, Value]) -> float:
        rate, size, width = (float(value) for value in params.values())
        return -((math.log10(rate) + 3.3) ** 2) - ((size - 37) / 20) ** 2 - (width - 4) ** 2 / 100

    best = best_trial(run_search(AutoIteratedGrid, Space([rate, size, width]), fitness, num_trials=80))
    assert best is not None
    found = dict(best.parameters)
    assert found["a.rate"] == pytest.approx(10**-3.3, rel=0.2)
    assert (found["a.size"], found["a.width"]) == (37, 4)


def test_an_auto_search_ends_where_nothing_new_is_left() -> None:
    kinds = [parameter_of(f"k{place}.x", "Categorical", {"values": [1, 2, 3]}, "") for place in range(2)]
    trials = run_search(AutoIteratedGrid, Space(kinds), num_trials=100)
    assert 5 <= len(trials) <= 9


def test_more_trials_go_on_where_fewer_ended() -> None:
    space = sample_spaces()["mixed"]
    for search in (Random, AutoIteratedGrid):
        few, more = ([each.parameters for each in run_search(search, space, num_trials=count)] for count in (11, 25))
        assert len(few) == 11 and few == more[:11] and len(more) > 11


def test_a_searchs_chance_is_a_stream_of_its_own() -> None:
    assert len({search_seed(seed, method) for seed in range(3) for method in ("adam", "sgd")}) == 6
    space = sample_spaces()["ranges"]
    one, other = (run_search(Random, space, seed=search_seed(0, name), num_trials=5) for name in ("adam", "sgd"))
    assert one != other


def test_of_equals_the_first_is_the_best_and_what_failed_never_is() -> None:
    assert best_trial([trial(2, 1.0), trial(1, 1.0), trial(0, None)]) == trial(1, 1.0)
    assert best_trial([trial(0, float("nan")), trial(1, float("-inf"))]) == trial(1, float("-inf"))
    assert best_trial([trial(0, None), trial(1, float("nan"))]) is None


def test_where_a_whole_sweep_fails_the_parameter_stays() -> None:
    space = Space([real("a.x", 3), real("b.x", 3)])
    trials = run_search(IteratedGrid, space, lambda params: None)
    assert len(trials) == 5 and all(trial.parameters["a.x"] == 0.5 for trial in trials[3:])


def test_the_number_of_trials_is_said_once() -> None:
    space = sample_spaces()["ranges"]
    assert num_trials_of(Grid(), space, None, where="e.gin") == num_trials_of(Grid(), space, 20, where="e.gin") == 20
    assert num_trials_of(Random(), space, 7, where="e.gin") == 7
    for search, num_trials, expected in ((Grid(), 9, SHOWN["num-trials-got-9-expected"]), (Random(), None, "bind")):
        with pytest.raises(ConfigError, match=expected):
            num_trials_of(search, space, num_trials, where="e.gin")


def test_a_grid_over_a_range_says_what_it_needs() -> None:
    for search in (Grid(), IteratedGrid(), AutoIteratedGrid()):
        with pytest.raises(ConfigError, match=SHOWN["x-a-grid-takes-single"]):
            search.size(Space([real("a.x", None)]))


def test_a_huge_grid_is_proposed_in_parts() -> None:
    space = Space([real(f"p{place}.x", 100) for place in range(6)])
    assert Grid().size(space) == 100**6
    first = Grid().next_wave(space, [], seed=0, width=1, num_trials=None)
    assert len(first) == 10_000
    assert quadratic(first[0]) is not None
