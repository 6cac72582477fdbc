"""Progress of commands that evaluate in rounds."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence

import pytest
from stores import case_info, curves

from lobench.api.rounds import MetricCheck, RoundProgress, RunningProgress
from lobench.api.utilisation import UtilisationProgress
from lobench.core.case import TEST, CaseInfo
from lobench.core.errors import UsageError
from lobench.core.result import Curves, Outcome
from lobench.core.subject import Subject
from lobench.engine.chief.interfaces import WatchProgress
from lobench.hookspecs import EvaluationFinished
from lobench.report.live.progress import PlainProgress, SilentProgress

ADAM = Subject.of_optimizer("adam()")


class Shown(WatchProgress):
    def __init__(self) -> None:
        self.lines = list[str]()

    def log(self, line: str) -> None:
        self.lines.append(line)

    def cases_known(self, cases: Sequence[CaseInfo]) -> None:
        self.lines.append("cases")


def test_progress_of_a_round_shows_problems_and_no_plans() -> None:
    shown = Shown()
    progress = RoundProgress(shown)
    progress.announce("evaluating 1 subject")
    progress.cases_known([case_info("a")])
    progress.log("a worker died")
    assert shown.lines == ["a worker died"]
    shown.announce("evaluating 1 subject")
    assert shown.lines[-1] == "evaluating 1 subject"


def test_progress_of_a_command_in_rounds_shows_what_is_compiled_and_reports_failures_itself() -> None:
    file = io.StringIO()
    shown = PlainProgress(file)
    progress = UtilisationProgress(RunningProgress(shown), devices=False)
    one, other = case_info("a"), case_info("b")
    progress.programs_planned({one.program_key, other.program_key})
    progress.evaluation_leased(1, ADAM, one)
    assert "compiling 1 of 2 programs" in shown._running.status_text()
    progress.log("a worker died")
    progress.given_up(1)
    assert shown._running.progress_rows() == [], "it runs again as another lease, or not at all"
    progress.evaluation_leased(1, ADAM, one)
    failed = EvaluationFinished(
        subject=ADAM, case=one, seed_block=one.blocks()[0], outcome=Outcome.ERROR, curves=None, message="no task"
    )
    progress.evaluation_finished(failed, 1)
    assert shown._running.progress_rows() == [] and file.getvalue() == ""


def test_progress_of_a_script_warns_of_results_that_are_kept() -> None:
    silent = SilentProgress()
    for progress in (silent, RoundProgress(silent), UtilisationProgress(silent, devices=False)):
        with pytest.warns(UserWarning, match="1 data file changed"):
            progress.warn("1 data file changed")
    shown = Shown()
    RoundProgress(shown).warn("1 data file changed")
    assert shown.lines == ["1 data file changed"]


def _finished(case: CaseInfo, found: Curves | None) -> EvaluationFinished:
    outcome = Outcome.ERROR if found is None else Outcome.PASSED
    return EvaluationFinished(
        subject=ADAM, case=case, seed_block=case.blocks()[0], outcome=outcome, curves=found, message=""
    )


def test_a_metric_that_is_missing_ends_a_run_once_every_case_has_a_result() -> None:
    shown, found = Shown(), curves({"train/loss": [1.0] * 4}, start=0)
    check = MetricCheck(shown, ["", "test/loss"])
    check.cases_known([case_info("a"), case_info("b")])
    check.warn("1 data file changed")
    assert shown.lines == ["cases", "1 data file changed"]
    check.evaluation_finished(_finished(case_info("a"), found), 1)
    check.evaluation_finished(_finished(case_info("b"), None), 2)
    check.evaluation_finished(_finished(case_info("b"), dataclasses.replace(found, problems=("test: no disk",))), 3)
    with pytest.raises(UsageError, match=r"'test/loss'; expected train/loss"):
        check.evaluation_finished(_finished(case_info("b"), found), 4)


def test_a_metric_that_some_case_has_or_a_test_may_record_ends_no_run() -> None:
    found = curves({"train/loss": [1.0] * 4}, start=0)
    test = dataclasses.replace(case_info("b"), evaluator=TEST)
    for cases, metric in (([case_info("a")], "train_loss"), ([case_info("a"), test], "test/loss")):
        check = MetricCheck(Shown(), [metric])
        check.cases_known(cases)
        for number, case in enumerate(cases):
            check.evaluation_finished(_finished(case, found), number)
