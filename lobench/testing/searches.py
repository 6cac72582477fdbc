"""Contract of searches: a plugin's test module subclasses `SearchContract`.

class TestMySearch(SearchContract):
    factory = "mypackage.searches:MySearch"
    keywords = {"patience": 3}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from lobench.core.errors import LobenchError
from lobench.core.lazy import loaded
from lobench.core.search.search import Trial
from lobench.core.search.space import Space, Value, parameter_of
from lobench.hookspecs import SearchStrategy

__all__ = ["FitnessFunction", "SearchContract", "quadratic", "run_search", "sample_spaces"]

FitnessFunction = Callable[[Mapping[str, Value]], float | None]


def sample_spaces() -> dict[str, Space]:
    """Returns spaces by name: two ranges; every kind of parameter; conditions, one of them nested."""

    def space(**kinds: tuple[str, dict[str, Any]]) -> Space:
        return Space(
            [parameter_of(f"{name}.x", kind, keywords, "a sample") for name, (kind, keywords) in kinds.items()]
        )

    rate = ("Real", {"low": 1e-4, "high": 1e-1, "scale": "log", "num_values": 4})
    depth = ("Int", {"low": 1, "high": 6, "num_values": 3})
    kind = ("Categorical", {"values": ["sgd", "momentum", "adam"]})
    return {
        "ranges": space(rate=rate, shift=("Real", {"low": -1, "high": 3, "num_values": 5})),
        "mixed": space(rate=rate, depth=depth, width=("Discrete", {"values": [8, 16, 64]}), kind=kind),
        "conditional": space(
            decay=("Discrete", {"values": [0.0, 0.5, 0.9], "when": {"nesterov.x": [True]}}),
            kind=kind,
            nesterov=("Categorical", {"values": [False, True], "when": {"kind.x": ["momentum", "adam"]}}),
            rate=rate,
        ),
    }


def quadratic(params: Mapping[str, Value]) -> float:
    """Returns a fitness with one optimum in each sample space."""
    value = 0.0
    for path, parameter in params.items():
        if isinstance(parameter, str):
            value -= {"sgd": 2.0, "momentum": 0.5, "adam": 1.0}[parameter]
        else:
            number = math.log10(parameter) if path == "rate.x" else float(parameter)
            value -= (number - {"rate.x": -2.2, "depth.x": 4, "width.x": 16, "shift.x": 0.7}.get(path, 0.4)) ** 2
    return value


def run_search(
    make: Callable[[], SearchStrategy],
    space: Space,
    fitness: FitnessFunction = quadratic,
    *,
    seed: int = 0,
    width: int = 3,
    num_trials: int | None = None,
    order: Callable[[list[Trial]], Sequence[Trial]] = tuple,
) -> list[Trial]:
    """Runs a search to its end, with a new strategy for each wave.

    Args:
      make: Function that makes the strategy.
      space: Search space.
      fitness: Fitness of a setting; None if the trial failed.
      seed: Seed of the search.
      width: Number of settings in a wave.
      num_trials: Number of trials. None: the strategy determines it.
      order: Reorders the trials before they are passed to the strategy.
    """
    trials: list[Trial] = []
    for wave in range(10_000):
        settings = make().next_wave(space, order(trials), seed=seed, width=width, num_trials=num_trials)
        if not settings:
            return trials
        for params in settings:
            value = fitness(params)
            state: Any = "done" if value is not None else "failed"
            frozen_params = MappingProxyType(dict(params))
            trials.append(Trial(number=len(trials), parameters=frozen_params, state=state, fitness=value, wave=wave))
        if num_trials is not None and len(trials) > 10 * num_trials:  # 10,000 waves of it would take minutes
            break
    raise AssertionError("the search has no end")


class SearchContract:
    """Tests that every search must pass.

    Attributes:
      factory: "module:attribute", as in the search's declaration.
      keywords: Values that a user would bind in gin.
      wrong_keywords: Values that a user might bind by mistake.
      num_trials: Number of trials to request from a search that does not determine it itself.
      may_repeat: Whether it may propose a setting again.
      may_end_early: Whether it may end before `num_trials`, because it has no new settings.
    """

    factory: ClassVar[str]
    keywords: ClassVar[Mapping[str, object]] = {}
    wrong_keywords: ClassVar[Sequence[Mapping[str, object]]] = ()
    num_trials: ClassVar[int] = 14
    may_repeat: ClassVar[bool] = True
    may_end_early: ClassVar[bool] = False
    _known_trials: ClassVar[dict[tuple[str, int], list[Trial]]]

    @pytest.fixture(params=sorted(sample_spaces()))
    def space(self, request: pytest.FixtureRequest) -> Space:
        return sample_spaces()[request.param]

    def make(self, **keywords: object) -> SearchStrategy:
        strategy: SearchStrategy = loaded(self.factory)(**(keywords or self.keywords))
        return strategy

    def run(self, space: Space, fitness: FitnessFunction = quadratic, **others: Any) -> list[Trial]:
        size = self.make().size(space)
        others.setdefault("num_trials", self.num_trials if size is None else None)
        return run_search(self.make, space, fitness, **others)

    def _trials_of(self, space: Space, seed: int) -> list[Trial]:
        """Returns the trials of a search with a seed, run once for all tests of a class."""
        if "_known_trials" not in vars(type(self)):
            type(self)._known_trials = {}
        key = repr(space.parameters), seed
        if key not in self._known_trials:
            self._known_trials[key] = self.run(space, seed=seed)
        return self._known_trials[key]

    def test_values_are_in_the_domain_and_of_the_active_parameters(self, space: Space) -> None:
        for seed in range(2):
            for trial in self._trials_of(space, seed):
                assert space.contains(trial.parameters), trial

    def test_a_ledger_holds_the_very_values(self, space: Space) -> None:
        for trial in self._trials_of(space, 0):
            stored_values = json.loads(json.dumps(dict(trial.parameters)))
            assert [(type(value), value) for value in stored_values.values()] == [
                (type(value), value) for value in trial.parameters.values()
            ]

    def test_the_same_again(self, space: Space) -> None:
        strategy = self.make()
        repeated = run_search(
            lambda: strategy, space, seed=1, num_trials=self.num_trials if strategy.size(space) is None else None
        )
        assert self.run(space, seed=1) == self._trials_of(space, 1)
        assert repeated == self._trials_of(space, 1), "a strategy that proposed the waves before proposes another one"

    def test_killed_after_each_trial_it_proposes_the_same(self, space: Space) -> None:
        """After a restart, a new strategy proposes the interrupted wave again, from the trials before it."""
        trials = self._trials_of(space, 1)
        size = self.make().size(space)
        for wave in range(trials[-1].wave + 1):
            earlier_trials = [trial for trial in trials if trial.wave < wave]
            interrupted_wave = [dict(trial.parameters) for trial in trials if trial.wave == wave]
            num_trials = self.num_trials if size is None else None
            proposed_wave = self.make().next_wave(space, earlier_trials, seed=1, width=3, num_trials=num_trials)
            assert [dict(params) for params in proposed_wave] == interrupted_wave

    def test_the_order_in_which_trials_are_shown_does_not_matter(self, space: Space) -> None:
        expected = self._trials_of(space, 1)
        assert self.run(space, seed=1, order=lambda trials: trials[::-1]) == expected

    def test_it_ends(self, space: Space) -> None:
        size = self.make().size(space)
        trials = self._trials_of(space, 0)
        max_trials = self.num_trials if size is None else size
        assert 1 <= len(trials) <= max_trials
        if size is None and not self.may_end_early:
            assert len(trials) == max_trials
        settings = {frozenset(trial.parameters.items()) for trial in trials}
        assert self.may_repeat or len(settings) == len(trials), "a setting is proposed twice"

    @pytest.mark.parametrize("value", [None, math.nan, -math.inf, 0.0])
    def test_it_ends_whatever_comes_of_its_trials(self, space: Space, value: float | None) -> None:
        trials = self.run(space, lambda params: value)
        assert all(space.contains(trial.parameters) for trial in trials)
        assert len(self.run(space, lambda params: value if len(str(params)) % 3 else quadratic(params))) >= 1

    def test_a_wrong_keyword_is_one_clear_line(self) -> None:
        for keywords in self.wrong_keywords:
            with pytest.raises(LobenchError) as error:
                self.make(**keywords)
            assert "\n" not in str(error.value)
