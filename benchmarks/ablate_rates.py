"""How often `lobench ablate` finds the settings that matter, and what it costs beside the full factorial.

Usage:
  python benchmarks/ablate_rates.py [--searches 100] [--world NAME]

Ten settings of which three matter, on six cases, or six settings on one case; the noise of a paired difference of a
seed and case is .08, and configurations share a part of it, as paired seeds do; the margin is .05. `found` is the share
of searches whose smallest set is equal to the one that is planted, `kept` and `missed` how many settings too many and
too few a search has on average. `forward` is the share in which the forward search ends in the same set. `false` is the
share of searches that call any setting without an effect needed, `needed` the share of the settings with one that are
called needed, `open` the share of all that are left open. `cost` is in seeds of a case, of what all configurations cost
at the seeds that the table shows each setting with (8).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from simulated_seeds import noise

from lobench.analysis.stats.paired_samples import Samples
from lobench.tools.ablate.change_search import AblateRules, KnobSubset, Need, search_changes

__all__ = ["WORLDS", "play"]

NOISE, RULES = 0.08, AblateRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is planted.

    Attributes:
      num_settings, num_cases: Settings that are searched, and cases.
      score: Of a set of the settings that matter, which are among 0, 1 and 2.
      smallest: The sets that count as found.
      distribution: Of the noise.
      rest: What each of the other settings is worth.
    """

    name: str
    num_settings: int = 10
    num_cases: int = 6
    score: Callable[[KnobSubset], float]
    smallest: tuple[KnobSubset, ...] = (KnobSubset({0, 1, 2}),)
    distribution: str = "normal"
    rest: float = 0.0


def _sum(*worth: float) -> Callable[[KnobSubset], float]:
    return lambda subset: sum(value for setting, value in enumerate(worth) if setting in subset)


def _six(name: str, distribution: str, *worth: float) -> World:
    return World(
        name=f"six on one case: {name}, {distribution}",
        num_settings=6,
        num_cases=1,
        score=_sum(*worth),
        smallest=(KnobSubset(range(len(worth))),),
        distribution=distribution,
    )


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
        smallest=(KnobSubset({0, 2}), KnobSubset({1, 2})),
    ),
    World(name="the others are worth .003 each", score=_sum(0.3, 0.2, 0.15), rest=0.003),
    World(name="none matters", score=_sum(), smallest=(KnobSubset(),)),
    _six("none", "normal"),
    _six("none", "t3"),
    _six("three of .08", "normal", NOISE, NOISE, NOISE),
    _six("three of .08", "t3", NOISE, NOISE, NOISE),
)


class Planted:
    """Configurations whose scores are drawn when they are asked for."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self._world, self._rng = world, rng
        self._places = rng.permutation(world.num_settings)  # which place a setting has in the search
        self._shared = self._noise() / 2**0.5
        self._scores: dict[KnobSubset, np.ndarray] = {}

    def named(self, places: Iterable[int]) -> KnobSubset:
        """Returns the settings of the world at places of the search."""
        return KnobSubset(int(self._places[place]) for place in places)

    def _noise(self) -> np.ndarray:
        return NOISE * noise(self._world.distribution, (self._world.num_cases, max(RULES.seed_counts)), self._rng)

    def evaluate(self, wanted: Sequence[KnobSubset], seeds: int) -> None:
        for one in wanted:
            if one not in self._scores:
                settings = self.named(one)
                true = self._world.score(settings) + self._world.rest * len(settings - {0, 1, 2})
                self._scores[one] = true + self._shared + self._noise() / 2**0.5

    def samples(self, a: KnobSubset, b: KnobSubset, seeds: int) -> Mapping[str, Samples]:
        sides = [self._scores[one][:, :seeds].tolist() for one in (a, b)]
        return {str(case): Samples(a=tuple(x), b=tuple(y)) for case, (x, y) in enumerate(zip(*sides, strict=True))}


def play(world: World, rng: np.random.Generator) -> tuple[float, ...]:
    """Plays a search, and returns the figures of a row."""
    planted = Planted(world, rng)
    search = search_changes(world.num_settings, planted, RULES)
    smallest, matter = planted.named(search.smallest), KnobSubset().union(*world.smallest)
    needed, is_open = (
        planted.named(place for place, effect in enumerate(search.effects) if effect.needed is kind)
        for kind in (Need.NEEDED, Need.OPEN)
    )
    return (
        smallest in world.smallest,
        len(smallest - matter),
        min(len(planted_set - smallest) for planted_set in world.smallest),
        search.smallest == search.forward,
        bool(needed - matter),
        len(needed & matter) / len(matter) if matter else np.nan,
        len(is_open) / world.num_settings,
        100 * search.seeds / (2**world.num_settings * RULES.num_table_seeds),
    )


COLUMNS = ("found", "kept", "missed", "forward", "false", "needed", "open", "cost %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--world", default="", help="Only those whose name has this in it.")
    options = parser.parse_args()
    print(f"{'world':38}" + "".join(f"{column:>8}" for column in COLUMNS))
    for number, world in enumerate(WORLDS):
        if options.world not in world.name:
            continue
        rng = np.random.default_rng((number, 2))
        means = np.mean([play(world, rng) for _ in range(options.searches)], axis=0)
        print(f"{world.name:38}" + "".join(f"{mean:>8.3f}" for mean in means), flush=True)


if __name__ == "__main__":
    main()
