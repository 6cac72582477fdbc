"""How often a race throws out the best method, and what it costs, in simulated worlds.

Usage:
  python benchmarks/race_rates.py [--races 2000] [--methods 2,10,100]
  python benchmarks/race_rates.py --margin 0.05

A race trains one seed more of each method that is in, on 6 cases, 24 seeds at most, and looks at each of them: to be
thrown out at any look counts, so that the rates hold wherever a user stops. The noise of one seed and case is .08 on
the score. `best out` is the share of races in which the first of the best methods is thrown out, `any tied out` that
in which any method that is as good is. The cost is the share of the trainings of all methods on all seeds; beside it
how many methods are left. Level .05. With --margin races end where no method that is left can be better than the
leader by more: how often they do, and how often although one is.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from simulated_seeds import noise

from lobench.analysis.stats.racing import PairSums, eliminated_methods, log_threshold

__all__ = ["play"]

CASES, SEEDS, NOISE, ALPHA = 6, 24, 0.08, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Methods of a race.

    Attributes:
      gaps: `equal`; a number, by which all but the first are worse; `spread`: from 0 to .5.
      distribution: Of the noise; `skewed best`: lognormal downwards for the best alone, normal for the others.
      lost: Share of seeds on which a method diverges; of the best and of the others.
      step: In which scores are rounded.
    """

    name: str
    gaps: str | float = "equal"
    distribution: str = "normal"
    lost: tuple[float, float] = (0.0, 0.0)
    step: float = 0.0


WORLDS = (
    World(name="equal, normal"),
    World(name="equal, t3", distribution="t3"),
    World(name="equal, lognormal", distribution="lognormal"),
    World(name="equal means, the best skewed", distribution="skewed best"),
    World(name="equal, 2% diverge", lost=(0.02, 0.02)),
    World(name="equal, 30% diverge", lost=(0.3, 0.3)),
    World(name="equal, t3, 10% diverge", distribution="t3", lost=(0.1, 0.1)),
    World(name="equal, steps of .1", step=0.1),
    World(name="gap .05", gaps=0.05),
    World(name="gap .2", gaps=0.2),
    World(name="gaps 0 to .5", gaps="spread"),
    World(name="gaps 0 to .5, 10% diverge", gaps="spread", lost=(0.1, 0.1)),
    World(name="0 against 30% diverge, no gap", lost=(0.0, 0.3)),
)


def play(
    values: np.ndarray, step: float = 0.0, margin: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Plays races of one seed a round.

    Args:
      values: Scores by race, method, case and seed.
      margin: A race ends where no method that is left can be better than the leader by more; 0: it does not.
    Returns:
      Who was thrown out, bool[races, methods]; the share of all trainings that each race made; who leads in the end;
      whether the margin ended it.
    """
    races, methods, cases, seeds = values.shape
    racing, cost, sums = np.ones((races, methods), bool), np.zeros(races), None
    level, goes_on, leader = log_threshold(methods, ALPHA), np.ones(races, bool), np.zeros(races, int)
    scores, by_margin = np.zeros((races, methods)), np.zeros(races, bool)
    for seed in range(seeds):
        new = values[..., seed : seed + 1]
        more = PairSums.of(new[:, :, None], new[:, None], np.full(cases, step))
        sums = more if sums is None else sums + more
        cost += np.where(goes_on, racing.sum(axis=1), 0)
        racing &= ~(eliminated_methods(sums, level, racing)[0] & goes_on[:, None])
        scores += np.where(np.isfinite(new), new, -1).mean(axis=(2, 3))
        leader = np.where(goes_on, np.where(racing, scores, -np.inf).argmax(axis=1), leader)
        rows = np.arange(races)
        most = (sums.half_width(level) - sums.mean)[rows, leader]  # how much better each can be than the leader
        is_close = ~racing | (most < margin) | (np.arange(methods) == leader[:, None])
        several = racing.sum(axis=1) > 1
        by_margin |= goes_on & several & is_close.all(axis=1) & (margin > 0)
        goes_on &= several & ~by_margin
    return ~racing, cost / (methods * seeds), leader, by_margin


def _margin_worlds(margin: float) -> tuple[World, ...]:
    """Returns worlds in which all but one are worse by the margin, or by twice as much, and some without a gap."""
    distributions = ("normal", "t3", "lognormal", "skewed best")
    found = [
        World(name=f"{distribution}, gap {gap:g}", gaps=gap, distribution=distribution)
        for distribution in distributions
        for gap in (margin, 2 * margin)
    ]
    found += [World(name=f"{distribution}, equal", distribution=distribution) for distribution in distributions]
    return (*found, World(name=f"10% diverge, gap {margin:g}", gaps=margin, lost=(0.1, 0.1)))


def _noise(distribution: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if distribution != "skewed best":
        return noise(distribution, shape, rng)
    skewed = noise("lognormal", shape, rng)
    skewed[:, 1:] = rng.standard_normal((shape[0], shape[1] - 1, *shape[2:]))
    skewed[:, 0] *= -1
    return skewed


def _drawn(world: World, methods: int, races: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns scores by race, method, case and seed, and how bad each method is."""
    if world.gaps == "spread":
        gaps = np.linspace(0, 0.5, methods)
    else:
        gaps = np.full(methods, 0.0 if world.gaps == "equal" else world.gaps)
        gaps[0] = 0.0
    lost = np.full(methods, world.lost[1])
    lost[0] = world.lost[0]
    shape = (races, methods, CASES, SEEDS)
    common = rng.normal(0, NOISE, (races, 1, CASES, SEEDS))  # a seed is harder for all
    values = common - gaps[:, None, None] + NOISE * _noise(world.distribution, shape, rng)
    if world.step:
        values = np.round(values / world.step) * world.step
    values[rng.random(shape) < lost[:, None, None]] = -np.inf
    return values, gaps + lost


def main() -> None:
    """Prints a row for each world and number of methods."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", type=int, default=2000)
    parser.add_argument("--methods", default="2,10,100")
    parser.add_argument("--margin", type=float, default=0.0)
    asked, rng = parser.parse_args(), np.random.default_rng(0)
    more = " ended by margin | though one is better by it | leader is worse by |" if asked.margin else ""
    print("| world | methods | races | best out | any tied out | cost | left |" + more)
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |" + " ---: | ---: | ---: |" * bool(more))
    for methods in map(int, asked.methods.split(",")):
        at_once = max(1, 200_000 // methods**2)
        races = asked.races
        for world in _margin_worlds(asked.margin) if asked.margin else WORLDS:
            sizes = [min(at_once, races - start) for start in range(0, races, at_once)]
            found, worse = [], np.zeros(methods)
            for size in sizes:
                values, worse = _drawn(world, methods, size, rng)
                found.append(play(values, world.step, asked.margin))
            out, cost, leader, ended = (np.concatenate([one[place] for one in found]) for place in range(4))
            tied = out[:, worse == worse[0]].any(axis=1).mean()
            left = (~out).sum(axis=1).mean()
            row = [f"{out[:, 0].mean():.3f}", f"{tied:.3f}", f"{cost.mean():.2f}", f"{left:.1f}"]
            if asked.margin:
                behind = worse[leader] - worse.min()
                wrong = ended & (behind > asked.margin - 1e-9)
                row += [f"{ended.mean():.3f}", f"{wrong.mean():.4f}", f"{behind.mean():.4f}"]
            print(f"| {world.name} | {methods} | {races} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
