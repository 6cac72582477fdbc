"""How often 95% intervals of the mean of a few seeds hold the truth if their law is skewed: lobench's rules and others.

Usage:
  python benchmarks/skewed_means.py [WORLDS]

`scores`: means over two cases that move together (correlation .5), by rules that use no more than the values. Each cell
has the coverage and the median width over that of the t interval. The values have a standard deviation of 1. `hull`:
the smallest interval that holds that of t and the other one. `losses`: `metric_mean` of positive losses with a mean of
about 1, against the t interval on the logarithm of the mean alone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping

import numpy as np
from harness import answer_help
from numpy.typing import NDArray
from scipy import stats
from verdict_rates import values

from lobench.analysis.stats.intervals import metric_bounds

Floats = NDArray[np.float64]
Bounds = tuple[Floats, Floats]
SCORES = ("normal", "t3", "rounded", "log-normal, .5", "log-normal, 1")


def scores(draw: np.random.Generator, law: str, worlds: int, num_seeds: int) -> tuple[Floats, float]:
    """Returns means over two cases, float64[worlds, num_seeds], and their expectation."""
    sigma = float(law.rpartition(" ")[2]) if law.startswith("log-normal") else 0.0

    def drawn(*shape: int) -> Floats:
        return np.exp(sigma * draw.standard_normal(shape)) if sigma else values(draw, law, shape)

    both = math.sqrt(0.5) * (drawn(worlds, 2, num_seeds) + drawn(worlds, 1, num_seeds)).mean(axis=1)
    both = np.round(both) if law == "rounded" else both
    return both, 2 * math.sqrt(0.5) * math.exp(sigma**2 / 2) if sigma else 0.0


def _skewness(rows: Floats) -> Floats:
    count = rows.shape[1]
    centred = rows - rows.mean(axis=1, keepdims=True)
    spread = np.maximum(rows.std(axis=1), 1e-12)
    found = (centred**3).mean(axis=1) / spread**3 * math.sqrt(count * (count - 1)) / max(count - 2, 1)
    return np.asarray(found)


def student(rows: Floats) -> Bounds:
    count = rows.shape[1]
    half = stats.t.ppf(0.975, count - 1) * rows.std(axis=1, ddof=1) / math.sqrt(count)
    return rows.mean(axis=1) - half, rows.mean(axis=1) + half


def johnson(rows: Floats) -> Bounds:
    """Returns Johnson's modified t: the t interval, shifted to the side of the longer tail."""
    count, quantile = rows.shape[1], stats.t.ppf(0.975, rows.shape[1] - 1)
    shift = _skewness(rows) * rows.std(axis=1, ddof=1) / (6 * count) * (1 + 2 * quantile**2)
    lower, upper = student(rows)
    return lower + shift, upper + shift


def hall(rows: Floats) -> Bounds:
    """Returns Hall's transformation of Student's t, inverted."""
    count, skewness = rows.shape[1], _skewness(rows)
    skewness = np.where(np.abs(skewness) < 1e-6, 1e-6, skewness)
    quantile, error = stats.t.ppf(0.975, count - 1), rows.std(axis=1, ddof=1) / math.sqrt(count)
    root = math.sqrt(count)
    ends = [
        rows.mean(axis=1)
        - error * 3 * root / skewness * (np.cbrt(1 + skewness * (side / root - skewness / (6 * count))) - 1)
        for side in (quantile, -quantile)
    ]
    return np.minimum(*ends), np.maximum(*ends)


def shifted_log_normal(rows: Floats) -> Bounds:
    """Returns the modified Cox interval of a log-normal law that begins a quarter of the range outside the values."""
    found = []
    for sign in (1, -1):
        signed = sign * rows
        start = signed.min(axis=1) - 0.25 * np.maximum(np.ptp(rows, axis=1), 1e-9)
        low, high = _cox(signed - start[:, None])
        found.append((low + start, high + start) if sign == 1 else (-high - start, -low - start))
    is_long_above = _skewness(rows) > 0
    lower, upper = (np.where(is_long_above, one, other) for one, other in zip(*found, strict=True))
    return lower, upper


def _cox(rows: Floats) -> Bounds:
    count, logs = rows.shape[1], np.log(rows)
    variance = logs.var(axis=1, ddof=1)
    half = stats.t.ppf(0.975, count - 1) * np.sqrt(variance / count + variance**2 / (2 * (count - 1)))
    centre = logs.mean(axis=1) + variance / 2
    return np.exp(centre - half), np.exp(centre + half)


def bootstrap_t(rows: Floats) -> Bounds:
    draw, count, ends = np.random.default_rng(0), rows.shape[1], []
    for part in np.array_split(rows, max(len(rows) // 200, 1)):
        again = np.take_along_axis(part[:, None], draw.integers(0, count, (len(part), 400, count)), axis=2)
        spread = again.std(axis=2, ddof=1)
        statistic = (again.mean(axis=2) - part.mean(axis=1)[:, None]) / np.where(spread > 0, spread, np.nan)
        low, high = np.nanquantile(statistic, [0.975, 0.025], axis=1)
        error = part.std(axis=1, ddof=1)
        ends.append((part.mean(axis=1) - low * error, part.mean(axis=1) - high * error))
    lower, upper = (np.concatenate(side) for side in zip(*ends, strict=True))
    return lower, upper


def hull(other: Callable[[Floats], Bounds]) -> Callable[[Floats], Bounds]:
    def both(rows: Floats) -> Bounds:
        (lower, upper), (low, high) = student(rows), other(rows)
        return np.fmin(lower, low), np.fmax(upper, high)

    return both


RULES: Mapping[str, Callable[[Floats], Bounds]] = {
    "t": student,
    "Johnson's t": johnson,
    "t and Johnson's t, hull": hull(johnson),
    "t and Hall's t, hull": hull(hall),
    "t and log-normal, hull": hull(shifted_log_normal),
    "t and bootstrap-t, hull": hull(bootstrap_t),
}


def losses(draw: np.random.Generator, law: str, worlds: int, num_seeds: int) -> tuple[Floats, float]:
    """Returns positive losses, float64[worlds, num_seeds], and their expectation."""
    shape = (worlds, num_seeds)
    if law.startswith("log-normal"):
        sigma = float(law.rpartition(" ")[2])
        return np.exp(sigma * draw.standard_normal(shape)), math.exp(sigma**2 / 2)
    name, spread = law.split(", ")
    found = 1 + float(spread) * values(draw, name, shape)
    return np.maximum(np.round(found, 1) if name == "rounded" else found, 1e-3), 1.0


LOSSES = ("normal, .1", "t3, .1", "normal, .3", "rounded, .1", "log-normal, .25", "log-normal, .5", "log-normal, 1")


def log_t(rows: Floats) -> Bounds:
    """Returns the t interval on the logarithm of the mean."""
    lower, upper = student(rows)
    factor = np.exp((upper - lower) / 2 / rows.mean(axis=1))
    return rows.mean(axis=1) / factor, rows.mean(axis=1) * factor


def _cell(found: Bounds, usual: Bounds, truth: float) -> str:
    held = np.mean((found[0] <= truth) & (truth <= found[1]))
    return f"{held:.3f}, {np.nanmedian(found[1] - found[0]) / np.nanmedian(usual[1] - usual[0]):.2f}"


def main(worlds: int) -> None:
    print(f"| seeds | rule | {' | '.join(SCORES)} | ({worlds} worlds a cell)\n| --- | --- |{' --- |' * len(SCORES)}")
    for num_seeds in (3, 4, 8, 20):
        drawn = [scores(np.random.default_rng(0), law, worlds, num_seeds) for law in SCORES]
        for name, rule in RULES.items():
            cells = [_cell(rule(rows), student(rows), truth) for rows, truth in drawn]
            print(f"| {num_seeds} | {name} | {' | '.join(cells)} |", flush=True)
    print(f"\n| seeds | losses | {' | '.join(LOSSES)} |\n| --- | --- |{' --- |' * len(LOSSES)}")
    for num_seeds in (2, 3, 4, 8, 20):
        drawn = [losses(np.random.default_rng(0), law, worlds, num_seeds) for law in LOSSES]
        usual = [log_t(rows) for rows, _ in drawn]
        found = [metric_bounds("test/loss", rows[:, :, None])[:2] for rows, _ in drawn]
        pairs = list(zip(drawn, usual, found, strict=True))
        alone = [_cell(known, known, truth) for (_, truth), known, _ in pairs]
        ours = [_cell((low[:, 0], high[:, 0]), known, truth) for (_, truth), known, (low, high) in pairs]
        print(f"| {num_seeds} | t of the logarithm | {' | '.join(alone)} |")
        print(f"| {num_seeds} | lobench's | {' | '.join(ours)} |", flush=True)


if __name__ == "__main__":
    answer_help(__doc__)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
