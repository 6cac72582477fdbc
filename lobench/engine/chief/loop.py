"""Event loop of the chief: evaluates given or found subjects and writes the results to a ledger and sinks."""

from __future__ import annotations

import math
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from lobench.core import planner
from lobench.core.admission import AdmissionPolicy, PerRun
from lobench.core.case import CaseInfo
from lobench.core.code import changed_code_line, split_code
from lobench.core.errors import LobenchError, SuiteError
from lobench.core.planner import Plan
from lobench.core.result import Curves, Outcome
from lobench.core.subject import RequestedSubject, Subject, Variant, is_of_any_run
from lobench.core.wording import counted, shortened_list
from lobench.engine.checkpoints.intake import Intake, skipped_line
from lobench.engine.checkpoints.source import NoSource
from lobench.engine.checkpoints.spool import Spool
from lobench.engine.chief.case_cache import RecordedCases
from lobench.engine.chief.commands import CommandRuns
from lobench.engine.chief.dispatch import Dispatch
from lobench.engine.chief.interfaces import ERRORS, Arrivals, WatchOptions, WatchPlan, WatchProgress, WatchSummary
from lobench.engine.chief.journal import Journal
from lobench.engine.chief.observers import Observers
from lobench.engine.chief.signals import Signals
from lobench.engine.chief.subjects import SubjectRecorder, Subjects, planned_sightings, was_finished
from lobench.engine.chief.variants import Variants
from lobench.engine.chief.worker_link import WatchWorkers, WorkerEvent
from lobench.engine.config.suite_files import SuiteFiles
from lobench.engine.store.delivery import Deliverer
from lobench.engine.store.ledger import Ledger
from lobench.engine.workers.protocol import Described, Failed, JobResult, Ready, Remark
from lobench.engine.workers.protocol import Progress as Step
from lobench.hookspecs import CheckpointReader, CheckpointSource, Executor, ExecutorCapacity, Notice, WorkerExited
from lobench.plugins import PluginManager

__all__ = ["Chief"]

_GRACE_SECONDS = 3.0  # time for evaluations to end; the next watch can repeat them
_COMMAND_GRACE_SECONDS = 10.0  # time for commands to end; otherwise a whole meta-training may be lost
_MAX_NAMED = 3  # most running evaluations and commands named in a line
_FLUSH_SECONDS = 30.0
_SILENT_SECONDS = 3.0  # wait for an incomplete checkpoint before the wait is logged
_IMMEDIATE_ACTIONS = (
    planner.StartWorker,
    planner.KillWorker,
    planner.Lease,
    planner.LeaseCommand,
    planner.CommandEnded,
)

# An event for the planner, and the result's curves, if it is a result.
_EventAndCurves = tuple[planner.Event, Curves | None]


class Chief:
    """Evaluates given subjects, and checkpoints that a source finds.

    Args:
      ledger: Ledger opened for writing.
      spool: Copies of thetas.
      source: Finds checkpoints. None: only given subjects are evaluated.
      given: Subjects named by the user. If the gin text of one is invalid, nothing runs.
      readers: Checkpoint readers by name.
      arrivals: Subjects and commands that arrive while it runs. None: no arrivals.
      known: Recorded cases of the suite.
      make_executor: Called when the first worker is needed, with a connection. Data on it must end the executor's
        `wait`.
      policy: Admission policy of checkpoints.
      max_cores: Number of cores that all workers may use together.
      max_gpus: Number of GPUs that all workers may use together.
      deliverer: Delivers results to sinks.
      manager: Plugin manager whose observing hooks are called.
      progress: Receives progress events.
      suite: Files of the suite.
      options: Options of the watch.
      run_variant: Returns the bindings of a checkpoint of the source, by its path.
      has_run_configs: Whether runs below the watched folder have their own bindings.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        spool: Spool,
        source: CheckpointSource | None,
        given: Sequence[RequestedSubject] = (),
        readers: Mapping[str, CheckpointReader],
        arrivals: Arrivals | None = None,
        known: RecordedCases,
        make_executor: Callable[[Connection], Executor],
        policy: AdmissionPolicy,
        max_cores: int,
        max_gpus: float,
        deliverer: Deliverer,
        manager: PluginManager,
        progress: WatchProgress,
        suite: SuiteFiles,
        options: WatchOptions,
        run_variant: Callable[[str], Variant] = lambda uri: Variant(),
        has_run_configs: bool = False,
        is_of_run: Callable[[Subject], bool] = is_of_any_run,
    ) -> None:
        self._is_of_run = is_of_run
        self._ledger, self._source, self._has_source = ledger, source or NoSource(), source is not None
        self._deliverer, self._observers = deliverer, Observers(manager, ledger, progress)
        self._progress = progress
        self._suite = suite
        self._options = options
        self._arrivals: Arrivals = arrivals or CommandRuns((), readers)
        self._intake = Intake(
            ledger=ledger,
            spool=spool,
            source=self._source,
            readers=readers,
            log=progress.log,
            only_newest=getattr(policy, "only_newest", False),
            run_variant=run_variant,
        )
        # If all runs are below the folder, its own config.gin need not name an optimizer.
        self._is_one_run = self._has_source and not has_run_configs
        self._subjects, self._arriving_subjects = (
            Subjects(self._intake),
            SubjectRecorder(self._intake, given, self._arrivals),
        )
        self._journal = Journal(ledger, options, self._subjects, suite)
        retried = ERRORS if options.retry_errors else ()
        self._history = ledger.history(
            self._journal.programs,
            retried=retried,
            keeps_code=options.keep_results,
        )
        start = planner.PlannerStart(
            max_cores=max_cores,
            max_gpus=max_gpus,
            together=options.together,
            history=self._history,
            at=time.time(),
        )
        self._planner = self._journal.make_planner(
            start, PerRun(policy, self._subjects.run_and_numbering), progress.log
        )
        wakeup_socket, self._waking_socket = socket.socketpair()
        for endpoint in (wakeup_socket, self._waking_socket):
            endpoint.setblocking(False)
        hours = options.max_core_hours
        max_core_seconds = math.inf if hours is None else hours * 3600
        self._workers = WatchWorkers(
            make_executor=make_executor,
            wakeup=Connection(wakeup_socket.detach()),
            logs=ledger.store / "logs",
            max_core_seconds=max_core_seconds,
            log=progress.log,
        )
        self._dispatch = Dispatch(self._subjects, spool, self._workers, progress)
        # Subjects of earlier runs, and whether these finished them, until `_announce_resumed`.
        self._resumed_subjects: list[tuple[Subject, bool]] = []
        self._leased_programs: set[str] = set()  # programs of all leases so far
        self._known_cases, self._variants = known, Variants(known, options.cases)
        self._own_events: list[planner.Event] = []  # caused by the chief's own actions
        self._ended_leases: list[planner.Finished] = []  # ended because the theta is gone
        self._new_sightings: list[tuple[int, Subject]] = []
        self._outcome_counts: dict[Outcome, int] = {}
        self._is_over_budget = self._has_suite_changed = self._has_cases = False
        self._accepted_evaluations = set[planner.EvaluationId]()  # results of other code that count
        self._running_commands: set[str] = set()  # names of running commands
        self._held_starts: dict[int, planner.StartWorker] = {}  # by worker: starts that wait for a valid `config.gin`
        self._logged_config_problem = ""
        self._signals = Signals()
        self._is_done = self._has_ended = False
        self._last_news_time = time.monotonic()
        self._awaited_since: dict[str, float] = {}  # by checkpoint: time since which the end of the run waits for it

    def run(self) -> WatchSummary:
        """Runs until the end of the run or until a signal arrives.

        Raises:
          SuiteError: The suites have no cases, or cases cannot be bound.
          LobenchError: Workers do not start.
        """
        try:
            with self._signals.counting(self._waking_socket.fileno()):
                try:
                    self._recover()
                    self._loop()
                finally:
                    self._commit()
                    self._arrivals.chief_ended()
                    self._journal.close()
                outstanding = self._deliverer.flush(_FLUSH_SECONDS, is_hurried=lambda: self._signals.count > 0)
                self._ledger.publish()
                self._intake.remove_released(self._subjects.needed_hashes)
        finally:
            self._workers.close()
            self._waking_socket.close()
        case_keys = self._subjects.case_keys()
        sha256s = self._subjects.hashes()
        if self._has_source:
            sightings = self._ledger.sightings()
            sha256s |= {
                sighting.sha256 for sighting in sightings.values() if sighting.has_theta and self._is_of_run(sighting)
            }
            superseded = self._ledger.superseded_subjects()
            present_hashes = {sighting.sha256 for sighting in sightings.values() if sighting not in superseded}
            sha256s -= {sighting.sha256 for sighting in superseded} - present_hashes
        return WatchSummary(
            outcomes=self._outcome_counts,
            recorded=self._ledger.outcome_counts(self._journal.programs, case_keys, sha256s, self._subjects.codes()),
            interrupted=self._signals.count > 0,
            over_budget=self._is_over_budget,
            num_left=self._planner.num_remaining,
            suite_changed=self._has_suite_changed,
            core_seconds=self._workers.core_seconds,
            behind=outstanding,
            earlier=self._deliverer.outstanding_at_start,
            plan=WatchPlan(
                subjects=self._subjects.all(),
                cases=self._subjects.cases_by_variant(),
                programs=frozenset(self._journal.programs),
            ),
            unread=self._intake.unread_reasons,
            unbound=self._intake.unbound_reasons,
        )

    def _recover(self) -> None:
        """Continues from the ledger's records, and plans the given subjects."""
        all_sightings = self._ledger.sightings()
        sightings = {position: subject for position, subject in all_sightings.items() if self._is_of_run(subject)}
        other_sightings = {
            position: subject for position, subject in all_sightings.items() if position not in sightings
        }
        if self._has_source:
            sightings = self._intake.with_current_configs(sightings)
        planned_entries = list(planned_sightings(sightings, self._history)) if self._has_source else []
        planned_entries += self._add_given_subjects()
        unfinished_sightings = [
            sighting
            for position, sighting in (sightings | other_sightings).items()
            if not was_finished(position, self._history)
        ]
        self._intake.recover(
            [subject for _, subject, is_done in planned_entries if not is_done], keep=unfinished_sightings
        )
        for position, subject, is_done in planned_entries:
            self._subjects.add(position, subject, is_needed=not is_done)
        planned_subjects = [
            (position, planned_subject)
            for position, planned_subject, is_done in planned_entries
            if not is_done or self._options.replan
        ]
        resumed_positions = {position for position, _, _ in planned_entries if position in sightings}
        if resumed_positions and not self._has_source:
            resumed_positions.update(position for position, _, _ in planned_entries)  # new ones count as not evaluated
        self._resumed_subjects = [
            (subject, is_done) for position, subject, is_done in planned_entries if position in resumed_positions
        ]
        self._variants.add([Variant()] if self._is_one_run else [])
        self._variants.add(subject.variant for _, subject in planned_subjects)
        recorded_cases = self._variants.all_recorded_cases((subject for _, subject in planned_subjects), self._history)
        self._record_plans(recorded_cases)
        self._report_cases(recorded_cases)
        for variant in self._variants:
            is_traced = self._options.traced and variant in self._arriving_subjects.given_variants
            self._workers.request_cases(variant, is_traced=is_traced, names=self._options.cases)
        for position, subject in planned_subjects:
            self._handle(planner.SubjectSeen(position, subject.key))
        self._run_commands()
        if not self._has_source and not self._arrivals.is_open:
            self._end_run()

    def _add_given_subjects(self) -> list[tuple[int, Subject, bool]]:
        """Returns the positions of the given subjects, the subjects, and whether each was finished before."""
        arrived_subjects = self._arriving_subjects.record_given(self._progress.log)
        for subject in (
            new_subject
            for position, new_subject in arrived_subjects.items()
            if position not in self._history.admissions
        ):
            self._observers.checkpoint_seen(subject)
        return [
            (position, given_subject, was_finished(position, self._history))
            for position, given_subject in arrived_subjects.items()
        ]

    def _run_commands(self) -> None:
        self._handle_all(
            [(planner.RunCommands(waiting_commands), None) for waiting_commands in self._arrivals.new_commands()]
        )

    def _loop(self) -> None:
        next_poll = 0.0
        quiet_polls = 0
        drain_deadline = 0.0
        was_announced = False
        poll_seconds = min(self._source.poll_seconds, 0.3) if self._options.once else self._source.poll_seconds
        while not self._is_done:
            now = time.monotonic()
            if self._signals.count and not drain_deadline:
                drain_deadline = now + self._log_stopping()
                self._handle(planner.Drain())
            if drain_deadline and (self._signals.count > 1 or now > drain_deadline):
                return
            if not self._is_over_budget and self._workers.is_over_budget:
                self._is_over_budget = True
                self._handle(planner.Drain())
            is_polling = not self._has_ended and not self._has_suite_changed and not drain_deadline
            if is_polling and (now >= next_poll or self._arrivals.has_new):
                num_found = self._poll()
                quiet_polls = 0 if num_found or self._intake.has_pending() else quiet_polls + 1
                next_poll = time.monotonic() + (0.0 if self._intake.num_unprocessed else poll_seconds)
                if not self._subjects and not was_announced and not self._options.once:
                    self._progress.log("no complete checkpoint yet; waiting")
                    was_announced = True
                self._log_awaited(now)
                self._maybe_end(quiet_polls)
            # After the last poll, only the workers are waited for, which uses no core.
            wait_seconds = max(next_poll - time.monotonic(), 0.0) if is_polling else 0.5
            is_hurried = self._is_done or self._own_events or (is_polling and self._arrivals.has_new)
            self._wait(0.02 if is_hurried else min(wait_seconds, 0.5))
            self._start_held_workers()
            self._workers.log_slow_starts()
            self._deliverer.write_progress()
            self._intake.remove_released(self._subjects.needed_hashes)

    def _log_stopping(self) -> float:
        """Logs which work the shutdown waits for, and returns the time limit in seconds."""
        seconds = _COMMAND_GRACE_SECONDS if self._running_commands else _GRACE_SECONDS
        running = [*sorted(self._running_commands), *self._dispatch.running_cases]
        waiting_text = (
            f"{shortened_list(running, _MAX_NAMED)} may end within {seconds:g} s" if running else "nothing runs"
        )
        self._progress.log(f"stopping: {waiting_text}; press Ctrl-C again to stop at once")
        return seconds

    def _log_awaited(self, now: float) -> None:
        """Logs each checkpoint for which the end of the run has been waiting for a while, once."""
        awaited_reasons = self._intake.awaited_reasons() if self._options.once else {}
        self._awaited_since = {uri: self._awaited_since.get(uri, now) for uri in awaited_reasons}
        for uri, waiting_since in self._awaited_since.items():
            if now - waiting_since > _SILENT_SECONDS:
                self._awaited_since[uri] = math.inf  # logged
                self._progress.log(f"waiting for {uri}: {awaited_reasons[uri]}")

    def _maybe_end(self, quiet_polls: int) -> None:
        if self._intake.num_unprocessed or self._arrivals.is_open:
            return
        idle_seconds = time.monotonic() - self._last_news_time
        highest_step = self._subjects.highest_step
        if self._options.is_enough(quiet_polls=quiet_polls, highest_step=highest_step, idle_seconds=idle_seconds):
            self._end_run()

    def _end_run(self) -> None:
        self._has_ended = True
        self._handle(planner.RunEnded())

    # Checkpoints.

    def _poll(self) -> int:
        num_found, sightings = self._intake.poll()
        arrived_subjects = self._arriving_subjects.record_new()
        new_subjects = [subject for _, subject in (*sightings, *arrived_subjects)]
        new_cases, unknown_variants = self._variants.add_subjects(new_subjects, self._history)
        self._record_plans(new_cases)
        self._report_cases(new_cases)
        for variant in unknown_variants:
            self._workers.request_cases(variant)
        self._run_commands()
        sightings += arrived_subjects
        if num_found:
            self._last_news_time = time.monotonic()
        self._new_sightings += sightings
        if self._new_sightings and self._is_suite_edited():
            return num_found  # the ledger has recorded them, and the next watch evaluates them
        if not self._intake.may_find_newer:  # until then the newest checkpoint would be missing from the choice
            for position, subject in self._new_sightings:
                if position in self._subjects:
                    self._subjects.release_unneeded(subject)
                    continue
                self._subjects.add(position, subject)
                if self._options.keep_results:
                    self._accept_code([subject])
                self._observers.checkpoint_seen(subject)
                self._handle(planner.SubjectSeen(position, subject.key))
            self._new_sightings.clear()
        return num_found

    def _is_suite_edited(self) -> bool:
        """Returns whether the suite was edited.

        If so, the watch ends after its running work, since workers have the old cases.
        """
        if not self._has_suite_changed and (file := self._suite.changed_file()):
            self._request_restart(f"{file} has changed")
        return self._has_suite_changed

    def _with_edited_file_names(self, result: JobResult) -> JobResult:
        """Adds the names of the differing files to a result that was computed by other code.

        If the files were edited on this machine, the watch begins again.
        """
        hashes_of_parts = [
            self._ledger.code_parts(code_part)
            for code in self._subjects.codes().values()
            for code_part in split_code(code)
        ]
        known_hashes = {name: value for hashes in hashes_of_parts if hashes for name, value in hashes.items()}
        names = [name for name, value in result.other_code.items() if known_hashes.get(name) != value]
        self._is_suite_edited()
        return replace(result, message=": ".join(filter(None, (result.message, shortened_list(names, _MAX_NAMED)))))

    def _request_restart(self, reason: str) -> None:
        self._has_suite_changed = True
        self._progress.log(f"{reason}: restarting with the present files")
        self._own_events.append(planner.Drain())

    def _wait(self, timeout: float) -> None:
        timeout = max(min(timeout, self._journal.commit_at - time.monotonic()), 0.0)
        messages = self._workers.wait(timeout)
        now = time.monotonic()
        events: list[_EventAndCurves] = [(event, None) for event in self._own_events]
        self._own_events.clear()
        for message in messages:
            events += self._events_of(message, now)
        events.append((planner.Tick(now), None))
        self._handle_all(events)
        if time.monotonic() >= self._journal.commit_at:
            self._commit()

    def _events_of(self, message: WorkerEvent, now: float) -> list[_EventAndCurves]:
        match message:
            case (_, Described() as described):
                if described.edited:
                    self._request_restart(f"{described.edited[0]} has changed")
                if described.edited or self._is_suite_edited():  # the cases may be of files that are edited by now
                    return []
                self._ledger.record_code(described.codes)
                self._suite.add_code_files(map(Path, described.code_files))
                if self._variants.differs_from_reported(described):
                    self._request_restart("the suite has other cases than it had")
                with self._ledger.transaction():  # one commit for the description and the plan
                    cases = self._variants.add_description(described)
                    self._record_plans(cases)
                self._report_cases(cases)
            case (worker, Ready()):
                return [(planner.WorkerReady(worker, now), None)]
            case (_, Failed(messages=messages, variant_key=variant)):
                if self._config_problem():
                    self._has_suite_changed = True  # the next round starts workers once the file can be used
                    self._own_events.append(planner.Drain())
                else:
                    self._refuse_subjects(variant, "; ".join(messages))
            case (_, Step(lease=lease, step=step)):
                self._progress.training_progressed(lease, step)
            case (worker, JobResult() as result):
                if result.other_code:
                    result = self._with_edited_file_names(result)
                elif result.other_gin:
                    self._is_suite_edited()
                rereads_files = self._has_suite_changed or (result.other_gin and bool(self._suite.config_problem()))
                return [self._dispatch.result_event(worker, result, now, rereads_files=rereads_files)]
            case WorkerExited(worker=worker, message=cause_text, is_oom=True) if (
                finished_event := self._dispatch.oom_event(worker, cause_text, now)
            ):
                return [(finished_event, None)]
            case WorkerExited(worker=worker, message=cause_text, lost=lost):
                self._dispatch.forget_lease(worker)
                return [(planner.WorkerDied(worker, now, cause_text, lost), None)]
            case ExecutorCapacity(machines=machines, limit=limit):
                sizes = tuple(planner.Size(int(num_cpus), num_gpus) for num_cpus, num_gpus in machines)
                return [(planner.Capacity(sizes, limit or math.inf), None)]
            case (_, Remark(line=line)) | Notice(message=line):
                self._progress.log(line)
        return []

    def _refuse_subjects(self, variant: str | None, reason: str) -> None:
        """Refuses the subjects whose cases cannot be bound; raises SuiteError if the run cannot continue without them.

        Runs below the watched folder wait until their `config.gin` changes.
        """
        subjects = self._subjects.with_variant(variant) if variant else []
        error = SuiteError(
            reason, where=", ".join(dict.fromkeys(repr(subject.run or subject.label) for subject in subjects))
        )
        num_refused = sum(self._arrivals.refuse_subject(subject, reason) for subject in subjects)
        if not num_refused:
            num_refused = self._intake.wait_for_configs(subjects, error)
        if not subjects or num_refused < len(subjects):
            raise error
        refused_cases = self._variants.refuse_variant(subjects[0].variant)
        self._record_plans(refused_cases)
        self._report_cases(refused_cases)

    def _report_cases(self, cases_by_variant: Mapping[str, tuple[CaseInfo, ...]]) -> None:
        for variant, cases in cases_by_variant.items():
            self._arrivals.register_cases(variant, cases)
        if self._options.keep_results:
            self._accept_code(self._subjects.all())
        first_cases = next(filter(None, cases_by_variant.values()), None)
        if first_cases is not None and not self._has_cases:
            self._has_cases = True
            self._progress.cases_known(first_cases)
        if cases_by_variant and self._resumed_variants() <= self._subjects.cases_by_variant().keys():
            self._announce_resumed()
        for variant, cases in cases_by_variant.items():
            self._handle(planner.CasesKnown(cases, variant))

    def _resumed_variants(self) -> set[str]:
        """Returns the keys of the variants whose cases `_announce_resumed` needs."""
        return {
            subject.variant.key for subject, is_done in self._resumed_subjects if not is_done or self._options.replan
        }

    def _announce_resumed(self) -> None:
        """Announces how many subjects of earlier runs need no evaluation by the present code, once."""
        resumed_subjects, self._resumed_subjects = self._resumed_subjects, []
        if not resumed_subjects:
            return
        plan = Plan(self._history)
        cases_by_variant = self._subjects.cases_by_variant()

        def is_evaluated(subject: Subject) -> bool:
            cases = cases_by_variant.get(subject.variant.key, ())
            is_missing = any(True for _ in plan.missing_evaluations(subject.sha256, cases))
            return bool(cases) and not is_missing and not plan.evaluations_to_retry(subject.sha256, cases)

        num_evaluated = sum(
            is_evaluated(subject) or (is_done and not self._options.replan) for subject, is_done in resumed_subjects
        )
        noun = "checkpoints" if self._has_source else self._arrivals.subjects_noun
        self._progress.announce(f"resuming: {noun} already evaluated: {num_evaluated:,} of {len(resumed_subjects):,}")

    def _accept_code(self, subjects: Sequence[Subject]) -> None:
        """Accepts results made by other code from now on (`--keep-results`), and logs the differences."""
        plan = Plan(self._history)
        cases = self._subjects.cases_by_variant()
        codes_by_evaluation = {
            evaluation: codes
            for subject in subjects
            for evaluation, *codes in plan.outdated_evaluations(subject.sha256, cases.get(subject.variant.key, ()))
            if evaluation not in self._accepted_evaluations
        }
        if codes_by_evaluation:
            self._accepted_evaluations |= codes_by_evaluation.keys()
            changes = [(stored_code, current_code) for stored_code, current_code in codes_by_evaluation.values()]
            self._progress.log(changed_code_line(changes, self._ledger.code_parts, is_kept=True))
            self._ledger.accept_code(changes)

    def _record_plans(self, cases_by_variant: Mapping[str, tuple[CaseInfo, ...]]) -> None:
        """Records the plans of this run, even if no evaluation is missing."""
        for variant, cases in cases_by_variant.items():
            self._subjects.register_cases(variant, cases)
            self._journal.record_current_plan(variant)

    # Decisions and actions.

    def _handle(self, event: planner.Event) -> None:
        self._handle_all([(event, None)])

    def _handle_all(self, events: Sequence[_EventAndCurves]) -> None:
        """Executes actions that need no record, and collects the others for `_commit`.

        Leases whose theta is lost end here too, so that thousands of them take one commit.
        """
        pending_events = deque(events)
        while pending_events:
            event, curves = pending_events.popleft()
            for action in self._planner.handle(event):
                if isinstance(action, _IMMEDIATE_ACTIONS):
                    self._execute(action, None)  # a worker must not wait for the disk
                else:
                    # Records without a lease (a deadline, a lost worker) have no curves.
                    if isinstance(action, planner.Reopen):
                        self._subjects.mark_needed(action.position)  # leases that follow do not wait for the commit
                    is_result = isinstance(action, planner.Record) and action.lease is not None
                    self._journal.add((action, curves if is_result else None))
            pending_events.extend((finished_event, None) for finished_event in self._ended_leases)
            self._ended_leases.clear()

    def _commit(self) -> None:
        if outdated_evaluations := self._planner.take_outdated():
            changes = [(stored_code, current_code) for _, stored_code, current_code in outdated_evaluations]
            self._progress.log(changed_code_line(changes, self._ledger.code_parts))
        for action, curves in (decisions := self._journal.commit()):
            self._execute(action, curves)
        if uris := [
            self._subjects[recorded_action.position].uri
            for recorded_action, _ in decisions
            if isinstance(recorded_action, planner.Skip)
        ]:
            self._progress.log(skipped_line(uris))
        if decisions:
            self._deliverer.wake()

    def _start_worker(self, action: planner.StartWorker) -> None:
        """Starts a worker, or holds it back while it would read a `config.gin` that cannot be used."""
        if self._is_suite_edited():  # a new worker would collect other cases
            return
        if problem := self._config_problem():
            self._held_starts[action.worker] = action
            if problem != self._logged_config_problem:
                self._progress.log(f"{problem}; workers start once the file can be used")
                self._logged_config_problem = problem
            return
        self._logged_config_problem = ""
        self._suite.record_state()
        self._known_cases.record_stamps()
        self._workers.start(action.worker, action.size)

    def _config_problem(self) -> str:
        """Returns why the run's `config.gin` cannot be used, if the watch waits for a valid file; else ""."""
        timeout = math.inf if self._options.idle_timeout is None else self._options.idle_timeout
        is_idle_too_long = time.monotonic() - self._last_news_time > timeout
        return "" if self._options.once or is_idle_too_long else self._suite.config_problem()

    def _start_held_workers(self) -> None:
        held_starts, self._held_starts = self._held_starts, {}
        for action in held_starts.values():
            self._start_worker(action)

    def _execute(self, action: planner.Action, curves: Curves | None) -> None:
        match action:
            case planner.StartWorker():
                self._start_worker(action)
            case planner.KillWorker(worker, _):
                self._dispatch.forget_lease(worker)
                if worker in self._held_starts:
                    del self._held_starts[worker]
                else:
                    self._workers.kill(worker)
            case planner.Lease():
                if action.case.program_key not in self._leased_programs:
                    self._leased_programs.add(action.case.program_key)
                    self._progress.programs_planned(self._planner.remaining_work.evaluations.keys())
                if (finished_event := self._dispatch.send_job(action)) is not None:
                    self._ended_leases.append(finished_event)
            case planner.LeaseCommand() if edited_file := self._arrivals.postponing_file(action.command):
                if not self._has_suite_changed:
                    self._request_restart(f"{edited_file} has changed")
                now = time.monotonic()
                reason = "its code was edited"
                self._own_events.append(planner.Finished(action.worker, action.lease, Outcome.ERROR, now, reason))
            case planner.LeaseCommand() | planner.CommandEnded():
                name = f"the command of {action.command.method}"
                (
                    self._running_commands.add
                    if isinstance(action, planner.LeaseCommand)
                    else self._running_commands.discard
                )(name)
                self._arrivals.execute(action, self._workers)
            case planner.Record():
                self._outcome_counts[action.outcome] = self._outcome_counts.get(action.outcome, 0) + 1
                for position in self._subjects.positions_needing(action.evaluation):
                    self._observers.evaluation_recorded(self._subjects[position], action, curves)
            case planner.RecordDeath(evaluation):
                case = self._subjects.case(evaluation.case_key)
                self._progress.log(f"a worker died in {case.suite}/{case.name}")
            case planner.Admit(position) | planner.Reopen(position):
                self._progress.subject_admitted(self._subjects[position])
            case planner.Forget(evaluations):
                self._progress.log(f"trying {counted(len(evaluations), 'evaluation')} again")
            case planner.Skip(position):
                self._subjects.mark_unneeded(position)
            case planner.FinishCheckpoint(position):
                self._subjects.mark_unneeded(position)
                self._arrivals.subject_finished(self._subjects[position])
                self._observers.checkpoint_finished(position, self._subjects[position], self._planner.remaining_work)
            case planner.Fail(message):
                raise LobenchError(message, next_step="see the workers' logs in the store's folder logs/")
            case planner.Done():
                self._is_done = True
