"""Last lines of `lobench watch` and `lobench run`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from shown import texts_of

from lobench.cli.endings import retry_lines
from lobench.core.result import Outcome
from lobench.engine.chief.interfaces import ERRORS, WatchPlan, WatchSummary
from lobench.experiments.run import ExperimentOutcome
from lobench.experiments.text import ending_lines

SHOWN = texts_of("watch")


def summary_with(recorded: Mapping[Outcome, int]) -> WatchSummary:
    """Returns the summary of a watch that found everything recorded."""
    return WatchSummary(
        outcomes={},
        recorded=recorded,
        interrupted=False,
        over_budget=False,
        num_left=0,
        suite_changed=False,
        core_seconds=0.0,
        behind={},
        earlier={},
        plan=WatchPlan(subjects=(), cases={}, programs=()),
        unread={},
        unbound={},
    )


@pytest.mark.parametrize("outcome", ERRORS)
def test_retry_lines_with_evaluations_without_result_name_the_option(outcome: Outcome) -> None:
    assert retry_lines(summary_with({Outcome.PASSED: 3, outcome: 1})) == [SHOWN["1-evaluation-gave-no-result"]]


def test_retry_lines_with_failed_expectations_are_empty() -> None:
    assert retry_lines(summary_with({Outcome.PASSED: 3, Outcome.FAILED: 1})) == []


def test_ending_of_an_experiment_with_a_failed_command_names_the_option_and_earlier_outcomes() -> None:
    outcome = ExperimentOutcome(
        store=Path("store"),
        name="x",
        experiment=1,
        ending=summary_with({Outcome.PASSED: 3, Outcome.ERROR: 1}),
        num_done=4,
        num_planned=4,
        trials={"mine-0": "failed", "mine-1": "done"},
    )
    assert ending_lines(outcome) == [
        "mine-0 failed",
        SHOWN["1-command-and-1-evaluation"],
        "done: 4 of 4 evaluations, nothing new; recorded before: 1 error; see `lobench results --store store --cases`",
    ]
