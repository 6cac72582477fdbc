"""How often `lobench falsify` finds a planted boundary, and how often it confirms a case that does not lose.

Usage:
  python benchmarks/falsify_rates.py [--searches 1000]

A grid of three or four axes of 5 to 9 places. Beyond a threshold on each of one to three of the axes, all of them
together, the checkpoint is behind by the world's gap on the score; elsewhere it is not. The noise of a seed is .15. A
suspicion has 3 seeds, a test 12, or 36 the second time; the margin is .1, the level .05 for the whole search. `found`
is the share of the searches whose smallest cell is on each axis within one step of the boundary, or of the simplest
place where the axis has none; `false` that in which any cell was confirmed that is not lost by more than the margin.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from simulated_seeds import noise

from lobench.analysis.stats.location import locate
from lobench.analysis.stats.paired_samples import Samples
from lobench.tools.falsify.cell_search import CellIndex, GridAxis, search_cells
from lobench.tools.falsify.falsify_settings import SearchRules

__all__ = ["play"]

NOISE, SEEDS, LOOK, RULES = 0.15, 12, 3, SearchRules(margin=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is planted.

    Attributes:
      active: Axes that have a threshold; 0: it is lost nowhere.
      gap: Beyond the threshold.
      rise: By which the gap grows with each further step.
      rest: Elsewhere.
      distribution: Of the noise.
      rare: Share of the seeds on which the other side explodes, by 2 of the score; the mean gap over
        all seeds stays the gap.
    """

    name: str
    active: int
    gap: float = 0.5
    rise: float = 0.0
    rest: float = 0.0
    distribution: str = "normal"
    rare: float = 0.0


WORLDS = (
    World(name="one axis, gap .5", active=1),
    World(name="two axes, gap .5", active=2),
    World(name="three axes, gap .5", active=3),
    World(name="two axes, gap .5, t3", active=2, distribution="t3"),
    World(name="two axes, explosions: gap 2", active=2, gap=2.0),
    World(name="two axes, gap .3 and .2 a step", active=2, gap=0.3, rise=0.2),
    World(name="two axes, gap .2", active=2, gap=0.2),
    World(name="nowhere, 0 everywhere", active=0),
    World(name="nowhere, at the margin everywhere", active=0, rest=0.1),
    World(name="nowhere, at the margin, t3", active=0, rest=0.1, distribution="t3"),
    World(name="nowhere, at the margin, Adam explodes on 30%", active=0, rest=0.1, rare=0.3),
    World(name="nowhere, at the margin, Adam explodes on 5%", active=0, rest=0.1, rare=0.05),
)


class Planted:
    """A grid whose boundary is known."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self.world, self.rng, self.axes = world, rng, []
        self.thresholds: list[int] = []
        num_axes = int(rng.integers(max(3, world.active), 5))
        for place in range(num_axes):
            size = int(rng.integers(5, 10))
            least = int(rng.integers(1, size)) if place < world.active else 0
            home = int(rng.integers(0, size)) if place else int(rng.integers(0, max(1, least)))
            self.thresholds.append(least)
            self.axes.append(GridAxis(name=str(place), size=size, home_index=home, simplest_index=0))

    def gap(self, cell: CellIndex) -> float:
        active = list(zip(cell, self.thresholds, strict=True))[: self.world.active]
        if not active or any(at < least for at, least in active):
            return self.world.rest
        return self.world.gap + self.world.rise * min(at - least for at, least in active)

    def _drawn(self, cell: CellIndex, count: int) -> np.ndarray:
        drawn = noise(self.world.distribution, count, self.rng)
        exploded = self.rng.random(count) < self.world.rare
        return self.gap(cell) + NOISE * drawn + 2 * (self.world.rare - exploded)

    def gaps(self, cells: Sequence[CellIndex]) -> list[float]:
        return [float(self._drawn(cell, LOOK).mean()) for cell in cells]

    def test(self, cell: CellIndex, number: int, factor: int) -> tuple[float, float]:
        location = locate(Samples.of_differences(tuple(self._drawn(cell, SEEDS * factor))))
        return location.estimate.mean, location.p_above(RULES.margin)


def play(world: World, rng: np.random.Generator) -> tuple[bool, bool, int, int]:
    """Plays a search: whether it found the boundary, whether it confirmed anything false, cells and tests."""
    planted = Planted(world, rng)
    found = search_cells(planted.axes, planted, RULES)
    near = found.smallest is not None and all(
        abs(at - least) <= 1 for at, least in zip(found.smallest.cell, planted.thresholds, strict=True)
    )
    false = any(test.is_confirmed and planted.gap(test.cell) <= RULES.margin for test in found.tests)
    return near and bool(world.active), false, len(found.gaps), len(found.tests)


def main() -> None:
    """Prints a row for each world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=1000)
    asked, rng = parser.parse_args(), np.random.default_rng(0)
    print("| world | searches | found | false | cells | tests |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for world in WORLDS:
        near, false, cells, tests = np.array([play(world, rng) for _ in range(asked.searches)], float).mean(axis=0)
        share = f"{near:.3f}" if world.active else ""
        print(f"| {world.name} | {asked.searches} | {share} | {false:.3f} | {cells:.0f} | {tests:.1f} |", flush=True)


if __name__ == "__main__":
    main()
