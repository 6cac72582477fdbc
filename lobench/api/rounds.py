"""Progress of commands that evaluate in rounds: one line per round."""

from __future__ import annotations

import dataclasses

from lobench.core.result import Outcome
from lobench.engine.chief.interfaces import WatchProgress
from lobench.hookspecs import EvaluationFinished

__all__ = ["RoundProgress", "RunningProgress"]


class RoundProgress(WatchProgress):
    """Progress of a round that forwards problems but hides plans and completed evaluations.

    Args:
      inner: Progress of the command, which logs a line per round.
    """

    def __init__(self, inner: WatchProgress) -> None:
        for name in (
            "log",
            "warn",
            "closed",
            "programs_planned",
            "training_progressed",
            "evaluation_leased",
            "given_up",
            "evaluation_finished",
            "curves_extended",
        ):
            setattr(self, name, getattr(inner, name))

    def announce(self, line: str) -> None:
        """Drops the line."""


class RunningProgress(WatchProgress):
    """Progress of a round that shows running evaluations only. The command itself reports failures.

    Args:
      inner: Progress of the command.
    """

    def __init__(self, inner: WatchProgress) -> None:
        self._inner = inner
        for name in ("programs_planned", "training_progressed", "evaluation_leased", "given_up"):
            setattr(self, name, getattr(inner, name))

    def evaluation_finished(self, event: EvaluationFinished, lease: int | None) -> None:
        self._inner.evaluation_finished(dataclasses.replace(event, outcome=Outcome.PASSED, message=""), lease)

    def log(self, line: str) -> None:
        """Drops the line."""

    def warn(self, line: str) -> None:
        """Drops the line."""
