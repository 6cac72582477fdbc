"""Output of `lobench compare --rule track3`: text and a JSON record."""

from __future__ import annotations

import math
from typing import Annotated, TypedDict

from lobench.analysis.comparisons.track3 import JudgedResult, Track3
from lobench.analysis.stats.known_sigma import LOSS_PER_STEP, NEEDED, SIGMA, ZTest
from lobench.core.json_numbers import finite_or_none, record_from
from lobench.core.wording import counted, one_line
from lobench.report.tables.text import p_cell, text_table

__all__ = ["Track3Record", "track3_record", "track3_text"]


class Track3TestRecord(TypedDict):
    passed: bool
    difference: float
    statistic: Annotated[float, "Test statistic. The test passes at `assumes.needed` or more."]
    p_value: float


class Track3ResultRecord(TypedDict):
    method: str
    metric: str
    step: int
    runs: int
    mean: float
    test: Track3TestRecord
    deviation: Annotated[float | None, "Standard deviation of the runs. The rule assumes `assumes.sigma`."]
    deviation_p_value: Annotated[float | None, "p-value of this standard deviation under the assumed one."]
    student_p_value: Annotated[float | None, "p-value of a t-test, which uses the standard deviation of the runs."]
    earliest_step: Annotated[int | None, "First step at which these runs meet the rule."]
    runs_needed: Annotated[int | None, "Number of runs needed with this mean."]


class Track3PairRecord(TypedDict):
    old: str
    new: str
    steps_saved: int
    test: Track3TestRecord


class AssumedRecord(TypedDict):
    sigma: float
    needed: float
    loss_per_step: float


class Track3Record(TypedDict):
    """`lobench compare --rule track3`: accepted results, and results that beat the first one."""

    target: float
    results: list[Track3ResultRecord]
    pairs: list[Track3PairRecord]
    assumes: AssumedRecord


def track3_record(verdict: Track3) -> Track3Record:
    """Returns the record for `--format json`."""
    results = [_result_record(result) for result in verdict.results]
    pairs = [record_from(Track3PairRecord, pair, test=_test_record(pair.test)) for pair in verdict.pairs]
    assumes = AssumedRecord(sigma=SIGMA, needed=NEEDED, loss_per_step=LOSS_PER_STEP)
    return finite_or_none(Track3Record(target=verdict.target, results=results, pairs=pairs, assumes=assumes))


def _result_record(result: JudgedResult) -> Track3ResultRecord:
    return record_from(
        Track3ResultRecord,
        result,
        method=result.label,
        runs=len(result.losses),
        test=_test_record(result.test),
        deviation=result.deviation.value,
        deviation_p_value=result.deviation.p_larger,
        student_p_value=result.deviation.p_t_test,
        earliest_step=result.earliest,
    )


def _test_record(test: ZTest) -> Track3TestRecord:
    return record_from(Track3TestRecord, test, passed=test.is_passed)


def track3_text(verdict: Track3) -> str:
    """Returns the verdicts, a row for each result, and the assumptions of the rule."""
    rows = [("result", "step", "runs", "mean", "statistic", "p", "verdict", "earliest step", "runs needed", "sd")]
    for result in verdict.results:
        rows.append(
            (
                result.label,
                f"{result.step:,}",
                str(len(result.losses)),
                f"{result.mean:.5f}",
                f"{result.test.statistic:.5f}",
                p_cell(result.test.p_value),
                "ACCEPTED" if result.test.is_passed else "NOT ACCEPTED",
                "-" if result.earliest is None else f"{result.earliest:,}",
                "-" if result.runs_needed is None else str(result.runs_needed),
                "-" if math.isnan(result.deviation.value) else f"{result.deviation.value:.5f}",
            )
        )
    lines = [one_line("; ".join(f"{row[6]}: {row[0]}" for row in rows[1:]))]
    for pair in verdict.pairs:
        verb = "beats" if pair.test.is_passed else "is not shown to beat"
        saved_steps = counted(abs(pair.steps_saved), "step") + (" fewer" if pair.steps_saved >= 0 else " more")
        lines.append(
            one_line(f"{pair.new} {verb} {pair.old}: {saved_steps}, statistic {pair.test.statistic:.5f} of {NEEDED:g}")
        )
    lines += ["", text_table(rows, left={0, 6}), ""]
    lines += [
        f"accepted: ({verdict.target:g} - mean) x sqrt(runs) is {NEEDED:g} or more, which is p = .00105 if each run is "
        f"normal with a standard deviation of {SIGMA:g} and their number was planned",
        *(one_line(_spread_note(result)) for result in verdict.results if result.deviation.p_larger < 0.05),
    ]
    return "\n".join(lines)


def _spread_note(result: JudgedResult) -> str:
    deviation = result.deviation
    spread = f"sd {deviation.value:.5f}, p = {p_cell(deviation.p_larger)}"
    first_clause = f"{result.label}: its runs spread more than is assumed, {spread}"
    return f"{first_clause}; Student's test, with their own, has p = {p_cell(deviation.p_t_test)}"
