"""Bayesian change-point search over checkpoints: the posterior of the step, and the next probe.

A probe is one seed block of one checkpoint. Scores are paired: what a seed adds is common to all checkpoints, so that a
block which two of them have compares them without it. The model: a score is a level, before the break one and from it
on a lower one, plus what the block adds, plus what the checkpoint adds (a run wobbles), plus noise. The levels, the
noise and the wobble are integrated over; nothing is fitted.
"""

from __future__ import annotations

import bisect as search
import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.special import ndtr

__all__ = ["Belief", "Probe", "believe", "next_probes", "scan", "window"]

Array: TypeAlias = np.ndarray

# Variance of what checkpoints add, in variances of a probe's noise, and the prior probability of each.
_WOBBLES = {0.0: 0.2, 0.3: 0.2, 1.0: 0.2, 3.0: 0.1, 30.0: 0.1, 300.0: 0.1, 3000.0: 0.1}
_SIZES = np.asarray([2.0, 8.0, 32.0, 128.0])  # standard deviations of the fall's prior, in those of a probe
_NEVER = 0.5  # prior probability that nothing fell
_RISEN = 4.0  # a checkpoint that is so many standard deviations below the best one is of the time before it was good
_QUARTER = 0.319  # a quarter of normal values lie so near to 0
_LEVELS_KNOWN = 4.0  # a fall of so many of its own standard deviations is measured well enough
_SURE = 0.02  # and 0.98: of a place that lies before the break, or behind it
_EXACT = 1e-10  # noise below this share of what seeds differ by, in variances, is that of rounding
_SCANNED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What one seed block gave at one checkpoint.

    Attributes:
      place: Of the checkpoint, from 0.
      block: The first seed of the block.
      scores: By seed; the same seeds in every probe of the block. More is better.
    """

    place: int
    block: int
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        return math.fsum(self.scores) / len(self.scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What is known of the break.

    Attributes:
      by_place: Probability that the checkpoint at a place is the first broken one, if any is; they sum to 1.
      fall: Probability that there is a fall at all.
      size: How much it is expected to be, in scores, above 0.
      size_error: Its standard deviation.
      noise: Standard deviation of a probe, wobble included.
      begin: The place of the first checkpoint that was good; those before had not been trained enough.
    """

    by_place: tuple[float, ...]
    fall: float
    size: float
    size_error: float
    noise: float
    begin: int

    @property
    def place(self) -> int:
        """The most probable one; of a stretch without probes, its middle."""
        top = max(self.by_place)
        ties = [place for place, one in enumerate(self.by_place) if one > top * (1 - 1e-9)]
        return ties[len(ties) // 2]

    def within(self, distance: int) -> float:
        """Returns the probability that the break is so near to the most probable place."""
        return math.fsum(self.by_place[max(self.place - distance, 0) : self.place + distance + 1])


def window(belief: Belief, level: float) -> tuple[int, int]:
    """Returns the first and the last place of the shortest interval that holds the break with a probability."""
    ends = [0.0, *itertools.accumulate(belief.by_place)]
    found = (0, len(belief.by_place) - 1)
    for first in range(len(belief.by_place)):
        last = search.bisect_left(ends, ends[first] + level - 1e-12) - 1
        if last < len(belief.by_place) and last - first < found[1] - found[0]:
            found = first, max(last, first)
    return found


def scan(probes: Iterable[Probe], num_places: int, closed: Collection[int] = ()) -> list[int]:
    """Returns where to look before anything is known: an even row of places that have no probe near, and both ends.

    Args:
      closed: Places that cannot be looked at.
    """
    probed = {probe.place for probe in probes}
    wanted = sorted({round(index * (num_places - 1) / (_SCANNED - 1)) for index in range(_SCANNED)})
    near = (num_places - 1) / (_SCANNED - 1) / 2
    ends = (0, num_places - 1)  # for which no other place stands
    return [
        place
        for place in wanted
        if place not in closed
        and place not in probed
        and (place in ends or not any(abs(other - place) < near for other in probed))
    ]


def next_probes(belief: Belief, probes: Iterable[Probe], count: int, closed: Collection[int] = ()) -> list[int]:
    """Returns the places to look at next, `count` at most: none twice.

    They part the probability into equal shares. While the levels are not known well, one of them lies surely before
    the break, or surely behind it.

    Args:
      belief: What the probes say.
      closed: Places that cannot be looked at.
    """
    counts = Counter(probe.place for probe in probes)
    below = list(itertools.accumulate(belief.by_place))
    shares = [(index + 1) / (count + 1) for index in range(count)]
    if belief.size < _LEVELS_KNOWN * belief.size_error:
        before = sum(counts[place] for place in counts if place >= belief.begin and below[place] <= _SURE)
        behind = sum(counts[place] for place in counts if below[place] >= 1 - _SURE)
        if min(before, behind) < counts.total() / 4:
            shares[0] = _SURE if before <= behind else 1 - _SURE
    found: list[int] = []
    for share in shares:
        gains = {
            place: min(below[place] / share, (1 - below[place]) / (1 - share)) / (1 + counts[place])
            for place in range(belief.begin, len(below))
            if place not in closed and place not in found
        }
        if gains:
            found.append(max(gains, key=lambda place: (gains[place], -counts[place])))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """What seeds say of the noise: their sum of squares, of how many degrees, and how much seeds differ."""

    squares: float
    degrees: int
    spread: float  # variance between seeds, in variances of the noise


def believe(probes: Iterable[Probe], num_places: int) -> Belief:
    """Returns what probes say, whatever their order.

    Args:
      num_places: Checkpoints in the row, >= 2.
    Raises:
      ValueError: fewer than two checkpoints were probed.
    """
    ordered = sorted(probes, key=lambda probe: (probe.place, probe.block))
    if len({probe.place for probe in ordered}) < 2:
        raise ValueError("a fall takes two checkpoints")
    noise = _noise(ordered)
    begin = _begin(ordered, noise)
    kept = [probe for probe in ordered if probe.place >= begin]
    if len({probe.place for probe in kept}) < 2:
        begin, kept = min(probe.place for probe in ordered), ordered
    return _posterior(kept, num_places, begin, _noise(kept))


def _noise(probes: Sequence[Probe]) -> _Noise:
    blocks: dict[int, list[tuple[float, ...]]] = {}
    for probe in probes:
        blocks.setdefault(probe.block, []).append(probe.scores)
    squares, degrees, spreads = 0.0, 0, []
    for rows in blocks.values():
        scores = np.asarray(rows)  # float64[num_probes, num_seeds]
        (count, size), columns, middle = scores.shape, scores.mean(axis=0), scores.mean()
        squares += float(((scores - scores.mean(axis=1, keepdims=True) - columns + middle) ** 2).sum())
        degrees += (count - 1) * (size - 1)
        if size > 1:
            spreads.append((count, count * float(((columns - middle) ** 2).sum()) / (size - 1)))
    seeds = math.fsum(between / count for count, between in spreads) / len(spreads) if spreads else 0.0
    variance = max(squares / degrees, seeds * _EXACT) if degrees else 0.0
    if not variance:
        return _Noise(squares=0.0, degrees=degrees, spread=100.0)
    found = [max(between - variance, 0.0) / count for count, between in spreads]
    spread = max(sum(found) / len(found) / variance, 0.1)
    return _Noise(squares=variance * degrees, degrees=degrees, spread=spread)


def _begin(probes: Sequence[Probe], noise: _Noise) -> int:
    """Returns the place of the first checkpoint that is as good as the best one, as far as one can tell."""
    # What seeds say, and what neighbours do: a run may wobble by more than its seeds tell. The smallest quarter of the
    # steps lie on one level.
    steps = sorted(abs(b.mean - a.mean) for a, b in itertools.pairwise(probes))
    error = steps[(len(steps) - 1) // 4] / _QUARTER
    if noise.degrees:
        error = max(error, math.sqrt(2 * noise.squares / noise.degrees / len(probes[0].scores)))
    best: dict[int, float] = {}
    for probe in probes:
        best[probe.block] = max(best.get(probe.block, -math.inf), probe.mean)
    behind = {probe.place for probe in probes if probe.mean < best[probe.block] - _RISEN * error}
    return next((probe.place for probe in probes if probe.place not in behind), probes[0].place)


def _posterior(probes: Sequence[Probe], num_places: int, begin: int, noise: _Noise) -> Belief:
    places, blocks = sorted({probe.place for probe in probes}), sorted({probe.block for probe in probes})
    middle = math.fsum(probe.mean for probe in probes) / len(probes)
    seeds, scores = np.zeros((2, len(places), len(blocks)))
    for probe in probes:
        where = places.index(probe.place), blocks.index(probe.block)
        seeds[where], scores[where] = len(probe.scores), probe.mean - middle
    # The break lies behind one probed place and not behind the next one: all that lie between are alike.
    lengths = np.diff([begin, *places[1:], num_places - 1])
    found = [_of_wobble(seeds, scores, wobble, noise) for wobble in _WOBBLES]
    priors, is_there = np.asarray(list(_WOBBLES.values())), lengths > 0
    shares = priors[:, None, None] * (1 - _NEVER) * (lengths[is_there] / lengths.sum())[:, None]
    # Each float64[num_wobbles, num_classes, num_sizes].
    logs, drops, errors, noises = np.stack([one for one, _ in found], axis=1)[:, :, is_there]
    logs = logs + np.log(shares)
    never = np.asarray([none for _, none in found]) + np.log(priors * _NEVER)
    top = max(logs.max(), never.max())
    weights, no_fall = np.exp(logs - top), np.exp(never - top).sum()
    total = weights.sum()
    size, square, variance = ((weights * one).sum() / total for one in (drops, drops**2 + errors**2, noises))
    by_place = np.repeat(weights.sum(axis=(0, 2)) / total / lengths[is_there], lengths[is_there])
    return Belief(
        by_place=(*(0.0,) * (begin + 1), *by_place.tolist()),
        fall=float(total / (total + no_fall)),
        size=float(size),
        size_error=math.sqrt(max(square - size**2, 0.0)),
        noise=math.sqrt(variance),
        begin=begin,
    )


def _of_wobble(seeds: Array, scores: Array, wobble: float, noise: _Noise) -> tuple[Array, float]:
    """Returns the log evidence of each class of places and size of fall, with the fall and its error, and that of none.

    The class i of places: the break lies between the i-th probed one and the next. A regression with a flat prior on
    the level, normal ones on the fall (cut at 0) and on what blocks add, and the noise integrated over.

    Args:
      seeds, scores: float64[num_classes, num_blocks]: of each probe how many seeds it has (0: there is none), and its
        mean, around the mean of all.
    Returns:
      float64[4, num_classes, num_sizes]: log evidence, fall, its standard deviation, variance of a probe; and the log
      evidence that nothing fell.
    """
    num_probes, width = np.count_nonzero(seeds), seeds[seeds > 0].mean()
    own = wobble / width  # in variances of one seed's noise, as all variances here
    weighed = (seeds * scores).sum(axis=1)
    kept = 1 / (1 + own * seeds.sum(axis=1))
    square = (seeds * scores**2).sum() - (own * kept * weighed**2).sum()
    sides = (seeds * (scores - (own * kept * weighed)[:, None])).sum(axis=0)
    system = np.diag(seeds.max(axis=0) / noise.spread + seeds.sum(axis=0)) - own * (seeds.T * kept) @ seeds
    inverse = np.linalg.inv(system)
    # Of the checkpoints from a place on: weight with each block, weight, weighted scores.
    with_block, there = _from_on(seeds * kept[:, None]), _from_on(weighed * kept)
    weight, through = with_block.sum(axis=1), with_block @ inverse
    level, level_side = weight[0] - through[0] @ with_block[0], there[0] - through[0] @ sides
    rest = square - sides @ inverse @ sides - level_side**2 / level
    half = (noise.degrees + num_probes - 1) / 2
    tiny = 1e-12 * (square + noise.squares) + 1e-300
    log_det = -np.log(kept).sum() - np.log(seeds[seeds > 0]).sum() + np.linalg.slogdet(system)[1]
    common = -0.5 * (log_det + math.log(level))
    cross = weight[1:] - through[1:] @ with_block[0]
    alone = weight[1:] - (through * with_block)[1:].sum(axis=1) - cross**2 / level
    side = there[1:] - through[1:] @ sides - cross * level_side / level
    alone, side = np.append(alone, 0.0)[:, None], np.append(side, 0.0)[:, None]  # nothing has seen behind the last one
    variance = _SIZES**2 * (1 / width + own)
    precise = alone + 1 / variance
    scale = (noise.squares + np.maximum(rest - side**2 / precise, 0.0)) / 2 + tiny
    fall, error = -side / precise, np.sqrt(scale / half / precise)
    log = common - 0.5 * np.log(precise * variance) - half * np.log(scale)
    log += np.log(2 * np.maximum(_below(fall / error, 2 * half), 1e-300)) - math.log(len(_SIZES))
    none = common - half * math.log((noise.squares + max(rest, 0.0)) / 2 + tiny)
    return np.stack([log, fall, error, scale / half * (1 / width + own)]), none


def _from_on(values: Array) -> Array:
    """Returns the sums over the places from each one on."""
    return values[::-1].cumsum(axis=0)[::-1]


def _below(value: Array, degrees: float) -> Array:
    """Returns P(T < value) of Student's t, nearly: by the normal distribution that has its middle and its tails."""
    found: Array = ndtr(value * (1 - 1 / (4 * degrees)) / np.sqrt(1 + value**2 / (2 * degrees)))
    return found
