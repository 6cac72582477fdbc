"""Progress of commands that evaluate in rounds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from stores import case_info

from lobench.api.rounds import RoundProgress
from lobench.api.utilisation import Measuring
from lobench.core.case import CaseInfo
from lobench.engine.chief.interfaces import WatchProgress
from lobench.report.live.progress import SilentProgress


class Shown(WatchProgress):
    def __init__(self) -> None:
        self.lines = list[str]()

    def log(self, line: str) -> None:
        self.lines.append(line)

    def cases(self, cases: Sequence[CaseInfo]) -> None:
        self.lines.append("cases")


def test_progress_of_a_round_shows_problems_and_no_plans() -> None:
    shown = Shown()
    progress = RoundProgress(shown)
    progress.announce("evaluating 1 subject")
    progress.cases([case_info("a")])
    progress.log("a worker died")
    assert shown.lines == ["a worker died"]
    shown.announce("evaluating 1 subject")
    assert shown.lines[-1] == "evaluating 1 subject"


def test_progress_of_a_script_warns_of_results_that_are_kept() -> None:
    silent = SilentProgress()
    for progress in (silent, RoundProgress(silent), Measuring(silent, devices=False)):
        with pytest.warns(UserWarning, match="1 data file changed"):
            progress.warn("1 data file changed")
    shown = Shown()
    RoundProgress(shown).warn("1 data file changed")
    assert shown.lines == ["1 data file changed"]
