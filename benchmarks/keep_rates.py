"""Error rates of `lobench keep` in simulated loops of candidates: python benchmarks/keep_rates.py --loops 300

Each loop has 50 candidates. Prints, for each world and rule, the share of loops with a false KEEP, the mean share of
false ones among those kept, the share of real improvements that are kept, and the pairs of a decision.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from scipy import stats

from lobench.analysis.stats.alpha_spending import e_lond_level
from lobench.analysis.stats.racing import PairSums
from lobench.tools.keep.decision import DecisionRules, decide

_SCREEN, _MAX_SEEDS, _CANDIDATES = 3, 32, 50
_FIXED_SEEDS = 8
_SEEN = 20  # candidates of which a greedy proposer submits one
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.normal(size=shape)


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_t(3, size=shape) / 3**0.5


def rounded(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.round(rng.normal(size=shape) * 2) / 2


def diverging(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.where(rng.random(shape) < 0.03, -np.inf, rng.normal(size=shape))


def unequal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Scores whose spread differs between candidates, from 0.3 to 3."""
    return rng.normal(size=shape) * np.exp(rng.uniform(-1.2, 1.1, size=(shape[0], 1)))


def keep_decisions(
    a: np.ndarray, b: np.ndarray, levels: np.ndarray, step: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns whether each decision keeps, whether it was tested, and its number of pairs."""
    kept, tested, pairs = (np.zeros(len(a), kind) for kind in (bool, bool, int))
    for level in np.unique(levels):
        rows = np.flatnonzero(levels == level)
        rules = DecisionRules(level=float(level), max_seeds=_MAX_SEEDS)
        is_open = np.ones(len(rows), bool)
        for count in range(1, a.shape[1] + 1):
            x, y = a[rows, None, :count], b[rows, None, :count]
            steps = np.array([step])
            screen = PairSums.of(x[..., :_SCREEN], y[..., :_SCREEN], steps)
            test = PairSums.of(x[..., _SCREEN:], y[..., _SCREEN:], steps)
            keeps, discards, ends = decide(screen, test, rules)
            now = is_open & (keeps | discards | ends)
            kept[rows[now]] = keeps[now]
            pairs[rows[is_open]] = count
            tested[rows[is_open]] |= count > _SCREEN
            is_open &= ~now
            if not is_open.any():
                break
    return kept, tested, pairs


def one_seed(a: np.ndarray, b: np.ndarray, levels: np.ndarray, step: float) -> tuple[np.ndarray, ...]:
    """Keeps a candidate whose one run is better than the incumbent's."""
    last = _SCREEN  # a fresh seed
    return a[:, last] > b[:, last], np.ones(len(a), bool), np.ones(len(a), int)


def three_seeds(a: np.ndarray, b: np.ndarray, levels: np.ndarray, step: float) -> tuple[np.ndarray, ...]:
    """Keeps a candidate by a paired t-test of three seeds at the level .05."""
    return t_test(a, b, 3, 0.05)


def bonferroni(a: np.ndarray, b: np.ndarray, levels: np.ndarray, step: float) -> tuple[np.ndarray, ...]:
    """Keeps a candidate by a paired t-test of a fixed number of seeds, at .1 divided by the number of candidates."""
    return t_test(a, b, _FIXED_SEEDS, 0.1 / _CANDIDATES)


def t_test(a: np.ndarray, b: np.ndarray, count: int, level: float) -> tuple[np.ndarray, ...]:
    difference = a[:, _SCREEN : _SCREEN + count] - b[:, _SCREEN : _SCREEN + count]
    with np.errstate(invalid="ignore", divide="ignore"):
        p = stats.ttest_1samp(difference, 0.0, axis=1, alternative="greater").pvalue
    return np.nan_to_num(p, nan=1.0) < level, np.ones(len(a), bool), np.full(len(a), count)


RULES = {
    "lobench keep": keep_decisions,
    "one seed": one_seed,
    "3 seeds, t": three_seeds,
    "8 seeds, Bonferroni": bonferroni,
}


def simulate(
    draw: Draw, gain: float, num_loops: int, step: float = 0.0, rule: str = "lobench keep", greedy: bool = False
) -> list[float]:
    """Simulates loops.

    Args:
      draw: World.
      gain: Real improvement of every fifth candidate.
      num_loops: Number of loops.
      step: Step to which values are rounded; 0 for none.
      rule: Key of `RULES`.
      greedy: Whether each candidate is the luckiest of 20 on the shared seeds, as if they were all run before.
    """
    rng = np.random.default_rng(0)
    false, true, tests, cost = (np.zeros(num_loops, int) for _ in range(4))
    shared = draw(rng, (num_loops, _SCREEN))  # of the incumbent
    for number in range(_CANDIDATES):
        real = gain if gain and number % 5 == 4 else 0.0
        levels = np.array([e_lond_level(0.1, t + 1, k) for t, k in zip(tests, false + true, strict=True)])
        a = draw(rng, (num_loops, _SCREEN + _MAX_SEEDS)) + real
        if greedy:
            seen = draw(rng, (num_loops * _SEEN, _SCREEN)).reshape(num_loops, _SEEN, _SCREEN) + real
            best = np.argmax(np.where(np.isfinite(seen), seen, -1e9).mean(2), axis=1)
            a[:, :_SCREEN] = seen[np.arange(num_loops), best]
        b = np.concatenate([shared, draw(rng, (num_loops, _MAX_SEEDS))], axis=1)
        kept, tested, pairs = RULES[rule](a, b, levels, step)
        false += kept & (real == 0)
        true += kept & (real > 0)
        tests += tested
        cost += pairs
        shared = np.where(kept[:, None], a[:, :_SCREEN] - real, shared)  # it is the next incumbent
    share = false / np.maximum(false + true, 1)
    return [
        (false > 0).mean(),
        share.mean(),
        true.mean() / (_CANDIDATES // 5) if gain else 0.0,
        cost.mean() / _CANDIDATES,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loops", type=int, default=300)
    loops = parser.parse_args().loops
    print("world, gain of every fifth candidate, rule: false KEEP, share of false among kept, power, pairs")

    def show(draw: Draw, gain: float, rule: str = "lobench keep", greedy: bool = False) -> None:
        found = simulate(draw, gain, loops, 0.5 if draw is rounded else 0.0, rule, greedy)
        world = f"{draw.__name__}{', greedy' * greedy}, {gain:g}, {rule}"
        print(f"{world}: " + ", ".join(f"{one:.3f}" for one in found), flush=True)

    for draw in (normal, heavy, rounded, diverging, unequal):
        show(draw, 0.0)
        show(draw, 0.0, greedy=True)
    for gain in (0.5, 1.0, 2.0):
        for rule in RULES:
            show(normal, gain, rule)


if __name__ == "__main__":
    main()
