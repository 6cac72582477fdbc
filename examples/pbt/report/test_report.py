"""The report tasks."""

from __future__ import annotations

from lobench import cases


@cases("report.gin")
def test_report(case, evaluate):
    evaluate(case)
