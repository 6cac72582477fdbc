"""Outcomes of ordinary tests on two sides, which `compare` reports apart from the means of metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from stores import case_info, curves

from lobench.analysis.comparisons.gates import Verdict
from lobench.analysis.comparisons.method_comparison import compare_subjects
from lobench.analysis.store.subjects import Cell, StoredSubject
from lobench.core.case import PASSED, TEST
from lobench.core.checkpoint import Checkpoint
from lobench.core.metric import Direction
from lobench.core.result import Outcome
from lobench.core.subject import Subject

LOSSES = (1.0, 1.2, 0.9, 1.1)


def cell(name: str, outcome: Outcome, values: Mapping[int, float], metric: str = PASSED) -> Cell:
    info = dataclasses.replace(case_info(name, len(values) or 1, primary_metric=metric), evaluator=TEST)
    block = curves({metric: [[value] for value in values.values()]}) if values else None
    return Cell(
        case=info,
        final_values={metric: values} if values else {},
        untrained_values={metric: values} if values else {},
        missing_seeds={} if values else {0: outcome.value},
        failures=((outcome, "it says why"),) if outcome is not Outcome.PASSED else (),
        curves_by_seed={seed: (block, seed) for seed in values} if block else {},
        directions={PASSED: Direction.MAX},
    )


def subject(step: int, outcomes: Mapping[str, Outcome], loss_outcome: Outcome = Outcome.PASSED) -> StoredSubject:
    """A checkpoint with tests of these outcomes, and one that records four losses."""
    cells = {"s/loss": cell("loss", loss_outcome, dict(enumerate(LOSSES)), "valid/loss")}
    for name, outcome in outcomes.items():
        value = {Outcome.PASSED: {0: 1.0}, Outcome.FAILED: {0: 0.0}}.get(outcome, {})
        cells[f"s/{name}"] = cell(name, outcome, value)
    who = Subject.of_checkpoint(Checkpoint(uri=f"theta_{step}.npz", sha256=f"{step:064x}", outer_step=step))
    return StoredSubject(subject=who, cells=cells, optimizer_hashes=frozenset({"o"}))


P, F, S = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED


def test_tests_without_metrics_are_in_no_mean_and_decide_by_their_outcomes() -> None:
    for ours, theirs, verdict, part in [
        ((P, P), (P, P), Verdict.PASS, "passed"),
        ((P, P), (P, F), Verdict.REGRESSED, "broken"),
        ((P, F), (P, P), Verdict.PASS, "fixed"),
        ((P, F), (P, F), Verdict.PASS, "failed"),
        ((P, P), (P, S), Verdict.INCONCLUSIVE, "unknown"),
        ((P, S), (P, F), Verdict.INCONCLUSIVE, "unknown"),
    ]:
        sides = [subject(step, dict(zip("xy", own, strict=True))) for step, own in enumerate((ours, theirs))]
        (found,) = compare_subjects(sides)
        assert (found.verdict, found.primary.metric) == (verdict, "valid/loss")
        assert "s/y" in getattr(found.tests, part)
        assert [one.case for one in found.primary.comparison.cases] == ["s/loss"]


def test_a_test_that_records_a_metric_and_fails_is_a_regression_whatever_its_values() -> None:
    (found,) = compare_subjects([subject(1, {}), subject(2, {}, Outcome.FAILED)])
    assert (found.verdict, found.primary.gate.verdict) == (Verdict.REGRESSED, Verdict.PASS)
    assert found.tests.broken == ("s/loss",)
