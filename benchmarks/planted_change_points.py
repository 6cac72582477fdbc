"""Falls planted in rows of 200 checkpoints, and what `lobench bisect`'s decision logic finds of them.

A seed's score at a checkpoint is what the seed adds (the same at all checkpoints), less the fall from the break on,
plus noise of standard deviation 1; a probe is a block of four seeds. The break is uniform over the checkpoints. With
`--wobble` each checkpoint adds something of its own too, which no number of seeds averages out.

    python benchmarks/planted_change_points.py [--runs 200] [--most 40]
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import click

from lobench.tools.bisect.change_point import Belief, Probe, believe, next_probes, scan

NUM_CHECKPOINTS = 200
NUM_SEEDS = 4
LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How one bisection ended."""

    broke_at: int
    belief: Belief
    num_probes: int

    @property
    def is_hit(self) -> bool:
        return abs(self.belief.place - self.broke_at) <= 1

    @property
    def is_decided(self) -> bool:
        return self.belief.fall >= LEVEL and self.belief.within(1) >= LEVEL


def bisected(
    fall: float, draws: random.Random, *, most: int, wobble: float = 0.0, spread: float = 2.0, at_once: int = 1
) -> Found:
    """Plants a fall and searches for it.

    Args:
      fall, wobble, spread: Of the scores, of what checkpoints add, and of what seeds add, in standard deviations of one
        seed's paired score.
      most: Probes.
      at_once: Probes that are chosen together.
    """
    broke_at = draws.randrange(1, NUM_CHECKPOINTS)
    own = [draws.gauss(0, wobble) for _ in range(NUM_CHECKPOINTS)]
    added: dict[int, float] = {}
    probes: list[Probe] = []

    def probe(place: int) -> None:
        block = sum(one.place == place for one in probes)
        scores = []
        for seed in range(block * NUM_SEEDS, (block + 1) * NUM_SEEDS):
            common = added.setdefault(seed, draws.gauss(0, spread)) + own[place]
            scores.append(common - fall * (place >= broke_at) + draws.gauss(0, 1))
        probes.append(Probe(place=place, block=block, scores=tuple(scores)))

    for place in scan(probes, NUM_CHECKPOINTS):
        probe(place)
    while True:
        belief = believe(probes, NUM_CHECKPOINTS)
        found = Found(broke_at=broke_at, belief=belief, num_probes=len(probes))
        if found.is_decided or belief.fall <= 1 - LEVEL or len(probes) >= most:
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
        f"{sum(one.belief.within(1) for one in found) / count:.1%}",
        f"{sum(one.is_decided for one in found) / count:.0%}",
        f"{sum(used) / count:.1f} ({sum(used) / count / NUM_CHECKPOINTS:.0%})",
        f"{used[int(0.95 * count)]}",
        f"{sum(one.belief.fall <= 1 - LEVEL for one in found)}",
    ]
    return f"| {' | '.join(cells)} |"


def calibration(found: list[Found]) -> str:
    """Returns how often a break was within one checkpoint, by what was said of that."""
    edges = [0.0, 0.25, 0.5, 0.75, LEVEL, 1.01]
    parts = []
    for low, high in itertools.pairwise(edges):
        own = [one for one in found if low <= one.belief.within(1) < high]
        if own:
            output = sum(one.belief.within(1) for one in own) / len(own)
            parts.append(f"said {output:.0%}, was {sum(one.is_hit for one in own) / len(own):.0%} of {len(own)}")
    return "; ".join(parts)


@click.command()
@click.option("--runs", default=200, show_default=True)
@click.option("--most", default=NUM_CHECKPOINTS // 5, show_default=True, help="Evaluations of one bisection.")
@click.option("--at-once", default=1, show_default=True)
@click.option("--wobble", multiple=True, type=float, default=(0.0, 0.5), show_default=True)
@click.option("--fall", "drops", multiple=True, type=float, default=(0.5, 1.0, 2.0, 4.0), show_default=True)
def main(runs: int, most: int, at_once: int, wobble: tuple[float, ...], drops: tuple[float, ...]) -> None:
    """Print the table."""
    print("| fall | wobble | within one | said | decided | evaluations (of all) | 95th | 'no fall' |")
    print("|---|---|---|---|---|---|---|---|")
    lines = []
    for each in wobble:
        for fall in drops:
            draws = random.Random(f"{fall} {each}")
            found = [bisected(fall, draws, most=most, wobble=each, at_once=at_once) for _ in range(runs)]
            print(row(fall, found, each), flush=True)
            lines.append(f"fall {fall:g}, wobble {each:g}: {calibration(found)}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
