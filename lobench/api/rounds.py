"""Progress of commands that evaluate in rounds: one line per round."""

from __future__ import annotations

from lobench.engine.chief.interfaces import WatchProgress

__all__ = ["RoundProgress"]


class RoundProgress(WatchProgress):
    """Progress of a round that forwards problems, but not the round's plans and completed evaluations.

    Args:
      inner: Progress of the command, which logs a line per round.
    """

    def __init__(self, inner: WatchProgress) -> None:
        for name in ("log", "warn", "closed", "step", "leased", "finished", "grown"):
            setattr(self, name, getattr(inner, name))

    def announce(self, line: str) -> None:
        """Drops the line."""
