"""Expectations of gin files on results."""

from __future__ import annotations

from lobench.core.case import Expectations
from lobench.core.wording import counted
from lobench.evaluation.result import Result

__all__ = ["failed_expectations"]


def failed_expectations(expectations: Expectations, result: Result) -> list[str]:
    """Returns a line for each expectation that the result does not meet; NaN meets none.

    The result has its case if the primary metric has bounds.
    """
    problems = []
    if expectations.no_divergence and result.diverged.any():
        problems.append(
            f"expect.no_divergence: {int(result.diverged.sum())} of {counted(len(result.seeds), 'seed')} diverged"
        )
    bounds = (
        ("max_final_loss", expectations.max_final_loss, "train/loss", 1.0),
        ("max_final_test_loss", expectations.max_final_test_loss, "test/loss", 1.0),
        ("min_final_accuracy", expectations.min_final_accuracy, "test/accuracy", -1.0),
        ("max_final", expectations.max_final, "", 1.0),
        ("min_final", expectations.min_final, "", -1.0),
    )
    for name, bound, metric, sign in bounds:
        if bound is None:
            continue
        if not metric:  # the expectation is about the primary metric
            assert result.case is not None
            metric = result.case.primary_metric
        value = float(result.final(metric).mean())
        if not sign * value <= sign * bound:
            problems.append(f"expect.{name} = {bound:g}: final {metric} is {value:.6g}")
    return problems
