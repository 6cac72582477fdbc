"""Bayesian change-point search over checkpoints: posterior of the first broken checkpoint, and the next probes.

A probe is one seed block of one checkpoint. Scores are paired: a seed's effect is common to all checkpoints, so two
checkpoints are compared on the blocks that both have. In the model, a score is a level (a lower one from the break on)
plus a block effect, a checkpoint effect (the wobble of a run) and noise. Levels, noise and wobble are integrated out;
nothing is fitted.

Diverged seeds are treated apart, as in comparisons. The scores are those of converged seeds, and the share of diverged
("lost") seeds has one rate before the break and a higher one from it on. A break may be in the scores, in the rate or
in both.
"""

from __future__ import annotations

import bisect as search
import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.special import logsumexp, stdtr

__all__ = ["Belief", "Probe", "believe", "is_located", "named_pair", "next_probes", "scan", "window"]

Array: TypeAlias = np.ndarray

# Variance of checkpoint effects, in variances of a probe's noise, and their prior probabilities.
_WOBBLES = {0.0: 0.2, 0.3: 0.2, 1.0: 0.2, 3.0: 0.1, 30.0: 0.1, 300.0: 0.1, 3000.0: 0.1}
_SIZES = np.asarray([2.0, 8.0, 32.0, 128.0])  # standard deviations of the fall's prior, in those of a probe
_NEVER = 0.5  # prior probability that nothing fell
_RISEN = 4.0  # a checkpoint this many standard deviations below the best one is not trained enough
_QUARTER = 0.319  # a quarter of standard normal values are this near to 0
_LEVELS_KNOWN = 4.0  # a fall of this many of its own standard deviations is known well enough
_SURE = 0.02  # probability below which a place counts as before the break; 1 - _SURE: as after it
_EXACT = 1e-10  # noise variance below this fraction of the variance between seeds is due to rounding
_SCANNED = 5
_FITTED = 30  # rounds of the additive fit of lost seeds; each round at least halves the error
_RATES = 200  # number of grid points for the rate of lost seeds
_LOSS_PRIOR = (0.5, 5.0)  # beta prior of the rate before a break


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Scores of one seed block at one checkpoint.

    Attributes:
      place: Index of the checkpoint, from 0.
      block: First seed of the block.
      scores: Score of each seed, higher is better. All probes of a block have the same seeds. Minus infinity if the
        seed diverged. Plus infinity if it diverged in a row with reversed signs, in which fewer diverged seeds are the
        fall.
    """

    place: int
    block: int
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        return math.fsum(self.scores) / len(self.scores)

    @property
    def num_lost(self) -> int:
        return sum(map(math.isinf, self.scores))


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Posterior distribution of the break.

    Attributes:
      by_place: Probability that the checkpoint at an index is the first broken one, given that there is one. Sums to 1.
      fall: Probability that there is a fall at all.
      size: Expected size of the fall, in scores, above 0.
      size_error: Standard deviation of the size.
      noise: Standard deviation of a probe, including the wobble.
      begin: Index of the first good checkpoint. Earlier checkpoints had not been trained enough.
      lost: Number of diverged seeds and of all seeds before the most probable place, then the same two numbers from it
        on.
    """

    by_place: tuple[float, ...]
    fall: float
    size: float
    size_error: float
    noise: float
    begin: int
    lost: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def place(self) -> int:
        """Index of the most probable first broken checkpoint. In a stretch without probes it is the middle."""
        top = max(self.by_place)
        ties = [index for index, probability in enumerate(self.by_place) if probability > top * (1 - 1e-9)]
        return ties[len(ties) // 2]

    def within(self, distance: int) -> float:
        """Returns the probability that the break is within `distance` checkpoints of the most probable place."""
        return math.fsum(self.by_place[max(self.place - distance, 0) : self.place + distance + 1])


def window(belief: Belief, level: float) -> tuple[int, int]:
    """Returns the first and last place of the shortest interval that contains the break with probability `level`."""
    ends = [0.0, *itertools.accumulate(belief.by_place)]
    bounds = (0, len(belief.by_place) - 1)
    for first in range(len(belief.by_place)):
        last = search.bisect_left(ends, ends[first] + level - 1e-12) - 1
        if last < len(belief.by_place) and last - first < bounds[1] - bounds[0]:
            bounds = first, max(last, first)
    return bounds


def named_pair(belief: Belief, probed: Collection[int]) -> tuple[int, int]:
    """Returns the places of the last good and the first broken checkpoint, as far as they were probed.

    If the most probable place or its predecessor was not probed, these are the nearest probed places around the break.

    Args:
      belief: Posterior distribution of the break.
      probed: Places that have a probe.
    """
    last_good = max((index for index in probed if index < belief.place), default=belief.place - 1)
    first_broken = min((index for index in probed if index >= belief.place), default=belief.place)
    return last_good, first_broken


def is_located(belief: Belief, probed: Collection[int], confidence: float) -> bool:
    """Returns whether the most probable place is probable enough, and it and its predecessor were probed.

    Args:
      belief: Posterior distribution of the break.
      probed: Places that have a probe.
      confidence: Probability that the most probable place must reach.
    """
    best_place = belief.place
    return belief.by_place[best_place] >= confidence and {best_place - 1, best_place} <= {*probed}


def scan(probes: Iterable[Probe], num_places: int, closed: Collection[int] = ()) -> list[int]:
    """Returns the places to probe first: evenly spaced ones that have no probe nearby, and both ends.

    Args:
      probes: Probes made so far.
      num_places: Number of checkpoints.
      closed: Places that cannot be probed.
    """
    probed = {probe.place for probe in probes}
    wanted = sorted({round(index * (num_places - 1) / (_SCANNED - 1)) for index in range(_SCANNED)})
    near = (num_places - 1) / (_SCANNED - 1) / 2
    ends = (0, num_places - 1)  # other places cannot replace the ends
    return [
        index
        for index in wanted
        if index not in closed
        and index not in probed
        and (index in ends or not any(abs(other - index) < near for other in probed))
    ]


def next_probes(belief: Belief, probes: Iterable[Probe], count: int, closed: Collection[int] = ()) -> list[int]:
    """Returns up to `count` distinct places to probe next.

    They divide the probability into equal shares. While the levels are not known well, one of the places is almost
    surely before the break, or almost surely after it.

    Args:
      belief: Posterior distribution given the probes.
      probes: Probes made so far.
      count: Largest number of places.
      closed: Places that cannot be probed.
    """
    counts = Counter(probe.place for probe in probes)
    below = list(itertools.accumulate(belief.by_place))
    shares = [(index + 1) / (count + 1) for index in range(count)]
    if belief.size < _LEVELS_KNOWN * belief.size_error:
        num_before = sum(counts[index] for index in counts if index >= belief.begin and below[index] <= _SURE)
        num_behind = sum(counts[index] for index in counts if below[index] >= 1 - _SURE)
        if min(num_before, num_behind) < counts.total() / 4:
            shares[0] = _SURE if num_before <= num_behind else 1 - _SURE
    chosen_places: list[int] = []
    for share in shares:
        gains = {
            index: min(below[index] / share, (1 - below[index]) / (1 - share)) / (1 + counts[index])
            for index in range(belief.begin, len(below))
            if index not in closed and index not in chosen_places
        }
        if gains:
            chosen_places.append(max(gains, key=lambda index: (gains[index], -counts[index])))
    return chosen_places


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """Noise estimated from the seeds: sum of squares, degrees of freedom, and variance between seeds."""

    squares: float
    degrees: int
    spread: float  # variance between seeds, in variances of the noise


def believe(probes: Iterable[Probe], num_places: int) -> Belief:
    """Returns the posterior distribution of the break given the probes, whose order does not matter.

    Args:
      probes: Probes of at least two checkpoints.
      num_places: Number of checkpoints, at least 2.

    Raises:
      ValueError: Fewer than two checkpoints were probed.
    """
    ordered = sorted(probes, key=lambda probe: (probe.place, probe.block))
    if len({probe.place for probe in ordered}) < 2:
        raise ValueError("a fall takes two checkpoints")
    begin = _first_good_place(ordered)
    trained = [probe for probe in ordered if probe.place >= begin]
    if len({probe.place for probe in trained}) < 2:
        begin = min(probe.place for probe in ordered)
        trained = ordered
    return _posterior(trained, num_places, begin)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Converged:
    """Scores of a probe whose diverged seeds are filled in.

    Attributes:
      place: Index of the checkpoint, from 0.
      block: First seed of the block.
      scores: Finite score of each seed. Those of lost seeds are filled in from the other probes of the block.
      num_seeds: Number of seeds that converged, > 0.
    """

    place: int
    block: int
    scores: tuple[float, ...]
    num_seeds: int

    @property
    def mean(self) -> float:
        return math.fsum(self.scores) / len(self.scores)


def _converged(probes: Sequence[Probe]) -> list[_Converged]:
    """Returns the probes with a converged seed. Their lost seeds are filled in by an additive fit of each block.

    A mean over the other seeds alone would contain the effects of these seeds, which pairing removes. Filled scores
    have no weight: a probe counts as many seeds as converged.
    """
    rows = [probe for probe in probes if probe.num_lost < len(probe.scores)]
    filled: dict[int, tuple[float, ...]] = {}
    for block in {probe.block for probe in rows if probe.num_lost}:
        members = [probe for probe in rows if probe.block == block]
        scores = np.asarray([probe.scores for probe in members])  # float64[num_probes, num_seeds]
        is_lost = np.isinf(scores)
        scores[is_lost] = np.nan
        start = np.nanmean(scores, axis=1)[:, None] + np.zeros_like(scores)
        fitted = np.where(is_lost, start, scores)
        for _ in range(_FITTED):
            additive = fitted.mean(axis=1, keepdims=True) + fitted.mean(axis=0) - fitted.mean()
            fitted[is_lost] = additive[is_lost]
        filled |= {id(probe): tuple(row) for probe, row in zip(members, fitted.tolist(), strict=True)}
    return [
        _Converged(
            place=probe.place,
            block=probe.block,
            scores=filled.get(id(probe), probe.scores),
            num_seeds=len(probe.scores) - probe.num_lost,
        )
        for probe in rows
    ]


def _noise(probes: Sequence[_Converged]) -> _Noise:
    blocks: dict[int, list[_Converged]] = {}
    for probe in probes:
        blocks.setdefault(probe.block, []).append(probe)
    squares, degrees, spreads = 0.0, 0, []
    for rows in blocks.values():
        scores = np.asarray([probe.scores for probe in rows])  # float64[num_probes, num_seeds]
        (count, size), columns, middle = scores.shape, scores.mean(axis=0), scores.mean()
        squares += float(((scores - scores.mean(axis=1, keepdims=True) - columns + middle) ** 2).sum())
        degrees += max((count - 1) * (size - 1) - sum(size - probe.num_seeds for probe in rows), 0)
        if size > 1:
            spreads.append((count, count * float(((columns - middle) ** 2).sum()) / (size - 1)))
    seeds = math.fsum(between / count for count, between in spreads) / len(spreads) if spreads else 0.0
    variance = max(squares / degrees, seeds * _EXACT) if degrees else 0.0
    if not variance:
        return _Noise(squares=0.0, degrees=degrees, spread=100.0)
    ratios = [max(between - variance, 0.0) / count for count, between in spreads]
    spread = max(sum(ratios) / len(ratios) / variance, 0.1)
    return _Noise(squares=variance * degrees, degrees=degrees, spread=spread)


def _first_good_place(probes: Sequence[Probe]) -> int:
    """Returns the place of the first checkpoint that is as good as the best one, up to noise.

    A checkpoint whose seeds all diverged does not qualify, except in a row with reversed signs.
    """
    converged = _converged(probes)
    good = {probe.place for probe in probes if not all(score == -math.inf for score in probe.scores)}
    if len(good) < 2 or len({probe.place for probe in converged}) < 2:
        return min(good, default=probes[0].place)
    noise = _noise(converged)
    # Noise from seeds, or from neighbouring checkpoints, because a run may wobble by more than its seeds differ. The
    # smallest quarter of the steps is assumed to be on one level.
    steps = sorted(abs(b.mean - a.mean) for a, b in itertools.pairwise(converged))
    error = steps[(len(steps) - 1) // 4] / _QUARTER
    if noise.degrees:
        error = max(error, math.sqrt(2 * noise.squares / noise.degrees / len(converged[0].scores)))
    best: dict[int, float] = {}
    for probe in converged:
        best[probe.block] = max(best.get(probe.block, -math.inf), probe.mean)
    behind = {probe.place for probe in converged if probe.mean < best[probe.block] - _RISEN * error}
    return next((index for index in sorted(good) if index not in behind), min(good))


def _posterior(probes: Sequence[Probe], num_places: int, begin: int) -> Belief:
    places = sorted({probe.place for probe in probes})
    lost, size = np.zeros((2, len(places)))
    for probe in probes:
        lost[places.index(probe.place)] += probe.num_lost
        size[places.index(probe.place)] += len(probe.scores)
    # The break is between two probed places; all places between them are equally probable.
    lengths = np.diff([begin, *places[1:], num_places - 1])
    is_there = lengths > 0
    scores = _scores_part(_converged(probes), places)
    # Log evidence of each class over all wobbles and sizes, float64[num_classes], and that of no fall.
    of_scores = logsumexp(scores.logs, axis=(0, 2))
    no_fall_of_scores = float(logsumexp(scores.never, axis=0))
    in_scores = np.zeros(len(places))  # share of the evidence in which the scores fall
    evidence, none = of_scores, no_fall_of_scores
    if lost.any():
        is_turned = any(score > 0 for probe in probes for score in probe.scores if math.isinf(score))
        of_rates, same_rate = _rates_part(lost, size, is_turned=is_turned)
        ways = np.stack([of_scores + same_rate, of_scores + of_rates, no_fall_of_scores + of_rates]) - math.log(3)
        evidence = logsumexp(ways, axis=0)
        none = no_fall_of_scores + same_rate
        in_scores = np.exp(logsumexp(ways[:2], axis=0) - evidence)
    else:
        in_scores[:] = 1.0
    evidence = evidence[is_there] + np.log((1 - _NEVER) * lengths[is_there] / lengths.sum())
    none += math.log(_NEVER)
    top = max(evidence.max(), none)
    weights = np.exp(evidence - top)
    no_fall = math.exp(none - top)
    total = weights.sum()
    # Weights of wobbles and sizes within each class: float64[num_wobbles, num_classes, num_sizes].
    inner = np.exp(scores.logs - of_scores[None, :, None])[:, is_there] * (weights / total)[None, :, None]
    falls = inner * in_scores[is_there][None, :, None]
    drops = scores.drops[:, is_there]
    errors = scores.errors[:, is_there]
    noises = scores.noises[:, is_there]
    mean = (falls * drops).sum()
    square = (falls * (drops**2 + errors**2)).sum()
    variance = (inner * noises).sum()
    by_place = np.repeat(weights / total / lengths[is_there], lengths[is_there])
    posterior = Belief(
        by_place=(*(0.0,) * (begin + 1), *by_place.tolist()),
        fall=float(total / (total + no_fall)),
        size=float(mean),
        size_error=math.sqrt(max(square - mean**2, 0.0)),
        noise=math.sqrt(variance),
        begin=begin,
    )
    is_before = np.asarray(places) < posterior.place
    counts = (lost[is_before], size[is_before], lost[~is_before], size[~is_before])
    lost_before, all_before, lost_after, all_after = (int(side_counts.sum()) for side_counts in counts)
    return dataclasses.replace(posterior, lost=(lost_before, all_before, lost_after, all_after))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoresPart:
    """Evidence of the scores of converged seeds.

    Attributes:
      logs, drops, errors, noises: float64[num_wobbles, num_classes, num_sizes]: log evidence, fall, standard deviation
        of the fall, and variance of a probe.
      never: float64[num_wobbles]: log evidence that nothing fell.
    """

    logs: Array
    drops: Array
    errors: Array
    noises: Array
    never: Array


def _scores_part(probes: Sequence[_Converged], places: Sequence[int]) -> _ScoresPart:
    """Returns the log evidence of the scores for a fall at each of `places`.

    If fewer than two checkpoints have scores, the evidence is the same for all places.
    """
    blocks = sorted({probe.block for probe in probes})
    shape = (len(_WOBBLES), len(places), len(_SIZES))
    if len({probe.place for probe in probes}) < 2:
        nothing = np.zeros(shape)
        flat = np.full(shape, -math.log(shape[0] * shape[2]))
        return _ScoresPart(
            logs=flat, drops=nothing, errors=nothing, noises=nothing, never=np.full(shape[0], -math.log(shape[0]))
        )
    noise = _noise(probes)
    middle = math.fsum(probe.mean for probe in probes) / len(probes)
    seeds, scores = np.zeros((2, len(places), len(blocks)))
    for probe in probes:
        where = places.index(probe.place), blocks.index(probe.block)
        seeds[where], scores[where] = probe.num_seeds, probe.mean - middle
    evidence = [_evidence_of_wobble(seeds, scores, wobble, noise) for wobble in _WOBBLES]
    priors = np.log(list(_WOBBLES.values()))
    logs, drops, errors, noises = np.stack([logs_of_wobble for logs_of_wobble, _ in evidence], axis=1)
    never = np.asarray([log_never for _, log_never in evidence])
    return _ScoresPart(
        logs=logs + priors[:, None, None], drops=drops, errors=errors, noises=noises, never=never + priors
    )


def _rates_part(lost: Array, size: Array, *, is_turned: bool) -> tuple[Array, float]:
    """Returns the log evidence of a higher loss rate from each class on, and that of a constant rate.

    A rate has a beta prior with most of its mass near 0. The rate after the break is uniform above the one before it.

    Args:
      lost, size: float64[num_classes]: number of lost seeds and of all seeds at each probed place.
      is_turned: Whether a fall means that fewer seeds are lost.
    """
    rates = (np.arange(_RATES) + 0.5) / _RATES
    prior = rates ** (_LOSS_PRIOR[0] - 1) * (1 - rates) ** (_LOSS_PRIOR[1] - 1)
    prior /= prior.sum()

    def logs_of(num_lost: float, num_all: float) -> Array:
        return np.asarray(num_lost * np.log(rates) + (num_all - num_lost) * np.log1p(-rates))

    parts = []
    for index in range(len(lost)):
        low = (lost[: index + 1].sum(), size[: index + 1].sum())
        high = (lost[index + 1 :].sum(), size[index + 1 :].sum())
        low, high = (high, low) if is_turned else (low, high)
        above = logs_of(*high)
        top = above.max()
        mass = np.exp(above - top)[::-1].cumsum()[::-1] / np.arange(_RATES, 0, -1)  # its mean over the rates above
        parts.append(float(logsumexp(logs_of(*low) + np.log(np.maximum(mass, 1e-300)) + np.log(prior), axis=0)) + top)
    same = float(logsumexp(logs_of(lost.sum(), size.sum()) + np.log(prior), axis=0))
    return np.asarray(parts), same


def _evidence_of_wobble(seeds: Array, scores: Array, wobble: float, noise: _Noise) -> tuple[Array, float]:
    """Returns the log evidence for each class of places and size of fall, with the fall and its error, and for no fall.

    In class i the break lies between the i-th probed place and the next. The model is a regression with a flat prior on
    the level and normal priors on the fall (truncated at 0) and on block effects. The noise is integrated out.

    Args:
      seeds: Number of seeds of each probe, float64[num_classes, num_blocks]; 0 without a probe.
      scores: Mean of each probe less the mean of all, float64[num_classes, num_blocks].
      wobble: Variance of a checkpoint effect, in variances of a probe's noise.
      noise: Noise estimated from the seeds.

    Returns:
      float64[4, num_classes, num_sizes]: log evidence, fall, standard deviation of the fall, and variance of a probe;
      and the log evidence that nothing fell.
    """
    num_probes = np.count_nonzero(seeds)
    width = seeds[seeds > 0].mean()
    own_wobble = wobble / width  # in variances of one seed's noise, like all variances here
    weighed = (seeds * scores).sum(axis=1)
    shrinkage = 1 / (1 + own_wobble * seeds.sum(axis=1))
    square = (seeds * scores**2).sum() - (own_wobble * shrinkage * weighed**2).sum()
    sides = (seeds * (scores - (own_wobble * shrinkage * weighed)[:, None])).sum(axis=0)
    system = np.diag(seeds.max(axis=0) / noise.spread + seeds.sum(axis=0)) - own_wobble * (seeds.T * shrinkage) @ seeds
    inverse = np.linalg.inv(system)
    # For the checkpoints from each place on: weight with each block, total weight, weighted scores.
    with_block = _sums_from(seeds * shrinkage[:, None])
    there = _sums_from(weighed * shrinkage)
    weight = with_block.sum(axis=1)
    through = with_block @ inverse
    level = weight[0] - through[0] @ with_block[0]
    level_side = there[0] - through[0] @ sides
    rest = square - sides @ inverse @ sides - level_side**2 / level
    half = (noise.degrees + num_probes - 1) / 2
    tiny = 1e-12 * (square + noise.squares) + 1e-300
    log_det = -np.log(shrinkage).sum() - np.log(seeds[seeds > 0]).sum() + np.linalg.slogdet(system)[1]
    common = -0.5 * (log_det + math.log(level))
    cross = weight[1:] - through[1:] @ with_block[0]
    alone = weight[1:] - (through * with_block)[1:].sum(axis=1) - cross**2 / level
    side = there[1:] - through[1:] @ sides - cross * level_side / level
    alone, side = (np.append(values, 0.0)[:, None] for values in (alone, side))  # no probes follow the last place
    variance = _SIZES**2 * (1 / width + own_wobble)
    precise = alone + 1 / variance
    scale = (noise.squares + np.maximum(rest - side**2 / precise, 0.0)) / 2 + tiny
    fall = -side / precise
    error = np.sqrt(scale / half / precise)
    log = common - 0.5 * np.log(precise * variance) - half * np.log(scale)
    log += np.log(2 * np.maximum(stdtr(2 * half, fall / error), 1e-300)) - math.log(len(_SIZES))
    none = common - half * math.log((noise.squares + max(rest, 0.0)) / 2 + tiny)
    return np.stack([log, fall, error, scale / half * (1 / width + own_wobble)]), none


def _sums_from(values: Array) -> Array:
    """Returns cumulative sums from each place to the last one."""
    return values[::-1].cumsum(axis=0)[::-1]
