"""Calls of plugins' observing hooks. If a hook raises, the error is logged with the plugin's name."""

from __future__ import annotations

from lobench.core import planner
from lobench.core.result import Curves
from lobench.core.subject import Subject
from lobench.core.wording import headline
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.store.delivery import notify
from lobench.engine.store.ledger import Ledger
from lobench.hookspecs import CheckpointSeen, EvaluationFinished
from lobench.plugins import PluginManager

__all__ = ["Observers"]

_SLOW_COMPILE_SECONDS = 30.0


class Observers:
    """Calls the observing hooks of plugins, and reports the progress of evaluations."""

    def __init__(self, manager: PluginManager, ledger: Ledger, progress: WatchProgress) -> None:
        self._manager = manager
        self._ledger = ledger
        self._progress = progress
        self._slow_cases: set[str] = set()  # cases whose slow compilation was logged
        self._logged_problems: set[str] = set()  # problems of plugins' metrics that were logged
        # Cases that were computed without other checkpoints, with the reason.
        self._cases_computed_alone: set[tuple[str, str]] = set()

    def checkpoint_seen(self, subject: Subject) -> None:
        notify(self._manager, "lobench_checkpoint_seen", CheckpointSeen(subject=subject), self._log_error)

    def evaluation_recorded(self, subject: Subject, action: planner.Record, curves: Curves | None) -> None:
        event = EvaluationFinished(
            subject=subject,
            case=action.case,
            seed_block=action.evaluation.block,
            outcome=action.outcome,
            curves=curves,
            message=action.message,
        )
        self._progress.evaluation_finished(event, action.lease)
        for problem in () if curves is None else curves.problems:
            if problem not in self._logged_problems:
                self._logged_problems.add(problem)
                self._progress.log(f"{action.case.suite}/{action.case.name}: {problem}")
        alone_because = "" if curves is None else curves.provenance.alone_reason
        if alone_because and (action.case.key, alone_because) not in self._cases_computed_alone:
            self._cases_computed_alone.add((action.case.key, alone_because))
            self._progress.log(f"{action.case.suite}/{action.case.name}: computed alone: {alone_because}")
        if (
            curves is not None
            and curves.compile_seconds > _SLOW_COMPILE_SECONDS
            and action.case.key not in self._slow_cases
        ):
            self._slow_cases.add(action.case.key)
            durations = f"{curves.compile_seconds:.0f} s to compile, {curves.wall_seconds:.3g} s to run"
            self._progress.announce(f"{action.case.suite}/{action.case.name} was slow to compile: {durations}")
        notify(self._manager, "lobench_evaluation_finished", event, self._log_error)

    def checkpoint_finished(self, position: int, subject: Subject, remaining: planner.RemainingWork) -> None:
        self._progress.subject_finished(subject, remaining)
        if self._manager.hook.lobench_checkpoint_finished.get_hookimpls():
            event = self._ledger.checkpoint_finished(position)
            notify(self._manager, "lobench_checkpoint_finished", event, self._log_error)

    def _log_error(self, where: str, error: BaseException) -> None:
        self._progress.log(f"{where}: {headline(error)}")
