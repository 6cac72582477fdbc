"""Dispatch of leases to workers, and handling of their answers."""

from __future__ import annotations

import dataclasses
import time

from lobench.core import planner
from lobench.core.planner import EvaluationId
from lobench.core.result import Curves, Outcome
from lobench.core.subject import Subject
from lobench.engine.checkpoints.spool import Spool
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.chief.subjects import Subjects
from lobench.engine.chief.worker_link import WatchWorkers, finished_event
from lobench.engine.workers.protocol import Job, JobResult

__all__ = ["Dispatch"]


class Dispatch:
    """Sends jobs to workers. The job of an optimizer without a theta names no file."""

    def __init__(self, subjects: Subjects, spool: Spool, workers: WatchWorkers, progress: WatchProgress) -> None:
        self._subjects = subjects
        self._spool = spool
        self._workers = workers
        self._progress = progress
        self._leases: dict[int, planner.Lease] = {}  # by worker
        # By evaluation that a worker gave back: the newest worker at that time. Those until then may have former files.
        self._workers_with_former_files: dict[EvaluationId, int] = {}
        self._theta_copies: dict[int, tuple[str, int]] = {}  # by worker: the spool's copy of the theta of its job

    @property
    def running_cases(self) -> tuple[str, ...]:
        """Cases that workers are evaluating, without duplicates."""
        cases = (lease.case for lease in self._leases.values())
        return tuple(dict.fromkeys(f"{case.suite}/{case.name}" for case in cases))

    def forget_lease(self, worker: int) -> None:
        """Forgets the worker's running job, which will return nothing."""
        if (lease := self._leases.pop(worker, None)) is not None:
            self._progress.given_up(lease.lease)

    def oom_event(self, worker: int, message: str, now: float) -> planner.Finished | None:
        """Returns the event that ends the lease of a worker killed for lack of memory; None if it had no lease."""
        lease = self._leases.get(worker)
        self.forget_lease(worker)
        if lease is None:
            return None
        return planner.Finished(worker, lease.lease, Outcome.OOM, now, message, replace_worker=True)

    def send_job(self, action: planner.Lease) -> planner.Finished | None:
        """Sends a job to a worker, or returns the event that ends its lease if the theta is no longer available."""
        evaluation = action.evaluation
        subject = self._subjects.first_sighting(evaluation)
        if not self._subjects.ensure_theta(evaluation):
            # The path comes first, so that equal errors of many checkpoints are shown once.
            text = f"{subject.uri}: its theta is gone: the spool lost its copy, and the file cannot be read any more"
            return planner.Finished(action.worker, action.lease, Outcome.EXPIRED, time.monotonic(), text)
        self._leases[action.worker] = action
        self._theta_copies[action.worker] = self._spool.copy_identity(evaluation.sha256)
        self._progress.evaluation_leased(action.lease, subject, action.case)
        job = Job(
            lease=action.lease,
            case_key=evaluation.case_key,
            seed_block=evaluation.block,
            checkpoint_uri=subject.uri,
            theta_path=self._theta_path(subject),
            companions=tuple(self._companion(evaluation_id) for evaluation_id in action.companions),
            code=self._subjects.known_cases(subject.variant.key)[evaluation.case_key].code,
            variant=subject.variant,
            outer_step=subject.outer_step,
            run=subject.run,
            generation=subject.generation,
            sha256=subject.sha256,
        )
        self._workers.run_job(action.worker, job)
        return None

    def result_event(
        self, worker: int, result: JobResult, now: float, *, rereads_files: bool = False
    ) -> tuple[planner.Finished, Curves | None]:
        """Returns a worker's result as an event, with its curves.

        An error does not count, and is retried, if the theta has disappeared from the spool. An error of a worker that
        has other code or gin files than the chief counts only if the worker was started after another had given back
        the same evaluation for this reason, because only then it should have the current files.

        Args:
          rereads_files: Whether such an error does not count in any case, because the files are read again: the watch
            restarts, or the run's `config.gin` cannot be parsed.
        """
        lease = self._leases.pop(worker, None)
        event, curves = finished_event(worker, result, now)
        leased_copy = self._theta_copies.pop(worker, None)
        is_void = (
            event.outcome is Outcome.ERROR
            and leased_copy is not None
            and leased_copy != self._spool.copy_identity(leased_copy[0])
        )
        if lease is not None and (result.other_code or result.other_gin):
            newest_worker = self._workers.newest_worker
            is_void |= rereads_files or worker <= self._workers_with_former_files.setdefault(
                lease.evaluation, newest_worker
            )
        if is_void:
            event, curves = dataclasses.replace(event, is_void=True), None
        if curves is None:  # an evaluation that ran out of memory is halved, and not recorded
            self._progress.given_up(event.lease)
        return event, curves

    def _companion(self, evaluation: EvaluationId) -> tuple[str, str]:
        self._subjects.ensure_theta(evaluation)  # restores the file if it is missing; workers skip a missing companion
        subject = self._subjects.first_sighting(evaluation)
        return subject.uri, self._theta_path(subject)

    def _theta_path(self, subject: Subject) -> str:
        return self._spool.copy_location(subject.sha256) if subject.has_theta else ""
