"""Replay of the training of one seed as it was evaluated, with measurements of each step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from lobench.core.case import CaseSpec, SeedBlock
from lobench.core.result import Curves
from lobench.engine.config.layers import Layers
from lobench.evaluation.programs import Programs, programs_kept_for_user
from lobench.evaluation.request import ThetaLeaves
from lobench.evaluation.runner import BlockRunner
from lobench.inner.theta import leaf_paths
from lobench.inner.training.replay import ReplayedProgram, ReplayedStep, ReplayState
from lobench.tools.debug.diagnosis import DiagnosedStep, FaultLocation, InputRanges, NonFiniteLeaf, Training, diagnose

__all__ = ["CaseReplay", "measure_ranges", "replay_case", "widen_ranges"]

_NUM_BAD_STEPS = 3  # steps to replay from the first non-finite value on


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseReplay:
    """Result of replaying the training of a seed.

    Attributes:
      training: The replayed training.
      block: Seeds that were trained together.
      difference: Largest difference between the curves of a normal evaluation and of the replay; NaNs are equal. 0:
        equal bits.
    """

    training: Training
    block: SeedBlock
    difference: float


def replay_case(layers: Layers, spec: CaseSpec, theta: ThetaLeaves, seed: int, *, task_index: int = 0) -> CaseReplay:
    """Trains the seed block of a seed twice: as in an evaluation, and step by step.

    Args:
      layers, spec, theta: As for a `BlockRunner`.
      seed: Any seed. Its block is one of the case's, or one of the same width.
      task_index: Index of the task among the seed's tasks, for a family.
    Raises:
      WrongThreads, ThetaMismatch, ConfigError: As for `BlockRunner.run`.
    """
    with programs_kept_for_user():
        return _replay(layers, spec, theta, seed, task_index)


def _replay(layers: Layers, spec: CaseSpec, theta: ThetaLeaves, seed: int, task_index: int) -> CaseReplay:
    runner = BlockRunner(layers)
    bound_case = runner.bind(spec, "", theta.own_bindings)
    block = block_with_seed(bound_case.info.blocks(), seed)
    runner.claim_backend_for(bound_case)
    program = Programs().warm_program(bound_case, block.size, ReplayedProgram).program
    assert isinstance(program, ReplayedProgram)
    matched_theta = runner.optimizer_theta(bound_case, theta)
    steps: list[DiagnosedStep] = []
    dtypes: dict[str, str] = {}
    num_bad_steps = 0

    def look(look: ReplayedStep) -> bool:
        nonlocal num_bad_steps
        dtypes.update({path: str(leaf.dtype) for path, leaf in leaf_paths(look.before.params).items()})
        steps.append(summarize_step(look))
        num_bad_steps += any(step.non_finite_leaves for step in steps[-1:])
        return num_bad_steps < _NUM_BAD_STEPS

    original_curves = program.run(matched_theta, block, settings=bound_case.settings.values, end=bound_case.case.end)
    assert original_curves is not None
    replayed_curves = program.replay(
        matched_theta,
        block,
        seed,
        look,
        settings=bound_case.settings.values,
        task_index=task_index,
        end=bound_case.case.end,
    )
    return CaseReplay(
        training=Training(
            steps=tuple(steps),
            dtypes=dtypes,
            num_inner_steps=bound_case.case.num_inner_steps,
            minimum=bound_case.case.minimum or 0.0,
        ),
        block=block,
        difference=_difference(original_curves, replayed_curves),
    )


def measure_ranges(layers: Layers, spec: CaseSpec, theta: ThetaLeaves, seed: int) -> InputRanges:
    """Returns the ranges of a rule's inputs in the training of one seed; {} for a rule without networks."""
    ranges: InputRanges = {}
    training = replay_case(layers, spec, theta, seed).training
    verdict = diagnose(training)
    end_step = verdict.step if verdict.kind in ("non_finite", "one_layer", "all_layers") else None
    for step in training.steps:
        if end_step is not None and step.step >= end_step:
            break  # inputs during an explosion are not usual
        ranges = widen_ranges(ranges, step.input_ranges)
    return ranges


def widen_ranges(ranges: InputRanges, further_ranges: InputRanges) -> InputRanges:
    """Returns for each input the smallest range that includes its ranges in both arguments."""
    widened_ranges = dict(ranges)
    for name, (low, high) in further_ranges.items():
        earlier_range = widened_ranges.get(name, (low, high))
        widened_ranges[name] = np.fmin(earlier_range[0], low), np.fmax(earlier_range[1], high)
    return widened_ranges


def block_with_seed(blocks: list[SeedBlock], seed: int) -> SeedBlock:
    """Returns the case's block that contains a seed, or else a new block as wide as the case's first block."""
    block_of_seed = next((block for block in blocks if seed in block.seeds), None)
    if block_of_seed is not None:
        return block_of_seed
    size = blocks[0].size
    start = seed - (seed - blocks[0].start) % size if seed >= blocks[0].start else seed
    return SeedBlock(start=start, size=size)


def summarize_step(replayed_step: ReplayedStep) -> DiagnosedStep:
    """Summarizes the values of one step."""
    weights_before = leaf_paths(replayed_step.before.params)
    weights_after = leaf_paths(replayed_step.after.params)
    observed_values = replayed_step.observed
    gradients = leaf_paths(observed_values.get("gradient", {}))
    updates, unmoved, zeros = {}, {}, {}
    for path, leaf in weights_before.items():
        old_values = _as_float64(leaf)
        new_values = _as_float64(weights_after[path])
        with np.errstate(invalid="ignore", over="ignore"):
            updates[path] = _rms(new_values - old_values)
        if path in gradients:
            has_gradient = _as_float64(gradients[path]) != 0
            zeros[path] = 1 - float(has_gradient.mean()) if has_gradient.size else 0.0
            unmoved[path] = float((new_values == old_values)[has_gradient].mean()) if has_gradient.any() else 0.0
    loss = float(observed_values["loss"]) if "loss" in observed_values else math.nan
    return DiagnosedStep(
        step=replayed_step.step,
        loss=loss,
        weights={path: _rms(_as_float64(leaf)) for path, leaf in weights_before.items()},
        updates=updates,
        gradients={path: _rms(_as_float64(leaf)) for path, leaf in gradients.items()},
        zero_fractions=zeros,
        unmoved_fractions=unmoved,
        state_sizes={
            path: _largest_finite(leaf)
            for path, leaf in leaf_paths(replayed_step.after.opt_state).items()
            if _is_float(leaf)
        },
        non_finite_leaves=tuple(_non_finite_leaves(replayed_step.before, replayed_step.after, observed_values)),
        input_ranges=observed_values.get("inputs", {}),
    )


def _non_finite_leaves(
    state_before: ReplayState, state_after: ReplayState, observed_values: Mapping[str, Any]
) -> Iterator[NonFiniteLeaf]:
    """Yields the leaves with non-finite values, in the order in which the step computes them."""
    trees_by_source: tuple[tuple[FaultLocation, Any], ...] = (
        ("parameters", state_before.params),
        ("batch", observed_values.get("batch")),
        ("loss", observed_values.get("loss")),
        ("model_state", state_after.model_state),
        ("gradient", observed_values.get("gradient")),
        ("optimizer_state", state_after.opt_state),
        ("output", state_after.params),
    )
    for source, tree in trees_by_source:
        for path, leaf in leaf_paths(tree).items():
            if not _is_float(leaf):
                continue
            values = _as_float64(leaf)
            num_nan = int(np.isnan(values).sum())
            num_inf = int(np.isinf(values).sum())
            if num_nan + num_inf and not (
                source == "optimizer_state" and _was_non_finite(state_before, path, num_nan, num_inf)
            ):
                yield NonFiniteLeaf(location=source, leaf=path, num_nan=num_nan, num_inf=num_inf, size=values.size)


def _was_non_finite(state_before: ReplayState, path: str, num_nan: int, num_inf: int) -> bool:
    """Returns whether a leaf of the state had as many NaNs and infinities before. Some states start with infinities."""
    old_values = _as_float64(leaf_paths(state_before.opt_state)[path])
    return (int(np.isnan(old_values).sum()), int(np.isinf(old_values).sum())) == (num_nan, num_inf)


def _is_float(leaf: Any) -> bool:
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating))


def _as_float64(leaf: Any) -> np.ndarray:
    """Converts to float64, because NumPy has no bfloat16."""
    return np.asarray(leaf).astype(np.float64)


def _rms(values: np.ndarray) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(np.mean(values**2))) if values.size else 0.0


def _largest_finite(leaf: Any) -> float:
    values = np.abs(_as_float64(leaf))
    finite_values = values[np.isfinite(values)]
    return float(finite_values.max()) if finite_values.size else math.nan


def _difference(original_curves: Curves, replayed_curves: Curves) -> float:
    largest = 0.0 if original_curves.diverged_at == replayed_curves.diverged_at else math.inf
    for name, values in replayed_curves.metrics.items():
        original_values = np.asarray(original_curves.metrics[name], np.float64)
        replayed_values = np.asarray(values, np.float64)
        if not np.array_equal(np.isnan(original_values), np.isnan(replayed_values)):
            return math.inf
        with np.errstate(invalid="ignore"):
            largest = max(
                largest,
                float(
                    np.nanmax(
                        np.where(original_values == replayed_values, 0.0, np.abs(original_values - replayed_values)),
                        initial=0.0,
                    )
                ),
            )
    return largest
