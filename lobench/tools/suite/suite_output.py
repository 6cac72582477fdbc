"""Output of `lobench suite`: text, a JSON record, a page."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, TypedDict

from lobench.core.errors import StoreError
from lobench.core.json_numbers import record_from
from lobench.core.wording import convert_errors, counted, one_line
from lobench.drawing.svg import Chart, Series
from lobench.engine.whole_file import write_whole
from lobench.report.charts.sections import Figure
from lobench.report.page.templates import render_template
from lobench.report.tables.text import text_table
from lobench.tools.suite.worth import LEAST_FOR_INTERVAL, CaseWorth, Subset, SuiteWorth

__all__ = ["SuiteRecord", "suite_record", "suite_text", "write_suite_page"]

_ALIKE_LEVEL = 0.05
_COLUMNS = ["case", "signal", "noise", "signal/noise", "correlation", "own", "seconds a seed", "seeds", ""]
_SIZES = ["cases", "rank correlation", "95% of splits", "cost", "with"]


class CaseRecord(TypedDict):
    name: str
    signal: Annotated[float, "Standard deviation of the methods' true means, without noise."]
    noise: Annotated[float, "Standard deviation between seeds, without the effect of a seed on all methods."]
    signal_to_noise: float
    p_value: Annotated[float, "p-value of the hypothesis that all methods are equal on the case."]
    is_informative: Annotated[bool, "Whether methods differ by more than seeds do."]
    correlation: Annotated[float, "Correlation of the methods' means with their means over the other cases."]
    own: Annotated[float, "Share of the signal that the other cases do not predict."]
    seconds: Annotated[float, "Seconds of one seed."]
    num_seeds: Annotated[int | None, "Number of seeds that this case alone needs to detect `difference`."]


class SubsetRecord(TypedDict):
    cases: list[str]
    rank_correlation: Annotated[
        float, "Rank correlation with the whole suite, on methods that were not used for the choice."
    ]
    lower: float
    upper: float
    share_of_cost: float


class SuiteRecord(TypedDict):
    """`lobench suite`: signal, noise and cost of each case, and subsets of cases that preserve the methods' order."""

    methods: list[str]
    cases: list[CaseRecord]
    subsets: Annotated[list[SubsetRecord], "Subsets by size. The last one has all cases."]
    chosen: Annotated[list[str] | None, "Smallest subset that preserves the order of the methods."]
    keep: float
    num_splits: int
    difference: Annotated[float, "Difference of two mean scores to detect."]
    num_seeds: int | None
    num_seeds_of_chosen: int | None
    left_out: Annotated[dict[str, str], "Reason by method or case that was left out."]


def suite_text(suite: SuiteWorth) -> str:
    """Returns the cases that keep the order of the methods, then tables of the cases and the subsets."""
    cases = text_table([_COLUMNS, *map(_case_row, suite.cases)], left={0, 8})
    subsets = text_table([_SIZES, *_subset_rows(suite)], left={4})
    return "\n".join([*map(one_line, _answer_lines(suite)), _page_title(suite), "", cases, "", subsets])


def suite_record(suite: SuiteWorth) -> SuiteRecord:
    """Returns the record for `--format json`."""
    names = [case.name for case in suite.cases]
    cases = [record_from(CaseRecord, case, is_informative=is_informative(case)) for case in suite.cases]
    subsets = [
        record_from(
            SubsetRecord,
            subset,
            cases=[names[case] for case in subset.cases],
            lower=subset.lower if has_interval(subset) else math.nan,
            upper=subset.upper if has_interval(subset) else math.nan,
        )
        for subset in suite.subsets
    ]
    chosen = None if suite.chosen is None else subsets[suite.chosen]["cases"]
    return record_from(SuiteRecord, suite, cases=cases, subsets=subsets, chosen=chosen)


def write_suite_page(suite: SuiteWorth, output: Path) -> None:
    """Writes the page atomically. It is self-contained, with plots."""
    text = render_template(
        "suite.html",
        folder=Path(__file__).parent,
        title="How much each case of a suite contributes",
        subtitle=_page_title(suite),
        lines=_answer_lines(suite),
        tables=[
            ("Cases", _COLUMNS, list(map(_case_row, suite.cases))),
            ("Subsets", _SIZES, _subset_rows(suite)),
        ],
        figures=[_signal_figure(suite), _subset_figure(suite)],
    )
    with convert_errors(OSError, StoreError, "cannot write the page", where=output):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(output, text)


def has_interval(subset: Subset) -> bool:
    """Returns whether a subset's rank correlation has an interval, which needs enough methods and a proper subset."""
    return subset.upper > subset.lower


def is_informative(case: CaseWorth) -> bool:
    """Returns whether the methods differ on a case by more than seeds do."""
    return not case.p_value > _ALIKE_LEVEL


def _page_title(suite: SuiteWorth) -> str:
    return f"{counted(len(suite.cases), 'case')} by {counted(len(suite.methods), 'method')}"


def _case_row(case: CaseWorth) -> list[str]:
    ratio = f"{case.signal_to_noise:.3g}"
    correlation = "-" if math.isnan(case.correlation) else f"{case.correlation:.2f}"
    seconds = "-" if math.isnan(case.seconds) else f"{case.seconds:.3g}"
    seeds = "-" if case.num_seeds is None else str(case.num_seeds)
    remark = "" if is_informative(case) else f"tells nothing (p = {case.p_value:.2g})"
    spreads = [f"{case.signal:.3f}", f"{case.noise:.3f}", ratio]
    return [case.name, *spreads, correlation, f"{case.own:.0%}", seconds, seeds, remark]


def _subset_rows(suite: SuiteWorth) -> list[list[str]]:
    rows = []
    for size, subset in enumerate(suite.subsets, 1):
        bounds = f"[{subset.lower:.3f}, {subset.upper:.3f}]" if has_interval(subset) else "-"
        added_case = suite.cases[subset.cases[-1]].name
        rows.append(
            [
                str(size),
                f"{subset.rank_correlation:.3f}",
                bounds,
                _cost_text(subset),
                f"{'+ ' * (size > 1)}{added_case}",
            ]
        )
    return rows


def _cost_text(subset: Subset) -> str:
    return "-" if math.isnan(subset.share_of_cost) else f"{subset.share_of_cost:.0%}"


def _answer_lines(suite: SuiteWorth) -> list[str]:
    all_cases_subset = suite.subsets[-1]
    if len(suite.methods) < LEAST_FOR_INTERVAL:
        lines = [
            f"no subset is offered: {counted(len(suite.methods), 'method')} give no interval of the rank correlation, "
            f"which takes at least {LEAST_FOR_INTERVAL}"
        ]
    elif suite.chosen is None:
        no_subset_line = (
            f"no smaller subset keeps the order of methods (rank correlation {suite.keep:g} in 95 of 100 splits)"
        )
        lines = [no_subset_line]
    else:
        subset = suite.subsets[suite.chosen]
        names = ", ".join(suite.cases[case].name for case in subset.cases)
        lines = [
            f"{counted(len(subset.cases), 'case')} of {len(all_cases_subset.cases)} keep the order of "
            f"methods: {names}; "
            f"rank correlation {subset.rank_correlation:.3f} [{subset.lower:.3f}, {subset.upper:.3f}] on methods that "
            f"did not choose them"
            + ("" if math.isnan(subset.share_of_cost) else f", at {_cost_text(subset)} of the cost")
        ]
    seeds_text = _seeds_text(suite.num_seeds, "all cases")
    if suite.chosen is not None:
        seeds_text += f", {_seeds_text(suite.num_seeds_of_chosen, 'the subset')}"
    lines.append(f"a difference of {suite.difference:g} between two mean scores needs {seeds_text}")
    uninformative = [case.name for case in suite.cases if not is_informative(case)]
    if uninformative:
        lines.append(f"methods do not differ by more than seeds do on {', '.join(uninformative)}")
    lines += [f"left out: {name} {why}" for name, why in suite.left_out.items()]
    return [*lines, *filter(None, [suite.other_code])]


def _seeds_text(count: int | None, extent: str) -> str:
    return f"more seeds than are feasible over {extent}" if count is None else f"{counted(count, 'seed')} over {extent}"


def _signal_figure(suite: SuiteWorth) -> Figure:
    order = sorted(suite.cases, key=lambda case: case.signal_to_noise)
    rows = [float(index) for index in range(len(order))]
    series = (
        Series(label="signal", x=[case.signal for case in order], y=rows, style="s1", dots=True, line=False),
        Series(label="noise", x=[case.noise for case in order], y=rows, style="s2", dots=True, line=False),
    )
    chart = Chart(
        title="Signal and noise",
        description="Spread between methods, and between seeds of one method, of each case.",
        x_label="standard deviation of scores",
        y_label="",
        series=series,
        y_names=tuple(case.name for case in order),
        height=max(160, 26 * len(order) + 60),
    )
    return Figure(chart=chart, title="Signal and noise", note="The case at the top separates methods best.")


def _subset_figure(suite: SuiteWorth) -> Figure:
    series = Series(
        label="rank correlation",
        x=[float(len(subset.cases)) for subset in suite.subsets],
        y=[subset.rank_correlation for subset in suite.subsets],
        lower=[subset.lower if has_interval(subset) else subset.rank_correlation for subset in suite.subsets],
        upper=[subset.upper if has_interval(subset) else subset.rank_correlation for subset in suite.subsets],
        dots=True,
    )
    chart = Chart(
        title="Subsets",
        description="Rank correlation of subsets with the whole suite, on methods that did not choose them.",
        x_label="cases",
        y_label="rank correlation",
        series=(series,),
    )
    note = f"On methods that did not choose; mean and 95% of {suite.num_splits} splits."
    return Figure(chart=chart, title="Subsets", note=note)
