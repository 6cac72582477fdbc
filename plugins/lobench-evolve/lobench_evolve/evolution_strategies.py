"""Antithetic evolution strategies: which perturbations are tried, and with which weights theta moves along them.

The members of generation g are theta_g + sigma n_i and theta_g - sigma n_i. A pair shares its seed, so that chance does
not tell its halves apart; other pairs try other tasks, unless common random numbers are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lobench.extend import fold
from lobench_evolve.genome import Genome, GenomeTrial
from lobench_evolve.settings import AntitheticES
from lobench_evolve.truncation_ga import Generation, ranked, summary

__all__ = ["EvolutionStrategies", "Update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """How theta moves: the estimated gradient of the loss is the mean of `weights[i] * noise(seeds[i])`.

    Every worker takes the same update, so that theta itself never travels but to a worker that is new.

    Attributes:
      weights: (loss at plus - loss at minus) / (2 sigma).
    """

    seeds: tuple[int, ...]
    weights: tuple[float, ...]


class EvolutionStrategies:
    """The search: `trials`, then `update`, then `close`, once each in a generation.

    Attributes:
      theta: Id of theta in this generation; members are its mutations, and no genome makes it.
    """

    def __init__(self, settings: AntitheticES, seed: int) -> None:
        self._settings, self._seed = settings, seed
        self.init_seed = fold(seed, "init", 0)
        self.generation = 0
        self.genomes: dict[int, Genome] = {}
        self._begin()

    def _begin(self) -> None:
        """Ids of a generation: theta's first, then each pair's two."""
        generation, settings = self.generation, self._settings
        self.theta = first = generation * (2 * settings.num_pairs + 1)
        self._members = []
        for pair in range(settings.num_pairs):
            noise = fold(self._seed, "noise", generation, pair)
            self._members += [
                Genome(first + 1 + 2 * pair, (first,), noise, settings.sigma),
                Genome(first + 2 + 2 * pair, (first,), noise, -settings.sigma),
            ]
        self.genomes = {genome.id: genome for genome in self._members}

    def skip_to(self, generation: int) -> None:
        """Goes on at a generation: nothing but its number is needed, theta is elsewhere."""
        self.generation = generation
        self._begin()

    def trials(self) -> list[GenomeTrial]:
        common = self._settings.common_random_numbers
        seeds = [
            fold(self._seed, "evaluate", self.generation, 0 if common else pair)
            for pair in range(self._settings.num_pairs)
        ]
        return [GenomeTrial(genome, seeds[index // 2]) for index, genome in enumerate(self._members)]

    def update(self, fitness: Sequence[float | None]) -> Update:
        """Returns the step that the fitness asks for; a pair of which a half is missing or not finite says nothing."""
        seeds, weights = [], []
        for pair in range(self._settings.num_pairs):
            plus, minus = fitness[2 * pair], fitness[2 * pair + 1]
            if plus is None or minus is None or not math.isfinite(plus) or not math.isfinite(minus):
                continue
            seeds.append(self._members[2 * pair].seed)
            weights.append((minus - plus) / (2 * self._settings.sigma))
        return Update(seeds=tuple(seeds), weights=tuple(weights))

    def close(self, fitness: Sequence[float | None]) -> Generation:
        order = ranked(fitness)
        mean, num_results, num_not_finite = summary(fitness)
        best = order[0]
        best_fitness = fitness[best]
        assert best_fitness is not None
        self.generation += 1
        best_id = self._members[best].id
        self._begin()
        return Generation(
            elite=self.theta,
            elite_fitness=mean,
            best=best_id,
            best_fitness=best_fitness,
            mean_fitness=mean,
            num_results=num_results,
            num_not_finite=num_not_finite,
        )
