"""Falls planted in rows of 200 checkpoints, and what `lobench bisect`'s decision logic finds of them.

A seed's score at a checkpoint is what the seed adds (the same at all checkpoints), less the fall from the break on,
plus noise of standard deviation 1; a probe is a block of four seeds. The break is uniform over the checkpoints. With
`--wobble` each checkpoint adds something of its own too, which no number of seeds averages out. With `--lost` this
share of the seeds diverges, before the break and from it on.

    python benchmarks/planted_change_points.py [--runs 200] [--most 40]

Whether the named checkpoint is the right one as often as stated, at 300 breaks (`--runs 6 --check` is a smoke test):

    python benchmarks/planted_change_points.py --runs 300 --lost 0.05 --wobble 0 --fall 1.5 --fall 2 --fall 4 --check
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from dataclasses import dataclass

import click

from lobench.analysis.stats.change_point import (
    ChangePointPosterior,
    Probe,
    fall_posterior,
    first_probes,
    is_located,
    next_probes,
    pair_around_break,
)

NUM_CHECKPOINTS = 200
NUM_SEEDS = 4
LEVEL = 0.95
CONFIDENCE = 0.9
MISCALIBRATED = 0.05  # at most, between what is stated and what is so


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How one bisection ended."""

    broke_at: int
    belief: ChangePointPosterior
    num_probes: int
    probed: frozenset[int]

    @property
    def is_exact(self) -> bool:
        return self.belief.break_index == self.broke_at

    @property
    def stated(self) -> float:
        """Probability of the named checkpoint."""
        return self.belief.probability_by_index[self.belief.break_index]

    @property
    def is_named_pair_probed(self) -> bool:
        """Whether both checkpoints that would be named were evaluated."""
        if self.is_decided:
            return {self.belief.break_index - 1, self.belief.break_index} <= self.probed
        return self.probed.issuperset(pair_around_break(self.belief, self.probed))

    @property
    def is_hit(self) -> bool:
        return abs(self.belief.break_index - self.broke_at) <= 1

    @property
    def is_decided(self) -> bool:
        is_near = self.belief.fall_probability >= LEVEL and self.belief.probability_within(1) >= LEVEL
        return is_near and is_located(self.belief, self.probed, CONFIDENCE)


def bisected(
    fall: float,
    draws: random.Random,
    *,
    most: int,
    wobble: float = 0.0,
    spread: float = 2.0,
    at_once: int = 1,
    lost: float = 0.0,
) -> Found:
    """Plants a fall and searches for it.

    Args:
      fall, wobble, spread: Of the scores, of what checkpoints add, and of what seeds add, in standard deviations of one
        seed's paired score.
      most: Probes.
      at_once: Probes that are chosen together.
      lost: Share of seeds that diverge.
    """
    broke_at = draws.randrange(1, NUM_CHECKPOINTS)
    own = [draws.gauss(0, wobble) for _ in range(NUM_CHECKPOINTS)]
    added: dict[int, float] = {}
    probes: list[Probe] = []

    def probe(place: int) -> None:
        block = sum(one.checkpoint_index == place for one in probes)
        scores = []
        for seed in range(block * NUM_SEEDS, (block + 1) * NUM_SEEDS):
            common = added.setdefault(seed, draws.gauss(0, spread)) + own[place]
            score = common - fall * (place >= broke_at) + draws.gauss(0, 1)
            scores.append(-math.inf if lost and draws.random() < lost else score)
        probes.append(Probe(checkpoint_index=place, block=block, scores=tuple(scores)))

    for place in first_probes(probes, NUM_CHECKPOINTS):
        probe(place)
    while True:
        belief = fall_posterior(probes, NUM_CHECKPOINTS)
        probed = frozenset(one.checkpoint_index for one in probes)
        found = Found(broke_at=broke_at, belief=belief, num_probes=len(probes), probed=probed)
        if found.is_decided or belief.fall_probability <= 1 - LEVEL or len(probes) >= most:
            return found
        for place in next_probes(belief, probes, min(at_once, most - len(probes))):
            probe(place)


def row(fall: float, found: list[Found], wobble: float) -> str:
    """Returns a line of the table."""
    used = sorted(one.num_probes for one in found)
    count = len(found)
    cells = [
        f"{fall:g}",
        f"{wobble:g}",
        f"{sum(one.is_hit for one in found) / count:.1%}",
        f"{sum(one.belief.probability_within(1) for one in found) / count:.1%}",
        f"{sum(one.is_decided for one in found) / count:.0%}",
        f"{sum(used) / count:.1f} ({sum(used) / count / NUM_CHECKPOINTS:.0%})",
        f"{used[int(0.95 * count)]}",
        f"{sum(one.belief.fall_probability <= 1 - LEVEL for one in found)}",
    ]
    return f"| {' | '.join(cells)} |"


def calibration(found: list[Found]) -> str:
    """Returns how often a break was within one checkpoint, by what was said of that."""
    edges = [0.0, 0.25, 0.5, 0.75, LEVEL, 1.01]
    parts = []
    for low, high in itertools.pairwise(edges):
        own = [one for one in found if low <= one.belief.probability_within(1) < high]
        if own:
            output = sum(one.belief.probability_within(1) for one in own) / len(own)
            parts.append(f"said {output:.0%}, was {sum(one.is_hit for one in own) / len(own):.0%} of {len(own)}")
    return "; ".join(parts)


def exactness(bisections: list[Found]) -> tuple[str, bool]:
    """Returns how often the named checkpoint was the right one, and whether that is as stated."""
    stated, right = _stated_and_right(bisections)
    num_probed = sum(one.is_named_pair_probed for one in bisections)
    count = len(bisections)
    text = f"named: stated {stated:.1%}, right {right:.1%}; both evaluated in {num_probed} of {count}"
    if decided := [one for one in bisections if one.is_decided]:
        stated_decided, right_decided = _stated_and_right(decided)
        text += f"; of {len(decided)} decided: stated {stated_decided:.1%}, right {right_decided:.1%}"
    tolerance = MISCALIBRATED + 2 * math.sqrt(max(stated * (1 - stated), 0.01) / count) * (count < 300)
    return text, abs(stated - right) <= tolerance and num_probed == count


def _stated_and_right(bisections: list[Found]) -> tuple[float, float]:
    """Returns the mean stated probability of the named checkpoint, and how often it is the right one."""
    count = len(bisections)
    return sum(one.stated for one in bisections) / count, sum(one.is_exact for one in bisections) / count


@click.command()
@click.option("--runs", default=200, show_default=True)
@click.option("--most", default=NUM_CHECKPOINTS // 5, show_default=True, help="Evaluations of one bisection.")
@click.option("--at-once", default=1, show_default=True)
@click.option("--wobble", multiple=True, type=float, default=(0.0, 0.5), show_default=True)
@click.option("--lost", default=0.0, show_default=True, help="Share of seeds that diverge.")
@click.option(
    "--check", is_flag=True, help="Exit with 1 if the named checkpoint is right less or more often than stated."
)
@click.option("--fall", "drops", multiple=True, type=float, default=(0.5, 1.0, 2.0, 4.0), show_default=True)
def main(
    runs: int, most: int, at_once: int, wobble: tuple[float, ...], lost: float, check: bool, drops: tuple[float, ...]
) -> None:
    """Print the table."""
    print("| fall | wobble | within one | said | decided | evaluations (of all) | 95th | 'no fall' |")
    print("|---|---|---|---|---|---|---|---|")
    lines, is_calibrated = [], True
    for each in wobble:
        for fall in drops:
            draws = random.Random(f"{fall} {each}")
            found = [bisected(fall, draws, most=most, wobble=each, at_once=at_once, lost=lost) for _ in range(runs)]
            print(row(fall, found, each), flush=True)
            text, is_right = exactness(found)
            is_calibrated &= is_right
            lines.append(f"fall {fall:g}, wobble {each:g}: {calibration(found)}; {text}")
    print("\n".join(lines))
    if check and not is_calibrated:
        sys.exit(1)


if __name__ == "__main__":
    main()
