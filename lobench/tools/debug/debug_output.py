"""Output of `lobench debug`: text lines, a JSON record, a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

from lobench.core.case import SeedBlock
from lobench.core.errors import StoreError
from lobench.core.json_numbers import record_from
from lobench.core.wording import convert_errors, one_line
from lobench.drawing.svg import Chart, Series, format_number
from lobench.engine.whole_file import write_whole
from lobench.report.charts.sections import Figure, Section
from lobench.report.page.templates import render_template
from lobench.report.tables.text import text_table
from lobench.tools.debug.diagnosis import DiagnosedStep, Diagnosis, Training, update_ratios

__all__ = ["DebugRecord", "DebugResult", "debug_text", "write_debug_page"]


class LayerRecord(TypedDict):
    leaf: str
    dtype: str
    step: int
    weights: float
    gradient: float
    update: float
    update_over_weights: float
    zero_gradient: float
    unmoved: float


class DebugRecord(TypedDict):
    """`lobench debug`: diagnosis of a training.

    Its fields are the keys of the JSON document.
    """

    case: str
    trained_with: str
    seed: int
    block: str
    kind: str
    place: str
    leaf: str
    step: int | None
    onset: int | None
    verdict: str
    facts: list[str]
    difference: Annotated[
        float, "Largest difference between the curves of the replay and of the evaluation. 0: equal bits."
    ]
    num_steps: int
    layers: list[LayerRecord]
    command: str


_MOST_LINES = 8  # layers in a chart, the most conspicuous ones
_MOST_POINTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugResult:
    """Result of `debug`.

    Attributes:
      name: Name of the case, such as `quick/relu32`.
      trained_with: Path of the checkpoint, or text of the optimizer.
      seed: Seed of the training.
      block: Seeds that were trained together, such as `0+4`.
      training: The replayed training.
      verdict: Diagnosis of the training.
      difference: Largest difference between the curves of the replay and of the evaluation. 0: equal bits.
      home_note: Note that names the suite from which the usual ranges of inputs come. "": none.
      command: Command line that repeats the call.
    """

    name: str
    trained_with: str
    seed: int
    block: str
    training: Training
    verdict: Diagnosis
    difference: float
    home_note: str
    command: str

    @property
    def replay_note(self) -> str:
        """Sentence on whether the replay equals the evaluation."""
        if self.difference == 0:
            return "the replay's losses equal those of the evaluation bit for bit"
        return f"the replay's losses differ from those of the evaluation by {self.difference:.3g} at most"

    def to_record(self) -> DebugRecord:
        """Returns the record for `--format json`."""
        return record_from(
            DebugRecord,
            self,
            self.verdict,
            case=self.name,
            verdict=self.verdict.line,
            num_steps=len(self.training.steps),
            layers=_layer_records(self.training, self.verdict),
        )


def _displayed_step(training: Training, verdict: Diagnosis) -> DiagnosedStep:
    """Returns the step before the trouble, or the last one."""
    step_number = verdict.onset if verdict.onset is not None else training.steps[-1].step
    return next((step for step in training.steps if step.step == step_number), training.steps[-1])


def _layer_records(training: Training, verdict: Diagnosis) -> list[LayerRecord]:
    step = _displayed_step(training, verdict)
    ratios = update_ratios(training, step)
    return [
        {
            "leaf": leaf,
            "dtype": training.dtypes.get(leaf, ""),
            "step": step.step,
            "weights": size,
            "gradient": step.gradients.get(leaf, math.nan),
            "update": step.updates[leaf],
            "update_over_weights": ratios[leaf],
            "zero_gradient": step.zero_fractions.get(leaf, math.nan),
            "unmoved": step.unmoved_fractions.get(leaf, math.nan),
        }
        for leaf, size in step.weights.items()
    ]


def debug_text(result: DebugResult) -> str:
    """Returns the verdict, the facts, and the layers at the step before the trouble."""
    verdict = result.verdict
    rows = _layer_table(result)
    lines = [f"{result.name}, seed {result.seed}: {verdict.line}", *verdict.facts]
    step_note = ", before the trouble" if verdict.step is not None else ""
    lines.append(f"layers at step {_displayed_step(result.training, verdict).step}{step_note}")
    legend = (
        "weights, gradient, update: root mean squares of a layer's values; gradient 0: share of zeros in the gradient; "
        "update / weights: weights below the layers' median count as the median; "
        "unmoved: share of the values with a gradient that the step did not change"
    )
    end = [legend, f"{result.replay_note} ({_trained_seeds_text(result)})", f"again: {result.command}"]
    return "\n".join([*map(one_line, lines), text_table(rows, left={0, 1}), *map(one_line, end)])


def _trained_seeds_text(result: DebugResult) -> str:
    start, size = map(int, result.block.split("+"))
    return f"one program trained seeds {SeedBlock(start=start, size=size).seed_range_text}"


def _layer_table(result: DebugResult) -> list[list[str]]:
    rows = [["layer", "dtype", "weights", "gradient", "update", "update / weights", "gradient 0", "unmoved"]]
    for layer in _layer_records(result.training, result.verdict):
        sizes = [f"{layer[name]:.3g}" for name in ("weights", "gradient", "update", "update_over_weights")]
        rows.append([layer["leaf"], layer["dtype"], *sizes, f"{layer['zero_gradient']:.0%}", f"{layer['unmoved']:.0%}"])
    return rows


def write_debug_page(result: DebugResult, output: Path) -> None:
    """Writes the page atomically. It is self-contained, with plots."""
    rows = _layer_table(result)
    text = render_template(
        "debug.html",
        folder=Path(__file__).parent,
        title=f"{result.name}, seed {result.seed}",
        found=result,
        trained=_trained_seeds_text(result),
        shown=_displayed_step(result.training, result.verdict),
        columns=rows[0],
        rows=rows[1:],
        sections=_page_sections(result),
    )
    with convert_errors(OSError, StoreError, "cannot write the page", where=output):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(output, text)


def _page_sections(result: DebugResult) -> list[Section]:
    training = result.training
    layers = _layers_to_draw(training, result.verdict)
    figures = [_step_figure(result, "loss of the batch", "loss", [("loss", lambda step: step.loss)])]
    measures: list[tuple[str, str, Callable[[DiagnosedStep, str], float]]] = [
        ("updates over weights", "ratio", lambda step, leaf: update_ratios(training, step).get(leaf, math.nan)),
        ("gradient", "root mean square", lambda step, leaf: step.gradients.get(leaf, math.nan)),
        ("weights", "root mean square", lambda step, leaf: step.weights.get(leaf, math.nan)),
    ]
    for title, unit, measure in measures:
        figures.append(_step_figure(result, title, unit, [(leaf, _value_of_leaf(measure, leaf)) for leaf in layers]))
    states = sorted({leaf for step in training.steps for leaf in step.state_sizes})
    largest = sorted(states, key=lambda leaf: -max(step.state_sizes.get(leaf, 0.0) for step in training.steps))[
        :_MOST_LINES
    ]
    if largest:
        lines = [
            (leaf, _value_of_leaf(lambda step, leaf: step.state_sizes.get(leaf, math.nan), leaf)) for leaf in largest
        ]
        figures.append(_step_figure(result, "the optimizer's state", "largest absolute value", lines))
    inputs = sorted({leaf for step in training.steps for leaf in step.input_ranges})[:_MOST_LINES]
    if inputs:
        lines = [(leaf, _value_of_leaf(_largest_input, leaf)) for leaf in inputs]
        figures.append(_step_figure(result, "inputs of the learned rule", "largest absolute value", lines))
    return [
        Section(id="steps", title="Step by step", note="Log scales; a gap is 0 or not finite.", kind="small",
                figures=tuple(figures))
    ]  # fmt: skip


def _largest_input(step: DiagnosedStep, leaf: str) -> float:
    low, high = step.input_ranges.get(leaf, ((), ()))
    return max((abs(float(value)) for bound in (low, high) for value in bound), default=math.nan)


def _value_of_leaf(measure: Callable[[DiagnosedStep, str], float], leaf: str) -> Callable[[DiagnosedStep], float]:
    return lambda step: measure(step, leaf)


def _layers_to_draw(training: Training, verdict: Diagnosis) -> list[str]:
    """Returns the layers to draw: the one in trouble, and those with the largest updates."""
    ratios = update_ratios(training, _displayed_step(training, verdict))
    order = sorted(ratios, key=lambda leaf: (leaf != verdict.leaf, -ratios[leaf] if math.isfinite(ratios[leaf]) else 0))
    return order[:_MOST_LINES]


def _step_figure(
    result: DebugResult, title: str, unit: str, lines: Sequence[tuple[str, Callable[[DiagnosedStep], float]]]
) -> Figure:
    steps = result.training.steps
    stride = -(-len(steps) // _MOST_POINTS)
    trouble_step = result.verdict.step
    drawn_steps = [
        step
        for step in steps
        if step.step % stride == 0 or (trouble_step is not None and abs(step.step - trouble_step) <= 20)
    ]
    series = []
    for index, (label, measure) in enumerate(lines):
        values = [value if math.isfinite(value := measure(step)) and value > 0 else math.nan for step in drawn_steps]
        step_numbers = [float(step.step) for step in drawn_steps]
        series.append(Series(label=label, x=step_numbers, y=values, style=f"s{index % 8 + 1}"))
    if trouble_step is not None and (
        finite_values := [y_value for drawn_series in series for y_value in drawn_series.y if math.isfinite(y_value)]
    ):
        y_range = (min(finite_values), max(finite_values))
        series.append(Series(label="the trouble", x=(trouble_step, trouble_step), y=y_range, style="faint dashed"))
    trouble_text = f"The trouble shows at step {trouble_step}." if trouble_step is not None else "No trouble."
    ends_of_series = [f"{label} ends at {format_number(drawn_series.y[-1])}"
            for (label, _), drawn_series in zip(lines, series[: len(lines)], strict=True)
            if math.isfinite(drawn_series.y[-1])]  # fmt: skip
    chart = Chart(
        title=title, description=f"{trouble_text} {'; '.join(ends_of_series)}", x_label="inner step", y_label=unit,
        series=tuple(series), log_y=True,
    )  # fmt: skip
    return Figure(chart=chart, title=title)
