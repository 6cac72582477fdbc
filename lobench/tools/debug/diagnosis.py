"""Diagnosis of a training by readable rules, from measurements of each step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from lobench.core.wording import counted

__all__ = [
    "KINDS",
    "DiagnosedStep",
    "Diagnosis",
    "NonFiniteLeaf",
    "Training",
    "TroubleKind",
    "diagnose",
    "first_unusual_input",
    "smoothed_losses",
    "update_ratios",
]

# Places of non-finite values, in the order in which a step computes them.
FaultLocation: TypeAlias = Literal[
    "parameters", "batch", "loss", "model_state", "gradient", "optimizer_state", "output"
]
TroubleKind: TypeAlias = Literal[
    "non_finite", "one_layer", "all_layers", "jump", "dead_layer", "underflow", "lost_updates", "frozen",
    "tiny_updates", "stall", "none",
]  # fmt: skip
KINDS: tuple[TroubleKind, ...] = get_args(TroubleKind)

InputRanges: TypeAlias = Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]]

_EXPLOSION_FACTOR = 10.0  # a loss of this many times its best is in trouble
_SINGLE_LAYER_FACTOR = 8.0  # a layer whose updates are this many times larger than all others' is at fault alone
_LOW_PRECISIONS = ("bfloat16", "float16")
_SMALL_RATIO = 0.01  # ratio of updates to weights below which a loss does not explode
_TINY_RATIO = 1e-6  # ratio of updates to weights below which nothing is learned
_LOCATION_TEXTS = {
    "parameters": "the parameters",
    "batch": "the batch",
    "loss": "the task's loss",
    "model_state": "the task's model state",
    "gradient": "the gradient",
    "optimizer_state": "the optimizer's state",
    "output": "the rule's output",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteLeaf:
    """Leaf with non-finite values: numbers of NaNs, infinities and all values."""

    location: FaultLocation
    leaf: str
    num_nan: int
    num_inf: int
    size: int

    @property
    def text(self) -> str:
        values = " and ".join(
            f"{count} {name}" for count, name in ((self.num_nan, "NaN"), (self.num_inf, "inf")) if count
        )
        leaf_text = f" {self.leaf}" if self.leaf else ""
        return f"{_LOCATION_TEXTS[self.location]}{leaf_text} ({values} of {counted(self.size, 'value')})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosedStep:
    """One inner step. Sizes are root mean squares, by leaf of the parameters.

    Attributes:
      step: Number of the step.
      loss: Loss of the batch. NaN if unknown.
      weights: Sizes of the parameters before the step.
      updates: Sizes of the updates.
      gradients: Sizes of the gradients.
      zero_fractions: Fraction of the gradient that is exactly 0.
      unmoved_fractions: Fraction of the values with a gradient that the step did not change.
      state_sizes: Largest absolute value, by leaf of the optimizer's state.
      non_finite_leaves: Leaves with non-finite values, in the order of computation.
      input_ranges: Lowest and highest value of each input of a learned rule, by leaf of theta.
    """

    step: int
    loss: float
    weights: Mapping[str, float]
    updates: Mapping[str, float]
    gradients: Mapping[str, float] = field(default_factory=dict)
    zero_fractions: Mapping[str, float] = field(default_factory=dict)
    unmoved_fractions: Mapping[str, float] = field(default_factory=dict)
    state_sizes: Mapping[str, float] = field(default_factory=dict)
    non_finite_leaves: tuple[NonFiniteLeaf, ...] = ()
    input_ranges: InputRanges = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Replayed training.

    Attributes:
      steps: The steps.
      dtypes: Dtypes by leaf of the parameters.
      num_inner_steps: Number of steps of the whole training; fewer may have been replayed.
      minimum: Lowest possible loss, `Case.minimum`.
      usual_ranges: Usual ranges of a learned rule's inputs. {} if unknown.
    """

    steps: tuple[DiagnosedStep, ...]
    dtypes: Mapping[str, str]
    num_inner_steps: int
    minimum: float = 0.0
    usual_ranges: InputRanges = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Diagnosis of what went wrong in a training.

    Attributes:
      kind: Kind of the trouble, "none" for a healthy training.
      place: Place of the first non-finite value. "" if all are finite.
      leaf: Leaf of the parameters or of the state that is affected. "" if all are.
      step: Step at which the trouble shows. None without trouble.
      onset: Last step before the trouble.
      line: The diagnosis in one sentence.
      facts: Further sentences.
    """

    kind: TroubleKind
    place: FaultLocation | Literal[""] = ""
    leaf: str = ""
    step: int | None = None
    onset: int | None = None
    line: str
    facts: tuple[str, ...] = ()


def diagnose(training: Training) -> Diagnosis:
    """Returns the verdict on a training of at least one step.

    Non-finite values come first, unless the training had exploded before. Then come a loss of ten times its best,
    layers that learn nothing, and a loss that no longer falls.
    """
    steps = training.steps
    non_finite_step = next((step for step in steps if step.non_finite_leaves), None)
    explosion_index = _explosion_start(training)
    if non_finite_step is not None and not _was_exploding(training, non_finite_step, explosion_index):
        diagnosis = _non_finite_diagnosis(training, non_finite_step)
    elif explosion_index is not None or non_finite_step is not None:
        diagnosis = _explosion_diagnosis(
            training,
            explosion_index if explosion_index is not None else _divergence_start(training, non_finite_step),
            non_finite_step,
        )
    else:
        diagnosis = _idle_diagnosis(training) or _stall_diagnosis(training)
    unusual_input = first_unusual_input(training)
    further_facts = []
    if unusual_input is not None and (diagnosis.step is None or unusual_input[0] <= diagnosis.step):
        further_facts.append(unusual_input[1])
    if diagnosis.kind in ("one_layer", "all_layers") and (idle_diagnosis := _idle_diagnosis(training)) is not None:
        further_facts.append(f"afterwards: {idle_diagnosis.line}")
    if unusual_input is not None and diagnosis.kind in ("one_layer", "all_layers", "stall") and further_facts:
        diagnosis = replace(diagnosis, line=f"{diagnosis.line}; {unusual_input[1]}")
    return replace(diagnosis, facts=(*diagnosis.facts, *further_facts))


def smoothed_losses(values: Sequence[float]) -> NDArray[np.float64]:
    """Returns means over the last few values, float64[num_steps]."""
    array = np.asarray(values, np.float64)
    width = max(1, min(10, len(array) // 20))
    with np.errstate(invalid="ignore"):
        running_sums = np.cumsum(np.concatenate([[0.0], array]))
        counts = np.minimum(np.arange(1, len(array) + 1), width)
        return np.asarray((running_sums[1:] - running_sums[np.arange(1, len(array) + 1) - counts]) / counts)


def update_ratios(training: Training, step: DiagnosedStep) -> dict[str, float]:
    """Returns the size of a step's update relative to the size of the weights, by leaf.

    Weights smaller than the median over the leaves count as that median. Otherwise a bias that begins at 0 would have
    an infinite ratio.
    """
    sizes = [size for size in step.weights.values() if math.isfinite(size)]
    median_size = float(np.median(sizes)) if sizes else 0.0
    return {leaf: update / max(step.weights[leaf], median_size, 1e-12) for leaf, update in step.updates.items()}


def first_unusual_input(training: Training) -> tuple[int, str] | None:
    """Returns the first step at which an input of the rule is a tenth outside its usual range, and a sentence on it."""
    for step in training.steps:
        for leaf, (low, high) in step.input_ranges.items():
            if leaf not in training.usual_ranges:
                continue
            usual_low, usual_high = training.usual_ranges[leaf]
            margin = 0.1 * np.maximum(usual_high - usual_low, 1e-6)
            excess = np.maximum(usual_low - margin - low, high - usual_high - margin) / np.maximum(
                usual_high - usual_low, 1e-6
            )
            if excess.max() > 0:
                number = int(excess.argmax())
                value = high[number] if high[number] > usual_high[number] else low[number]
                range_text = f"it lies in [{usual_low[number]:.3g}, {usual_high[number]:.3g}] where the rule is at home"
                return step.step, f"at step {step.step} input {number} of {leaf} is {value:.3g}, {range_text}"
    return None


def _explosion_start(training: Training) -> int | None:
    """Returns the index of the first step from which on the loss is ten times its best.

    Single batches vary, so medians of a few are compared.
    """
    losses = _losses(training)
    best_loss = math.inf
    width = max(1, min(21, len(losses) // 6))
    for index in range(len(losses)):
        median_loss = float(np.median(losses[max(index + 1 - width, 0) : index + 1]))
        if median_loss > _EXPLOSION_FACTOR * best_loss > 0:
            return _run_up_start(losses, index, best_loss)
        if math.isfinite(median_loss) and (index == 0 or index + 1 >= width):
            best_loss = min(best_loss, median_loss)
    return None


def _divergence_start(training: Training, non_finite_step: DiagnosedStep | None) -> int:
    """Returns the index of the step at which the training began to diverge, before its first non-finite value."""
    index = training.steps.index(non_finite_step) if non_finite_step is not None else 0
    losses = _losses(training)
    return _run_up_start(losses, index, float(np.median(losses[: max(index // 2, 1)])))


def _losses(training: Training) -> NDArray[np.float64]:
    return np.asarray([step.loss for step in training.steps], np.float64) - training.minimum


def _run_up_start(losses: NDArray[np.float64], index: int, best_loss: float) -> int:
    """Returns the step from which on, up to `index`, every loss is more than ten times the best one."""
    while index and not losses[index - 1] <= _EXPLOSION_FACTOR * best_loss:
        index -= 1
    return index


def _was_exploding(training: Training, non_finite_step: DiagnosedStep, explosion_index: int | None) -> bool:
    """Returns whether weights or losses had exploded before the first non-finite value."""
    if non_finite_step.non_finite_leaves[0].location in ("batch", "parameters", "model_state"):
        return False
    earlier_steps = [step for step in training.steps if step.step < non_finite_step.step]
    if not earlier_steps:
        return False
    if explosion_index is not None and training.steps[explosion_index].step < non_finite_step.step:
        return True
    last_step, first_step = earlier_steps[-1], earlier_steps[0]
    median_size = float(np.median([*first_step.weights.values()]))
    has_grown = [last_step.weights[leaf] > 100 * max(size, median_size) for leaf, size in first_step.weights.items()]
    return any(has_grown) or any(ratio > 1 for ratio in update_ratios(training, last_step).values())


def _non_finite_diagnosis(training: Training, non_finite_step: DiagnosedStep) -> Diagnosis:
    first_bad = non_finite_step.non_finite_leaves[0]
    line = f"at step {non_finite_step.step} the first value that is not finite is in {first_bad.text}"
    facts = [
        f"also at step {non_finite_step.step}: {further_bad.text}"
        for further_bad in non_finite_step.non_finite_leaves[1:5]
    ]
    if first_bad.location == "loss":
        line += ": parameters, state and batch are finite"
    previous_step = next((step for step in reversed(training.steps) if step.step == non_finite_step.step - 1), None)
    if (
        first_bad.location == "optimizer_state"
        and previous_step is not None
        and first_bad.leaf in previous_step.state_sizes
    ):
        state_sizes = [
            step.state_sizes.get(first_bad.leaf, math.nan)
            for step in training.steps
            if step.step < non_finite_step.step
        ]
        line += f"; before it was {state_sizes[-1]:.3g} at most"
        if state_sizes[-1] > 1e6 and first_bad.num_inf + first_bad.num_nan:
            line += f", and {state_sizes[0]:.3g} at step {training.steps[0].step}: it overflows"
    return Diagnosis(
        kind="non_finite", place=first_bad.location, leaf=first_bad.leaf, step=non_finite_step.step,
        onset=max(non_finite_step.step - 1, 0), line=line, facts=tuple(facts),
    )  # fmt: skip


def _explosion_diagnosis(training: Training, index: int, non_finite_step: DiagnosedStep | None) -> Diagnosis:
    """Returns the diagnosis of an explosion: the layers with too large updates when the loss was still good."""
    steps = training.steps
    onset = steps[max(index - 1, 0)]
    exploded_step = steps[index]
    # Only the updates just before the explosion count, because afterwards the updates of all layers are large.
    ratios: dict[str, float] = {}
    for step in steps[max(index - 3, 0) : max(index, 1)]:
        for leaf, ratio in update_ratios(training, step).items():
            ratios[leaf] = max(ratios.get(leaf, 0.0), ratio) if math.isfinite(ratio) else ratios.get(leaf, 0.0)
    leaf = max(ratios, key=ratios.__getitem__)
    other_ratios = [ratio for other_leaf, ratio in ratios.items() if other_leaf != leaf]
    other_ratio = float(np.median(other_ratios)) if other_ratios else 0.0
    is_alone = bool(other_ratios) and ratios[leaf] > _SINGLE_LAYER_FACTOR * other_ratio
    event_text = (
        f"the loss is {exploded_step.loss:.3g} at step {exploded_step.step}, {onset.loss:.3g} at step {onset.step}"
    )
    if not math.isfinite(exploded_step.loss) or non_finite_step is exploded_step:
        event_text = f"at step {exploded_step.step} values are no longer finite"
    if ratios[leaf] < _SMALL_RATIO and math.isfinite(exploded_step.loss):
        line = (
            f"{event_text}, though no update was larger than {ratios[leaf]:.2g} of the weights: "
            "the task or its data changed"
        )
        return Diagnosis(kind="jump", step=exploded_step.step, onset=onset.step, line=line)
    layers_text = f"of {leaf}" if is_alone else "of all layers"
    size = ratios[leaf] if is_alone else float(np.median([*ratios.values()]))
    line = f"{event_text}: the updates {layers_text} are too large, {size:.2g} times the weights at step {onset.step}"
    line += f", those of the other layers {other_ratio:.2g}" if is_alone else ""
    facts = (
        []
        if non_finite_step is None
        else [
            f"first value that is not finite, at step {non_finite_step.step}: "
            f"{non_finite_step.non_finite_leaves[0].text}"
        ]
    )
    kind: TroubleKind = "one_layer" if is_alone else "all_layers"
    return Diagnosis(
        kind=kind, leaf=leaf if is_alone else "", step=exploded_step.step,
        onset=onset.step, line=line, facts=tuple(facts),
    )  # fmt: skip


def _start_of_condition(steps: Sequence[DiagnosedStep], is_met: Sequence[bool]) -> int | None:
    """Returns the step since which a condition holds; None if it does not hold for the last half of the steps."""
    start = len(steps)
    while start and is_met[start - 1]:
        start -= 1
    return steps[start].step if start <= len(steps) // 2 and len(steps) > 1 else None


def _idle_diagnosis(training: Training) -> Diagnosis | None:
    """Returns the diagnosis for a layer that learns nothing; None if all layers learn."""
    steps = training.steps
    for leaf, dtype in training.dtypes.items():
        is_low_precision = dtype in _LOW_PRECISIONS
        first_step = _start_of_condition(steps, [step.zero_fractions.get(leaf, 0.0) >= 1 for step in steps])
        if first_step is not None:
            kind: TroubleKind = "underflow" if is_low_precision else "dead_layer"
            why = f"it underflows in {dtype}" if is_low_precision else "the layer is dead"
            return _leaf_diagnosis(
                kind, leaf, first_step, f"the gradient of {leaf} is exactly 0 since step {first_step}: {why}"
            )
        first_step = _start_of_condition(steps, [step.unmoved_fractions.get(leaf, 0.0) >= 0.9 for step in steps])
        if first_step is not None and is_low_precision:
            line = f"updates of {leaf} are lost since step {first_step}: {dtype} rounds them away"
            share = steps[-1].unmoved_fractions[leaf]
            return _leaf_diagnosis("lost_updates", leaf, first_step, f"{line} ({share:.0%} of the weights do not move)")
    ratios = [max(update_ratios(training, step).values(), default=0.0) for step in steps]
    first_step = _start_of_condition(steps, [ratio < _TINY_RATIO for ratio in ratios])
    if first_step is not None:
        line = f"updates are {ratios[-1]:.2g} of the weights or less since step {first_step}: too small to learn"
        return _leaf_diagnosis("tiny_updates", "", first_step, line)
    for leaf in training.dtypes:
        first_step = _start_of_condition(steps, [step.unmoved_fractions.get(leaf, 0.0) >= 1 for step in steps])
        if first_step is not None and _others_move(steps, leaf):
            line = f"{leaf} is not updated since step {first_step}, though it has a gradient: the rule's output is 0"
            return _leaf_diagnosis("frozen", leaf, first_step, line)
    return None


def _others_move(steps: Sequence[DiagnosedStep], leaf: str) -> bool:
    """Returns whether other layers are updated at the last step."""
    return any(size > 0 for other_leaf, size in steps[-1].updates.items() if other_leaf != leaf)


def _leaf_diagnosis(kind: TroubleKind, leaf: str, first_step: int, line: str) -> Diagnosis:
    return Diagnosis(kind=kind, leaf=leaf, step=first_step, onset=max(first_step - 1, 0), line=line)


def _stall_diagnosis(training: Training) -> Diagnosis:
    losses = smoothed_losses([step.loss for step in training.steps]) - training.minimum
    if not np.isfinite(losses).all():  # the losses of rounds are unknown
        return Diagnosis(
            kind="none", line="no value that is not finite was found, and the batches' losses are not known"
        )
    first_loss = float(losses[0])
    best_loss = float(losses.min())
    is_near_best = losses <= best_loss + 0.02 * abs(first_loss - best_loss)
    best_step = training.steps[int(is_near_best.argmax())].step
    is_early = best_step <= training.steps[-1].step // 2 and len(training.steps) > 4
    if is_early and best_loss > 0.1 * first_loss:
        line = (
            f"the loss stalls at {best_loss + training.minimum:.3g} since step {best_step}; "
            "nothing odd was found in a layer"
        )
        return Diagnosis(kind="stall", step=best_step, onset=best_step, line=line)
    end_losses = [value + training.minimum for value in (first_loss, float(losses[-1]))]
    return Diagnosis(
        kind="none", line=f"no trouble found: the loss goes from {end_losses[0]:.3g} to {end_losses[1]:.3g}"
    )
