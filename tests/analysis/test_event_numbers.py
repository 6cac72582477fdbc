"""What sinks write of an event: the numbers that reports show, under names that none begins another."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from commands import lobench
from report_store import NASTY, deliveries_of, make_baseline, make_store
from shown import texts_of

from lobench.analysis.comparisons.event_numbers import Group, Number, numbers_of, run_label
from lobench.hookspecs import CheckpointFinished, Delivery
from lobench.testing.sinks import sample_deliveries

SHOWN = texts_of("analysis")


def last(deliveries: list[Delivery]) -> CheckpointFinished:
    return [one.event for one in deliveries if isinstance(one.event, CheckpointFinished)][-1]


def by_key(numbers: list[Number]) -> dict[str, Number]:
    return {number.key: number for number in numbers}


def test_the_score_is_the_reports(tmp_path: Path) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path, with_last=True)
    found = numbers_of(last(deliveries_of(store)), [str(suite)])
    assert (found[0].group, found[0].key) == (Group.HEADLINE, "score")
    report = lobench("report", "--store", store, "--baseline", suite, "--format", "text").stdout
    score = found[0]
    assert f"{score.value:.3f} (95% [{score.lower:.3f}, {score.upper:.3f}]" in report
    cases = [number.value for number in found if number.case and number.name == "score"]
    assert score.value == pytest.approx(math.fsum(cases) / 3)


def test_a_case_without_a_baseline_leaves_no_score_but_its_others(tmp_path: Path) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path)
    found = numbers_of(last(deliveries_of(store)), [str(suite)])
    assert "score" not in by_key(found)
    assert {number.case for number in found if number.name == "score"} == {"case0", "case1"}
    assert not any(number.name == "score" for number in numbers_of(last(deliveries_of(store))))


def test_trouble_is_counted_and_no_mean_hides_a_seed_that_diverged(tmp_path: Path) -> None:
    found = by_key(numbers_of(last(deliveries_of(make_store(tmp_path)))))
    assert math.isnan(found["digits/case0/train/loss"].value)
    assert not found["digits/case0/train/loss"].has_chart
    assert found["diagnostics/case/digits/case0/diverged"].value == 1
    assert found["diagnostics/suite/digits/outcomes/failed"].value == 1
    assert found["verdicts_passed"].value == pytest.approx(2 / 3)
    case1 = found["digits/case1/train/loss"]
    assert dict(case1.values()).keys() == {case1.key, f"intervals/{case1.key}/lower", f"intervals/{case1.key}/upper"}
    assert f"digits/{NASTY}/test/loss" in found


def test_a_checkpoint_has_the_numbers_of_its_evaluations(tmp_path: Path) -> None:
    event = last(deliveries_of(make_store(tmp_path)))
    alone = [number for evaluation in event.evaluations for number in numbers_of(evaluation)]
    assert len({number.case for number in alone}) == 3
    assert list(map(repr, alone)) == [repr(number) for number in numbers_of(event) if number.case]


def test_a_run_is_called_after_the_folder_of_its_checkpoints(tmp_path: Path) -> None:
    store = tmp_path / "today" / "lobench_results" / "quick"
    delivery = sample_deliveries(1)[-1]
    assert delivery.event.checkpoint.generation == 1
    assert run_label(store, delivery) == SHOWN["today-generation-1"]
    assert run_label(tmp_path / "else", replace(delivery, run="trial_3")) == "else/trial_3 generation 1"
