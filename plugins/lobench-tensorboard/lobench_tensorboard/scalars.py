"""Tags and values of scalars for TensorBoard. Values are those after the last inner step; the step is the outer step.

TensorBoard groups tags by their first component, and sorts groups by name, digits before letters:

    0_headline/score                          mean score over all cases; 1 is tuned Adam
    0_headline/score_of_<suite>               the same of one of several suites
    0_headline/verdicts_passed                fraction of the evaluations whose expectations hold
    0_headline/alarm/<kind>                   size of the harm or of the trend that an alarm is about
    <suite>/<case>/score
    <suite>/<case>/<split>/<metric>           mean over seeds; NaN if a seed diverged, to keep it visible
    zz_diagnostics/<suite>[/<case>]/diverged  number of seeds that diverged
    zz_diagnostics/<suite>[/<case>]/exploded  number of others whose primary loss ended above twice its start
    zz_diagnostics/<suite>/not_evaluated      number of evaluations without curves
    zz_diagnostics/<suite>/outcomes/<outcome> number of evaluations; other outcomes than passed and failed if any
    zz_intervals/<tag>_lower, <tag>_upper     95% interval of scores and of each case's primary metric

The layout of the tab Custom Scalars draws the bounds around their value, in one chart instead of three.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorboard.plugins.custom_scalar import layout_pb2

from lobench.extend import Group, Number

__all__ = ["TagChart", "charts_in", "charts_of", "layout_of", "scalars_of"]

_HEADLINE = "0_headline"
_DIAGNOSTICS = "zz_diagnostics"
_INTERVALS = "zz_intervals"
_SCORES = "Scores"

TagChart = tuple[str, str]  # title of its category, and the tag that it shows with bounds


def scalars_of(numbers: Sequence[Number]) -> list[tuple[str, float]]:
    """Returns (tag, value) of each scalar of some numbers."""
    scalars: list[tuple[str, float]] = []
    for number in numbers:
        tag = _tag(number)
        scalars.append((tag, number.value))
        if number.has_chart:
            scalars += zip(_bounds(tag), (number.lower, number.upper), strict=True)
    return scalars


def charts_of(numbers: Sequence[Number]) -> set[TagChart]:
    """Returns the charts of those numbers that have bounds."""
    return {
        (number.suite if number.group is Group.CASES else _SCORES, _tag(number))
        for number in numbers
        if number.has_chart
    }


def layout_of(charts: set[TagChart]) -> layout_pb2.Layout:
    """Returns the layout of Custom Scalars: a category of scores and one per suite, with a chart per tag."""
    layout = layout_pb2.Layout()
    for title in sorted({title for title, _ in charts}, key=lambda title: (title != _SCORES, title)):
        category = layout.category.add(title=title)
        for tag in sorted(tag for category_title, tag in charts if category_title == title):
            chart = category.chart.add(title=tag.removeprefix(f"{_HEADLINE}/").removeprefix(f"{title}/"))
            lower, upper = _bounds(tag)
            chart.margin.series.add(value=tag, lower=lower, upper=upper)
    return layout


def charts_in(layout: layout_pb2.Layout) -> set[TagChart]:
    """Returns the charts of a layout made by `layout_of`."""
    return {
        (category.title, series.value)
        for category in layout.category
        for chart in category.chart
        for series in chart.margin.series
    }


def _tag(number: Number) -> str:
    if number.group is Group.HEADLINE:
        return f"{_HEADLINE}/{number.name}" + (f"_of_{number.suite}" if number.suite else "")
    path = "/".join(filter(None, (number.suite, number.case, number.name)))
    return path if number.group is Group.CASES else f"{_DIAGNOSTICS}/{path}"


def _bounds(tag: str) -> tuple[str, str]:
    prefix = f"{_INTERVALS}/{tag.removeprefix(f'{_HEADLINE}/')}"
    return f"{prefix}_lower", f"{prefix}_upper"
