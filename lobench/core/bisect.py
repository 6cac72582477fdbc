"""Where in a row of checkpoints a case broke: the posterior over the step, and which checkpoint to look at next.

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

__all__ = ["Belief", "Probe", "believe", "next_probes", "scan", "window"]

# Variance of what checkpoints add, in variances of a probe's noise, and the prior probability of each.
_WOBBLES = {0.0: 0.2, 0.3: 0.2, 1.0: 0.2, 3.0: 0.1, 30.0: 0.1, 300.0: 0.1, 3000.0: 0.1}
_SIZES = (2.0, 8.0, 32.0, 128.0)  # standard deviations of the fall's prior, in those of a probe
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


_Weighed: TypeAlias = tuple[float, int, float, float, float]  # log weight, class, fall, its variance, the noise's


@dataclass(frozen=True, slots=True)
class _Sums:
    """Of the checkpoints from a place on: weight, weight with each block, weighted scores."""

    weight: float
    with_block: tuple[float, ...]
    scores: float


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
        size = len(rows[0])
        columns = [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]
        middle = math.fsum(columns) / size
        means = [math.fsum(row) / size for row in rows]
        squares += math.fsum(
            (value - mean - column + middle) ** 2
            for row, mean in zip(rows, means, strict=True)
            for value, column in zip(row, columns, strict=True)
        )
        degrees += (len(rows) - 1) * (size - 1)
        if size > 1:
            spreads.append((len(rows), len(rows) * math.fsum((one - middle) ** 2 for one in columns) / (size - 1)))
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
    return next(probe.place for probe in probes if probe.place not in behind)


def _posterior(probes: Sequence[Probe], num_places: int, begin: int, noise: _Noise) -> Belief:
    places = sorted({probe.place for probe in probes})
    # The break lies behind one probed place and not behind the next one: all that lie between are alike.
    edges = [begin, *places[1:], num_places - 1]
    lengths = [edges[i + 1] - edges[i] for i in range(len(edges) - 1)]
    logs: list[_Weighed] = []
    never: list[float] = []
    for wobble, prior in _WOBBLES.items():
        found, none = _of_wobble(probes, places, wobble, noise)
        never.append(none + math.log(prior * _NEVER))
        share = prior * (1 - _NEVER) / sum(lengths)
        logs += [(one[0] + math.log(share * lengths[one[1]]), *one[1:]) for one in found if lengths[one[1]]]
    top = max(*never, *(log for log, *_ in logs))
    weights = [math.exp(log - top) for log, *_ in logs]
    total, no_fall = math.fsum(weights), math.fsum(math.exp(log - top) for log in never)
    classes = [0.0] * len(lengths)
    for weight, (_, index, *_rest) in zip(weights, logs, strict=True):
        classes[index] += weight / total
    size = math.fsum(weight * one[2] for weight, one in zip(weights, logs, strict=True)) / total
    square = math.fsum(weight * (one[2] ** 2 + one[3]) for weight, one in zip(weights, logs, strict=True)) / total
    by_place = [0.0] * num_places
    for index, probability in enumerate(classes):
        for place in range(edges[index] + 1, edges[index + 1] + 1):
            by_place[place] = probability / lengths[index]
    return Belief(
        by_place=tuple(by_place),
        fall=total / (total + no_fall),
        size=size,
        size_error=math.sqrt(max(square - size**2, 0.0)),
        noise=math.sqrt(math.fsum(weight * one[4] for weight, one in zip(weights, logs, strict=True)) / total),
        begin=begin,
    )


def _of_wobble(
    probes: Sequence[Probe], places: Sequence[int], wobble: float, noise: _Noise
) -> tuple[list[_Weighed], float]:
    """Returns the log evidence of each class and size of fall, with the fall and variances, and that of no fall.

    The class i of places: the break lies between the i-th probed one and the next. A regression with a flat prior on
    the level, normal ones on the fall (cut at 0) and on what blocks add, and the noise integrated over.
    """
    width = math.fsum(len(probe.scores) for probe in probes) / len(probes)
    own = wobble / width  # in variances of one seed's noise, as all variances here
    blocks = sorted({probe.block for probe in probes})
    system = [[0.0] * len(blocks) for _ in blocks]
    sides = [0.0] * len(blocks)
    for probe in probes:
        system[blocks.index(probe.block)][blocks.index(probe.block)] = len(probe.scores) / noise.spread
    total_square, log_det, middle = 0.0, 0.0, math.fsum(probe.mean for probe in probes) / len(probes)
    by_place: list[_Sums] = []
    for _, members in itertools.groupby(probes, key=lambda probe: probe.place):
        rows = [(blocks.index(one.block), float(len(one.scores)), one.mean - middle) for one in members]
        weight = math.fsum(row[1] for row in rows)
        scores = math.fsum(row[1] * row[2] for row in rows)
        kept = 1 / (1 + own * weight)
        log_det += math.log1p(own * weight) - math.fsum(math.log(row[1]) for row in rows)
        total_square += math.fsum(row[1] * row[2] ** 2 for row in rows) - own * kept * scores**2
        with_block = [0.0] * len(blocks)
        for block, heavy, score in rows:
            with_block[block] = heavy * kept
            sides[block] += heavy * (score - own * kept * scores)
            system[block][block] += heavy
            for other, also, _ in rows:
                system[block][other] -= own * kept * heavy * also
        by_place.append(_Sums(weight * kept, tuple(with_block), scores * kept))
    inverse, log_det_blocks = _inverted(system)
    behind = _suffixes(by_place, len(blocks))
    everywhere = behind[0]
    from_blocks = _times(inverse, everywhere.with_block)
    level = everywhere.weight - _dot(from_blocks, everywhere.with_block)
    level_side = everywhere.scores - _dot(from_blocks, sides)
    rest = total_square - _dot(_times(inverse, sides), sides) - level_side**2 / level
    half = (noise.degrees + len(probes) - 1) / 2
    tiny = 1e-12 * (total_square + noise.squares) + 1e-300
    common = -0.5 * (log_det + log_det_blocks + math.log(level))
    none = common - half * math.log((noise.squares + max(rest, 0.0)) / 2 + tiny)
    found = []
    for index in range(len(places)):
        if index + 1 < len(places):
            there = behind[index + 1]
            through = _times(inverse, there.with_block)
            cross = there.weight - _dot(through, everywhere.with_block)
            alone = there.weight - _dot(through, there.with_block) - cross**2 / level
            side = there.scores - _dot(through, sides) - cross * level_side / level
        else:
            alone = side = 0.0  # behind the last probe: nothing has seen it
        for size in _SIZES:
            variance = size**2 * (1 / width + own)
            precise = alone + 1 / variance
            scale = (noise.squares + max(rest - side**2 / precise, 0.0)) / 2 + tiny
            fall, error = -side / precise, math.sqrt(scale / half / precise)
            log = common - 0.5 * math.log(precise * variance) - half * math.log(scale)
            log += math.log(2 * max(_below(fall / error, 2 * half), 1e-300)) - math.log(len(_SIZES))
            found.append((log, index, fall, error**2, scale / half * (1 / width + own)))
    return found, none


def _suffixes(by_place: Sequence[_Sums], num_blocks: int) -> list[_Sums]:
    found = [_Sums(0.0, (0.0,) * num_blocks, 0.0)]
    for one in reversed(by_place):
        last = found[-1]
        blocks = tuple(a + b for a, b in zip(last.with_block, one.with_block, strict=True))
        found.append(_Sums(last.weight + one.weight, blocks, last.scores + one.scores))
    return found[:0:-1]


def _below(value: float, degrees: float) -> float:
    """Returns P(T < value) of Student's t, nearly: by the normal distribution that has its middle and its tails."""
    z = value * (1 - 1 / (4 * degrees)) / math.sqrt(1 + value**2 / (2 * degrees))
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _times(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    return [_dot(row, vector) for row in matrix]


def _inverted(matrix: Sequence[Sequence[float]]) -> tuple[list[list[float]], float]:
    """Returns the inverse of a positive definite matrix, and the logarithm of its determinant (Gauss and Jordan)."""
    size, log_det = len(matrix), 0.0
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for i in range(size):
        pivot = rows[i][i]
        log_det += math.log(pivot)
        rows[i] = [value / pivot for value in rows[i]]
        for j in range(size):
            if j != i and rows[j][i]:
                factor = rows[j][i]
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[size:] for row in rows], log_det
