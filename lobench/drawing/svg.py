"""SVG line charts, with colours from the page's style sheet, and their values for the page's script."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import ArrayLike, NDArray

from lobench.drawing.curves import spans_decades

__all__ = [
    "STYLES",
    "Chart",
    "Note",
    "Series",
    "all_line_styles",
    "curve_of_seeds",
    "format_number",
    "inner_chart",
    "needs_log_axis",
    "round_rows",
    "round_value",
    "round_values",
    "shortened",
]

STYLES = ("s1", "s2", "s4", "s5", "s6", "s7", "s8")  # styles of lines; s3 is reserved for the tuned baseline
_DASHES = ("", " dashed", " dotted")
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 12, 8, 38
_LETTER = 7.7  # width of the widest digit, in the widest font of the page's style sheet
_X_LETTERS = 14  # letters of a name below an axis
_MOST_LEFT = 0.42  # fraction of the width for names next to an axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Line, with a band if `lower` and `upper` are given. NaN interrupts both.

    Attributes:
      label: Label in the legend. "": no entry.
      x, y: Points.
      lower, upper: Bounds of the band. None: no band.
      style: Classes of the style sheet: s1, s2, ..., and `dashed` or `faint`.
      steps: Whether the line is a step function.
      dots: Whether points have markers.
      line: Whether points are joined.

    >>> Series(label="adam", x=[0.0, 1.0], y=[2.0, 1.0]).style
    's1'
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    lower: Sequence[float] | None = None
    upper: Sequence[float] | None = None
    style: str = "s1"
    steps: bool = False
    dots: bool = False
    line: bool = True


def all_line_styles() -> list[str]:
    """Returns the styles that distinguish methods, in the order of use."""
    return [f"{style}{dash}" for dash in _DASHES for style in STYLES]


def curve_of_seeds(label: str, steps: ArrayLike, values: ArrayLike, style: str) -> Series:
    """Returns the mean over the seeds, with a band from the lowest of them to the highest.

    Args:
      label: Label in the legend.
      steps: Steps, int[num_evals].
      values: Curves of the seeds, float[num_seeds, num_evals]; NaN from the step at which a seed diverged.
      style: Style of the line.
    """
    rows = np.asarray(values, np.float64)
    return Series(
        label=label,
        x=np.asarray(steps).tolist(),
        y=rows.mean(axis=0).tolist(),
        lower=np.fmin.reduce(rows).tolist(),
        upper=np.fmax.reduce(rows).tolist(),
        style=style,
    )


def inner_chart(case: str, metric: str, series: Sequence[Series], *, log_y: bool) -> Chart:
    """Returns a small chart of a case's curves over inner steps."""
    final_values = ", ".join(f"{line.label} {format_number(line.y[-1])}" for line in series)
    return Chart(
        title=f"{case}: {metric} over inner steps",
        description=f"Final values: {final_values}.",
        x_label="inner step",
        y_label=metric,
        series=tuple(series),
        log_y=log_y,
        width=360,
        height=230,
    )


def needs_log_axis(series: Sequence[Series]) -> bool:
    """Returns whether a log axis is useful: all values are positive and span decades."""
    return spans_decades([value for line in series for value in line.y])


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Text in a chart, centred above a point."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Line chart. Plugins and suites make it with these keywords.

    Attributes:
      title: Title of the chart.
      description: Alternative text for screen readers.
      x_label, y_label: Labels of the axes.
      series: Lines.
      log_x, log_y: Whether the axes are logarithmic.
      width, height: Size in pixels.
      y_range: Range of the y axis. None: the range of the values.
      x_names, y_names: Names at 0, 1, ... on an axis without numbers.
      rules: Positions of vertical axes inside the chart. Each has its own scale, so the chart has no data for scripts.
      notes: Texts in the chart.

    >>> series = (Series(label="adam", x=[0.0, 1.0], y=[2.0, 1.0]),)
    >>> Chart(title="Loss", description="", x_label="step", y_label="loss", series=series).width
    420
    """

    title: str
    description: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    width: int = 420
    height: int = 260
    y_range: tuple[float, float] | None = None
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()
    rules: tuple[float, ...] = ()
    notes: tuple[Note, ...] = ()

    def svg(self) -> Markup:
        """Returns the chart as markup, with all external text escaped."""
        y_axis = _Axis(self.y_range or self._axis_range("y"), self.log_y, self.height - _BOTTOM, _TOP, 5)
        y_ticks = _axis_ticks(y_axis, self.y_names, int(_MOST_LEFT * self.width / _LETTER))
        left_margin = max(_LEFT, *(8 + _LETTER * len(text) for _, text in y_ticks), 0)
        x_axis = _Axis(self._axis_range("x"), self.log_x, left_margin, self.width - _RIGHT, 5)
        shapes = [
            *self._grid_shapes(x_axis, y_axis, left_margin, y_ticks),
            *(shape for line in self.series for shape in _series_shapes(line, x_axis, y_axis)),
        ]
        shapes += self._rule_and_note_shapes(x_axis, y_axis)
        text = escape(f"{self.title}. {self.description}")
        data = Markup("")
        if not self.rules:  # charts with rules have several scales
            data = Markup(' data-chart="{}"').format(json.dumps(self.data(), allow_nan=False, separators=(",", ":")))
        body = Markup("").join(shapes)
        return Markup(
            f'<svg class="chart" viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{text}"'
            f"{data}>{body}</svg>"
        )

    def _axis_range(self, axis: str) -> tuple[float, float]:
        if names_of_axis := self.x_names if axis == "x" else self.y_names:
            return -0.4, len(names_of_axis) - 0.6
        names = ("x",) if axis == "x" else ("y", "lower", "upper")
        is_log = self.log_x if axis == "x" else self.log_y
        rows = [getattr(line, name) for line in self.series for name in names]
        values = [
            float(v) for row in rows if row is not None for v in row if math.isfinite(v) and (v > 0 or not is_log)
        ]
        if not values:
            return (0.1, 1.0) if is_log else (0.0, 1.0)
        low = min(values)
        high = max(values)
        if low == high:
            return (low / 2, high * 2) if is_log else (low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2)
        if axis == "x" and not self.y_names:  # keep points away from the names
            return low, high
        pad = 0.04 * (math.log(high / low) if is_log else high - low)
        return (low * math.exp(-pad), high * math.exp(pad)) if is_log else (low - pad, high + pad)

    def _grid_shapes(
        self, x_axis: _Axis, y_axis: _Axis, left_margin: float, y_ticks: Sequence[tuple[float, str]]
    ) -> list[Markup]:
        shapes = []
        right, bottom = self.width - _RIGHT, self.height - _BOTTOM
        for value, text in y_ticks:
            y = y_axis.pixel(value)
            shapes.append(Markup(f'<line class="grid" x1="{left_margin:.0f}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'))
            shapes.append(Markup(f'<text x="{left_margin - 5:.0f}" y="{y + 4:.1f}" class="end">{escape(text)}</text>'))
        for value, text in _axis_ticks(x_axis, self.x_names, _X_LETTERS):
            x = x_axis.pixel(value)
            # A long number at the right end would be cut off.
            anchor, x = ("end", self.width - 1) if x + _LETTER / 2 * len(text) > self.width else ("mid", x)
            shapes.append(Markup(f'<text x="{x:.1f}" y="{bottom + 16}" class="{anchor}">{escape(text)}</text>'))
        x_middle = (left_margin + right) / 2
        shapes.append(Markup(f'<line class="axis" x1="{left_margin:.0f}" x2="{right}" y1="{bottom}" y2="{bottom}"/>'))
        shapes.append(
            Markup(f'<text x="{x_middle:.0f}" y="{self.height - 5}" class="mid name">{escape(self.x_label)}</text>')
        )
        return shapes

    def _rule_and_note_shapes(self, x_axis: _Axis, y_axis: _Axis) -> list[Markup]:
        bottom = self.height - _BOTTOM
        x_of_rules = [f"{x_axis.pixel(x):.1f}" for x in self.rules]
        shapes = [Markup(f'<line class="axis" x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom}"/>') for x in x_of_rules]
        notes = [(x_axis.pixel(note.x), y_axis.pixel(note.y), escape(note.text)) for note in self.notes]
        return shapes + [
            Markup(f'<text x="{x:.1f}" y="{y:.1f}" class="mid noted">{note}</text>') for x, y, note in notes
        ]

    def data(self) -> dict[str, object]:
        """Returns the data for the page's script: the lines, with the digits that are shown."""
        lines = []
        for series in self.series:
            line: dict[str, object] = {
                "label": series.label,
                "style": series.style,
                "x": round_values(series.x),
                "y": round_values(series.y),
            }
            if series.lower is not None and series.upper is not None:
                line |= {"lower": round_values(series.lower), "upper": round_values(series.upper)}
            flags = {"steps": series.steps, "dots": series.dots, "alone": not series.line}
            lines.append(line | {name: True for name, is_set in flags.items() if is_set})
        axes: dict[str, object] = {"logX": self.log_x, "logY": self.log_y, "yRange": self.y_range}
        axes |= {"xNames": self.x_names, "yNames": self.y_names}
        texts: dict[str, object] = {"title": self.title, "x": self.x_label, "y": self.y_label, "height": self.height}
        return texts | {name: value for name, value in axes.items() if value} | {"lines": lines}


def round_values(values: ArrayLike) -> list[float | int | None]:
    """Returns `round_value` of each number; None for numbers that are not finite.

    Most numbers are rounded by numpy, because a page has half a million of them. That is exact, because four digits and
    a power of ten are exact in float64 and their quotient is correctly rounded. Numbers close to a tie, whole numbers,
    and very large or very small ones are rounded as text.
    """
    array = np.asarray(values, np.float64).ravel()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        num_decimals = 3 - np.floor(np.log10(np.abs(array)))
        can_vectorize = (num_decimals >= 0) & (num_decimals <= 22)
        power = 10.0 ** np.where(can_vectorize, num_decimals, 0)
        scaled_values = np.abs(array) * power
        digits = np.rint(scaled_values)
        can_vectorize &= (
            (digits >= 1000) & (digits <= 9999) & (np.abs(scaled_values - np.floor(scaled_values) - 0.5) > 1e-3)
        )
        quotients = np.copysign(digits / power, array)
        can_vectorize &= quotients != np.rint(quotients)
    rounded_numbers: list[float | int | None] = quotients.tolist()
    for index in np.flatnonzero(~can_vectorize).tolist():
        value = float(array[index])
        rounded_numbers[index] = round_value(value) if math.isfinite(value) else None
    return rounded_numbers


def round_rows(blocks: Sequence[NDArray[np.float64]]) -> list[list[list[float | int | None]]]:
    """Returns `round_values` of each row of each block, computed at once. Blocks are float64[num_rows, num_points]."""
    if not blocks:
        return []
    rounded_numbers = iter(round_values(np.concatenate([block.ravel() for block in blocks])))
    return [[list(itertools.islice(rounded_numbers, block.shape[1])) for _ in block] for block in blocks]


class _Axis:
    """Maps values to pixels, linearly or by their logarithms."""

    def __init__(
        self, value_range: tuple[float, float], is_log: bool, start: float, end: float, num_ticks: int
    ) -> None:
        self._range = value_range
        self._is_log = is_log
        self._start = start
        self._end = end
        self._num_ticks = num_ticks

    def can_show(self, value: float) -> bool:
        return math.isfinite(value) and (value > 0 or not self._is_log)

    def pixel(self, value: float) -> float:
        low, high = self._range
        share = (
            math.log(max(value, 1e-300) / low) / math.log(high / low) if self._is_log else (value - low) / (high - low)
        )
        # Points far outside are drawn at the edge, because SVG readers fail on huge numbers.
        return self._start + min(max(share, -0.05), 1.05) * (self._end - self._start)

    def ticks(self) -> list[float]:
        low, high = self._range
        if self._is_log:
            decades = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
            if len(decades) >= 2:
                stride = math.ceil(len(decades) / self._num_ticks)
                return [10.0**decade for decade in decades][::stride]
            return [float(f"{value:.1g}") for value in np.geomspace(low, high, 4)[1:]]
        unrounded_step = (high - low) / self._num_ticks
        magnitude = 10.0 ** math.floor(math.log10(unrounded_step))
        step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= unrounded_step)
        first_multiple = math.ceil(low / step - 1e-9)
        return [round(index * step, 12) for index in range(first_multiple, math.floor(high / step + 1e-9) + 1)]


def _axis_ticks(axis: _Axis, names: Sequence[str], max_letters: int) -> list[tuple[float, str]]:
    """Returns the positions and texts of an axis' ticks."""
    if names:
        return [(float(index), shortened(name, max_letters)) for index, name in enumerate(names) if name]
    return [(value, format_number(value)) for value in axis.ticks()]


def shortened(name: str, max_letters: int) -> str:
    """Returns the beginning and the end of a name, because settings of an optimizer differ there. As in `chart.js`."""
    return (
        name if len(name) <= max_letters else f"{name[: max_letters // 2]}…{name[len(name) - max_letters // 2 + 1 :]}"
    )


def _series_shapes(series: Series, x_axis: _Axis, y_axis: _Axis) -> list[Markup]:
    points = [
        (x_axis.pixel(x), y_axis.pixel(y)) if x_axis.can_show(x) and y_axis.can_show(y) else None
        for x, y in zip(series.x, series.y, strict=True)
    ]
    shapes = []
    if series.lower is not None and series.upper is not None:
        shapes += _band_shapes(series, x_axis, y_axis)
    if series.line:
        shapes.append(Markup(f'<path class="line {series.style}" d="{_path_data(points, series.steps)}"/>'))
    finite_points = [point for point in points if point is not None]
    if series.dots or len(finite_points) == 1:
        shapes += [
            Markup(f'<circle class="dot {series.style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>') for x, y in finite_points
        ]
    if series.line and not series.steps and finite_points and len(finite_points) < len(points) and points[-1] is None:
        x, y = finite_points[-1]
        cross = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0-8l-8 8"
        shapes.append(Markup(f'<path class="cross {series.style}" d="{cross}"/>'))
    return shapes


def _band_shapes(series: Series, x_axis: _Axis, y_axis: _Axis) -> list[Markup]:
    """Returns a polygon for each stretch without gaps, or a whisker for a stretch of one point."""
    assert series.lower is not None and series.upper is not None
    bounds = list(zip(series.x, series.lower, series.upper, strict=True))
    shapes = []
    for is_shown, stretch in itertools.groupby(bounds, lambda bound: _has_band(bound, y_axis)):
        if not is_shown:
            continue
        rows = [(x_axis.pixel(x), y_axis.pixel(low), y_axis.pixel(high)) for x, low, high in stretch]
        if len(rows) == 1:
            ((x, low, high),) = rows
            attributes = f'x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"'
            shapes.append(Markup(f'<line class="whisker {series.style}" {attributes}/>'))
            continue
        corners = [(x, high) for x, _, high in rows] + [(x, low) for x, low, _ in reversed(rows)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        shapes.append(Markup(f'<polygon class="band {series.style}" points="{points}"/>'))
    return shapes


def _has_band(point: tuple[float, float, float], y_axis: _Axis) -> bool:
    _, low, high = point
    return math.isfinite(low) and math.isfinite(high) and y_axis.can_show(low)


def _path_data(points: Sequence[tuple[float, float] | None], steps: bool) -> str:
    path_commands: list[str] = []
    previous: tuple[float, float] | None = None
    for point in points:
        if point is not None:
            x, y = point
            if previous is None:
                path_commands.append(f"M{x:.1f} {y:.1f}")
            else:
                path_commands.append(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}")
        previous = point
    return "".join(path_commands)


def format_number(value: float) -> str:
    """Formats a number for people: four digits, thousands separators, powers of ten for very large and small numbers.

    The scripts of the page have the same function in chart.js.
    """
    if not math.isfinite(value):
        return "n/a" if math.isnan(value) else ("∞" if value > 0 else "-∞")
    rounded_value = round_value(value)
    if isinstance(rounded_value, int):
        return f"{rounded_value:,}"
    mantissa, _, exponent = f"{rounded_value:.3e}".partition("e")
    return f"{rounded_value:g}" if -3 <= int(exponent) < 6 else f"{float(mantissa):g}e{int(exponent)}"


def round_value(value: float) -> float | int:
    """Rounds a finite number to the digits that `format_number` shows, which keeps the data of a page short."""
    short_value = float(value)
    if not (short_value.is_integer() and abs(short_value) < 1e6):
        short_value = float(f"{short_value:.4g}")
    return int(short_value) if short_value.is_integer() and abs(short_value) < 1e6 else short_value
