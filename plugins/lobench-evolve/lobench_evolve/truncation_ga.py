"""Genetic algorithm with truncation selection. Contains the decisions only, as a pure function of seeds and fitness.

    generation 0: N genomes from the init distribution
    then:         rank by fitness; the best few are candidates, the last elite among them; the elite is the candidate
                  with the best mean of fresh evaluations; parents are the elite and the best T - 1 others; the next
                  generation is the elite, unmutated, and N - 1 mutations of parents drawn uniformly.

A selection strategy of lobench picks each child's parent among the parents; truncation to all of them is the uniform
draw. With `parents_per_child` above one, a child is a mutation of the mean of several parents (intermediate
recombination): their common part is kept, and their random parts are averaged.

Source: Such et al. 2017 (arXiv 1712.06567).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lobench import ConfigError
from lobench.extend import Member, PluginError, Pool, Selection, fold, load_plugins, rank
from lobench.hookspecs import SelectionStrategy
from lobench_evolve.genome import Genome, GenomeTrial, lineage
from lobench_evolve.settings import TruncationGA

__all__ = ["Generation", "Population", "fitness_summary", "ranked_indices", "selection_strategy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Fitness values of a finished generation.

    Attributes:
      elite: Id of the elite; for evolution strategies, of the search's mean.
      elite_fitness: Mean of the elite's fresh evaluations, or its fitness if there were none.
      best: Id of the genome with the highest fitness in the population, before fresh evaluations.
      best_fitness, mean_fitness: Best fitness of the population, and mean of the finite values.
      num_results, num_not_finite: Number of members with a result, and of those with a NaN or infinite fitness.
    """

    elite: int
    elite_fitness: float
    best: int
    best_fitness: float
    mean_fitness: float
    num_results: int
    num_not_finite: int


def ranked_indices(fitness: Sequence[float | None]) -> list[int]:
    """Returns the indices of the members with a result, best first; NaN counts as minus infinity, ties by index."""
    members = [_member(index, value) for index, value in enumerate(fitness) if value is not None]
    return [member.id for member in rank(members)]


def _member(index: int, value: float) -> Member:
    return Member(id=index, fitness=(-math.inf if math.isnan(value) else value,))


def _fitness_of(fitness: Sequence[float | None], index: int) -> float:
    value = fitness[index]
    assert value is not None
    return value


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except ValueError:  # infinities of both signs
        return math.nan


def fitness_summary(fitness: Sequence[float | None]) -> tuple[float, int, int]:
    """Returns the mean of the finite values (NaN without any), the number of results, and of non-finite ones."""
    values = [value for value in fitness if value is not None]
    finite_values = [value for value in values if math.isfinite(value)]
    mean = math.fsum(finite_values) / len(finite_values) if finite_values else math.nan
    return mean, len(values), len(values) - len(finite_values)


def selection_strategy(settings: TruncationGA) -> SelectionStrategy:
    """Returns the strategy that picks parents.

    Raises:
      UsageError: The strategy is unknown.
      ConfigError: The strategy does not select among a population.
    """
    name, _, argument = (settings.selection or f"truncation:{settings.num_parents}").partition(":")
    plugin_strategy = load_plugins().find("lobench_selection_strategies", name, kind="selection strategy")
    hook = "lobench_selection_strategies"
    strategy: SelectionStrategy = plugin_strategy.make_guarded(
        argument,
        where="TruncationGA.selection",
        hook=hook,
        results={"select": lambda result: isinstance(result, Selection)},
    )
    if strategy.pool not in (Pool.ALL, Pool.NEWEST):
        raise ConfigError("TruncationGA.selection", got=repr(name), expected="a strategy that selects among others")
    return strategy


class Population:
    """State of the search. Call `trials`, `fresh_trials` and `close_generation` once each per generation.

    Args:
      settings: Settings of the genetic algorithm.
      seed: Seed of the run.
      strategy: Strategy that picks each child's parent among the elite, which always wins, and the best others.
    """

    def __init__(self, settings: TruncationGA, seed: int, strategy: SelectionStrategy) -> None:
        self._settings = settings
        self._seed = seed
        self._strategy = strategy
        self.generation = 0
        self._members = [Genome(index, (), fold(seed, "init", index), 0.0) for index in range(settings.population_size)]
        self.genomes = {genome.id: genome for genome in self._members}
        self._has_elite = False

    def trials(self) -> list[GenomeTrial]:
        """Returns the trials of the population. All members have the same seed."""
        seed = fold(self._seed, "evaluate", self.generation)
        return [GenomeTrial(genome, seed) for genome in self._members]

    def fresh_trials(self, fitness: Sequence[float | None]) -> list[GenomeTrial]:
        """Returns the trials of the candidates, `elite_evals` each, on fresh seeds that all candidates share."""
        seeds = [fold(self._seed, "elite", self.generation, index) for index in range(self._settings.elite_evals)]
        return [GenomeTrial(self._members[index], seed) for index in self._candidates(fitness) for seed in seeds]

    def _candidates(self, fitness: Sequence[float | None]) -> list[int]:
        candidates = ranked_indices(fitness)[: self._settings.num_candidates]
        # The last elite is member 0. It may lack a result if the first results closed the generation.
        if self._has_elite and 0 not in candidates:
            candidates = [*candidates[: self._settings.num_candidates - 1], 0]
        return candidates

    def close_generation(self, fitness: Sequence[float | None], fresh_fitness: Sequence[float | None]) -> Generation:
        """Ends the generation and creates the next one.

        Args:
          fitness: Fitness of `trials()`, higher is better; None if the generation ended without it.
          fresh_fitness: Fitness of `fresh_trials(fitness)`, complete.
        """
        best_index = ranked_indices(fitness)[0]
        candidates = self._candidates(fitness)
        num_evals = self._settings.elite_evals
        if num_evals:
            means = [
                _mean([_fitness_of(fresh_fitness, candidate * num_evals + repeat) for repeat in range(num_evals)])
                for candidate in range(len(candidates))
            ]
            winner_index = ranked_indices(means)[0]
            elite_index, elite_fitness = candidates[winner_index], means[winner_index]
        else:
            elite_index = best_index
            elite_fitness = _fitness_of(fitness, best_index)
        mean, num_results, num_not_finite = fitness_summary(fitness)
        ended_generation = Generation(
            elite=self._members[elite_index].id,
            elite_fitness=elite_fitness,
            best=self._members[best_index].id,
            best_fitness=_fitness_of(fitness, best_index),
            mean_fitness=mean,
            num_results=num_results,
            num_not_finite=num_not_finite,
        )
        self._breed(fitness, elite_index, best=ended_generation.best)
        return ended_generation

    def _breed(self, fitness: Sequence[float | None], elite: int, best: int) -> None:
        other_parents = [index for index in ranked_indices(fitness) if index != elite][: self._settings.num_parents - 1]
        parents = [Member(id=elite, fitness=(math.inf,))]
        parents += [_member(index, _fitness_of(fitness, index)) for index in other_parents]
        self.generation += 1
        children = [self._child(parents, index) for index in range(1, self._settings.population_size)]
        self._has_elite = True
        self._members = [self._members[elite], *children]
        # Keep only genomes with descendants and the last generation's best, so that memory does not grow with the run.
        self.genomes.update({genome.id: genome for genome in self._members})
        ancestors = lineage(self.genomes, [*(genome.id for genome in self._members), best])
        self.genomes = {genome.id: genome for genome in ancestors}

    def _child(self, parents: Sequence[Member], index: int) -> Genome:
        """Returns a mutation of one of the parents, or of the mean of several."""
        generation = self.generation
        num_parents = self._settings.parents_per_child
        genome_id = generation * self._settings.population_size + index
        noise_seed = fold(self._seed, "mutation", generation, index)
        if num_parents >= len(parents) > 1:
            chosen_indices = [parent.id for parent in parents]
        else:
            chosen_indices = []
            for position in range(num_parents):
                remaining = [parent for parent in parents if parent.id not in chosen_indices]
                if chosen_indices and all(-math.inf in (parent.fitness or ()) for parent in remaining):
                    break  # the remaining parents have diverged
                initiator = remaining[index % len(remaining)].id
                purpose = ("parent", generation, index, position) if position else ("parent", generation, index)
                selection = self._strategy.select(remaining, initiator, fold(self._seed, *purpose))
                if selection.parent not in [parent.id for parent in remaining]:
                    problem = "select() returned no member of the population"
                    parent_text = f"parent {selection.parent!r}"
                    raise PluginError(problem, where="TruncationGA.selection", got=parent_text)
                if num_parents == 1 and not selection.explore:
                    return self._members[selection.parent]
                chosen_indices.append(selection.parent)
        ids = sorted(self._members[position].id for position in chosen_indices)
        return Genome(genome_id, tuple(ids), noise_seed, self._settings.sigma)
