"""Simulated races that train quiet cases less often than noisy ones, beside races of whole rounds.

Usage:
  python benchmarks/race_spend.py [--races 1000] [--methods 2,10]

What choosing cases would save, and what it does to the error rates; `lobench compare --race` has whole rounds. Cases
have the noise and the core-seconds of suites/quick. From the fifth seed on a case is drawn with a chance that goes with
the deviation of the leader's differences there so far, per root of a core-second, and is .25 at least, for all methods
alike. A seed's difference is the mean over all cases of what was expected before, corrected by (what was found less
that) / chance where the case is drawn: its mean, given the past, is that of all cases, whoever was chosen. A race ends
when a method has used the core-seconds of 24 seeds of all cases. Level .05; columns are those of race_rates.py.
"""

from __future__ import annotations

import argparse

import numpy as np
from race_rates import noise

from lobench.analysis.stats.racing import PairSums, log_threshold, losers

NOISE = np.array([0.14, 0.07, 0.28, 0.04, 0.21, 0.008])  # of one seed: relu32, tanh64x2, conv, quadratic, ...
SECONDS = np.array([0.05, 0.1, 0.3, 0.01, 0.01, 0.4])
ALPHA, SEEDS, LEAST, FIRST, MOST = 0.05, 24, 0.25, 4, 200


def play(values: np.ndarray, rng: np.random.Generator, *, is_chosen: bool) -> tuple[np.ndarray, float]:
    """Plays a race of one seed a round.

    Args:
      values: Scores by method, case and seed.
    Returns:
      Who is left, bool[methods]; the share of the core-seconds of all methods on all seeds.
    """
    methods, cases, _ = values.shape
    level, racing, used = log_threshold(methods, ALPHA), np.ones(methods, bool), np.zeros(cases, int)
    chances, budget, spent, cost, sums = np.ones(cases), SEEDS * SECONDS.sum(), 0.0, 0.0, None
    while racing.sum() > 1 and used.max() < MOST:
        drawn = rng.random(cases) < chances
        seconds = (drawn * SECONDS).sum()
        if spent + seconds > budget * (1 + 1e-9):
            break
        expected = np.stack([values[:, case, : max(used[case], 1)].mean(axis=1) for case in range(cases)], axis=1)
        expected *= used > 0
        found = expected + np.where(drawn, (values[:, np.arange(cases), used] - expected) / chances, 0.0)
        used, spent, cost = used + drawn, spent + seconds, cost + racing.sum() * seconds
        more = PairSums.of(found[:, None, :, None], found[None, :, :, None])
        sums = more if sums is None else sums + more
        racing &= ~losers(sums, level, racing)[0]
        if is_chosen and used.min() >= FIRST and racing.sum() > 1:
            past = [values[:, case, : used[case]] for case in range(cases)]
            leader = int(np.where(racing, sum(one.mean(axis=1) for one in past), -np.inf).argmax())
            rivals = [place for place in np.flatnonzero(racing) if place != leader]
            spread = [np.var(one[leader] - one[rivals], axis=1, ddof=1).mean() for one in past]
            wanted = np.sqrt(np.array(spread) / SECONDS)
            chances = np.clip(wanted / wanted.max(), LEAST, 1.0) if wanted.max() else np.ones(cases)
    return racing, cost / (methods * budget)


def main() -> None:
    """Prints a row for each world, number of methods and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", type=int, default=1000)
    parser.add_argument("--methods", default="2,10")
    asked = parser.parse_args()
    print("| world | methods | cases | best out | any tied out | cost | left |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    for methods in map(int, asked.methods.split(",")):
        flat = np.zeros(methods)
        worlds = [
            (f"equal, {distribution}", flat, distribution)
            for distribution in ("normal", "t3", "lognormal", "skewed best")
        ]
        worlds += [(f"gap {gap:g}", np.r_[0, np.full(methods - 1, gap)], "normal") for gap in (0.05, 0.1, 0.2)]
        worlds += [("gaps 0 to .5", np.linspace(0, 0.5, methods), "normal")]
        for name, gaps, distribution in worlds:
            for is_chosen in (False, True):
                rng, left, costs = np.random.default_rng(0), [], []
                for _ in range(asked.races):
                    shape = (methods, len(NOISE), MOST)
                    own = rng.normal(0, 0.1, shape[:2])  # a method is better on some cases
                    own -= own.mean(axis=1, keepdims=True) + gaps[:, None]
                    values = own[..., None] + NOISE[:, None] * noise(distribution, (1, *shape), rng)[0]
                    racing, cost = play(values, rng, is_chosen=is_chosen)
                    left.append(racing)
                    costs.append(cost)
                out = ~np.array(left)
                tied = out[:, gaps == gaps[0]].any(axis=1).mean()
                output = f"{out[:, 0].mean():.3f} | {tied:.3f} | {np.mean(costs):.2f} | {(~out).sum(axis=1).mean():.1f}"
                print(f"| {name} | {methods} | {'chosen' if is_chosen else 'all'} | {output} |", flush=True)


if __name__ == "__main__":
    main()
