"""How often `lobench alarm` tells falsely along a run of 50 checkpoints, and how soon it finds what is planted.

Usage:
  python benchmarks/alarm_rates.py [--runs 200] [--world NAME]

Six cases of 4 usual seeds a checkpoint, three of them out of distribution; the noise of a seed and case is .08, the
same draws never count twice. In the worlds `together` a seed moves all cases alike, by the share `correlation` of the
variance, or diverges on all; they are one group by design. Confirmations have 8 fresh seeds of both sides; the margin
is .05, the rate .05 for the whole run. Checkpoints are 1,000 outer steps apart. What is planted begins at checkpoint
25. `false` is the share of runs with an alarm where there is nothing (before 25 where something is planted), `within
5`, `10` and `20` that with one in so many checkpoints from there. `seeds` are the fresh ones of a case and run, both
sides together.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from simulated_seeds import noise
from verdict_rates import common_samples, lacking

from lobench.analysis.stats.paired_samples import DIVERGED, Samples
from lobench.tools.alarm.alarm_rules import AlarmRules
from lobench.tools.alarm.rule import AlarmKind, Confirmation, Stall, SuspectThenConfirm, detector_of

__all__ = ["WORLDS", "play"]

CHECKPOINTS, AT, CASES, SEEDS, NOISE = 50, 25, 6, 4, 0.08
RULES = AlarmRules()
OUTSIDE = tuple(f"out{place}" for place in range(3))
INSIDE = tuple(f"in{place}" for place in range(3))


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is planted.

    Attributes:
      outside, inside: Score of a checkpoint, by its place, out of distribution and in it.
      distribution: Of the noise: normal, t3, or skewed.
      diverging: Share of seeds that diverge, on all cases at once if cases move together.
      correlation: Share of the variance that a seed adds to all cases.
      missing: Values that each checkpoint lacks: "worst" for the worst tenth, or "" for none.
      kinds: That are followed.
      is_null: Whether no kind has anything to find.
    """

    name: str
    outside: Callable[[int], float] = lambda place: 0.0
    inside: Callable[[int], float] = lambda place: 0.0
    distribution: str = "normal"
    diverging: float = 0.0
    correlation: float = 0.0
    missing: str = ""
    kinds: tuple[AlarmKind, ...] = ("regress", "overfit")
    is_null: bool = False


def _both(name: str, scores: Callable[[int], float], *, distribution: str = "normal", is_null: bool = False) -> World:
    return World(
        name=name,
        outside=scores,
        inside=scores,
        distribution=distribution,
        kinds=("regress",),
        is_null=is_null,
    )


def _from(size: float) -> Callable[[int], float]:
    return lambda place: -size * (place >= AT)


WORLDS = (
    World(name="no harm", is_null=True),
    World(name="no harm, t3", distribution="t3", is_null=True),
    World(name="no harm, skewed", distribution="skewed", is_null=True),
    World(name="no harm, 10% diverge", diverging=0.1, is_null=True),
    _both("at the margin from 25 on", _from(0.05), is_null=True),
    _both("at the margin from 25 on, t3", _from(0.05), distribution="t3", is_null=True),
    _both("a fall of .10", _from(0.10)),
    _both("a fall of .16, two deviations", _from(0.16)),
    _both("a fall of .16, t3", _from(0.16), distribution="t3"),
    _both("a drift of .004 a checkpoint", lambda place: -0.004 * max(0, place - AT)),
    World(name="overfit: .16 worse outside", outside=_from(0.16), kinds=("overfit",)),
    World(
        name="overfit: better inside, worse outside by .02 a checkpoint each",
        outside=lambda place: -0.02 * max(0, min(place - AT, 8)),
        inside=lambda place: 0.02 * max(0, min(place - AT, 8)),
        kinds=("overfit",),
    ),
    World(
        name="better everywhere by .01 a checkpoint",
        outside=lambda place: 0.01 * place,
        inside=lambda place: 0.01 * place,
        is_null=True,
    ),
)


def _rises(before: float, after: float) -> Callable[[int], float]:
    return lambda place: before * min(place, AT) + after * max(0, place - AT)


WORLDS += (
    World(
        name="rises by the least gain, .01",
        outside=_rises(0.01, 0.01),
        inside=_rises(0.01, 0.01),
        kinds=("stall",),
        is_null=True,
    ),
    World(
        name="rises by .01, t3",
        outside=_rises(0.01, 0.01),
        inside=_rises(0.01, 0.01),
        distribution="t3",
        kinds=("stall",),
        is_null=True,
    ),
    World(name="rises by .02, flat from 25 on", outside=_rises(0.02, 0.0), inside=_rises(0.02, 0.0), kinds=("stall",)),
    World(
        name="rises by .02, falls by .01 from 25 on",
        outside=_rises(0.02, -0.01),
        inside=_rises(0.02, -0.01),
        kinds=("stall",),
    ),
)


def _together(correlation: float, harm: float, *, diverging: float = 0.0, missing: str = "") -> World:
    more = [f"{harm:g} worse from 25 on"] * bool(harm)
    more += [f"{diverging:.0%} diverge"] * bool(diverging) + [f"the {missing} tenth is missing"] * bool(missing)
    return World(
        name=", ".join(["together", f"correlation {correlation:g}", *more]),
        outside=_from(harm),
        inside=_from(harm),
        diverging=diverging,
        correlation=correlation,
        missing=missing,
        kinds=("regress",),
        is_null=True,
    )


WORLDS += (
    _together(0.5, 0.05),
    _together(0.8, 0.05),
    _together(0.5, 0.0, diverging=0.1),
    _together(0.5, 0.0, missing="worst"),
    _together(0.5, 0.05, missing="worst"),
)


class Run:
    """Checkpoints whose scores are drawn when they are asked for."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self._world, self._rng = world, rng
        self._scores = [self._draw(place, SEEDS) for place in range(CHECKPOINTS)]
        self._fresh: list[list[np.ndarray]] = [[] for _ in range(CHECKPOINTS)]

    def _draw(self, place: int, seeds: int) -> np.ndarray:
        """Returns float64[cases, seeds]."""
        world, shape = self._world, (CASES, seeds)
        drawn = noise(world.distribution, shape, self._rng)
        if world.correlation:
            common = noise(world.distribution, (1, seeds), self._rng)
            drawn = (1 - world.correlation) ** 0.5 * drawn + world.correlation**0.5 * common
        true = np.repeat([world.outside(place), world.inside(place)], CASES // 2)[:, None]
        scores = true + NOISE * drawn
        lost = self._rng.random((1, seeds) if world.correlation else shape) < world.diverging
        scores[np.broadcast_to(lost, shape)] = DIVERGED
        return lacking(self._rng, world.missing, scores)

    def __len__(self) -> int:
        return CHECKPOINTS

    def outer_step(self, place: int) -> int:
        return 1000 * place

    def mean_score(
        self, place: int, at: int, kind: AlarmKind = "stall", number: int = 0, cases: Collection[str] | None = None
    ) -> float:
        every = np.concatenate([self._scores[place], *self._fresh[place]], axis=1)
        every = np.where(np.isneginf(every), -1.0, every)
        return float(np.nanmean(every[: CASES // 2] if cases is not None else every))

    def usual_samples(self, reference: int, place: int) -> Mapping[str, Samples]:
        return self._samples(self._scores[reference], self._scores[place])

    def fresh_samples(self, asked: Confirmation) -> Mapping[str, Samples]:
        sides = [self._draw(place, RULES.seeds) for place in (asked.reference, asked.position)]
        for place, side in zip((asked.reference, asked.position), sides, strict=True):
            self._fresh[place].append(side)
        return self._samples(*sides)

    def _samples(self, a: np.ndarray, b: np.ndarray) -> Mapping[str, Samples]:
        samples = common_samples(a, b, is_one_group=self._world.correlation > 0)
        return {name: samples[str(case)] for case, name in enumerate((*OUTSIDE, *INSIDE)) if str(case) in samples}


def play(world: World, kind: AlarmKind, rng: np.random.Generator) -> SuspectThenConfirm | Stall:
    """Returns the course of one kind along one run."""
    found = detector_of(kind, RULES, OUTSIDE, INSIDE)
    found.advance(Run(world, rng))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--world", default="", help="Only those whose name has this in it.")
    options = parser.parse_args()
    print(f"{'world':68}{'kind':>9}{'false':>7}{'within 5':>10}{'within 10':>11}{'within 20':>11}{'seeds':>7}")
    for number, world in enumerate(WORLDS):
        if options.world not in world.name:
            continue
        for kind in world.kinds:
            rng = np.random.default_rng((number, 1))
            played = [play(world, kind, rng) for _ in range(options.runs)]
            at = [[alarm.position for alarm in one.alarms] for one in played]
            early = [[place for place in one if world.is_null or place < AT] for one in at]
            delays = [[place - AT for place in one if place >= AT] for one in at]
            found = [np.mean([any(delay <= most for delay in one) for one in delays]) for most in (5, 10, 20)]
            shown = ["-"] * 3 if world.is_null else [f"{share:.3f}" for share in found]
            seeds = 0 if kind == "stall" else 2 * RULES.seeds * np.mean([one.num_tests for one in played])
            false = np.mean([bool(one) for one in early])
            print(
                f"{world.name:68}{kind:>9}{false:>7.3f}{shown[0]:>10}{shown[1]:>11}{shown[2]:>11}{seeds:>7.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
