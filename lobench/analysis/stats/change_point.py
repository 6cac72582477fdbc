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

__all__ = [
    "ChangePointPosterior",
    "Probe",
    "credible_window",
    "fall_posterior",
    "first_probes",
    "is_located",
    "next_probes",
    "pair_around_break",
]

FloatArray: TypeAlias = np.ndarray

# Prior probabilities of the variance of checkpoint effects, given as a multiple of the variance of a probe's noise.
_WOBBLES = {0.0: 0.2, 0.3: 0.2, 1.0: 0.2, 3.0: 0.1, 30.0: 0.1, 300.0: 0.1, 3000.0: 0.1}
# Standard deviations of the fall's prior, as multiples of a probe's standard deviation.
_FALL_SIZES = np.asarray([2.0, 8.0, 32.0, 128.0])
_NO_FALL_PRIOR = 0.5  # prior probability that nothing fell
_UNTRAINED_DISTANCE = 4.0  # a checkpoint this many standard deviations below the best one is not trained enough
_QUARTER_QUANTILE = 0.319  # a quarter of standard normal values are this near to 0
_KNOWN_FALL = 4.0  # a fall of this many of its own standard deviations is known well enough
_TAIL_PROBABILITY = (
    0.02  # probability below which a checkpoint counts as before the break; 1 - _TAIL_PROBABILITY: as after it
)
_ROUNDING_SHARE = 1e-10  # noise variance below this fraction of the variance between seeds is due to rounding
_NUM_SCANNED = 5
_NUM_FIT_ROUNDS = 30  # rounds of the additive fit of lost seeds; each round at least halves the error
_NUM_RATES = 200  # number of grid points for the rate of lost seeds
_LOSS_PRIOR = (0.5, 5.0)  # beta prior of the rate before a break


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Scores of one seed block at one checkpoint.

    Attributes:
      checkpoint_index: Index of the checkpoint, from 0.
      block: First seed of the block.
      scores: Score of each seed, higher is better. All probes of a block have the same seeds. Minus infinity if the
        seed diverged. If the signs of a row are reversed, to find a rise as a fall, diverged seeds have plus infinity.
    """

    checkpoint_index: int
    block: int
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        return math.fsum(self.scores) / len(self.scores)

    @property
    def num_lost(self) -> int:
        return sum(map(math.isinf, self.scores))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePointPosterior:
    """Posterior distribution of the break.

    Attributes:
      probability_by_index: Probability that the checkpoint at an index is the first broken one, given that there is
        one. Sums to 1.
      fall_probability: Probability that there is a fall at all.
      fall_size: Expected size of the fall, in scores, above 0.
      fall_size_error: Standard deviation of the size.
      noise: Standard deviation of a probe, including the wobble.
      first_good_index: Index of the first good checkpoint. Earlier checkpoints had not been trained enough.
      lost_counts: Number of diverged seeds and of all seeds before the most probable break, then the same two numbers
        from it on.
    """

    probability_by_index: tuple[float, ...]
    fall_probability: float
    fall_size: float
    fall_size_error: float
    noise: float
    first_good_index: int
    lost_counts: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def break_index(self) -> int:
        """Index of the most probable first broken checkpoint. The middle one if several are equally probable."""
        highest = max(self.probability_by_index)
        ties = [
            index for index, probability in enumerate(self.probability_by_index) if probability > highest * (1 - 1e-9)
        ]
        return ties[len(ties) // 2]

    def probability_within(self, distance: int) -> float:
        """Returns the probability that the break is within `distance` checkpoints of the most probable one."""
        return math.fsum(
            self.probability_by_index[max(self.break_index - distance, 0) : self.break_index + distance + 1]
        )


def credible_window(posterior: ChangePointPosterior, level: float) -> tuple[int, int]:
    """Returns the first and last index of the shortest interval that contains the break with probability `level`."""
    cumulated = [0.0, *itertools.accumulate(posterior.probability_by_index)]
    bounds = (0, len(posterior.probability_by_index) - 1)
    for first_index in range(len(posterior.probability_by_index)):
        last_index = search.bisect_left(cumulated, cumulated[first_index] + level - 1e-12) - 1
        if last_index < len(posterior.probability_by_index) and last_index - first_index < bounds[1] - bounds[0]:
            bounds = first_index, max(last_index, first_index)
    return bounds


def pair_around_break(posterior: ChangePointPosterior, probed_indices: Collection[int]) -> tuple[int, int]:
    """Returns the indices of the last good and the first broken checkpoint among the probed ones.

    Args:
      posterior: Posterior distribution of the break.
      probed_indices: Indices of the probed checkpoints.
    """
    last_good = max(
        (index for index in probed_indices if index < posterior.break_index), default=posterior.break_index - 1
    )
    first_broken = min(
        (index for index in probed_indices if index >= posterior.break_index), default=posterior.break_index
    )
    return last_good, first_broken


def is_located(posterior: ChangePointPosterior, probed_indices: Collection[int], confidence: float) -> bool:
    """Returns whether the break is at its most probable checkpoint with sufficient probability.

    That checkpoint and the one before it must have been probed.

    Args:
      posterior: Posterior distribution of the break.
      probed_indices: Indices of the probed checkpoints.
      confidence: Probability that the most probable checkpoint must reach.
    """
    best_place = posterior.break_index
    return posterior.probability_by_index[best_place] >= confidence and {best_place - 1, best_place} <= {
        *probed_indices
    }


def first_probes(probes: Iterable[Probe], num_places: int, excluded: Collection[int] = ()) -> list[int]:
    """Returns the indices of the checkpoints to probe first: evenly spaced ones without a probe nearby, and both ends.

    Args:
      probes: Probes made so far.
      num_places: Number of checkpoints.
      excluded: Indices of checkpoints that cannot be probed.
    """
    probed_indices = {probe.checkpoint_index for probe in probes}
    scan_indices = sorted({round(index * (num_places - 1) / (_NUM_SCANNED - 1)) for index in range(_NUM_SCANNED)})
    min_distance = (num_places - 1) / (_NUM_SCANNED - 1) / 2
    end_indices = (0, num_places - 1)  # probed even if a checkpoint nearby was probed
    return [
        index
        for index in scan_indices
        if index not in excluded
        and index not in probed_indices
        and (
            index in end_indices or not any(abs(probed_index - index) < min_distance for probed_index in probed_indices)
        )
    ]


def next_probes(
    posterior: ChangePointPosterior, probes: Iterable[Probe], count: int, excluded: Collection[int] = ()
) -> list[int]:
    """Returns the indices of up to `count` distinct checkpoints to probe next.

    They divide the probability into equal shares. While the levels are not known well, one of them is almost surely
    before the break, or almost surely after it.

    Args:
      posterior: Posterior distribution given the probes.
      probes: Probes made so far.
      count: Largest number of indices.
      excluded: Indices of checkpoints that cannot be probed.
    """
    counts = Counter(probe.checkpoint_index for probe in probes)
    cumulated = list(itertools.accumulate(posterior.probability_by_index))
    shares = [(index + 1) / (count + 1) for index in range(count)]
    if posterior.fall_size < _KNOWN_FALL * posterior.fall_size_error:
        num_before = sum(
            counts[index]
            for index in counts
            if index >= posterior.first_good_index and cumulated[index] <= _TAIL_PROBABILITY
        )
        num_behind = sum(counts[index] for index in counts if cumulated[index] >= 1 - _TAIL_PROBABILITY)
        if min(num_before, num_behind) < counts.total() / 4:
            shares[0] = _TAIL_PROBABILITY if num_before <= num_behind else 1 - _TAIL_PROBABILITY
    chosen_places: list[int] = []
    for share in shares:
        gains = {
            index: min(cumulated[index] / share, (1 - cumulated[index]) / (1 - share)) / (1 + counts[index])
            for index in range(posterior.first_good_index, len(cumulated))
            if index not in excluded and index not in chosen_places
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


def fall_posterior(probes: Iterable[Probe], num_places: int) -> ChangePointPosterior:
    """Returns the posterior distribution of the break given the probes, whose order does not matter.

    Args:
      probes: Probes of at least two checkpoints.
      num_places: Number of checkpoints, at least 2.

    Raises:
      ValueError: Fewer than two checkpoints were probed.
    """
    sorted_probes = sorted(probes, key=lambda probe: (probe.checkpoint_index, probe.block))
    if len({probe.checkpoint_index for probe in sorted_probes}) < 2:
        raise ValueError("a fall takes two checkpoints")
    begin = _first_good_place(sorted_probes)
    probes_from_begin = [probe for probe in sorted_probes if probe.checkpoint_index >= begin]
    if len({probe.checkpoint_index for probe in probes_from_begin}) < 2:
        begin = min(probe.checkpoint_index for probe in sorted_probes)
        probes_from_begin = sorted_probes
    return _make_posterior(probes_from_begin, num_places, begin)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConvergedProbe:
    """Scores of a probe whose diverged seeds are filled in.

    Attributes:
      checkpoint_index: Index of the checkpoint, from 0.
      block: First seed of the block.
      scores: Finite score of each seed. Scores of lost seeds are filled in from the other probes of the block.
      num_seeds: Number of seeds that converged, > 0.
    """

    checkpoint_index: int
    block: int
    scores: tuple[float, ...]
    num_seeds: int

    @property
    def mean(self) -> float:
        return math.fsum(self.scores) / len(self.scores)


def _converged_probes(probes: Sequence[Probe]) -> list[_ConvergedProbe]:
    """Returns the probes with a converged seed. Their lost seeds are filled in by an additive fit of each block.

    Without filling, the means of two probes would be over different seeds, and seed effects would not cancel in their
    difference. Filled scores have no weight: a probe counts as many seeds as converged.
    """
    rows = [probe for probe in probes if probe.num_lost < len(probe.scores)]
    filled_scores: dict[int, tuple[float, ...]] = {}
    for block in {probe.block for probe in rows if probe.num_lost}:
        members = [probe for probe in rows if probe.block == block]
        scores = np.asarray([probe.scores for probe in members])  # float64[num_probes, num_seeds]
        is_lost = np.isinf(scores)
        scores[is_lost] = np.nan
        initial_scores = np.nanmean(scores, axis=1)[:, None] + np.zeros_like(scores)
        fitted_scores = np.where(is_lost, initial_scores, scores)
        for _ in range(_NUM_FIT_ROUNDS):
            additive = fitted_scores.mean(axis=1, keepdims=True) + fitted_scores.mean(axis=0) - fitted_scores.mean()
            fitted_scores[is_lost] = additive[is_lost]
        filled_scores |= {id(probe): tuple(row) for probe, row in zip(members, fitted_scores.tolist(), strict=True)}
    return [
        _ConvergedProbe(
            checkpoint_index=probe.checkpoint_index,
            block=probe.block,
            scores=filled_scores.get(id(probe), probe.scores),
            num_seeds=len(probe.scores) - probe.num_lost,
        )
        for probe in rows
    ]


def _estimate_noise(probes: Sequence[_ConvergedProbe]) -> _Noise:
    blocks: dict[int, list[_ConvergedProbe]] = {}
    for probe in probes:
        blocks.setdefault(probe.block, []).append(probe)
    squares, degrees, block_variances = 0.0, 0, []
    for rows in blocks.values():
        scores = np.asarray([probe.scores for probe in rows])  # float64[num_probes, num_seeds]
        (count, size), columns, overall_mean = scores.shape, scores.mean(axis=0), scores.mean()
        squares += float(((scores - scores.mean(axis=1, keepdims=True) - columns + overall_mean) ** 2).sum())
        degrees += max((count - 1) * (size - 1) - sum(size - probe.num_seeds for probe in rows), 0)
        if size > 1:
            block_variances.append((count, count * float(((columns - overall_mean) ** 2).sum()) / (size - 1)))
    seed_variance = (
        math.fsum(block_variance / count for count, block_variance in block_variances) / len(block_variances)
        if block_variances
        else 0.0
    )
    variance = max(squares / degrees, seed_variance * _ROUNDING_SHARE) if degrees else 0.0
    if not variance:
        return _Noise(squares=0.0, degrees=degrees, spread=100.0)
    ratios = [max(block_variance - variance, 0.0) / count for count, block_variance in block_variances]
    variance_ratio = max(sum(ratios) / len(ratios) / variance, 0.1)
    return _Noise(squares=variance * degrees, degrees=degrees, spread=variance_ratio)


def _first_good_place(probes: Sequence[Probe]) -> int:
    """Returns the index of the first checkpoint that is as good as the best one, up to noise.

    A checkpoint whose seeds all diverged does not qualify, except in a row with reversed signs.
    """
    converged = _converged_probes(probes)
    indices_with_scores = {
        probe.checkpoint_index for probe in probes if not all(score == -math.inf for score in probe.scores)
    }
    if len(indices_with_scores) < 2 or len({probe.checkpoint_index for probe in converged}) < 2:
        return min(indices_with_scores, default=probes[0].checkpoint_index)
    noise = _estimate_noise(converged)
    # Noise from seeds, or from neighbouring checkpoints, because a run may wobble by more than its seeds differ. The
    # smallest quarter of the steps is assumed to be on one level.
    steps = sorted(abs(b.mean - a.mean) for a, b in itertools.pairwise(converged))
    step_error = steps[(len(steps) - 1) // 4] / _QUARTER_QUANTILE
    if noise.degrees:
        step_error = max(step_error, math.sqrt(2 * noise.squares / noise.degrees / len(converged[0].scores)))
    best_by_block: dict[int, float] = {}
    for probe in converged:
        best_by_block[probe.block] = max(best_by_block.get(probe.block, -math.inf), probe.mean)
    worse_indices = {
        probe.checkpoint_index
        for probe in converged
        if probe.mean < best_by_block[probe.block] - _UNTRAINED_DISTANCE * step_error
    }
    return next(
        (index for index in sorted(indices_with_scores) if index not in worse_indices), min(indices_with_scores)
    )


def _make_posterior(probes: Sequence[Probe], num_places: int, begin: int) -> ChangePointPosterior:
    probed_indices = sorted({probe.checkpoint_index for probe in probes})
    lost, size = np.zeros((2, len(probed_indices)))
    for probe in probes:
        lost[probed_indices.index(probe.checkpoint_index)] += probe.num_lost
        size[probed_indices.index(probe.checkpoint_index)] += len(probe.scores)
    # The break is between two probed checkpoints; all checkpoints between them are equally probable.
    lengths = np.diff([begin, *probed_indices[1:], num_places - 1])
    has_places = lengths > 0
    scores = _score_evidence(_converged_probes(probes), probed_indices)
    # Log evidence of each class over all wobbles and sizes, float64[num_classes], and log evidence of no fall.
    score_evidence = logsumexp(scores.logs, axis=(0, 2))
    no_fall_of_scores = float(logsumexp(scores.never, axis=0))
    scores_share = np.zeros(len(probed_indices))  # share of the evidence in which the scores fall
    evidence, no_fall_evidence = score_evidence, no_fall_of_scores
    if lost.any():
        is_turned = any(score > 0 for probe in probes for score in probe.scores if math.isinf(score))
        rate_evidence, same_rate = _rate_evidence(lost, size, is_turned=is_turned)
        evidence_by_cause = np.stack(
            [score_evidence + same_rate, score_evidence + rate_evidence, no_fall_of_scores + rate_evidence]
        ) - math.log(3)
        evidence = logsumexp(evidence_by_cause, axis=0)
        no_fall_evidence = no_fall_of_scores + same_rate
        scores_share = np.exp(logsumexp(evidence_by_cause[:2], axis=0) - evidence)
    else:
        scores_share[:] = 1.0
    evidence = evidence[has_places] + np.log((1 - _NO_FALL_PRIOR) * lengths[has_places] / lengths.sum())
    no_fall_evidence += math.log(_NO_FALL_PRIOR)
    highest = max(evidence.max(), no_fall_evidence)
    weights = np.exp(evidence - highest)
    no_fall = math.exp(no_fall_evidence - highest)
    total = weights.sum()
    # Weights of wobbles and sizes within each class: float64[num_wobbles, num_classes, num_sizes].
    class_weights = (
        np.exp(scores.logs - score_evidence[None, :, None])[:, has_places] * (weights / total)[None, :, None]
    )
    falls = class_weights * scores_share[has_places][None, :, None]
    drops = scores.drops[:, has_places]
    errors = scores.errors[:, has_places]
    noises = scores.noises[:, has_places]
    mean = (falls * drops).sum()
    square = (falls * (drops**2 + errors**2)).sum()
    variance = (class_weights * noises).sum()
    probability_by_index = np.repeat(weights / total / lengths[has_places], lengths[has_places])
    posterior = ChangePointPosterior(
        probability_by_index=(*(0.0,) * (begin + 1), *probability_by_index.tolist()),
        fall_probability=float(total / (total + no_fall)),
        fall_size=float(mean),
        fall_size_error=math.sqrt(max(square - mean**2, 0.0)),
        noise=math.sqrt(variance),
        first_good_index=begin,
    )
    is_before = np.asarray(probed_indices) < posterior.break_index
    counts = (lost[is_before], size[is_before], lost[~is_before], size[~is_before])
    lost_before, all_before, lost_after, all_after = (int(side_counts.sum()) for side_counts in counts)
    return dataclasses.replace(posterior, lost_counts=(lost_before, all_before, lost_after, all_after))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoreEvidence:
    """Evidence that the scores of converged seeds give for a break.

    Arrays have an axis for the wobbles in `_WOBBLES`, one for the probed checkpoints ("classes"), and one for the prior
    sizes of the fall in `_FALL_SIZES`. In class i the break lies between the i-th probed checkpoint and the next.

    Attributes:
      logs: float64[num_wobbles, num_classes, num_sizes], log evidence plus the log prior of the wobble.
      drops: Mean of the fall of the scores; shape as `logs`.
      errors: Standard deviation of the fall; shape as `logs`.
      noises: Variance of a probe's noise; shape as `logs`.
      never: float64[num_wobbles], log evidence that there is no break, plus the log prior of the wobble.
    """

    logs: FloatArray
    drops: FloatArray
    errors: FloatArray
    noises: FloatArray
    never: FloatArray


def _score_evidence(probes: Sequence[_ConvergedProbe], probed_indices: Sequence[int]) -> _ScoreEvidence:
    """Returns the log evidence of the scores for a fall at each of `probed_indices`.

    If fewer than two checkpoints have scores, the evidence is the same for all classes.
    """
    blocks = sorted({probe.block for probe in probes})
    shape = (len(_WOBBLES), len(probed_indices), len(_FALL_SIZES))
    if len({probe.checkpoint_index for probe in probes}) < 2:
        zeros = np.zeros(shape)
        flat_logs = np.full(shape, -math.log(shape[0] * shape[2]))
        return _ScoreEvidence(
            logs=flat_logs, drops=zeros, errors=zeros, noises=zeros, never=np.full(shape[0], -math.log(shape[0]))
        )
    noise = _estimate_noise(probes)
    overall_mean = math.fsum(probe.mean for probe in probes) / len(probes)
    seeds, scores = np.zeros((2, len(probed_indices), len(blocks)))
    for probe in probes:
        position = probed_indices.index(probe.checkpoint_index), blocks.index(probe.block)
        seeds[position], scores[position] = probe.num_seeds, probe.mean - overall_mean
    evidence = [_evidence_of_wobble(seeds, scores, wobble, noise) for wobble in _WOBBLES]
    priors = np.log(list(_WOBBLES.values()))
    logs, drops, errors, noises = np.stack([logs_of_wobble for logs_of_wobble, _ in evidence], axis=1)
    never = np.asarray([log_never for _, log_never in evidence])
    return _ScoreEvidence(
        logs=logs + priors[:, None, None], drops=drops, errors=errors, noises=noises, never=never + priors
    )


def _rate_evidence(num_lost_by_index: FloatArray, size: FloatArray, *, is_turned: bool) -> tuple[FloatArray, float]:
    """Returns the log evidence of a higher loss rate from each class on, and the log evidence of a constant rate.

    A rate has a beta prior with most of its mass near 0. The rate after the break is uniform above the one before it.

    Args:
      num_lost_by_index, size: float64[num_classes], numbers of lost seeds and of all seeds at each probed checkpoint.
      is_turned: Whether fewer seeds are lost after the break, not more.
    """
    rates = (np.arange(_NUM_RATES) + 0.5) / _NUM_RATES
    prior = rates ** (_LOSS_PRIOR[0] - 1) * (1 - rates) ** (_LOSS_PRIOR[1] - 1)
    prior /= prior.sum()

    def log_likelihoods(num_lost: float, num_all: float) -> FloatArray:
        return np.asarray(num_lost * np.log(rates) + (num_all - num_lost) * np.log1p(-rates))

    log_evidence = []
    for index in range(len(num_lost_by_index)):
        low = (num_lost_by_index[: index + 1].sum(), size[: index + 1].sum())
        high = (num_lost_by_index[index + 1 :].sum(), size[index + 1 :].sum())
        low, high = (high, low) if is_turned else (low, high)
        high_logs = log_likelihoods(*high)
        highest = high_logs.max()
        # For each rate before the break, the likelihood's mean over all higher rates.
        mean_likelihood = np.exp(high_logs - highest)[::-1].cumsum()[::-1] / np.arange(_NUM_RATES, 0, -1)
        log_evidence.append(
            float(
                logsumexp(log_likelihoods(*low) + np.log(np.maximum(mean_likelihood, 1e-300)) + np.log(prior), axis=0)
            )
            + highest
        )
    log_evidence_of_no_change = float(
        logsumexp(log_likelihoods(num_lost_by_index.sum(), size.sum()) + np.log(prior), axis=0)
    )
    return np.asarray(log_evidence), log_evidence_of_no_change


def _evidence_of_wobble(
    seeds: FloatArray, scores: FloatArray, wobble: float, noise: _Noise
) -> tuple[FloatArray, float]:
    """Returns the log evidence of a break for each class and size of the fall, and the log evidence of no break.

    In class i the break lies between the i-th probed checkpoint and the next. The model is a regression with a flat
    prior on the level and normal priors on the fall (truncated at 0) and on block effects. The noise is integrated out.

    Args:
      seeds: Number of seeds of each probe, float64[num_classes, num_blocks]; 0 without a probe.
      scores: Mean of each probe minus the mean of all probes, float64[num_classes, num_blocks].
      wobble: Variance of a checkpoint effect, as a multiple of the variance of a probe's noise.
      noise: Noise estimated from the seeds.

    Returns:
      float64[4, num_classes, num_sizes]: log evidence, fall, standard deviation of the fall, and variance of a probe;
      and the log evidence that nothing fell.
    """
    num_probes = np.count_nonzero(seeds)
    width = seeds[seeds > 0].mean()
    relative_wobble = wobble / width  # in variances of one seed's noise, like all variances here
    weighted_scores = (seeds * scores).sum(axis=1)
    shrinkage = 1 / (1 + relative_wobble * seeds.sum(axis=1))
    square = (seeds * scores**2).sum() - (relative_wobble * shrinkage * weighted_scores**2).sum()
    block_sides = (seeds * (scores - (relative_wobble * shrinkage * weighted_scores)[:, None])).sum(axis=0)
    system = (
        np.diag(seeds.max(axis=0) / noise.spread + seeds.sum(axis=0)) - relative_wobble * (seeds.T * shrinkage) @ seeds
    )
    inverse = np.linalg.inv(system)
    # For the checkpoints from each index on: weight with each block, total weight, weighted scores.
    weights_with_block = _sums_from(seeds * shrinkage[:, None])
    sums_from_index = _sums_from(weighted_scores * shrinkage)
    weight = weights_with_block.sum(axis=1)
    block_weights = weights_with_block @ inverse
    level = weight[0] - block_weights[0] @ weights_with_block[0]
    level_side = sums_from_index[0] - block_weights[0] @ block_sides
    residual_square = square - block_sides @ inverse @ block_sides - level_side**2 / level
    half_degrees = (noise.degrees + num_probes - 1) / 2
    tiny_scale = 1e-12 * (square + noise.squares) + 1e-300
    log_det = -np.log(shrinkage).sum() - np.log(seeds[seeds > 0]).sum() + np.linalg.slogdet(system)[1]
    log_constant = -0.5 * (log_det + math.log(level))
    cross = weight[1:] - block_weights[1:] @ weights_with_block[0]
    fall_weight = weight[1:] - (block_weights * weights_with_block)[1:].sum(axis=1) - cross**2 / level
    fall_side = sums_from_index[1:] - block_weights[1:] @ block_sides - cross * level_side / level
    # A fall after the last checkpoint is followed by no probe.
    fall_weight, fall_side = (np.append(values, 0.0)[:, None] for values in (fall_weight, fall_side))
    variance = _FALL_SIZES**2 * (1 / width + relative_wobble)
    precision = fall_weight + 1 / variance
    scale = (noise.squares + np.maximum(residual_square - fall_side**2 / precision, 0.0)) / 2 + tiny_scale
    fall = -fall_side / precision
    error = np.sqrt(scale / half_degrees / precision)
    log_evidence = log_constant - 0.5 * np.log(precision * variance) - half_degrees * np.log(scale)
    log_evidence += np.log(2 * np.maximum(stdtr(2 * half_degrees, fall / error), 1e-300)) - math.log(len(_FALL_SIZES))
    log_no_fall = log_constant - half_degrees * math.log((noise.squares + max(residual_square, 0.0)) / 2 + tiny_scale)
    return np.stack([log_evidence, fall, error, scale / half_degrees * (1 / width + relative_wobble)]), log_no_fall


def _sums_from(values: FloatArray) -> FloatArray:
    """Returns the sums from each index to the end."""
    return values[::-1].cumsum(axis=0)[::-1]
