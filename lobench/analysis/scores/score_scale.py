"""Score scale of a case: 0 is the untrained network, 1 the tuned baseline, linear or logarithmic in between.

Example: Tuned Adam's two seeds go from 2.4 to .024 and .0024, which is ln 100 = 4.605 and ln 1000 = 6.908. Their mean
is D = 5.756. A run that goes from 2.4 to .024 scores 4.605 / D = .8, and one to .0024 scores 1.2.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lobench.core.errors import LobenchError
from lobench.core.metric import Direction
from lobench.core.wording import counted

__all__ = [
    "BEST_SCORE",
    "DEFAULT_MARGINS",
    "DIVERGED_SCORE",
    "ROUNDED_ZERO",
    "SCORE_VERSION",
    "SIGNED_LOSS_ADVICE",
    "ScaleKind",
    "ScoreScale",
    "are_log_ratios",
    "are_uninformative",
    "check_score_versions",
    "fallback_scale",
    "is_signed",
    "ordering_values",
    "scores",
    "uninformative_seeds_note",
]

# A score is clipped to this range, and a diverged seed gets its lower end: no loss, however large, counts for more.
DIVERGED_SCORE, BEST_SCORE = -1.0, 2.0
# Version of the definition of scores. Numbers stored without one have version 1, which had linear scales only.
SCORE_VERSION = 2

# Advice for losses below 0 on a log scale.
SIGNED_LOSS_ADVICE = 'a loss lies below 0: set Case.scale = "linear", or Case.minimum, and run `lobench baseline`'

ROUNDED_ZERO = -1e-6  # times L0: a lower loss is not a rounding error of 0

K = TypeVar("K")  # key of a seed

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class ScaleKind(enum.StrEnum):
    """Kind of a score scale: whether scores are fractions of a ratio (in orders of magnitude) or of a difference."""

    LOG = "log"
    LINEAR = "linear"


# Default margins of a gate.
DEFAULT_MARGINS = {ScaleKind.LOG: 0.05, ScaleKind.LINEAR: 0.02}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreScale:
    """Meaning of 0 and 1 for one case and one metric.

    Attributes:
      kind: Kind of the scale.
      untrained: L0, less the minimum.
      log_unit: D, the mean of ln(U_k) - ln(T_k) over the baseline's seeds. NaN if it is not finite and above 0.
      linear_unit: L0 less the mean of T_k, negative for a metric that rises. NaN if tuned is not better.
      floor: f; values below it tie. Minus infinity on a linear scale.
      minimum: c, the lowest possible loss. None if it is not declared.
      direction: Direction in which the metric is better. None if unknown, in which case the metric has no scale.
      is_thin: Whether the baseline has a single seed, or its gain is below two standard deviations of its seeds.
      has_starts: Whether the baseline file contains each seed's value at step 0. If not, all seeds start at L0.
      best: Upper bound at which scores are clipped.
      is_clipped: Whether scores are clipped. Scores of single items are not, because most are far from the mean.
      uses_largest_change: Whether the unit is the largest change of a mean from the start, better or worse. Losses
        above the start are then scored by their logarithm too. True for metrics without a value at the start of
        training.
    """

    kind: ScaleKind
    untrained: float
    log_unit: float
    linear_unit: float
    floor: float
    minimum: float | None = None
    direction: Direction | None = Direction.MIN
    is_thin: bool = False
    has_starts: bool = True
    best: float = BEST_SCORE
    is_clipped: bool = True
    uses_largest_change: bool = False

    @classmethod
    def of_baseline(
        cls,
        metric: str,
        direction: Direction | None = Direction.MIN,
        *,
        untrained: float,
        tuned: Sequence[float],
        starts: Sequence[float] = (),
        curve: ArrayLike = (),
        declared: str = "",
        minimum: float | None = None,
    ) -> ScoreScale:
        """Returns the scale set by a tuned baseline.

        Args:
          metric: Name of the metric.
          direction: Direction in which it is better.
          untrained: L0, the mean of the metric before any inner step.
          tuned: T_k, the final value of each of the baseline's seeds.
          starts: U_k, the value of each seed at step 0. Empty in files that lack them.
          curve: Mean curve of the metric of the baseline.
          declared: `Case.scale`, "log" or "linear"; "" if not set. It applies to the case's primary metric.
          minimum: `Case.minimum`. It applies to the case's primary metric.
        """
        low = minimum or 0.0
        zero = untrained - low
        final_values = np.asarray(tuned, np.float64) - low
        start_values = np.asarray(starts, np.float64) - low if len(starts) else np.full(len(final_values), zero)
        floor = _floor(zero, minimum)
        lowest_values = np.concatenate([final_values, np.asarray(curve, np.float64).ravel() - low])
        kind = _scale_kind(metric, zero, start_values, lowest_values, declared, direction)
        gains = _floored_logs(start_values, floor) - _floored_logs(final_values, floor)
        unit = float(gains.mean()) if len(gains) else math.nan
        spread = float(gains.std(ddof=1)) if len(gains) > 1 else math.inf
        is_thin = len(final_values) == 1 or (kind is ScaleKind.LOG and unit < 2 * spread)
        return cls(
            kind=kind,
            untrained=zero,
            log_unit=_log_unit(unit, floor),
            linear_unit=_linear_unit(zero, float(final_values.mean()) if len(final_values) else math.nan, direction),
            floor=floor if kind is ScaleKind.LOG else -math.inf,
            minimum=minimum,
            direction=direction,
            is_thin=is_thin,
            has_starts=bool(len(starts)),
        )

    @classmethod
    def of_subjects(
        cls,
        metric: str,
        direction: Direction | None = Direction.MIN,
        *,
        finals: Sequence[Mapping[K, float]],
        starts: Mapping[K, float],
        declared: str = "",
        minimum: float | None = None,
    ) -> ScoreScale:
        """Returns the scale of compared subjects without a baseline: untrained is 0, the best of them 1.

        A subject of which more than half of the seeds diverged cannot be the best.

        Args:
          metric: Name of the metric.
          direction: Direction in which it is better.
          finals: Final value of each seed, for each subject. NaN if the seed diverged.
          starts: U_s, the value of each seed at step 0, common to all subjects.
          declared, minimum: `Case.scale` ("" if not set) and `Case.minimum`.
        """
        values = np.asarray([value for column in finals for value in column.values()], np.float64)
        return cls.of_final_values(
            metric,
            direction,
            finals=values,
            seeds=[(tuple(column), 1) for column in finals if column],
            starts=starts,
            declared=declared,
            minimum=minimum,
        )

    @classmethod
    def of_final_values(
        cls,
        metric: str,
        direction: Direction | None,
        *,
        finals: FloatArray,
        seeds: Sequence[tuple[Sequence[K], int]],
        starts: Mapping[K, float],
        declared: str = "",
        minimum: float | None = None,
        is_either_way: bool = False,
    ) -> ScoreScale:
        """Returns the scale of `of_subjects`, from the final values of all subjects in one array.

        Args:
          finals: Final values, subject after subject: float64[num_values].
          seeds: Seeds of each subject, at least one, with the number of consecutive subjects that have just these.
          is_either_way: As `ScoreScale.uses_largest_change`.
          metric, direction, starts, declared, minimum: As in `of_subjects`.
        """
        low = minimum or 0.0
        start_values = np.asarray([value for value in starts.values() if math.isfinite(value)], np.float64) - low
        zero = float(start_values.mean()) if len(start_values) else math.nan
        floor = _floor(zero, minimum)
        distinct_seeds = set(itertools.chain.from_iterable(subject_seeds for subject_seeds, _ in seeds))
        starts_by_seed = {seed: starts.get(seed, zero + low) - low for seed in distinct_seeds}
        logs = {seed: _floored_log(start if start > 0 else zero, floor) for seed, start in starts_by_seed.items()}
        values = finals - low
        is_finite = np.isfinite(values)
        counts = np.repeat(
            np.asarray([len(subject_seeds) for subject_seeds, _ in seeds], int),
            [num_subjects for _, num_subjects in seeds],
        )
        gain = math.nan
        if floor > 0:
            begins_of_subjects = [
                np.tile([logs[seed] for seed in subject_seeds], num_subjects) for subject_seeds, num_subjects in seeds
            ]
            begins_of_all = np.concatenate([np.zeros(0), *begins_of_subjects])
            final_logs = np.asarray(list(map(math.log, np.maximum(values, floor).tolist())), np.float64)
            gain = _best_mean(begins_of_all - final_logs, is_finite, counts, higher=True)
            if is_either_way:
                gain = max(gain, -_best_mean(begins_of_all - final_logs, is_finite, counts, higher=False))
        best_final = _best_mean(values, is_finite, counts, higher=direction is Direction.MAX)
        if is_either_way:
            worst_final = _best_mean(values, is_finite, counts, higher=direction is not Direction.MAX)
            best_final = max(best_final, 2 * zero - worst_final, key=lambda value: abs(value - zero))
        kind = _scale_kind(metric, zero, start_values, values[is_finite], declared, direction)
        return cls(
            kind=kind,
            untrained=zero,
            log_unit=_log_unit(gain, floor),
            linear_unit=_linear_unit(zero, best_final, direction),
            floor=floor if kind is ScaleKind.LOG else -math.inf,
            minimum=minimum,
            direction=direction,
            uses_largest_change=is_either_way,
        )

    @property
    def unit(self) -> float:
        """Size of a score of 1: D, or L0 less the mean of T."""
        return self.log_unit if self.kind is ScaleKind.LOG else self.linear_unit

    @property
    def is_usable(self) -> bool:
        """Whether 0 and 1 are distinct, finite values.

        Without a usable scale, subjects have no score, and the case is counted as missing.
        """
        return math.isfinite(self.unit)

    @property
    def default_margin(self) -> float:
        return DEFAULT_MARGINS[self.kind]

    def as_linear(self) -> ScoreScale:
        """Returns a linear scale with the numbers of this one, for losses of which some are below 0."""
        return dataclasses.replace(self, kind=ScaleKind.LINEAR, floor=-math.inf, is_thin=False)

    def ratio(self, difference: float) -> float:
        """Returns B's loss divided by A's if score(B) - score(A) is `difference`; NaN on a linear scale."""
        if self.kind is ScaleKind.LINEAR or not self.is_usable or math.isnan(difference):
            return math.nan
        with np.errstate(over="ignore"):
            return float(np.exp(-difference * self.log_unit))

    def tolerated_ratio(self, margin: float) -> float:
        """Returns the factor by which a loss may be higher within the margin; NaN on a linear scale."""
        return self.ratio(-margin)


def fallback_scale(
    metric: str,
    direction: Direction,
    starts: Iterable[float],
    *,
    declared_scale: str = "",
    minimum: float | None = None,
) -> ScoreScale:
    """Returns a search's own scale of a case without a baseline, which depends only on the values at step 0.

    The value that scores 1 is a tenth of the start on a log scale. On a linear scale it is better than the start by the
    start's absolute value, or by 1 if the start is 0. For an accuracy it is 1. Scores have no upper bound, so that good
    trials remain distinguishable.

    Args:
      metric: Name of the metric.
      direction: Direction in which the metric is better.
      starts: U_s, the value of each seed at step 0.
      declared_scale, minimum: `Case.scale` and `Case.minimum`.
    """
    starts_by_seed = {seed: value for seed, value in enumerate(starts) if math.isfinite(value)}
    # Without final values, the kind of scale depends only on the starts.
    scale = ScoreScale.of_subjects(
        metric, direction, finals=[], starts=starts_by_seed, declared=declared_scale, minimum=minimum
    )
    zero = scale.untrained
    distance = 1 - zero if metric.rsplit("/", 1)[-1] == "accuracy" else abs(zero)
    size = distance if distance > 0 else 1.0
    is_log = scale.kind is ScaleKind.LOG
    linear_unit = math.nan if math.isnan(zero) else size if direction is Direction.MIN else -size
    return dataclasses.replace(
        scale,
        log_unit=math.log(10) if is_log and zero > 0 else math.nan,
        linear_unit=linear_unit,
        best=math.inf,
    )


def scores(
    final_values: ArrayLike, scale: ScoreScale, *, starts: ArrayLike | None = None, diverged: ArrayLike | None = None
) -> FloatArray:
    """Returns the score of each seed. It is -1 for a diverged seed. All are NaN without a scale.

    Args:
      final_values: L, the final value of each seed, float[num_seeds]. A non-finite value counts as diverged.
      scale: Scale of the case.
      starts: U_s, float[num_seeds], from one run for all subjects compared. L0 replaces values that are unknown or not
        above 0. A linear scale does not use them.
      diverged: Whether the seed met a non-finite loss at any inner step, bool[num_seeds].
    """
    values = np.asarray(final_values, np.float64)
    if not scale.is_usable:
        return np.full(values.shape, np.nan)
    is_lost = _is_lost(values, diverged)
    values = np.where(is_lost, np.nan, values) - (scale.minimum or 0.0)
    if scale.kind is ScaleKind.LINEAR:
        values_in_units = (scale.untrained - values) / scale.linear_unit
    else:
        log_decrease = np.log(_start_distances(values.shape, starts, scale)) - np.log(np.maximum(values, scale.floor))
        # Above the start of a training, a loss that doubles scores -1 on every scale.
        with np.errstate(over="ignore"):
            doubling = np.inf if scale.uses_largest_change else -np.expm1(-log_decrease)
        score_above_start = np.minimum(doubling, log_decrease / scale.log_unit)
        values_in_units = np.where(log_decrease >= 0, log_decrease / scale.log_unit, score_above_start)
    return np.where(
        is_lost,
        DIVERGED_SCORE,
        np.clip(values_in_units, DIVERGED_SCORE, scale.best) if scale.is_clipped else values_in_units,
    )


def is_signed(final_values: ArrayLike, scale: ScoreScale) -> bool:
    """Returns whether a loss is below 0 by more than rounding on a log scale without a declared minimum."""
    if scale.kind is ScaleKind.LINEAR or scale.minimum is not None:
        return False
    values = np.asarray(final_values, np.float64)
    return bool((values[np.isfinite(values)] < ROUNDED_ZERO * scale.untrained).any())


def are_log_ratios(final_values: ArrayLike, scale: ScoreScale, *, starts: ArrayLike | None = None) -> BoolArray:
    """Returns whether a seed's score is the logarithm itself, so differences are ratios of losses: bool[num_seeds]."""
    values = np.asarray(final_values, np.float64)
    if scale.kind is ScaleKind.LINEAR or not scale.is_usable:
        return np.zeros(values.shape, bool)
    distances = values - (scale.minimum or 0.0)
    seed_scores = scores(values, scale, starts=starts)
    with np.errstate(invalid="ignore"):
        is_in_range = (distances >= scale.floor) & (distances <= _start_distances(values.shape, starts, scale))
    return np.asarray(is_in_range & (seed_scores < BEST_SCORE) & ~_is_lost(values, None))


def are_uninformative(
    values_a: ArrayLike, values_b: ArrayLike, scale: ScoreScale, *, starts: ArrayLike | None = None
) -> BoolArray:
    """Returns whether both sides are clipped or at the floor, so that 0 is no evidence: bool[num_seeds]."""
    value_arrays = [np.asarray(values, np.float64) for values in (values_a, values_b)]
    a, b = (scores(values, scale, starts=starts) for values in value_arrays)
    is_clipped = (a == b) & ((a == BEST_SCORE) | (a == DIVERGED_SCORE))
    with np.errstate(invalid="ignore"):
        is_at_floor = [values - (scale.minimum or 0.0) <= scale.floor for values in value_arrays]
    return np.asarray(is_clipped | (is_at_floor[0] & is_at_floor[1]))


def uninformative_seeds_note(num_silent: int, num_seeds: int) -> str:
    """Returns a note on the seeds found by `are_uninformative`."""
    seeds = f"on {num_silent} of {counted(num_seeds, 'seed')}"
    return f"{seeds} both are clipped alike or at the floor, and so show nothing"


def ordering_values(final_values: ArrayLike, scale: ScoreScale, *, diverged: ArrayLike | None = None) -> FloatArray:
    """Returns the values by which seeds are ordered for P(better): higher is better, unclipped, a diverged seed worst.

    A log scale that is not usable has the floor 0. A linear scale has no floor.
    """
    values = np.asarray(final_values, np.float64)
    is_lost = _is_lost(values, diverged)
    floor = scale.floor if scale.is_usable or scale.kind is ScaleKind.LINEAR else 0.0
    floored_values = np.maximum(np.where(is_lost, 0.0, values), floor + (scale.minimum or 0.0))
    return np.where(is_lost, -np.inf, floored_values if scale.direction is Direction.MAX else -floored_values)


def check_score_versions(versions: Mapping[str, object], *, where: str = "") -> None:
    """Raises if numbers were computed by different versions of the score's definition.

    Args:
      versions: `score_version` stored with each number, by a name of the number. None: the first version.
      where: Place named in the error.

    Raises:
      LobenchError: The versions differ.
    """
    known_versions = {name: 1 if version is None else version for name, version in versions.items()}
    if len(set(known_versions.values())) > 1:
        raise LobenchError(
            "scores of two versions cannot be compared",
            where=where,
            got=", ".join(f"{name}: score_version {version}" for name, version in known_versions.items()),
            expected=f"score_version {SCORE_VERSION} everywhere",
            next_step="make the older numbers again from their store",
        )


def _scale_kind(
    metric: str,
    zero: float,
    starts: FloatArray,
    final_values: FloatArray,
    declared_scale: str,
    direction: Direction | None,
) -> ScaleKind:
    if declared_scale:
        return ScaleKind(declared_scale)
    is_loss = metric.rsplit("/", 1)[-1] == "loss" and direction is Direction.MIN
    is_positive = zero > 0 and bool((starts > 0).all()) and not bool((final_values < ROUNDED_ZERO * zero).any())
    return ScaleKind.LOG if is_loss and is_positive else ScaleKind.LINEAR


def _best_mean(values: FloatArray, is_known: BoolArray, sizes: NDArray[np.int_], *, higher: bool) -> float:
    """Returns the best mean among groups of values of which at least half are known; NaN without such a group.

    Arrays select the candidates among thousands of groups, and exact sums decide between them.

    Args:
      values, is_known: [num_values], one group after another.
      sizes: Sizes of the groups, int[num_groups], each > 0.
      higher: Whether higher means are better.
    """
    if not sizes.size:
        return math.nan
    stops = sizes.cumsum()
    starts = stops - sizes
    counts = np.add.reduceat(is_known.astype(int), starts)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        sums = np.add.reduceat(np.where(is_known, values, 0.0), starts)
        means = np.where((counts > 0) & (2 * counts >= sizes), sums / counts, np.nan)
        best_mean = float((np.fmax if higher else np.fmin).reduce(means))
        near_groups = np.flatnonzero(np.abs(means - best_mean) <= 1e-9 * abs(best_mean)).tolist()
    rows = (slice(starts[group], stops[group]) for group in near_groups)
    known_values = (values[row][is_known[row]].tolist() for row in rows)
    return (max if higher else min)((math.fsum(row) / len(row) for row in known_values), default=best_mean)


def _floor(zero: float, minimum: float | None) -> float:
    """Returns f: 12 orders below L0, or the resolution of a float32 at the minimum. NaN if L0 is not above 0."""
    return max(1e-12 * zero, 1e-7 * abs(minimum or 0.0)) if zero > 0 else math.nan


def _log_unit(value: float, floor: float) -> float:
    return value if math.isfinite(value) and value > 0 and math.isfinite(floor) else math.nan


def _linear_unit(zero: float, best_final: float, direction: Direction | None) -> float:
    """Returns the unit of a linear scale. NaN if tuned is not better than untrained, which would reverse the scale."""
    is_better = best_final > zero if direction is Direction.MAX else best_final < zero and direction is not None
    return zero - best_final if is_better and math.isfinite(zero - best_final) else math.nan


def _floored_logs(values: FloatArray, floor: float) -> FloatArray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.log(np.maximum(values, floor)))  # NaN stays NaN


def _floored_log(value: float, floor: float) -> float:
    return math.log(max(value, floor)) if floor > 0 else math.nan


def _is_lost(values: FloatArray, diverged: ArrayLike | None) -> BoolArray:
    is_lost = ~np.isfinite(values)
    return is_lost if diverged is None else is_lost | np.asarray(diverged, bool)


def _start_distances(shape: tuple[int, ...], starts: ArrayLike | None, scale: ScoreScale) -> FloatArray:
    """Returns U_s less the minimum, but at least the floor."""
    values = np.full(shape, np.nan) if starts is None else np.asarray(starts, np.float64) - (scale.minimum or 0.0)
    with np.errstate(invalid="ignore"):
        usable = np.where(np.isfinite(values) & (values > 0), values, scale.untrained)
    return np.maximum(usable, scale.floor)
