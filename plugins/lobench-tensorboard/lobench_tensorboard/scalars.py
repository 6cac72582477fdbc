"""Which scalars an event gives, and by which tags. All are of the last inner step; the step of all is the outer step.

TensorBoard makes a group of what a tag begins with, and sorts groups by name, figures before letters:

    0_headline/score                          mean score over all cases; 1 is tuned Adam
    0_headline/score_of_<suite>               the same of one of several suites
    0_headline/verdicts_passed                share of the evaluations whose expectations hold
    0_headline/alarm/<kind>                   what an alarm is about: the harm, or the trend
    <suite>/<case>/score
    <suite>/<case>/<split>/<metric>           mean over seeds; NaN if one diverged, which must not vanish in a mean
    zz_diagnostics/<suite>[/<case>]/diverged  number of seeds that diverged
    zz_diagnostics/<suite>[/<case>]/exploded  number of others whose primary loss ended above twice its start
    zz_diagnostics/<suite>/not_evaluated      number of evaluations without curves
    zz_diagnostics/<suite>/outcomes/<outcome> number of evaluations; others than passed and failed where there are any
    zz_intervals/<tag>_lower, <tag>_upper     95%, of scores and of each case's primary metric

The bounds are drawn around their value by the layout of the tab Custom Scalars: a chart in place of three.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorboard.plugins.custom_scalar import layout_pb2

from lobench.extend import Group, Number

__all__ = ["Chart", "charts_in", "charts_of", "layout_of", "scalars_of"]

_HEADLINE, _DIAGNOSTICS, _INTERVALS = "0_headline", "zz_diagnostics", "zz_intervals"
_SCORES = "Scores"

Chart = tuple[str, str]  # its category's title, and the tag that it shows with its bounds


def scalars_of(numbers: Sequence[Number]) -> list[tuple[str, float]]:
    """Returns (tag, value) of what is written of some numbers."""
    found: list[tuple[str, float]] = []
    for number in numbers:
        tag = _tag(number)
        found.append((tag, number.value))
        if number.has_chart:
            found += zip(_bounds(tag), (number.lower, number.upper), strict=True)
    return found


def charts_of(numbers: Sequence[Number]) -> set[Chart]:
    """Returns the charts with bounds that some numbers have."""
    return {
        (number.suite if number.group is Group.CASES else _SCORES, _tag(number))
        for number in numbers
        if number.has_chart
    }


def layout_of(charts: set[Chart]) -> layout_pb2.Layout:
    """Returns the layout of Custom Scalars: a category of scores, then one a suite, with a chart for each tag."""
    layout = layout_pb2.Layout()
    for title in sorted({title for title, _ in charts}, key=lambda title: (title != _SCORES, title)):
        category = layout.category.add(title=title)
        for tag in sorted(tag for of, tag in charts if of == title):
            chart = category.chart.add(title=tag.removeprefix(f"{_HEADLINE}/").removeprefix(f"{title}/"))
            lower, upper = _bounds(tag)
            chart.margin.series.add(value=tag, lower=lower, upper=upper)
    return layout


def charts_in(layout: layout_pb2.Layout) -> set[Chart]:
    """Returns what `layout_of` was told."""
    return {
        (category.title, series.value)
        for category in layout.category
        for chart in category.chart
        for series in chart.margin.series
    }


def _tag(number: Number) -> str:
    if number.group is Group.HEADLINE:
        return f"{_HEADLINE}/{number.name}" + (f"_of_{number.suite}" if number.suite else "")
    place = "/".join(filter(None, (number.suite, number.case, number.name)))
    return place if number.group is Group.CASES else f"{_DIAGNOSTICS}/{place}"


def _bounds(tag: str) -> tuple[str, str]:
    place = f"{_INTERVALS}/{tag.removeprefix(f'{_HEADLINE}/')}"
    return f"{place}_lower", f"{place}_upper"
