"""Paired values of two sides on a case: scores of common seeds, or final values on a scale of the two."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.scores.scales import Scales
from lobench.analysis.scores.score_scale import ROUNDED_ZERO, ScaleKind, ScoreScale, scores
from lobench.analysis.stats.comparison import mean_difference
from lobench.analysis.stats.pair_block import PairBlock, rounding_steps
from lobench.analysis.stats.paired_samples import DIVERGED, FLOAT_STEP, Samples, rounding_step
from lobench.analysis.store.case_groups import shared_trainings
from lobench.analysis.store.subjects import LOBENCH_SEEDS, Cell, are_common
from lobench.analysis.store.trainings import ITEM_DRAWS
from lobench.core.metric import Direction
from lobench.core.trials import FIRST_REPORT_SEED

__all__ = [
    "PairedValues",
    "paired_block",
    "paired_values",
    "samples_of_values",
    "scored_samples",
    "signed_samples",
    "untestable_samples",
]

# Finals are compared without a logarithm if the largest is at most this multiple of the smallest. A logarithm would
# agree to three digits, and published p-values are of the values.
_NARROW_RATIO = 2.0

Finals = Mapping[int, float]  # by seed; NaN if it diverged
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedValues:
    """Values of two sides on one case.

    Attributes:
      samples: Scores, or final values in units of `scale` without common seeds and starts.
      scale: Scale on which differences are measured.
      is_of_finals: Whether the values are final values instead of scores.
      note: Unit of final values, and the reason why they replace scores.
      share_of_a: For differences relative to the mean of all values, the share of A's values in that mean; else NaN.
    """

    samples: Samples
    scale: ScoreScale
    is_of_finals: bool = False
    note: str = ""
    share_of_a: float = math.nan

    def ratio(self, difference: float) -> float:
        """Returns B's loss divided by A's if B - A is `difference`; NaN on a linear scale.

        It is a ratio of geometric means, or of arithmetic ones if differences are relative to the mean of all values.
        """
        if math.isnan(self.share_of_a):
            return self.scale.ratio(difference)
        relative = difference * self.scale.unit  # (A - B) / mean of all values
        denominator = 1 + relative * (1 - self.share_of_a)
        return (1 - relative * self.share_of_a) / denominator if denominator > 0 else math.inf


def paired_values(a: Cell | None, b: Cell | None, metric: str | None, scales: Scales) -> PairedValues:
    """Returns the values by which B is compared with A. All tables, verdicts and p-values use them.

    Seeds trained by lobench have scores, relative to a start that all subjects share. Other seeds do not, because
    the start of their curves does not determine their end, and results of a third subject do not define their
    scale. Seeds of commands and tests that have a single value have no start at all. Their final values are
    compared, in the unit of a tuned baseline. Without a baseline, the unit is the gain of the better side, if both
    were evaluated at step 0 and do not differ there. Otherwise differences are of logarithms, or of the values.

    Args:
      a, b: Results of both sides on a case. None if a side was not evaluated; the result is then empty.
      metric: Name of the metric. None: the case's primary metric.
      scales: Scales of the cases.
    """
    case = next(cell.case for cell in (a, b) if cell is not None)
    name = metric or case.primary_metric
    scale = scales.scale(case, name)
    missing_seeds = _missing_seeds(a, b, name)
    if a is None or b is None:
        return PairedValues(samples=Samples(missing_seeds=missing_seeds), scale=scale)
    finals_of_sides = [cell.converged_finals(name) for cell in (a, b)]
    has_scores = a.draws == b.draws == LOBENCH_SEEDS and not (a.has_single_values and b.has_single_values)
    if has_scores:
        starts = {**scales.cell_starts(b, name), **scales.cell_starts(a, name)}
        is_paired = _has_fresh_seeds(a) == _has_fresh_seeds(b)
        samples = scored_samples(finals_of_sides[0], finals_of_sides[1], starts, scale, is_paired=is_paired)
        samples = dataclasses.replace(samples, shared_trainings=_shared_trainings(a, b))
    else:
        samples = samples_of_values(finals_of_sides[0], finals_of_sides[1], a, b)
    samples = dataclasses.replace(
        samples,
        may_vary=samples.may_vary or _have_same_curves(a, b),
        missing_seeds=missing_seeds,
        replicate="item" if a.draws == ITEM_DRAWS else "seed",
    )
    if has_scores:
        return PairedValues(samples=samples, scale=scale)
    if scale.direction is None:
        return PairedValues(samples=untestable_samples(samples), scale=scale)
    scale, note = _scale_of_pair(a, b, name, scales)
    unit_samples, share_of_a = _samples_in_units(samples, scale, is_relative=_is_relative(a, b, name))
    if a.draws == ITEM_DRAWS and scale.kind is ScaleKind.LINEAR and {*samples.a, *samples.b} <= {0.0, 1.0, DIVERGED}:
        unit_samples = dataclasses.replace(unit_samples, binary_unit=1 / abs(scale.unit))
    return PairedValues(samples=unit_samples, scale=scale, is_of_finals=True, note=note, share_of_a=share_of_a)


def _missing_seeds(a: Cell | None, b: Cell | None, metric: str) -> tuple[frozenset[int], frozenset[int]]:
    """Returns the seeds of each side without a value: planned seeds without curves, or without the metric.

    A seed trained by lobench that stopped before the last step of the other seeds has no final value either. Imports
    have no plan: if seeds are the same draws on both sides, a seed that only one side has is missing on the other side.
    """
    cells = [cell for cell in (a, b) if cell is not None and cell.draws == LOBENCH_SEEDS]
    last_step = max((step for cell in cells for step in cell.last_step_by_seed().values()), default=0)
    missing_by_side = [frozenset[int](), frozenset[int]()]
    for index, cell in enumerate((a, b)):
        if cell is not None:
            last_steps = cell.last_step_by_seed().items() if cell in cells else ()
            early_seeds = {seed for seed, step in last_steps if step < last_step and seed not in cell.unconverged_seeds}
            without_metric = (
                cell.curves_by_seed.keys() - cell.final_values.get(metric, {}).keys()
                if cell.final_values.get(metric)
                else set()
            )
            lacking_seeds = cell.lacking_seeds(other_cell for other_cell in (a, b) if other_cell is not None)
            missing_by_side[index] = frozenset({*cell.missing_seeds, *early_seeds, *without_metric, *lacking_seeds})
    return missing_by_side[0], missing_by_side[1]


def paired_block(
    a: Cell, other_cells: Mapping[int, Cell], metric: str | None, scales: Scales
) -> tuple[tuple[int, ...], PairBlock | None]:
    """Returns the indices of the subjects that can be paired with A as arrays, and their pairs in the same order.

    These subjects have scores of the same seeds as A, and no seed of either side diverged or exploded. The pairs equal
    those of `paired_values`, which must be used for all other subjects.

    Args:
      a: Results of A on a case.
      other_cells: Results of other subjects on the same case, by index.
      metric: Name of the metric. None: the case's primary metric.
      scales: Scales of the cases.
    """
    name = metric or a.case.primary_metric
    scale = scales.scale(a.case, name)
    finals = a.final_values.get(name, {})
    starts = scales.cell_starts(a, name)
    seeds_without_start = [seed for seed in finals if seed not in starts]
    finals_of_others = dict[int, list[float]]()
    may_be_fresh = min(finals, default=-1) >= FIRST_REPORT_SEED
    is_fresh = _has_fresh_seeds(a)
    last_steps = a.distinct_last_steps()  # empty without curves
    if finals and scale.is_usable and a.is_fully_trained and not a.has_single_values:
        seeds = tuple(finals)
        for index, cell in other_cells.items():
            seeds_of_cell, values = cell.final_column(name)
            if (
                len(seeds_of_cell) == len(seeds)
                and cell.is_fully_trained
                and last_steps.issuperset(cell.distinct_last_steps())
                and (not may_be_fresh or _has_fresh_seeds(cell) == is_fresh)
                and not (
                    seeds_without_start
                    and any(seed in cell.untrained_values.get(name, {}) for seed in seeds_without_start)
                )
            ):
                if tuple(seeds_of_cell) == seeds:
                    finals_of_others[index] = list(values)
                elif finals.keys() == {*seeds_of_cell}:
                    values_by_seed = dict(zip(seeds_of_cell, values, strict=True))
                    finals_of_others[index] = [values_by_seed[seed] for seed in finals]
    if not finals_of_others:
        return (), None
    values_of_others = np.asarray(list(finals_of_others.values()), np.float64)
    values_of_a = np.asarray(list(finals.values()), np.float64)
    is_finite = np.asarray(np.isfinite(values_of_others).all(axis=1) & np.isfinite(values_of_a).all())
    values_of_others = values_of_others[is_finite]
    indices = [index for index, usable in zip(finals_of_others, is_finite.tolist(), strict=True) if usable]
    if not indices:
        return (), None
    values_of_both = np.concatenate([np.broadcast_to(values_of_a, values_of_others.shape), values_of_others], axis=1)
    side_scores = scores(
        np.concatenate([values_of_a[None], values_of_others]),
        scale,
        starts=[starts.get(seed, math.nan) for seed in finals],
    )
    block = PairBlock.of(
        side_scores[0],
        side_scores[1:],
        step=_steps_in_units(rounding_steps(values_of_a, values_of_others), values_of_both, scale),
        precision=_pair_precisions(values_of_both, scale),
    )
    return tuple(indices), block


def _steps_in_units(steps: FloatArray, values: FloatArray, scale: ScoreScale) -> FloatArray:
    """Converts the rounding step of each pair, as `_step_in_units` does.

    `values` is finite, float64[num_pairs, 2 num_seeds].
    """
    if scale.kind is ScaleKind.LINEAR or not steps.any():
        return steps / abs(scale.unit)
    lowest = np.where(steps > 0, steps, np.inf)[:, None]  # 0 without a step
    relative_steps = steps[:, None] / np.maximum(values - (scale.minimum or 0.0), lowest)
    return np.asarray(np.sqrt(np.mean(relative_steps**2, axis=1)) / scale.unit)


def _pair_precisions(values: FloatArray, scale: ScoreScale) -> FloatArray:
    """Returns the precision of each pair's difference, as `_float_precision`: float64[num_pairs]."""
    largest = np.abs(values).max(axis=1)
    return FLOAT_STEP * (np.ones(len(values)) if scale.kind is ScaleKind.LOG else largest) / abs(scale.unit)


def samples_of_values(a: Finals, b: Finals, cell_a: Cell, cell_b: Cell) -> Samples:
    """Returns values of two cells as samples, which are pairs if their seeds are the same draws.

    Non-finite values count as diverged.
    """
    is_paired = are_common(cell_a.draws, cell_b.draws) and _has_fresh_seeds(cell_a) == _has_fresh_seeds(cell_b)
    common_seeds = sorted(a.keys() & b.keys()) if is_paired else []
    seeds_a, seeds_b = ([*common_seeds] if is_paired else [*side_values] for side_values in (a, b))
    values_of_sides = ([side_values[seed] for seed in seeds] for side_values, seeds in ((a, seeds_a), (b, seeds_b)))
    values_a, values_b = (
        [DIVERGED if not math.isfinite(value) else value for value in side_values] for side_values in values_of_sides
    )
    samples = Samples.of(values_a, values_b, is_paired=is_paired)
    seeds_of_sides = (tuple(seeds_a), tuple(seeds_b))
    return dataclasses.replace(samples, seeds=seeds_of_sides, shared_trainings=_shared_trainings(cell_a, cell_b))


def _shared_trainings(a: Cell, b: Cell) -> frozenset[str]:
    """Returns the names of the trainings or items that either of two cells of a case comes from."""
    names_a = shared_trainings(a)
    names_b = shared_trainings(b)
    return names_a if names_a is names_b else names_a | names_b


def signed_samples(a: Cell, b: Cell, metric: str, direction: Direction | None) -> Samples:
    """Returns the final values of two cells with their signs chosen so that higher is better."""
    sign = 1.0 if direction is Direction.MAX else -1.0
    signed_a, signed_b = (
        {seed: sign * value for seed, value in cell.converged_finals(metric).items()} for cell in (a, b)
    )
    return samples_of_values(signed_a, signed_b, a, b)


def untestable_samples(samples: Samples) -> Samples:
    """Returns samples whose values are all NaN, so that no test is possible."""
    a, b = ((math.nan,) * len(values) for values in (samples.a, samples.b))
    return dataclasses.replace(samples, a=a, b=b)


def _have_same_curves(a: Cell, b: Cell) -> bool:
    """Returns True if two cells contain the same curves, as when a subject is compared with itself."""
    curves_a, curves_b = (
        {seed: (id(curves), row) for seed, (curves, row) in cell.curves_by_seed.items()} for cell in (a, b)
    )
    return bool(curves_a) and curves_a == curves_b


def _has_fresh_seeds(cell: Cell) -> bool:
    """Returns whether the seeds are fresh seeds, which only results of a search have."""
    return min((min(finals) for finals in cell.final_values.values() if finals), default=-1) >= FIRST_REPORT_SEED


def scored_samples(
    a: Finals, b: Finals, starts: Mapping[int, float], scale: ScoreScale, *, is_paired: bool = True
) -> Samples:
    """Returns the scores of the common seeds, with the step to which their values were rounded.

    Args:
      a, b: Final values of both sides, by seed.
      starts: Value of each seed at step 0, common to both sides.
      scale: Scale of the case. If it is not usable, every score is NaN.
      is_paired: Whether the seeds form pairs. If not, all seeds of either side are used.
    """
    common_seeds = a.keys() & b.keys()
    finals_of_sides = [
        {seed: side_finals[seed] for seed in sorted(common_seeds if is_paired else side_finals)}
        for side_finals in (a, b)
    ]
    values = [list(side_finals.values()) for side_finals in finals_of_sides]
    all_values = [*values[0], *values[1]]
    start_values = [starts.get(seed, math.nan) for side_finals in finals_of_sides for seed in side_finals]
    # Both sides in one call, because tables need thousands.
    raw_scores = scores(all_values, scale, starts=start_values).tolist()
    all_scores = [
        DIVERGED if scale.is_usable and not math.isfinite(value) else score
        for value, score in zip(all_values, raw_scores, strict=True)
    ]
    scores_by_side = all_scores[: len(values[0])], all_scores[len(values[0]) :]
    step = _step_in_units(rounding_step(values[0], values[1], is_paired=is_paired), all_values, scale)
    precision = _float_precision(all_values, scale)
    finite_values = [value for value in all_values if math.isfinite(value)]
    may_vary = bool(finite_values) and max(finite_values) - min(finite_values) > 4 * FLOAT_STEP * max(
        map(abs, finite_values)
    )
    scores_a, scores_b = (tuple(side_finals) for side_finals in scores_by_side)
    return Samples(
        a=scores_a,
        b=scores_b,
        is_paired=is_paired,
        step=step,
        precision=precision,
        may_vary=may_vary,
        seeds=(tuple(finals_of_sides[0]), tuple(finals_of_sides[1])),
    )


def _step_in_units(step: float, values: Sequence[float], scale: ScoreScale) -> float:
    """Converts a rounding step of values to a step of scores. On a log scale it is larger for smaller values."""
    if not step or not scale.is_usable:
        return 0.0
    if scale.kind is ScaleKind.LINEAR:
        return step / abs(scale.unit)
    distances = np.asarray([value for value in values if math.isfinite(value)]) - (scale.minimum or 0.0)
    return float(np.sqrt(np.mean((step / np.maximum(distances, step)) ** 2)) / scale.unit)


def _float_precision(values: Sequence[float], scale: ScoreScale) -> float:
    """Returns the resolution of a float32 in units of a scale. On a log scale it is the same for all values."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if not scale.is_usable:
        return 0.0
    return FLOAT_STEP * (1.0 if scale.kind is ScaleKind.LOG else largest) / abs(scale.unit)


def _samples_in_units(samples: Samples, scale: ScoreScale, *, is_relative: bool) -> tuple[Samples, float]:
    """Returns final values in units of a scale, where higher is better, and without clipping.

    Args:
      samples: The final values.
      scale: The scale.
      is_relative: Whether differences on a log scale are relative to the mean of the values that converge, instead of
        differences of logarithms.
    Returns:
      The values, and `PairedValues.share_of_a`.
    """
    share_of_a = math.nan
    low = scale.minimum or 0.0
    finite_distances = [value - low for value in (*samples.a, *samples.b) if math.isfinite(value)]
    step = _step_in_units(samples.step, [value + low for value in finite_distances], scale)
    if scale.kind is ScaleKind.LINEAR:

        def signed_value(value: float) -> float:
            return -(value - low) / scale.unit

    elif is_relative:
        converged = samples.converged()
        distances = [value - low for value in (*converged.a, *converged.b)] or finite_distances or [1.0]
        unit = scale.unit * math.fsum(distances) / len(distances)
        share_of_a = len(converged.a) / max(len(converged.a) + len(converged.b), 1)

        def signed_value(value: float) -> float:
            return -(value - low) / unit

    else:

        def signed_value(value: float) -> float:
            return -math.log(max(value - low, scale.floor)) / scale.unit

    a, b = (
        tuple(value if value == DIVERGED else signed_value(value) for value in values)
        for values in (samples.a, samples.b)
    )
    precision = _float_precision([value + low for value in finite_distances], scale)
    return dataclasses.replace(samples, a=a, b=b, step=step, precision=precision), share_of_a


def _is_relative(a: Cell, b: Cell, metric: str) -> bool:
    """Returns whether final losses are compared without a logarithm.

    This holds for imports whose losses lie within a factor of two.
    """
    if a.draws == b.draws == LOBENCH_SEEDS:
        return False
    low = (a.case.minimum or 0.0) if metric == a.case.primary_metric else 0.0
    finals = [value - low for cell in (a, b) for value in cell.converged_finals(metric).values()]
    finite_finals = [value for value in finals if math.isfinite(value)]
    return not finite_finals or max(finite_finals) <= _NARROW_RATIO * min(finite_finals)


def _scale_of_pair(a: Cell, b: Cell, metric: str, scales: Scales) -> tuple[ScoreScale, str]:
    """Returns the scale of two sides, which does not depend on other subjects, and a note on its unit."""
    scale = scales.scale(a.case, metric)
    tuned_case = scales.baselines.baseline_by_case.get(a.case.identity)
    if tuned_case is not None and metric in tuned_case.tuned and scale.is_usable:
        return scale, "final values, in units of the tuned baseline"
    is_primary = metric == a.case.primary_metric
    minimum = a.case.minimum if is_primary else None
    low = minimum or 0.0
    direction = scale.direction or Direction.MIN
    finals = [cell.converged_finals(metric) for cell in (a, b)]
    finite_finals = [value - low for side_finals in finals for value in side_finals.values() if math.isfinite(value)]
    lowest = min(finite_finals, default=math.nan)
    declared_scale = (a.case.scale or "") if is_primary else ""
    is_loss = metric.rpartition("/")[2] == "loss" and direction is Direction.MIN
    start, reason = _common_start(a, b, metric) if a.draws != ITEM_DRAWS else (math.nan, "each item has one value")
    # Losses of 0 count as the floor. They do not make the scale linear, because a linear scale hides orders of
    # magnitude.
    smallest_loss = ROUNDED_ZERO * (start - low) if start > low else 0.0
    is_log = (is_loss or bool(declared_scale)) and declared_scale != ScaleKind.LINEAR
    is_log = is_log and lowest >= smallest_loss and max(finite_finals) > 0
    pair_scale = ScoreScale.of_subjects(
        metric,
        direction,
        finals=finals,
        starts={-1: start},  # -1 stands for all seeds, which share this start
        declared=ScaleKind.LOG if is_log else ScaleKind.LINEAR,
        minimum=minimum,
    )
    if pair_scale.is_usable:
        return pair_scale, "final values, in units of the better one's gain from step 0"
    if math.isfinite(start) and any(
        2 * sum(map(math.isfinite, side_finals.values())) < len(side_finals) for side_finals in finals
    ):
        reason = "no side that keeps half of its seeds ends better than step 0"
    unit = 1.0 if direction is Direction.MIN else -1.0
    unit_text = ""
    if is_log:
        unit = 1.0
        unit_text = ", relative to their mean" if _is_relative(a, b, metric) else ", as logarithms"
    elif is_loss and (size := math.fsum(map(abs, finite_finals)) / max(len(finite_finals), 1)) > 0:
        unit, unit_text = size, ", relative to their size"  # otherwise a margin would depend on the unit of the loss
    floor = 1e-12 * (lowest if lowest > 0 else max(finite_finals)) if is_log else -math.inf
    pair_scale = dataclasses.replace(pair_scale, untrained=math.nan, log_unit=abs(unit), linear_unit=unit, floor=floor)
    return pair_scale, f"compared by final values{unit_text}, because {reason}"


def _common_start(a: Cell, b: Cell, metric: str) -> tuple[float, str]:
    """Returns the mean value at step 0 of both sides, or NaN, and the reason if no unit follows from it."""
    if a.has_single_values and b.has_single_values:
        return math.nan, "each seed has one value, and no step 0 before it"
    starts = [[v for v in cell.untrained_values.get(metric, {}).values() if math.isfinite(v)] for cell in (a, b)]
    sides_without_start = [
        side_name for side_name, values in zip(("first", "second"), starts, strict=True) if not values
    ]
    if sides_without_start:
        return math.nan, f"the {sides_without_start[0]} has no step 0" if len(
            sides_without_start
        ) == 1 else "neither has a step 0"
    means = [math.fsum(values) / len(values) for values in starts]
    are_close = abs(means[1] - means[0]) <= _START_TOLERANCE * max(map(abs, means))
    if not are_close and not mean_difference(Samples.of(starts[0], starts[1], is_paired=False)).p_value > 0.05:
        return math.nan, f"the trainings start from other values ({means[0]:.4g} and {means[1]:.4g})"
    return math.fsum([*starts[0], *starts[1]]) / len([*starts[0], *starts[1]]), "both end no better than step 0"


_START_TOLERANCE = 0.01  # relative difference below which two starts are equal
