"""Antithetic evolution strategies: the perturbations to try, and their weights in the update of theta.

The members of generation g are theta_g + sigma n_i and theta_g - sigma n_i. The halves of a pair share their tasks, to
reduce the variance of their difference. Other pairs have other tasks, unless common random numbers are set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lobench.extend import fold
from lobench_evolve.genome import Genome, GenomeTrial
from lobench_evolve.settings import AntitheticES
from lobench_evolve.truncation_ga import Generation, fitness_summary, ranked_indices

__all__ = ["EvolutionStrategies", "Update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """An update of theta. The estimated gradient of the loss is the mean of `weights[i] * noise(seeds[i])`.

    All workers apply the same updates, so that theta itself is only sent to new workers.

    Attributes:
      seeds: Seeds of the noise, one per pair.
      weights: (loss at plus - loss at minus) / (2 sigma), one per pair.
    """

    seeds: tuple[int, ...]
    weights: tuple[float, ...]


class EvolutionStrategies:
    """State of the search. Call `trials`, `update` and `close_generation` once each per generation.

    Attributes:
      init_seed: Seed of the initial theta.
      generation: Number of the current generation.
      genomes: Members of the generation by id.
      theta: Id of theta in this generation. The members are its mutations; theta itself is not a genome.
    """

    def __init__(self, settings: AntitheticES, seed: int) -> None:
        self._settings, self._seed = settings, seed
        self.init_seed = fold(seed, "init", 0)
        self.generation = 0
        self.genomes: dict[int, Genome] = {}
        self._create_members()

    def _create_members(self) -> None:
        """Creates the generation's members. Ids are consecutive: theta's, then two per pair."""
        generation, settings = self.generation, self._settings
        self.theta = first_id = generation * (2 * settings.num_pairs + 1)
        self._members = []
        for pair in range(settings.num_pairs):
            noise_seed = fold(self._seed, "noise", generation, pair)
            self._members += [
                Genome(first_id + 1 + 2 * pair, (first_id,), noise_seed, settings.sigma),
                Genome(first_id + 2 + 2 * pair, (first_id,), noise_seed, -settings.sigma),
            ]
        self.genomes = {genome.id: genome for genome in self._members}

    def skip_to(self, generation: int) -> None:
        """Continues at a generation. Only its number is needed, because this class does not hold theta."""
        self.generation = generation
        self._create_members()

    def trials(self) -> list[GenomeTrial]:
        are_seeds_common = self._settings.common_random_numbers
        seeds = [
            fold(self._seed, "evaluate", self.generation, 0 if are_seeds_common else pair)
            for pair in range(self._settings.num_pairs)
        ]
        return [GenomeTrial(genome, seeds[index // 2]) for index, genome in enumerate(self._members)]

    def update(self, fitness: Sequence[float | None]) -> Update:
        """Returns the update for a fitness. Pairs with a missing or non-finite half are left out.

        Args:
          fitness: Fitness of `trials()`, higher is better; None if missing.
        """
        seeds, weights = [], []
        for pair in range(self._settings.num_pairs):
            plus, minus = fitness[2 * pair], fitness[2 * pair + 1]
            if plus is None or minus is None or not math.isfinite(plus) or not math.isfinite(minus):
                continue
            seeds.append(self._members[2 * pair].seed)
            weights.append((minus - plus) / (2 * self._settings.sigma))
        return Update(seeds=tuple(seeds), weights=tuple(weights))

    def close_generation(self, fitness: Sequence[float | None]) -> Generation:
        order = ranked_indices(fitness)
        mean, num_results, num_not_finite = fitness_summary(fitness)
        best_index = order[0]
        best_fitness = fitness[best_index]
        assert best_fitness is not None
        self.generation += 1
        best_id = self._members[best_index].id
        self._create_members()
        return Generation(
            elite=self.theta,
            elite_fitness=mean,
            best=best_id,
            best_fitness=best_fitness,
            mean_fitness=mean,
            num_results=num_results,
            num_not_finite=num_not_finite,
        )
