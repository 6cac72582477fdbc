"""How long cases take, as far as is known."""

from __future__ import annotations

from collections.abc import Mapping

from lobench.core.case import CaseInfo
from lobench.core.result import Outcome
from lobench.core.schedule.events import EvaluationId, Finished
from lobench.core.schedule.workers import Leased

__all__ = ["Durations"]

_GUESS_SECONDS = 1e-3  # an inner step of one seed of a case that never ran: only the order matters


class Durations:
    """The last one of each case.

    Args:
      recorded: Seconds by `CaseInfo.key`, as the ledger knows them.
    """

    def __init__(self, recorded: Mapping[str, float]) -> None:
        self._seconds = dict(recorded)

    def estimate(self, evaluation: EvaluationId, case: CaseInfo) -> float:
        return self._seconds.get(case.key, _GUESS_SECONDS * case.num_inner_steps * evaluation.block.size)

    def learn(self, leased: Leased, event: Finished) -> None:
        """Learns from a result; what a lease took says nothing where others were computed in it, or this in another."""
        is_alone = leased.together == 1 and not leased.is_kept
        seconds = event.now - leased.since if is_alone else event.seconds
        if event.outcome in (Outcome.PASSED, Outcome.FAILED) and seconds is not None:
            self._seconds[leased.case.key] = seconds

    def timed_out(self, case: CaseInfo) -> None:
        self._seconds[case.key] = case.timeout_seconds
