"""What `lobench watch` and `lobench run` say last of expectations that were not met."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lobench.core.headline import counted
from lobench.core.result import Outcome

if TYPE_CHECKING:
    from lobench.core.subject import Subject
    from lobench.engine.chief.contract import Ending
    from lobench.engine.store.ledger import EvaluationRow

__all__ = ["say_unmet"]

_MOST = 5

Say = Callable[[str, str], None]  # a line, and its colour or ""


def say_unmet(store: Path, ending: Ending, command_of: Callable[[Subject, EvaluationRow], str], say: Say) -> None:
    """Says of each expectation that was not met what it was, how the case went, and what evaluates it again.

    Args:
      command_of: Returns the command.
    """
    if not ending.recorded.get(Outcome.FAILED):
        return
    from lobench.report.failures import curve_lines
    from lobench.report.running import subject_name
    from lobench.sessions.repeated import unmet

    rows = unmet(store, ending)
    for row in rows[:_MOST]:
        subject = max(row.sightings, key=lambda one: one.outer_step)
        say(f"FAILED {row.case.suite}/{row.case.name}, {subject_name(subject)}: {row.message}", "red")
        curves = row.curves
        for line in curve_lines(row.case, [curves], row.message) if curves is not None else ():
            say(f"  {line}", "")
        say(f"  again: {command_of(subject, row)}", "")
    if len(rows) > _MOST:
        command = f"lobench results --store {shlex.quote(str(store))}"
        say(f"and {counted(len(rows) - _MOST, 'failure')} more: `{command}` has all", "")
