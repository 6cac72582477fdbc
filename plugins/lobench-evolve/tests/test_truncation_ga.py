"""The genetic algorithm's decisions, and its published behaviour on a sphere."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lobench_evolve.genome import Genome
from lobench_evolve.settings import TruncationGA
from lobench_evolve.truncation_ga import Generation, Population, selection_strategy

EXACT = TruncationGA(population_size=200, num_parents=20, sigma=0.1, elite_evals=0)


def population(settings: TruncationGA, seed: int) -> Population:
    return Population(settings, seed, selection_strategy(settings))


class Sphere:
    """Fitness -|x|^2 of genomes whose noise is drawn by numpy, each decoded from its parent."""

    num_weights = 10

    def __init__(self) -> None:
        self._decoded: dict[int, np.ndarray] = {}

    def __call__(self, genomes: Sequence[Genome]) -> list[float]:
        decoded = {genome.id: self._decode(genome) for genome in genomes}
        self._decoded = decoded
        return [-float(decoded[genome.id] @ decoded[genome.id]) for genome in genomes]

    def _decode(self, genome: Genome) -> np.ndarray:
        if genome.id in self._decoded:
            return self._decoded[genome.id]
        noise = np.random.Generator(np.random.Philox(key=genome.seed)).standard_normal(self.num_weights)
        if not genome.parents:
            return noise
        return np.mean([self._decoded[parent] for parent in genome.parents], axis=0) + genome.sigma * noise


def elites(seed: int, num_generations: int, ga: TruncationGA = EXACT) -> list[float]:
    search, sphere = population(ga, seed), Sphere()
    found = []
    for _ in range(num_generations):
        fitness = sphere([trial.genome for trial in search.trials()])
        found.append(search.close_generation(fitness, []).elite_fitness)
    return found


def test_on_a_sphere_the_elite_rises_as_measured() -> None:
    """The known figures are medians over 50 seeds; the first evaluation is generation 0."""
    runs = [elites(seed, 26) for seed in range(7)]
    medians = [statistics.median(values) for values in zip(*runs, strict=True)]
    assert medians[1] == pytest.approx(-2.0, abs=0.5)
    assert medians[10] > -0.1
    assert medians[25] > -0.02
    assert all(later >= earlier for run in runs for earlier, later in itertools.pairwise(run))


def close(search: Population, fitness: Sequence[float | None]) -> Generation:
    """Ends a generation whose fresh evaluations repeat the fitness."""
    by_id = dict(zip((trial.genome.id for trial in search.trials()), fitness, strict=True))
    return search.close_generation(fitness, [by_id[trial.genome.id] for trial in search.fresh_trials(fitness)])


def test_the_elite_stays_unmutated_and_children_have_the_best_as_parents() -> None:
    search = population(TruncationGA(population_size=6, num_parents=3, num_candidates=2, elite_evals=2), 0)
    ended = close(search, [0.0, 5.0, 1.0, 4.0, 2.0, 3.0])
    assert ended.elite == 1
    following = [trial.genome for trial in search.trials()]
    assert following[0].id == 1
    assert {genome.parents for genome in following[1:]} <= {(1,), (3,), (5,)}
    assert len(following) == 6


def test_the_last_elite_is_a_candidate_however_its_fitness_came_out() -> None:
    search = population(TruncationGA(population_size=6, num_parents=3, num_candidates=2, elite_evals=1), 0)
    close(search, [0.0, 5.0, 1.0, 4.0, 2.0, 3.0])
    fitness = [-9.0, 5.0, 1.0, 4.0, 2.0, 3.0]  # member 0 is the elite
    assert [trial.genome.id for trial in search.fresh_trials(fitness)] == [search.trials()[1].genome.id, 1]


def test_fresh_evaluations_are_new_and_common_to_the_candidates() -> None:
    search = population(TruncationGA(population_size=6, num_parents=3, num_candidates=2, elite_evals=3), 0)
    fresh = [trial.seed for trial in search.fresh_trials([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]
    assert fresh[:3] == fresh[3:]
    assert len({*fresh, search.trials()[0].seed}) == 4


@given(
    fitness=st.lists(st.none() | st.floats(-5, 5) | st.sampled_from([math.nan, -math.inf]), min_size=8, max_size=8),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=200, deadline=None)
def test_what_is_broken_or_missing_has_no_children_where_anything_is_finite(
    fitness: list[float | None], seed: int
) -> None:
    finite = {index for index, value in enumerate(fitness) if value is not None and math.isfinite(value)}
    if not finite:
        return
    search = population(TruncationGA(population_size=8, num_parents=4, num_candidates=3, elite_evals=1), seed)
    ended = close(search, fitness)
    assert ended.elite in finite
    assert {parent for trial in search.trials()[1:] for parent in trial.genome.parents} <= finite
    assert ended.num_results == sum(value is not None for value in fitness)


def test_equal_fitness_keeps_the_elite() -> None:
    search = population(TruncationGA(population_size=4, num_parents=2, elite_evals=0), 0)
    assert search.close_generation([0.0, 1.0, 1.0, 0.0], []).elite == 1
    assert search.close_generation([1.0, 1.0, 1.0, 1.0], []).elite == 1


def test_only_ancestors_are_remembered() -> None:
    search, sphere = population(EXACT, 3), Sphere()
    for _ in range(30):
        search.close_generation(sphere([trial.genome for trial in search.trials()]), [])
    assert len(search.genomes) < 200 + 20 * 30
    at = search.trials()[-1].genome
    while at.parents:
        at = search.genomes[at.parents[0]]
    assert at.id < 200


def test_infinities_of_both_signs_are_no_elites() -> None:
    search = population(TruncationGA(population_size=3, num_parents=2, num_candidates=2, elite_evals=2), 0)
    ended = search.close_generation([3.0, 2.0, 1.0], [math.inf, -math.inf, 1.0, 2.0])
    assert (ended.elite, ended.elite_fitness) == (1, 1.5)


def test_a_child_has_as_many_parents_as_it_is_asked_for() -> None:
    fitness = [0.0, 5.0, 1.0, 4.0, 2.0, 3.0]
    for several, expected in ((3, {(1, 3, 5)}), (2, None)):
        ga = TruncationGA(population_size=6, num_parents=3, elite_evals=0, parents_per_child=several)
        search = population(ga, 0)
        search.close_generation(fitness, [])
        elite, *children = [trial.genome for trial in search.trials()]
        assert elite.id == 1 and not elite.parents, "the elite stays as it is"
        found = {child.parents for child in children}
        assert found == expected if expected else all(set(parents) <= {1, 3, 5} for parents in found)
        assert all(len(parents) == several for parents in found), "they are drawn without replacement"
        assert len({child.seed for child in children}) == 5


def test_parents_are_drawn_without_replacement() -> None:
    ga = TruncationGA(population_size=60, num_parents=10, elite_evals=0, parents_per_child=9)
    search = population(ga, 0)
    search.close_generation([float(index) for index in range(60)], [])
    children = [trial.genome for trial in search.trials()][1:]
    assert {len(child.parents) for child in children} == {9}
    assert len({child.parents for child in children}) > 5


def test_a_parent_that_diverged_is_no_parent_beside_others() -> None:
    ga = TruncationGA(population_size=6, num_parents=4, elite_evals=0, parents_per_child=3)
    search = population(ga, 0)
    search.close_generation([5.0, 4.0, math.nan, math.nan, math.nan, math.nan], [])
    assert {trial.genome.parents for trial in search.trials()[1:]} == {(0, 1)}


def test_the_mean_of_the_parents_finds_the_sphere_sooner() -> None:
    """In 100 dimensions, where one parent's mutations add up; medians of three runs."""

    class Large(Sphere):
        num_weights = 100

    def last(several: int) -> float:
        ga = TruncationGA(population_size=60, num_parents=10, sigma=0.1, elite_evals=0, parents_per_child=several)
        found = []
        for seed in range(3):
            search, sphere = population(ga, seed), Large()
            for _ in range(60):
                ended = search.close_generation(sphere([trial.genome for trial in search.trials()]), [])
            found.append(ended.elite_fitness)
        return statistics.median(found)

    assert last(10) > 0.5 * last(1)  # both are negative: less than half as far
