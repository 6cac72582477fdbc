"""Exit codes of `lobench`, the same in all commands. pytest keeps its own."""

from __future__ import annotations

import enum

__all__ = ["ExitCode"]


class ExitCode(enum.IntEnum):
    """Exit codes, each with its `meaning`. docs/automation.md has the same table."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "done; if there is a verdict, it is good"
    VERDICT = (
        1,
        "done, and the verdict is bad: an expectation failed, B regressed, baselines are stale, stores conflict",
    )
    USAGE = (
        2,
        "the command line, a file, a store or its disk is wrong: nothing was done, or finished work is kept; "
        "the message names the remedy",
    )
    ERROR = 3, "an evaluation, a command or a check had an error, or lobench itself has a fault: no verdict"
    BUDGET = 4, "the budget was too small: evaluations are left, or a search is undecided; the same command continues"
    INTERRUPTED = 130, "interrupted; nothing is lost, the same command continues"
    NO_READER = 141, "the reader of the output has closed it; nothing is lost, the same command continues"
