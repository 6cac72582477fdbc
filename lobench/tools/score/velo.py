"""VeLO's normalised score: speed relative to the envelope of tuned baselines.

Source: Metz et al. 2022 (VeLO), section 4; the normalisers are google/learned_optimization's, of 125 tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lobench.core.errors import UsageError, suggestion
from lobench.core.wording import counted
from lobench.engine.csv_files import read_csv, read_text

__all__ = ["Normaliser", "VeloScore", "VeloSummary", "equivalent_steps", "read_curves", "read_normaliser", "velo_score"]

Normaliser: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]  # inner steps, and a loss that never rises
_PERCENTILES = (5, 25, 50, 75, 95)


@dataclass(frozen=True, slots=True, kw_only=True)
class VeloScore:
    """Score of one curve.

    Attributes:
      last: Main score: steps in which the baselines reach the last loss, divided by the curve's steps.
      highest, mean: Largest and mean value of the same ratio over all logged losses, with the curve's last step.
      last_step: Last step of the curve.
      num_seeds: Number of seeds over which losses are averaged.
      is_bound: Whether the last loss is below all losses of the baselines, so that `last` is a lower bound.
    """

    last: float
    highest: float
    mean: float
    last_step: float
    num_seeds: int
    is_bound: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VeloSummary:
    """Mean, standard deviation and percentiles of `VeloScore.last` over tasks."""

    mean: float
    deviation: float
    percentiles: Mapping[int, float]

    @classmethod
    def of(cls, scores: Mapping[str, VeloScore]) -> VeloSummary:
        values = [score.last for score in scores.values()]
        shares = np.nanpercentile(values, _PERCENTILES)
        return cls(
            mean=float(np.nanmean(values)),
            deviation=float(np.nanstd(values)),
            percentiles=dict(zip(_PERCENTILES, map(float, shares), strict=True)),
        )


def equivalent_steps(losses: ArrayLike, normaliser: Normaliser) -> NDArray[np.float64]:
    """Returns the number of steps in which the envelope reaches each loss, linear between its knots.

    A loss above the envelope's first, or NaN, gives 0; a loss below its last gives the envelope's end. If the envelope
    stays at a loss, the first of these steps counts.
    """
    steps, envelope = normaliser
    step_numbers = np.interp(np.asarray(losses, np.float64), envelope[::-1], steps[::-1])
    return np.where(np.isnan(step_numbers), 0.0, step_numbers)


def velo_score(steps: ArrayLike, losses: ArrayLike, normaliser: Normaliser) -> VeloScore:
    """Returns the VeLO score of a training curve.

    Args:
      steps: float[num_points], inner steps at which losses were logged.
      losses: float[num_seeds, num_points], training losses, not normalised; NaN for diverged seeds.
      normaliser: Envelope of the task.
    """
    curves = np.asarray(losses, np.float64)
    curve_steps = np.asarray(steps, np.float64)
    means = curves.mean(axis=0)
    ratios = equivalent_steps(means, normaliser) / curve_steps[-1]
    return VeloScore(
        last=float(ratios[-1]),
        highest=float(ratios.max()),
        mean=float(ratios.mean()),
        last_step=float(curve_steps[-1]),
        num_seeds=len(curves),
        is_bound=bool(means[-1] < normaliser[1][-1]),
    )


def read_normaliser(path: Path) -> dict[str, Normaliser]:
    """Returns the envelopes in a file, by task. The file is JSON, gzipped or not, of `{task: [steps, losses]}`.

    Raises:
      UsageError: The file does not exist or has another format, steps do not increase, or losses increase.
    """
    where = str(path)
    expected = "JSON of {task: [steps, losses]}, gzipped or not"
    text = read_text(path)
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UsageError("cannot read the normaliser", where=where, got=str(error), expected=expected) from error
    if not isinstance(document, dict) or not document:
        raise UsageError("not a normaliser", where=where, got=type(document).__name__, expected=expected)
    return {task: _parse_normaliser(value, f"{where}: task {task!r}", expected) for task, value in document.items()}


def _parse_normaliser(value: object, where: str, expected: str) -> Normaliser:
    try:
        steps, losses = (np.asarray(row, np.float64) for row in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise UsageError("not a normaliser", where=where, got=str(error), expected=expected) from error
    if steps.ndim != 1 or steps.shape != losses.shape or steps.size < 2:
        shapes = f"{steps.shape} steps and {losses.shape} losses"
        raise UsageError("steps and losses do not belong together", where=where, got=shapes)
    if not (np.isfinite(steps).all() and np.isfinite(losses).all()):
        raise UsageError("a step or a loss is not finite", where=where)
    if (np.diff(steps) <= 0).any() or (np.diff(losses) > 0).any():
        raise UsageError("steps must increase and losses must not", where=where)
    return steps, losses


def read_curves(path: Path, normalisers: Mapping[str, Normaliser]) -> dict[str, VeloScore]:
    """Returns the score of each task in a CSV with the columns task, seed, step and loss.

    Raises:
      UsageError: As for `read_csv`; or a task has no normaliser, or a seed lacks a step or has it twice.
    """
    log = read_csv(path, text_columns=("task", "seed"), number_columns=("step", "loss"), row_name="loss")
    where = str(path)
    unknown_tasks = sorted({*log["task"]} - normalisers.keys())
    if unknown_tasks:
        raise UsageError(
            f"no normaliser of task {unknown_tasks[0]!r}",
            where=where,
            expected=f"one of its {counted(len(normalisers), 'task')}",
            next_step=suggestion(unknown_tasks[0], normalisers),
        )
    if not np.isfinite(log["step"]).all() or (log["step"] < 0).any():
        raise UsageError("a step is not a number >= 0", where=where)
    scores = {}
    for task, rows in log.groupby("task", sort=False):
        task_text = f"{where}: task {task!r}"
        if rows.duplicated(["seed", "step"]).any():
            seed, step = rows[rows.duplicated(["seed", "step"])].iloc[0][["seed", "step"]]
            raise UsageError(f"seed {seed} has step {step:g} twice", where=task_text)
        losses_by_seed = rows.pivot(index="seed", columns="step", values="loss")
        is_missing = rows.assign(known=1.0).pivot(index="seed", columns="step", values="known").isna().stack()
        if is_missing.any():
            seed, step = is_missing[is_missing].index[0]
            raise UsageError(f"seed {seed} has no step {step:g}, which another seed has", where=task_text)
        if not losses_by_seed.columns[-1] > 0:
            raise UsageError("the curve ends at step 0", where=task_text)
        scores[str(task)] = velo_score(losses_by_seed.columns, losses_by_seed.to_numpy(), normalisers[str(task)])
    return scores
