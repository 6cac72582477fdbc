"""How often Track 3's rule accepts a result whose true mean loss is just the target, and what stopping early adds.

Usage:
  python benchmarks/track3_rates.py [--results 1000000]

The rule's error is .00105 where each run is normal with a standard deviation of .0013 and the number of runs was
planned. `looks after each run` stops at the first number of runs, up to the most, that passes; `best of K settings`
submits the best of K sets of runs with equal true means. `earliest of 20 steps` takes the first of the last 20 printed
steps that passes for all runs: the true loss falls by .000045 a step and is the target at the last one, so that every
step which passes is too early; a run's noise moves by .00002 between two of them, as it does in the track's logs, or is
drawn anew. The last table has the statistic that keeps the error at .00105 when one looks after each run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from simulated_seeds import noise

from lobench.analysis.stats.known_sigma import LOSS_PER_STEP, NEEDED, SIGMA

__all__ = ["first_look", "statistics"]

BATCH = 20_000
NUM_STEPS, STEP = 20, 25  # printed losses, and steps between two
LAWS = {"normal": "normal", "t3": "t3", "skewed downwards": "skewed"}  # name in the table -> law of the noise


def statistics(losses: np.ndarray) -> np.ndarray:
    """Returns the rule's statistic after each run: float[num_results, num_runs], of losses less the target."""
    runs = np.arange(1, losses.shape[1] + 1)
    return -losses.cumsum(axis=1) / np.sqrt(runs)


def first_look(found: np.ndarray) -> np.ndarray:
    """Returns the largest statistic of all looks up to each number of runs."""
    return np.maximum.accumulate(found, axis=1)


def _rate(num: int, draw: Callable[[int], np.ndarray]) -> np.ndarray:
    """Returns the share of results that are accepted, from batches of statistics: [num_results, ...]."""
    total, done = np.zeros(()), 0
    while done < num:
        size = min(BATCH, num - done)
        total, done = total + (draw(size) >= NEEDED).sum(axis=0), done + size
    return total / num


def _steps(rng: np.random.Generator, size: int, runs: int, moves: float | None) -> np.ndarray:
    """Returns the largest statistic of the printed steps before the last one."""
    before = LOSS_PER_STEP * STEP * np.arange(NUM_STEPS)[::-1]
    if moves is None:
        losses = SIGMA * rng.normal(size=(size, runs, NUM_STEPS))
    else:
        walk = moves * rng.normal(size=(size, runs, NUM_STEPS)).cumsum(axis=2)
        losses = SIGMA * rng.normal(size=(size, runs, 1)) + walk
    return (-(losses + before).mean(axis=1) * runs**0.5).max(axis=1)


def main() -> None:
    """Prints three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, default=1_000_000)
    num, rng = parser.parse_args().results, np.random.default_rng(0)
    most, shown = 100, (1, 4, 10, 20, 40, 100)
    print("| runs, sd | " + " | ".join(f"{runs}" for runs in shown) + " |\n| --- |" + " ---: |" * len(shown))
    kept: dict[str, np.ndarray] = {}
    for name, law in LAWS.items():
        for deviation in (SIGMA, 0.0011, 0.0016) if name == "normal" else (SIGMA,):
            of = f"{name}, {deviation}"
            for how, looks in (("planned", False), ("looks after each run", True)):

                def drawn(size: int, law: str = law, sd: float = deviation, looks: bool = looks) -> np.ndarray:
                    found = statistics(sd * noise(law, (size, most), rng))
                    return first_look(found) if looks else found

                kept[how] = _rate(num, drawn)
                print(f"| {of}: {how} | " + " | ".join(f"{kept[how][n - 1]:.5f}" for n in shown) + " |", flush=True)
    print("\n| chosen after the fact, 10 runs | accepted |\n| --- | ---: |")
    for settings in (2, 5, 10):

        def best(size: int, settings: int = settings) -> np.ndarray:
            return (-SIGMA * rng.normal(size=(size, settings))).max(axis=1)

        print(f"| best of {settings} settings | {_rate(num, best):.5f} |", flush=True)
    for name, moves in (("as in the logs", 0.00002), ("drawn anew", None)):

        def early(size: int, moves: float | None = moves) -> np.ndarray:
            return _steps(rng, size, 10, moves)

        print(f"| earliest of {NUM_STEPS} steps, noise {name} | {_rate(num, early):.5f} |", flush=True)
    tail, looks = 0.00105, [[] for _ in shown]  # type: list[float], list[list[np.ndarray]]
    for _ in range(max(1, num // BATCH)):
        found = first_look(statistics(SIGMA * noise("normal", (min(BATCH, num), most), rng)))
        for place, runs in enumerate(shown):
            looks[place].append(np.partition(found[:, runs - 1], -200 if len(found) > 200 else 0)[-200:])
    print(
        "\n| looks after each run, up to | statistic that keeps .00105 | at a mean of 20 runs |\n| ---: | ---: | ---: |"
    )
    for runs, parts in zip(shown, looks, strict=True):
        tops = np.sort(np.concatenate(parts))[::-1]
        needed = tops[min(int(tail * num), len(tops) - 1)]
        print(f"| {runs} | {needed:.5f} | {3.28 - needed / 20**0.5:.4f} |")


if __name__ == "__main__":
    main()
