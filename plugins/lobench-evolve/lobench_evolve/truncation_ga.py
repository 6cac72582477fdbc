"""The truncation-selection genetic algorithm: decisions only, a pure function of seeds and fitness.

    generation 0: N genomes from the init distribution
    then:         rank by fitness; the best few are candidates, the last elite among them; the elite is the candidate
                  with the best mean of fresh evaluations; parents are the elite and the best T - 1 others; the next
                  generation is the elite, unmutated, and N - 1 mutations of parents drawn uniformly.

Among the parents one of lobench's selection strategies picks; truncation to all of them is the uniform draw. With
`parents_per_child` above one a child is a mutation of the mean of several (intermediate recombination): what is common
to good members is kept, and what chance added to each of them is divided by their number.

Source: Such et al. 2017 (arXiv 1712.06567).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lobench import ConfigError
from lobench.extend import Member, Pool, fold, load_plugins, rank
from lobench.hookspecs import SelectionStrategy
from lobench_evolve.genome import Genome, GenomeTrial, lineage
from lobench_evolve.settings import TruncationGA

__all__ = ["Generation", "Population", "ranked", "selection_strategy", "summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How a generation ended.

    Attributes:
      elite: The genome that is kept; of evolution strategies, the mean of the search.
      elite_fitness: Mean of its fresh evaluations, or its fitness where there were none.
      best: The genome of the highest fitness in the population, before any evaluation anew.
      best_fitness, mean_fitness: Over the population; the mean over its finite values.
      num_results, num_not_finite: Members that the generation was closed with, and those whose fitness is NaN or
        infinite.
    """

    elite: int
    elite_fitness: float
    best: int
    best_fitness: float
    mean_fitness: float
    num_results: int
    num_not_finite: int


def ranked(fitness: Sequence[float | None]) -> list[int]:
    """Returns the indices of those with a result, best first; NaN counts as minus infinity, ties by index."""
    known = [_member(index, value) for index, value in enumerate(fitness) if value is not None]
    return [member.id for member in rank(known)]


def _member(index: int, value: float) -> Member:
    return Member(id=index, fitness=(-math.inf if math.isnan(value) else value,))


def _of(fitness: Sequence[float | None], index: int) -> float:
    value = fitness[index]
    assert value is not None
    return value


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except ValueError:  # infinities of both signs
        return math.nan


def summary(fitness: Sequence[float | None]) -> tuple[float, int, int]:
    """Returns the mean of the finite values (NaN where there is none), how many results there are, how many are not."""
    known = [value for value in fitness if value is not None]
    finite = [value for value in known if math.isfinite(value)]
    mean = math.fsum(finite) / len(finite) if finite else math.nan
    return mean, len(known), len(known) - len(finite)


def selection_strategy(settings: TruncationGA) -> SelectionStrategy:
    """Returns the strategy that picks parents.

    Raises:
      UsageError: there is none of that name. ConfigError: it does not select among a population.
    """
    name, _, argument = (settings.selection or f"truncation:{settings.num_parents}").partition(":")
    found = load_plugins().find("lobench_selection_strategies", name, kind="selection strategy")
    strategy: SelectionStrategy = found.load()(argument)
    if strategy.pool not in (Pool.ALL, Pool.NEWEST):
        raise ConfigError("TruncationGA.selection", got=repr(name), expected="a strategy that selects among others")
    return strategy


class Population:
    """The search: `trials`, then `fresh_trials`, then `close`, once each in a generation.

    Args:
      settings: Sizes and sigma.
      seed: Of the run.
      strategy: Picks each child's parent among the elite, which is better than any, and the best others.
    """

    def __init__(self, settings: TruncationGA, seed: int, strategy: SelectionStrategy) -> None:
        self._settings, self._seed, self._strategy = settings, seed, strategy
        self.generation = 0
        self._members = [Genome(index, (), fold(seed, "init", index), 0.0) for index in range(settings.population_size)]
        self.genomes = {genome.id: genome for genome in self._members}
        self._has_elite = False

    def trials(self) -> list[GenomeTrial]:
        """Returns the population, each member on the same seed."""
        seed = fold(self._seed, "evaluate", self.generation)
        return [GenomeTrial(genome, seed) for genome in self._members]

    def fresh_trials(self, fitness: Sequence[float | None]) -> list[GenomeTrial]:
        """Returns the candidates, `elite_evals` times each, on seeds that are new and common to all."""
        seeds = [fold(self._seed, "elite", self.generation, index) for index in range(self._settings.elite_evals)]
        return [GenomeTrial(self._members[index], seed) for index in self._candidates(fitness) for seed in seeds]

    def _candidates(self, fitness: Sequence[float | None]) -> list[int]:
        candidates = ranked(fitness)[: self._settings.num_candidates]
        # The last elite is member 0; where first results closed the generation it may be without one.
        if self._has_elite and 0 not in candidates:
            candidates = [*candidates[: self._settings.num_candidates - 1], 0]
        return candidates

    def close(self, fitness: Sequence[float | None], fresh: Sequence[float | None]) -> Generation:
        """Ends the generation and makes the next.

        Args:
          fitness: Of `trials()`, higher is better; None where the generation was closed without it.
          fresh: Of `fresh_trials(fitness)`; all are there.
        """
        best, candidates = ranked(fitness)[0], self._candidates(fitness)
        each = self._settings.elite_evals
        if each:
            means = [_mean([_of(fresh, i * each + j) for j in range(each)]) for i in range(len(candidates))]
            place = ranked(means)[0]
            elite, elite_fitness = candidates[place], means[place]
        else:
            elite, elite_fitness = best, _of(fitness, best)
        mean, num_results, num_not_finite = summary(fitness)
        ended = Generation(
            elite=self._members[elite].id,
            elite_fitness=elite_fitness,
            best=self._members[best].id,
            best_fitness=_of(fitness, best),
            mean_fitness=mean,
            num_results=num_results,
            num_not_finite=num_not_finite,
        )
        self._breed(fitness, elite, best=ended.best)
        return ended

    def _breed(self, fitness: Sequence[float | None], elite: int, best: int) -> None:
        others = [index for index in ranked(fitness) if index != elite][: self._settings.num_parents - 1]
        parents = [Member(id=elite, fitness=(math.inf,)), *(_member(index, _of(fitness, index)) for index in others)]
        self.generation += 1
        children = [self._child(parents, index) for index in range(1, self._settings.population_size)]
        self._has_elite = True
        self._members = [self._members[elite], *children]
        # Only what has descendants, and the last generation's best, is kept: a run of any length stays small.
        self.genomes.update({genome.id: genome for genome in self._members})
        kept = lineage(self.genomes, [*(genome.id for genome in self._members), best])
        self.genomes = {genome.id: genome for genome in kept}

    def _child(self, parents: Sequence[Member], index: int) -> Genome:
        """Returns a mutation of one of the parents, or of the mean of several."""
        generation, several = self.generation, self._settings.parents_per_child
        number = generation * self._settings.population_size + index
        noise = fold(self._seed, "mutation", generation, index)
        if several >= len(parents) > 1:
            chosen = [parent.id for parent in parents]
        else:
            chosen = []
            for place in range(several):
                remaining = [parent for parent in parents if parent.id not in chosen]
                if chosen and all(-math.inf in (parent.fitness or ()) for parent in remaining):
                    break  # those that are left have diverged
                initiator = remaining[index % len(remaining)].id
                purpose = ("parent", generation, index, place) if place else ("parent", generation, index)
                selection = self._strategy.select(remaining, initiator, fold(self._seed, *purpose))
                assert selection.parent is not None, "every parent has a fitness"
                if several == 1 and not selection.explore:
                    return self._members[selection.parent]
                chosen.append(selection.parent)
        ids = sorted(self._members[place].id for place in chosen)
        return Genome(number, tuple(ids), noise, self._settings.sigma)
