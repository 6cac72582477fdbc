"""How often `lobench ablate` finds the knobs that matter among ten, and what it costs beside the full factorial.

Usage:
  python benchmarks/ablate_rates.py [--searches 100] [--world NAME]

Ten knobs of which three matter; six cases; the noise of a seed and case is .08, and configurations share a part of it,
as paired seeds do; the margin is .05. `found` is the share of searches whose smallest set is equal to the one that is
planted, `kept` and `missed` how many knobs too many and too few a search has on average. `forward` is the share in
which the forward search ends in the same set. `cost` is in seeds of a case, of what all 1,024 configurations cost at
the seeds that the table shows each knob with (8).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lobench.analysis.stats.paired_samples import Samples
from lobench.tools.ablate.change_search import AblateRules, Subset, ablated

__all__ = ["WORLDS", "play"]

KNOBS, CASES, NOISE, RULES = 10, 6, 0.08, AblateRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is planted.

    Attributes:
      score: Of a set of the knobs that matter, which are 0, 1 and 2.
      smallest: The sets that count as found.
      distribution: Of the noise.
      rest: What each of the other knobs is worth.
    """

    name: str
    score: Callable[[Subset], float]
    smallest: tuple[Subset, ...] = (Subset({0, 1, 2}),)
    distribution: str = "normal"
    rest: float = 0.0


def _sum(*worth: float) -> Callable[[Subset], float]:
    return lambda subset: sum(value for knob, value in enumerate(worth) if knob in subset)


WORLDS = (
    World(name="additive, .3 .2 .15", score=_sum(0.3, 0.2, 0.15)),
    World(name="additive, .3 .2 .15, t3", score=_sum(0.3, 0.2, 0.15), distribution="t3"),
    World(name="additive, .3 .2 .1", score=_sum(0.3, 0.2, 0.1)),
    World(name="two only together", score=lambda s: 0.3 * ({0, 1} <= s) + 0.2 * (2 in s)),
    World(
        name="one hurts without another",
        score=lambda s: 0.3 * (0 in s) + (0.35 if 0 in s else -0.2) * (1 in s) + 0.15 * (2 in s),
    ),
    World(
        name="two stand for one another",
        score=lambda s: 0.3 * bool({0, 1} & s) + 0.2 * (2 in s),
        smallest=(Subset({0, 2}), Subset({1, 2})),
    ),
    World(name="the others are worth .003 each", score=_sum(0.3, 0.2, 0.15), rest=0.003),
    World(name="none matters", score=_sum(), smallest=(Subset(),)),
)


class Planted:
    """Configurations whose scores are drawn when they are asked for."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self._world, self._rng = world, rng
        self._places = rng.permutation(KNOBS)  # which place a knob has in the search
        self._shared = self._noise(max(RULES.looks)) / 2**0.5
        self._scores: dict[Subset, np.ndarray] = {}

    def named(self, subset: Subset) -> Subset:
        """Returns the knobs of the world of a set of places."""
        return Subset(int(self._places[place]) for place in subset)

    def _noise(self, seeds: int) -> np.ndarray:
        shape = (CASES, seeds)
        if self._world.distribution == "t3":
            return self._rng.standard_t(3, shape) / 3**0.5 * NOISE
        return self._rng.standard_normal(shape) * NOISE

    def evaluate(self, wanted: Sequence[Subset], seeds: int) -> None:
        for one in wanted:
            if one not in self._scores:
                knobs = self.named(one)
                true = self._world.score(knobs) + self._world.rest * len(knobs - {0, 1, 2})
                self._scores[one] = true + self._shared + self._noise(max(RULES.looks)) / 2**0.5

    def samples(self, a: Subset, b: Subset, seeds: int) -> Mapping[str, Samples]:
        sides = [self._scores[one][:, :seeds].tolist() for one in (a, b)]
        return {str(case): Samples(a=tuple(x), b=tuple(y)) for case, (x, y) in enumerate(zip(*sides, strict=True))}


def play(world: World, rng: np.random.Generator) -> tuple[Subset, Subset, int]:
    """Returns the smallest set, what the forward search took, and the cost in seeds."""
    lab = Planted(world, rng)
    found = ablated(KNOBS, lab, RULES)
    return lab.named(found.smallest), lab.named(found.forward), found.seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--world", default="", help="Only those whose name has this in it.")
    options = parser.parse_args()
    print(f"{'world':34}{'found':>7}{'kept':>7}{'missed':>8}{'forward':>9}{'cost':>7}")
    for number, world in enumerate(WORLDS):
        if options.world not in world.name:
            continue
        rng = np.random.default_rng((number, 2))
        played = [play(world, rng) for _ in range(options.searches)]
        found = np.mean([smallest in world.smallest for smallest, _, _ in played])
        most = Subset().union(*world.smallest)
        kept = np.mean([len(smallest - most) for smallest, _, _ in played])
        missed = np.mean([min(len(one - smallest) for one in world.smallest) for smallest, _, _ in played])
        forward = np.mean([smallest == taken for smallest, taken, _ in played])
        cost = np.mean([seeds for *_, seeds in played]) / (2**KNOBS * RULES.shown)
        print(f"{world.name:34}{found:>7.2f}{kept:>7.2f}{missed:>8.2f}{forward:>9.2f}{cost:>7.1%}", flush=True)


if __name__ == "__main__":
    main()
